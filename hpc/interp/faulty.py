"""A simulated run that suffers faults: the ordinary event loop, disturbed from outside.

Faults change the tables of a run before it begins, or hold back events between two
steps of the loop; the loop itself knows nothing of them and costs nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from hpc.interp.events import run_events
from hpc.interp.expand import Expanded
from hpc.interp.inject import DeadRank, Delay, DropSignal, Fault, SlowCore
from hpc.interp.program import Program
from hpc.interp.state import State
from hpc.interp.walk import advance
from hpc.schedule.model import Schedule


def run_with_faults(
    state: State,
    schedule: Schedule,
    program: Program,
    work: Expanded,
    faults: Sequence[Fault],
) -> None:
    """Runs a fresh `state` to its end; `faults` fit the schedule (`check_faults`)."""
    late: dict[int, float] = {}
    dead: set[int] = set()
    for fault in faults:
        match fault:
            case DropSignal():
                _drop(state, schedule, program, fault)
            case Delay():
                _delay(state, schedule, work, fault, late)
            case SlowCore():
                _slow(state, schedule, fault)
            case DeadRank():
                dead.add(fault.rank)
    for core in range(state.cores):
        if state.rank_of[core] not in dead:
            advance(state, core, state.pos[core], state.launch_us)
    _run(state, late)


def _run(state: State, late: dict[int, float]) -> None:
    """The loop, event by event: the first start of a late instance is put off."""
    began: dict[int, float] = {}
    while state.events:
        now, key = state.events[0]
        instance = state.pos[key] if key < state.cores else -1
        if instance in late:
            heappop(state.events)
            began[instance] = now
            heappush(state.events, (now + late.pop(instance), key))
            continue
        run_events(state, 1)
    # A core that is held back is busy: its time counts from when it could have begun.
    for instance, now in began.items():
        state.start[instance] = now


def _drop(
    state: State, schedule: Schedule, program: Program, fault: DropSignal
) -> None:
    """Every wait on the event misses one signal for ever."""
    event = next(e.id for e in schedule.events if e.name == fault.event)
    for rank in _ranks(state, fault.rank):
        for gate in program.of_event.get(event, ()):
            state.left[rank * state.per_rank + gate] += 1


def _delay(
    state: State,
    schedule: Schedule,
    work: Expanded,
    fault: Delay,
    late: dict[int, float],
) -> None:
    works = [step.work for step in work.queues[fault.queue].steps]
    step = works.index(fault.index)
    for core in _cores(state, schedule, fault.queue, fault.rank):
        instance = state.pos[core] + step
        late[instance] = late.get(instance, 0.0) + fault.us


def _slow(state: State, schedule: Schedule, fault: SlowCore) -> None:
    for q, queue in enumerate(schedule.queues):
        member = fault.core - queue.team.first
        if queue.team.unit != fault.unit or not 0 <= member < queue.team.size:
            continue
        for core in _cores(state, schedule, q, fault.rank):
            if state.member[core] != member:
                continue
            for instance in range(state.pos[core], state.stop[core]):
                state.work_us[instance] *= fault.factor


def _ranks(state: State, rank: int | None) -> Sequence[int]:
    return range(state.ranks) if rank is None else (rank,)


def _cores(state: State, schedule: Schedule, q: int, rank: int | None) -> Iterator[int]:
    """Numbers of the cores of a queue; before a run, `pos` is where each begins."""
    sizes = [queue.team.size for queue in schedule.queues]
    for r in _ranks(state, rank):
        first = r * sum(sizes) + sum(sizes[:q])
        yield from range(first, first + sizes[q])
