"""The operators of a layer as a plain list, for the reference implementation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hpc.interp.data import ROUTER
from hpc.schedule.model import Put, Region, Schedule, Task

Params = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One operator: `result = op(args)`.

    `op` is dispatch, gmm, combine, reduce, add or an activation, as in the language's
    flow. `args` name inputs, weights or earlier results; the router is implied by the
    layer (`weights_at`), never an argument.
    """

    op: str
    result: str
    args: tuple[str, ...]
    params: Params = ()


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
    ready = {b.name for b in schedule.buffers if b.role in ("input", "weight")}
    ordered: list[Step] = []
    while found:
        able = [step for step in found.values() if ready.issuperset(step.args)]
        if not able:
            names = ", ".join(sorted(found))
            raise StepsError(f"no order of operators computes {names}")
        for step in able:
            ready.add(step.result)
            ordered.append(found.pop(step.result))
    return tuple(ordered)


def _instructions(schedule: Schedule) -> Iterable[Step]:
    """A step for every put and task; many are equal."""
    for queue in schedule.queues:
        for instr in queue.code:
            if isinstance(instr, Put):
                args = _names([instr.source])
                yield Step(instr.kind, instr.dest.buffer, args)
            elif isinstance(instr, Task):
                reads = instr.reads[:1] if instr.op == "reduce" else instr.reads
                args = tuple(n for n in _names(reads) if n != ROUTER)
                yield Step(instr.op, instr.writes[0].buffer, args, instr.params)


def _names(regions: Iterable[Region]) -> tuple[str, ...]:
    return tuple(region.buffer for region in regions)
