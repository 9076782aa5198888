"""All operators behind a launch: those of a schedule, and those of what it finds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from hpc.interp.data import ROUTER
from hpc.interp.forward_steps import forward_of
from hpc.interp.gradient_steps import gradient_of, with_gradients
from hpc.interp.steps import Step, steps_of
from hpc.schedule.model import Schedule


def launch_steps(
    schedule: Schedule, forward: Sequence[Step] | None = None
) -> tuple[Step, ...]:
    """The operators of `schedule`, and those that its saved values are results of.

    `forward` are the forward operators of its spec; the gradients are then taken here,
    by the chain rule. None stands for what the schedule itself tells. Raises
    `StepsError` if that is no list of operators, or if one has no gradient.
    """
    if forward is None:
        steps = steps_of(schedule)
        return (*forward_of(schedule, steps), *steps)
    if schedule.mode == "forward":
        return tuple(forward)
    forward = _renamed(forward, _saved_names(schedule, forward))
    names = _gradient_names(schedule, forward)
    return with_gradients(schedule.layer, forward, names)


def _gradient_names(schedule: Schedule, forward: Sequence[Step]) -> dict[str, str]:
    """The buffer of the gradient of every input and weight, and of the result."""
    outputs = [b for b in schedule.buffers if b.role == "output"]
    inputs = [b.name for b in schedule.buffers if b.role == "input"]
    results = {step.result for step in forward}
    last = forward[-1].result
    names = {last: _numbered(gradient_of(last), inputs)}
    for value in dict.fromkeys(arg for step in forward for arg in step.args):
        if value not in results:
            found = [buffer.name for buffer in outputs]
            names[value] = _numbered(gradient_of(value), found)
    router = [b.name for b in outputs if b.space == "slot" and b.cols == 1]
    if len(router) == 1:
        names[ROUTER] = router[0]
    return names


def _saved_names(schedule: Schedule, forward: Sequence[Step]) -> dict[str, str]:
    """The saved buffers that have another name than their value in the spec."""
    saved = {buffer.name for buffer in schedule.buffers if buffer.role == "saved"}
    results = [step.result for step in forward]
    others = sorted(saved.difference(results))
    return {n: _numbered(n, others) for n in results if n not in saved}


def _numbered(name: str, found: Collection[str]) -> str:
    """`name`, or of those in `found` the one that has a number behind it, which the
    compiler appends when a flow has used the name for something else."""
    if name not in found:
        for other in found:
            if other.startswith(name) and other[len(name) :].isdecimal():
                return other
    return name


def _renamed(steps: Sequence[Step], names: dict[str, str]) -> tuple[Step, ...]:
    return tuple(
        replace(
            step,
            result=names.get(step.result, step.result),
            args=tuple(names.get(arg, arg) for arg in step.args),
        )
        for step in steps
    )
