"""Says who waits for what when a simulation cannot go on."""

from __future__ import annotations

from collections import Counter

from hpc.interp.expand import Expanded
from hpc.interp.program import NO_GATE, Program
from hpc.interp.task_steps import BARRIER
from hpc.schedule.model import Schedule


class SimulationDeadlock(RuntimeError):
    """Some cores wait for ever; the message says who waits for what."""


Blocked = tuple[int, int, int]
"""(rank, queue, step) of one blocked core."""


def deadlock_message(
    schedule: Schedule,
    program: Program,
    work: Expanded,
    blocked: list[Blocked],
    left: list[int],
) -> str:
    """One line per blocked place: cores, instruction, source line, event, have/need."""
    lines = [f"deadlock: {len(blocked)} cores wait for ever"]
    for (rank, q, s), cores in sorted(Counter(blocked).items()):
        queue, code = schedule.queues[q], program.codes[q]
        team = f"{queue.team.unit}[{queue.team.first}:"
        team += f"{queue.team.first + queue.team.size}]"
        step = work.queues[q].steps[s]
        index = step.work if step.kind == BARRIER else step.wait
        where = f"rank {rank} queue {q} {team} instruction {index}"
        where += _loc(schedule, q, index)
        gate = code.gates[s]
        if gate == NO_GATE:
            lines.append(f"{where}: {cores} cores inside the work of step {s}")
            continue
        found = program.gates[gate]
        block = schedule.layer.ep if found.world else rank
        have = found.need - left[block * len(program.gates) + gate]
        lines.append(
            f"{where}: {cores} cores wait for {found.name},"
            f" have {have}, need {found.need}"
        )
    return "\n".join(lines)


def _loc(schedule: Schedule, q: int, index: int) -> str:
    if index < 0:
        return ""
    loc = schedule.queues[q].code[index].loc
    return f" ({schedule.locs[loc]})" if loc < len(schedule.locs) else ""
