"""Faults in what is there and in which order: dropped, repeated, moved, too early."""

from __future__ import annotations

from random import Random

from hpc.schedule.model import (
    Barrier,
    Instr,
    Put,
    Schedule,
    Set,
    Task,
    Wait,
)
from tests.builders import dropped, edited, inserted, moved
from tests.safety.edits import (
    Operator,
    at,
    map_needs,
    pick,
    places,
    places_in,
    with_event_at,
    with_instrs,
)


def drop(kind: type) -> Operator:
    def operator(s: Schedule, rng: Random) -> Schedule | None:
        place = pick(s, rng, kind)
        return dropped(s, *place) if place else None

    return operator


def duplicate(kind: type) -> Operator:
    """A second copy, next to the first or anywhere behind it."""

    def operator(s: Schedule, rng: Random) -> Schedule | None:
        place = pick(s, rng, kind)
        if place is None:
            return None
        q, i = place
        size = len(s.queues[q].code)
        to = i if rng.random() < 0.5 else rng.randint(i, size)
        return inserted(s, q, to, at(s, place))

    return operator


def move(kind: type) -> Operator:
    """To another place of its queue, more often to one nearby."""

    def operator(s: Schedule, rng: Random) -> Schedule | None:
        place = pick(s, rng, kind)
        if place is None:
            return None
        q, i = place
        size = len(s.queues[q].code)
        near = [j for j in (i - 2, i - 1, i + 1, i + 2) if 0 <= j < size]
        to = rng.choice(near) if near and rng.random() < 0.6 else rng.randrange(size)
        return moved(s, q, i, to) if to != i else None

    return operator


def move_to_other_queue(s: Schedule, rng: Random) -> Schedule | None:
    place = pick(s, rng, Wait, Set, Put, Task)
    if place is None or len(s.queues) < 2:
        return None
    q = rng.choice([q for q in range(len(s.queues)) if q != place[0]])
    instr = at(s, place)
    s = dropped(s, *place)
    return inserted(s, q, rng.randint(0, len(s.queues[q].code)), instr)


def swap(s: Schedule, rng: Random) -> Schedule | None:
    """Two instructions of a queue change places, mostly neighbours."""
    q = rng.randrange(len(s.queues))
    code = list(s.queues[q].code)
    if len(code) < 2:
        return None
    i = rng.randrange(len(code) - 1)
    j = i + 1 if rng.random() < 0.6 else rng.randrange(len(code))
    if code[i] == code[j]:
        return None
    code[i], code[j] = code[j], code[i]
    return with_instrs(s, q, code)


def swap_blocks(s: Schedule, rng: Random) -> Schedule | None:
    """Two whole steps (waits, work, signals) change places: another legal order, or
    one that cannot be."""
    q = rng.randrange(len(s.queues))
    blocks: list[list[Instr]] = [[]]
    worked = False
    for instr in s.queues[q].code:
        if worked and not isinstance(instr, Set):
            blocks.append([])
            worked = False
        blocks[-1].append(instr)
        worked |= not isinstance(instr, Wait | Set)
    if len(blocks) < 2:
        return None
    i = rng.randrange(len(blocks) - 1)
    j = i + 1 if rng.random() < 0.5 else rng.randrange(len(blocks))
    blocks[i], blocks[j] = blocks[j], blocks[i]
    return with_instrs(s, q, [instr for block in blocks for instr in block])


def signal_first(s: Schedule, rng: Random) -> Schedule | None:
    """A signal before its data: in front of the work that it announces."""
    place = pick(s, rng, Set)
    if place is None:
        return None
    q, i = place
    work = [j for j in range(i) if isinstance(at(s, (q, j)), Task | Put)]
    return moved(s, q, i, work[-1]) if work else None


def late_wait(s: Schedule, rng: Random) -> Schedule | None:
    """A wait behind the work that it guards."""
    place = pick(s, rng, Wait)
    if place is None:
        return None
    q, i = place
    size = len(s.queues[q].code)
    work = [j for j in range(i, size) if isinstance(at(s, (q, j)), Task | Put)]
    return moved(s, q, i, work[0]) if work else None


def silent_put(s: Schedule, rng: Random) -> Schedule | None:
    place = pick(s, rng, Put)
    if place is None or at(s, place).event is None:
        return None
    return edited(s, *place, event=None)


def set_for_signal(s: Schedule, rng: Random) -> Schedule | None:
    """A put that does not signal, and a set behind it in its place; thresholds follow.
    Right where all rows stay on the rank, unless signals may overtake data."""
    place = pick(s, rng, Put)
    if place is None or at(s, place).event is None:
        return None
    q, i = place
    event, size = at(s, place).event, s.queues[q].team.size
    same = [p for p in places(s, Put) if at(s, p).event == event]
    if len(same) > 1:
        return None
    s = inserted(edited(s, q, i, event=None), q, i + 1, Set(event))
    index = [e.id for e in s.events].index(event)
    return map_needs(with_event_at(s, index, need=size), event, size)


def one_barrier_less(s: Schedule, rng: Random) -> Schedule | None:
    """The same barrier is missing in all queues."""
    most = min((len(places_in(queue, Barrier)) for queue in s.queues), default=0)
    if not most:
        return None
    n = rng.randrange(most)
    for q, queue in enumerate(s.queues):
        s = dropped(s, q, places_in(queue, Barrier)[n])
    return s


def narrow_barrier(s: Schedule, rng: Random) -> Schedule | None:
    """A barrier of the other scope, in one queue or in all."""
    place = pick(s, rng, Barrier)
    if place is None:
        return None
    q, i = place
    other = "rank" if at(s, place).scope == "world" else "world"
    if rng.random() < 0.3:
        return edited(s, q, i, scope=other)
    n = places_in(s.queues[q], Barrier).index(i)
    for each, queue in enumerate(s.queues):
        found = places_in(queue, Barrier)
        if len(found) > n:
            s = edited(s, each, found[n], scope=other)
    return s
