"""Places in a schedule, and changes that keep the rest as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from hpc.schedule.model import (
    Instr,
    Put,
    Queue,
    Region,
    Schedule,
    Set,
    Task,
    Wait,
)

Place = tuple[int, int]
Operator = Callable[[Schedule, Random], Schedule | None]
"""A fault: a changed schedule, or None where there is nothing to change."""


def places(s: Schedule, *kinds: type) -> list[Place]:
    """(queue, index) of all instructions of these kinds."""
    return [
        (q, i)
        for q, queue in enumerate(s.queues)
        for i, instr in enumerate(queue.code)
        if isinstance(instr, kinds)
    ]


def at(s: Schedule, place: Place) -> Any:
    """The instruction at a place."""
    return s.queues[place[0]].code[place[1]]


def pick(s: Schedule, rng: Random, *kinds: type) -> Place | None:
    found = places(s, *kinds)
    return rng.choice(found) if found else None


def places_in(queue: Queue, kind: type) -> list[int]:
    """Indices of the instructions of a kind."""
    return [i for i, instr in enumerate(queue.code) if isinstance(instr, kind)]


def with_instrs(s: Schedule, q: int, code: list[Instr]) -> Schedule:
    queues = list(s.queues)
    queues[q] = replace(queues[q], code=tuple(code))
    return replace(s, queues=tuple(queues))


def with_event_at(s: Schedule, i: int, **changes: Any) -> Schedule:
    events = list(s.events)
    events[i] = replace(events[i], **changes)
    return replace(s, events=tuple(events))


def with_buffer_at(s: Schedule, i: int, **changes: Any) -> Schedule:
    buffers = list(s.buffers)
    buffers[i] = replace(buffers[i], **changes)
    return replace(s, buffers=tuple(buffers))


def map_instrs(s: Schedule, change: Callable[[Instr], Instr]) -> Schedule:
    queues = tuple(
        Queue(queue.team, tuple(change(instr) for instr in queue.code))
        for queue in s.queues
    )
    return replace(s, queues=queues)


def map_regions(s: Schedule, change: Callable[[Region], Region]) -> Schedule:
    def mapped(instr: Instr) -> Instr:
        if isinstance(instr, Put):
            source, dest = change(instr.source), change(instr.dest)
            dot = tuple(map(change, instr.dot))
            return replace(instr, source=source, dest=dest, dot=dot)
        if isinstance(instr, Task):
            reads = tuple(change(region) for region in instr.reads)
            return replace(instr, reads=reads, writes=tuple(map(change, instr.writes)))
        return instr

    return map_instrs(s, mapped)


def map_events(s: Schedule, old: int, new: int) -> Schedule:
    """All uses of one counter become uses of another."""

    def mapped(instr: Instr) -> Instr:
        if isinstance(instr, Wait | Set | Put) and instr.event == old:
            return replace(instr, event=new)
        return instr

    return map_instrs(s, mapped)


def map_needs(s: Schedule, event: int, need: int) -> Schedule:
    def mapped(instr: Instr) -> Instr:
        if isinstance(instr, Wait) and instr.event == event:
            return replace(instr, need=need)
        return instr

    return map_instrs(s, mapped)


def other(rng: Random, count: int, index: int | None) -> int | None:
    """Another index, sometimes "all" or one too large."""
    choices = [i for i in range(count + 1) if i != index]
    if index is not None and rng.random() < 0.2:
        return None
    return rng.choice(choices)
