"""What the forward pass leaves for a backward program.

Saved buffers must hold what a forward program would have left, bit for bit. So one is
made here, with one core and a barrier behind each operator, and executed; which
schedule it is does not matter, since all legal ones give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hpc.interp.data import ROUTER, Data, make_data
from hpc.interp.forward_steps import needed_for
from hpc.interp.steps import Step, StepsError
from hpc.interp.values import execute
from hpc.schedule.layer import GATED_ACTIVATIONS, Layer
from hpc.schedule.model import (
    Barrier,
    Base,
    Buffer,
    Instr,
    Put,
    Queue,
    Region,
    Schedule,
    Task,
    Team,
)

Ids = Sequence[npt.NDArray[Any]]

_ALL_ROWS = 1 << 40
_SPACES = {"dispatch": "routed", "combine": "slot", "reduce": "token"}


def launch_data(schedule: Schedule, steps: Sequence[Step], ids: Ids) -> Data:
    """Inputs, weights and saved values that a launch of `schedule` starts from.

    `steps` say which operators the saved values are results of; one of which they do
    not tell is random. Raises `StepsError` if they need a weight that is not there.
    """
    by_name = {buffer.name: buffer for buffer in schedule.buffers}
    saved = [b.name for b in schedule.buffers if b.role == "saved"]
    wanted = needed_for(steps, saved)
    if not wanted:
        return make_data(schedule.layer, schedule.buffers)
    program = _program(schedule, wanted, saved)
    more = [b for b in program.buffers if b.name not in by_name]
    data = make_data(schedule.layer, (*schedule.buffers, *more))
    result = execute(program, ids, seed=0, data=data)
    for name, arrays in result.outputs.items():
        for rank, values in enumerate(arrays):
            if by_name[name].space == "slot":
                values[np.asarray(ids[rank]).reshape(-1) < 0] = np.nan
            data.save(name, rank, values)
    return data


def _program(
    schedule: Schedule, steps: Sequence[Step], outputs: Sequence[str]
) -> Schedule:
    """A forward program that carries out `steps` one after the other."""
    buffers = _buffers(schedule, steps, outputs)
    code: list[Instr] = []
    for step in steps:
        code += _instrs(schedule.layer, step, buffers[step.result])
        code.append(Barrier("world"))
    return replace(
        schedule,
        mode="forward",
        groups=(tuple(range(schedule.layer.ep)),),
        row_chunks=1,
        buffers=tuple(buffers.values()),
        events=(),
        queues=(Queue(Team("aic", 0, 1), tuple(code)),),
        locs=(),
    )


def _instrs(layer: Layer, step: Step, result: Buffer) -> Iterator[Instr]:
    """The instructions of one step, one for each expert where rows are routed."""
    base = Base(_ALL_ROWS, result.cols, 1)
    if step.op == "reduce":
        reads = [Region(step.args[0])]
        if layer.weights_at == "output":
            reads.append(Region(ROUTER))
        yield Task("reduce", tuple(reads), (Region(step.result),), base)
        return
    if result.space == "token":
        reads = tuple(Region(arg) for arg in step.args)
        yield Task(step.op, reads, (Region(step.result),), base, step.params)
        return
    for e in range(layer.local_experts):
        at = Region(step.result, e, 0)
        if step.op == "dispatch":
            scale = layer.weights_at == "input"
            source = Region(step.args[0])
            yield Put("dispatch", e, 0, 1, source, at, None, scale=scale)
        elif step.op == "combine":
            yield Put("combine", e, 0, 1, Region(step.args[0], e, 0), at, None)
        else:
            parts = (0, None) if step.op == "gmm" else (0,) * len(step.args)
            pairs = zip(step.args, parts, strict=True)
            reads = tuple(Region(arg, e, part) for arg, part in pairs)
            yield Task(step.op, reads, (at,), base, step.params)


def _buffers(
    schedule: Schedule, steps: Sequence[Step], outputs: Sequence[str]
) -> dict[str, Buffer]:
    """All buffers of the forward program; results are outputs or workspace."""
    layer = schedule.layer
    known = {buffer.name: buffer for buffer in schedule.buffers}
    results = {step.result for step in steps}
    widths = _widths(steps, known)
    spaces = {name: buffer.space for name, buffer in known.items()}
    for step in steps:
        own = spaces.get(step.args[0], "token")
        spaces[step.result] = _SPACES.get(step.op, own)
    found: dict[str, Buffer] = {}
    for name in dict.fromkeys(n for s in steps for n in (*s.args, s.result)):
        if name in known and known[name].space == "weight":
            found[name] = known[name]
            continue
        role = "input"
        if name in results:
            role = "output" if name in outputs else "workspace"
        space = spaces.get(name, "token")
        dtype = known[name].dtype if name in known else layer.dtype
        rows = max(layer.max_tokens, sum(layer.tokens)) * layer.top_k
        found[name] = Buffer(name, space, widths[name], dtype, role, rows)
    slots = layer.max_tokens * layer.top_k
    found[ROUTER] = Buffer(ROUTER, "slot", 1, "fp32", "input", slots)
    return found


def _widths(steps: Sequence[Step], known: dict[str, Buffer]) -> dict[str, int]:
    """Columns of every value. Those of the last results are known, being saved; with
    the weights, they tell those of all operands."""
    widths = {name: buffer.cols for name, buffer in known.items()}
    for step in reversed(steps):
        if step.op == "gmm":
            rows, weight = step.args
            if weight not in known:
                raise StepsError(f"no buffer {weight} to compute {step.result} with")
            widths.setdefault(rows, known[weight].rows)
            widths.setdefault(step.result, known[weight].cols)
            continue
        factor = 2 if step.op in GATED_ACTIVATIONS else 1
        for arg in step.args:
            widths.setdefault(arg, widths[step.result] * factor)
    return widths
