"""The operators of a layer as a plain list, for the reference implementation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hpc.interp.data import ROUTER
from hpc.schedule.model import Put, Region, Schedule, Task

Params = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One operator: `result = op(args)`.

    `op` is dispatch, gmm, combine, reduce, add or an activation, as in the language's
    flow, or what gradients need besides: gmm_nt, gmm_tn, an activation's name with
    "_grad", copy, or slot_dot, which multiplies each slot's row of its second operand
    with the token's row of the first.

    `args` name inputs, weights or earlier results, never the router. `weighted` says
    whether a dispatch or reduce multiplies by the router weights; None means that the
    layer's `weights_at` decides, as in the forward flow.
    """

    op: str
    result: str
    args: tuple[str, ...]
    params: Params = ()
    weighted: bool | None = None


class StepsError(ValueError):
    """The instructions of a schedule are not the work of a list of operators."""


def steps_of(schedule: Schedule) -> tuple[Step, ...]:
    """The operators that a schedule's instructions carry out, in dataflow order.

    For a schedule file that came without its spec. Every (operator, buffer written)
    is one step, however many tasks share it. Raises `StepsError` if the buffers depend
    on each other in a circle, or if one is written by different operators.
    """
    found: dict[str, Step] = {}
    for step in _instructions(schedule):
        first = found.setdefault(step.result, step)
        if first != step:
            raise StepsError(
                f"buffer {step.result} holds results of different operators: "
                f"{first.op} of {first.args}, {step.op} of {step.args}"
            )
    given = ("input", "weight", "saved")
    ready = {b.name for b in schedule.buffers if b.role in given}
    return in_order(found.values(), ready)


def in_order(steps: Iterable[Step], ready: Iterable[str]) -> tuple[Step, ...]:
    """`steps` such that none comes before what it reads; `StepsError` if that fails."""
    known, left, ordered = set(ready), list(steps), list[Step]()
    while left:
        able = [step for step in left if known.issuperset(step.args)]
        if not able:
            names = ", ".join(sorted(step.result for step in left))
            raise StepsError(f"no order of operators computes {names}")
        known.update(step.result for step in able)
        left = [step for step in left if step.result not in known]
        ordered += able
    return tuple(ordered)


def _instructions(schedule: Schedule) -> Iterator[Step]:
    """Steps for every put and task; many are equal."""
    forward = schedule.mode == "forward"
    for queue in schedule.queues:
        for instr in queue.code:
            if isinstance(instr, Put):
                yield from _put_steps(instr, forward)
            elif isinstance(instr, Task):
                yield from _task_steps(instr, forward)


def _put_steps(put: Put, forward: bool) -> Iterator[Step]:
    weighted = None if forward or put.kind == "combine" else put.scale
    args = _names([put.source])
    yield Step(put.kind, put.dest.buffer, args, weighted=weighted)
    if put.dot:
        rows, result = put.dot
        yield Step("slot_dot", result.buffer, (*args, rows.buffer))


def _task_steps(task: Task, forward: bool) -> Iterator[Step]:
    results = _names(task.writes)
    if task.op in ("reduce", "reduce_dot"):
        weighted = None if forward else len(task.reads) > 1
        slots, *more = _names(task.reads)
        yield Step("reduce", results[0], (slots,), task.params, weighted)
        if task.op == "reduce_dot":
            yield Step("slot_dot", results[1], (more[1], slots))
        return
    args = tuple(n for n in _names(task.reads) if n != ROUTER)
    yield Step(task.op, results[0], args, task.params)


def _names(regions: Iterable[Region]) -> tuple[str, ...]:
    return tuple(region.buffer for region in regions)
