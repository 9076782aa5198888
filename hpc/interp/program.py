"""The static side of a run: queues as flat step lists, events as gates.

A *gate* is one (event, threshold) that some wait names, or one barrier. It opens when
as many signals have arrived as it needs; waits of the same event and threshold share
it. Gates 0 .. G-1 repeat on every rank; world barriers come once, behind all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpc.interp.expand import Expanded
from hpc.interp.task_steps import BARRIER, Step
from hpc.machine.record import Machine
from hpc.machine.topology import farthest_us
from hpc.schedule.model import Barrier, Instr, Put, Queue, Schedule, Set, Wait

NO_GATE = -1


@dataclass(frozen=True, slots=True)
class Gate:
    """What opens a gate and what passing it costs (microseconds).

    `delay_us` runs from the last signal to the opening, `poll_us` from the opening to
    the moment a core that waits goes on; a core that comes later does not pay it.
    `cause` is the event's name up to `[`.
    """

    name: str
    cause: str
    need: int
    delay_us: float
    poll_us: float
    launch_us: float = 0.0
    world: bool = False


@dataclass(slots=True)
class Code:
    """One queue, step by step: `gates[s]` is a gate or NO_GATE, `signals[s]` the gates
    to signal after each `Set` of the step (one tuple per Set)."""

    kinds: list[int]
    gates: list[int]
    signals: list[tuple[tuple[int, ...], ...]]
    works: list[int]


@dataclass(slots=True)
class Program:
    """Gates and code of a schedule; `of_event[e]` are the gates of event e."""

    gates: list[Gate]
    codes: list[Code]
    of_event: dict[int, tuple[int, ...]]


def build_program(schedule: Schedule, work: Expanded, machine: Machine) -> Program:
    """Gates and step lists. Barriers match by their position among the queue's own."""
    gates: list[Gate] = []
    index: dict[tuple[int, int], int] = {}
    for queue in schedule.queues:
        for instr in queue.code:
            if isinstance(instr, Wait) and (instr.event, instr.need) not in index:
                index[instr.event, instr.need] = len(gates)
                gates.append(_event_gate(schedule, instr, machine))
    barriers = _barrier_gates(schedule, machine, gates)
    by_event: dict[int, list[int]] = {}
    for (event, _), gate in index.items():
        by_event.setdefault(event, []).append(gate)
    of_event = {event: tuple(found) for event, found in by_event.items()}
    codes = [
        _code(queue, shares.steps, index, barriers, of_event)
        for queue, shares in zip(schedule.queues, work.queues, strict=True)
    ]
    return Program(gates, codes, of_event)


def _event_gate(schedule: Schedule, wait: Wait, machine: Machine) -> Gate:
    name = next(e.name for e in schedule.events if e.id == wait.event)
    visible, poll = machine.event_visible_us, machine.event_poll_us
    return Gate(name, name.split("[")[0], wait.need, visible, poll)


def _barrier_gates(
    schedule: Schedule, machine: Machine, gates: list[Gate]
) -> dict[int, int]:
    """Appends a gate per barrier; maps the nth barrier of a queue to its gate."""
    lists = [[i for i in q.code if isinstance(i, Barrier)] for q in schedule.queues]
    most: list[Barrier] = max([[], *lists], key=len)
    cores = sum(queue.team.size for queue in schedule.queues)
    away_us = farthest_us(machine, schedule.layer.ep)
    found: dict[int, int] = {}
    for n, barrier in enumerate(most):
        same = [b[n] for b in lists if len(b) > n]
        world = any(b.scope == "world" for b in same)
        launch = machine.host_launch_us if any(b.launch for b in same) else 0.0
        need = cores * (schedule.layer.ep if world else 1)
        delay = machine.sync_all_us + launch + (away_us if world else 0.0)
        found[n] = len(gates)
        name = f"{barrier.scope} barrier {n}"
        gates.append(Gate(name, "barrier", need, delay, 0.0, launch, world))
    return found


def _code(
    queue: Queue,
    steps: list[Step],
    index: dict[tuple[int, int], int],
    barriers: dict[int, int],
    of_event: dict[int, tuple[int, ...]],
) -> Code:
    code = Code([], [], [], [])
    passed = 0
    for step in steps:
        gate = NO_GATE
        if step.kind == BARRIER:
            gate = barriers[passed]
            passed += 1
        elif step.wait >= 0:
            gate = _wait_gate(queue.code[step.wait], index)
        code.kinds.append(step.kind)
        code.gates.append(gate)
        code.works.append(step.work)
        code.signals.append(
            tuple(of_event.get(_event_of(queue.code[i]), ()) for i in step.sets)
        )
    return code


def _wait_gate(instr: Instr, index: dict[tuple[int, int], int]) -> int:
    assert isinstance(instr, Wait)
    return index[instr.event, instr.need]


def _event_of(instr: Instr) -> int:
    assert isinstance(instr, Set)
    return instr.event


def put_signals(put: Put, of_event: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    """Gates that a tile of `put` signals at its destination."""
    return () if put.event is None else of_event.get(put.event, ())
