"""Faults put into compiled schedules, by class.

An operator takes a schedule and a random generator and returns a changed schedule, or
None where there is nothing to change. Many of the changes are harmless: whether one is
safe is for the oracle to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

from hpc.schedule.model import (
    Barrier,
    Event,
    Instr,
    Put,
    Queue,
    Region,
    Schedule,
    Set,
    Task,
    Wait,
)
from tests.builders import dropped, edited, inserted, moved

Place = tuple[int, int]
Operator = Callable[[Schedule, Random], Schedule | None]


@dataclass(frozen=True)
class Mutant:
    """A changed schedule; `programs[rank]` is what a rank runs."""

    name: str
    cls: str
    programs: tuple[Schedule, ...]


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


def _pick(s: Schedule, rng: Random, *kinds: type) -> Place | None:
    found = places(s, *kinds)
    return rng.choice(found) if found else None


def _drop(kind: type) -> Operator:
    def operator(s: Schedule, rng: Random) -> Schedule | None:
        place = _pick(s, rng, kind)
        return dropped(s, *place) if place else None

    return operator


def _duplicate(kind: type) -> Operator:
    """A second copy, next to the first or anywhere behind it."""

    def operator(s: Schedule, rng: Random) -> Schedule | None:
        place = _pick(s, rng, kind)
        if place is None:
            return None
        q, i = place
        size = len(s.queues[q].code)
        to = i if rng.random() < 0.5 else rng.randint(i, size)
        return inserted(s, q, to, at(s, place))

    return operator


def _move(kind: type) -> Operator:
    """To another place of its queue, more often to one nearby."""

    def operator(s: Schedule, rng: Random) -> Schedule | None:
        place = _pick(s, rng, kind)
        if place is None:
            return None
        q, i = place
        size = len(s.queues[q].code)
        near = [j for j in (i - 2, i - 1, i + 1, i + 2) if 0 <= j < size]
        to = rng.choice(near) if near and rng.random() < 0.6 else rng.randrange(size)
        return moved(s, q, i, to) if to != i else None

    return operator


def _move_to_other_queue(s: Schedule, rng: Random) -> Schedule | None:
    place = _pick(s, rng, Wait, Set, Put, Task)
    if place is None or len(s.queues) < 2:
        return None
    q = rng.choice([q for q in range(len(s.queues)) if q != place[0]])
    instr = at(s, place)
    s = dropped(s, *place)
    return inserted(s, q, rng.randint(0, len(s.queues[q].code)), instr)


def _retarget(kind: type) -> Operator:
    """Another counter, from those declared."""

    def operator(s: Schedule, rng: Random) -> Schedule | None:
        place = _pick(s, rng, kind)
        if place is None or len(s.events) < 2 or at(s, place).event is None:
            return None
        others = [e.id for e in s.events if e.id != at(s, place).event]
        return edited(s, *place, event=rng.choice(others))

    return operator


def _threshold(step: int) -> Operator:
    def operator(s: Schedule, rng: Random) -> Schedule | None:
        place = _pick(s, rng, Wait)
        return edited(s, *place, need=at(s, place).need + step) if place else None

    return operator


def _declared_need(s: Schedule, rng: Random) -> Schedule | None:
    if not s.events:
        return None
    i = rng.randrange(len(s.events))
    need = s.events[i].need + rng.choice((-1, 1))
    return _with_event(s, i, need=need)


def _with_event(s: Schedule, i: int, **changes: Any) -> Schedule:
    events = list(s.events)
    events[i] = replace(events[i], **changes)
    return replace(s, events=tuple(events))


def _other(rng: Random, count: int, index: int | None) -> int | None:
    """Another index, sometimes "all" or one too large."""
    choices = [i for i in range(count + 1) if i != index]
    if index is not None and rng.random() < 0.2:
        return None
    return rng.choice(choices)


def _wrong_group(s: Schedule, rng: Random) -> Schedule | None:
    place = _pick(s, rng, Put)
    if place is None:
        return None
    return edited(s, *place, group=_other(rng, len(s.groups), at(s, place).group) or 0)


def _wrong_expert(s: Schedule, rng: Random) -> Schedule | None:
    place = _pick(s, rng, Put)
    if place is None:
        return None
    expert = _other(rng, s.layer.local_experts, at(s, place).expert) or 0
    return edited(s, *place, expert=expert)


def _wrong_put(s: Schedule, rng: Random) -> Schedule | None:
    """A put of another part altogether: expert, group and regions agree."""
    place = _pick(s, rng, Put)
    if place is None:
        return None
    put = at(s, place)
    e = rng.randrange(s.layer.local_experts)
    g = rng.randrange(len(s.groups))
    if (e, g) == (put.expert, put.group):
        return None
    regions = {
        "dest": replace(put.dest, expert=e, part=g),
        "source": put.source
        if put.kind == "dispatch"
        else replace(put.source, expert=e, part=g),
    }
    return edited(s, *place, expert=e, group=g, **regions)


def _wrong_region(field: str) -> Operator:
    """An operand of a task or put: another expert, part or buffer."""

    def operator(s: Schedule, rng: Random) -> Schedule | None:
        place = _pick(s, rng, Task, Put)
        if place is None:
            return None
        instr = at(s, place)
        if isinstance(instr, Put):
            if instr.dot and rng.random() < 0.5:
                i = ("reads", "writes").index(field)
                dot = list(instr.dot)
                dot[i] = _changed(s, rng, dot[i])
                return edited(s, *place, dot=tuple(dot))
            name = "source" if field == "reads" else "dest"
            region = _changed(s, rng, getattr(instr, name))
            return edited(s, *place, **{name: region})
        regions = list(getattr(instr, field))
        i = rng.randrange(len(regions))
        regions[i] = _changed(s, rng, regions[i])
        return edited(s, *place, **{field: tuple(regions)})

    return operator


def _changed(s: Schedule, rng: Random, region: Region) -> Region:
    what = rng.randrange(3)
    if what == 0:
        return replace(region, expert=_other(rng, s.layer.local_experts, region.expert))
    if what == 1:
        return replace(region, part=_other(rng, len(s.groups), region.part))
    # One input in place of another is another layer, not a fault of its schedule.
    buffer = s.buffer(region.buffer)
    same = [
        b.name
        for b in s.buffers
        if b.space == buffer.space
        and b != buffer
        and not {b.role, buffer.role} <= {"input", "saved"}
    ]
    return replace(region, buffer=rng.choice(same)) if same else region


def _wrong_part_everywhere(s: Schedule, rng: Random) -> Schedule | None:
    """A producer and its readers move to another part together."""
    place = _pick(s, rng, Task)
    if place is None:
        return None
    old = at(s, place).writes[0]
    if old.expert is None:
        return None
    e = rng.randrange(s.layer.local_experts)
    new = replace(old, expert=e, part=rng.randrange(len(s.groups)))
    return _map_regions(s, lambda region: new if region == old else region)


def _map_regions(s: Schedule, change: Callable[[Region], Region]) -> Schedule:
    def mapped(instr: Instr) -> Instr:
        if isinstance(instr, Put):
            source, dest = change(instr.source), change(instr.dest)
            dot = tuple(map(change, instr.dot))
            return replace(instr, source=source, dest=dest, dot=dot)
        if isinstance(instr, Task):
            reads = tuple(change(region) for region in instr.reads)
            return replace(instr, reads=reads, writes=tuple(map(change, instr.writes)))
        return instr

    return _map_instrs(s, mapped)


def _map_instrs(s: Schedule, change: Callable[[Instr], Instr]) -> Schedule:
    queues = tuple(
        Queue(queue.team, tuple(change(instr) for instr in queue.code))
        for queue in s.queues
    )
    return replace(s, queues=queues)


def _reuse_buffer(s: Schedule, rng: Random) -> Schedule | None:
    """Two buffers become one, as if their lives did not overlap."""
    kinds = [b for b in s.buffers if b.role == "workspace"]
    pairs = [
        (a.name, b.name)
        for a in kinds
        for b in kinds
        if a != b
        and (a.space, a.cols, a.dtype) == (b.space, b.cols, b.dtype)
        # The one that stays must be reachable for the puts of both.
        and (b.symmetric or not a.symmetric)
    ]
    if not pairs:
        return None
    gone, kept = rng.choice(pairs)
    s = _map_regions(s, lambda r: replace(r, buffer=kept) if r.buffer == gone else r)
    return replace(s, buffers=tuple(b for b in s.buffers if b.name != gone))


def _swap(s: Schedule, rng: Random) -> Schedule | None:
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
    return _with_code(s, q, code)


def _with_code(s: Schedule, q: int, code: list[Instr]) -> Schedule:
    queues = list(s.queues)
    queues[q] = replace(queues[q], code=tuple(code))
    return replace(s, queues=tuple(queues))


def _swap_blocks(s: Schedule, rng: Random) -> Schedule | None:
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
    return _with_code(s, q, [instr for block in blocks for instr in block])


def _signal_first(s: Schedule, rng: Random) -> Schedule | None:
    """A signal before its data: in front of the work that it announces."""
    place = _pick(s, rng, Set)
    if place is None:
        return None
    q, i = place
    work = [j for j in range(i) if isinstance(at(s, (q, j)), Task | Put)]
    return moved(s, q, i, work[-1]) if work else None


def _late_wait(s: Schedule, rng: Random) -> Schedule | None:
    """A wait behind the work that it guards."""
    place = _pick(s, rng, Wait)
    if place is None:
        return None
    q, i = place
    size = len(s.queues[q].code)
    work = [j for j in range(i, size) if isinstance(at(s, (q, j)), Task | Put)]
    return moved(s, q, i, work[0]) if work else None


def _silent_put(s: Schedule, rng: Random) -> Schedule | None:
    place = _pick(s, rng, Put)
    if place is None or at(s, place).event is None:
        return None
    return edited(s, *place, event=None)


def _set_for_signal(s: Schedule, rng: Random) -> Schedule | None:
    """A put that does not signal, and a set behind it in its place; thresholds follow.
    Right where all rows stay on the rank, unless signals may overtake data."""
    place = _pick(s, rng, Put)
    if place is None or at(s, place).event is None:
        return None
    q, i = place
    event, size = at(s, place).event, s.queues[q].team.size
    same = [p for p in places(s, Put) if at(s, p).event == event]
    if len(same) > 1:
        return None
    s = inserted(edited(s, q, i, event=None), q, i + 1, Set(event))
    index = [e.id for e in s.events].index(event)
    return _map_needs(_with_event(s, index, need=size), event, size)


def _one_barrier_less(s: Schedule, rng: Random) -> Schedule | None:
    """The same barrier is missing in all queues."""
    most = min((len(places_in(queue, Barrier)) for queue in s.queues), default=0)
    if not most:
        return None
    n = rng.randrange(most)
    for q, queue in enumerate(s.queues):
        s = dropped(s, q, places_in(queue, Barrier)[n])
    return s


def places_in(queue: Queue, kind: type) -> list[int]:
    """Indices of the instructions of a kind."""
    return [i for i, instr in enumerate(queue.code) if isinstance(instr, kind)]


def _narrow_barrier(s: Schedule, rng: Random) -> Schedule | None:
    """A barrier of the other scope, in one queue or in all."""
    place = _pick(s, rng, Barrier)
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


def _bad_id(s: Schedule, rng: Random) -> Schedule | None:
    """A counter that is not declared, or declared out of the machine's range."""
    place = _pick(s, rng, Wait, Set)
    if place is None:
        return None
    if rng.random() < 0.5:
        return edited(s, *place, event=max(e.id for e in s.events) + 1)
    i = rng.randrange(len(s.events))
    old, new = s.events[i].id, 1 << 20
    return map_events(_with_event(s, i, id=new), old, new)


def map_events(s: Schedule, old: int, new: int) -> Schedule:
    """All uses of one counter become uses of another."""

    def mapped(instr: Instr) -> Instr:
        if isinstance(instr, Wait | Set | Put) and instr.event == old:
            return replace(instr, event=new)
        return instr

    return _map_instrs(s, mapped)


def _same_id(s: Schedule, rng: Random) -> Schedule | None:
    if len(s.events) < 2:
        return None
    i, j = rng.sample(range(len(s.events)), 2)
    return _with_event(s, i, id=s.events[j].id)


def _merged_counters(s: Schedule, rng: Random) -> Schedule | None:
    """One counter for two joins; the thresholds follow, or do not."""
    if len(s.events) < 2:
        return None
    kept, gone = rng.sample(s.events, 2)
    need = kept.need + gone.need
    s = map_events(s, gone.id, kept.id)
    left = tuple(e for e in s.events if e != gone)
    if rng.random() < 0.3:
        return replace(s, events=left)
    changed: tuple[Event, ...] = tuple(
        replace(e, need=need) if e == kept else e for e in left
    )
    return _map_needs(replace(s, events=changed), kept.id, need)


def _map_needs(s: Schedule, event: int, need: int) -> Schedule:
    def mapped(instr: Instr) -> Instr:
        if isinstance(instr, Wait) and instr.event == event:
            return replace(instr, need=need)
        return instr

    return _map_instrs(s, mapped)


def _swapped_events(s: Schedule, rng: Random) -> Schedule | None:
    """Two counters change places in all waits, or in all sets."""
    if len(s.events) < 2:
        return None
    a, b = rng.sample(s.events, 2)
    if a.need != b.need:
        return None
    kind = rng.choice((Wait, Set, Put))
    other = {a.id: b.id, b.id: a.id}

    def mapped(instr: Instr) -> Instr:
        if isinstance(instr, kind) and instr.event in other:
            return replace(instr, event=other[instr.event])  # type: ignore[index]
        return instr

    return _map_instrs(s, mapped)


def _capacity(s: Schedule, rng: Random) -> Schedule | None:
    """One row less, or one more, than the compiler reserved."""
    i = rng.randrange(len(s.buffers))
    buffer = s.buffers[i]
    if buffer.space == "weight":
        return None
    rows = buffer.capacity_rows + rng.choice((-1, -1, 1))
    return _with_buffer(s, i, capacity_rows=rows) if rows > 0 else None


def _with_buffer(s: Schedule, i: int, **changes: Any) -> Schedule:
    buffers = list(s.buffers)
    buffers[i] = replace(buffers[i], **changes)
    return replace(s, buffers=tuple(buffers))


def _private_buffer(s: Schedule, rng: Random) -> Schedule | None:
    shared = [i for i, b in enumerate(s.buffers) if b.symmetric]
    return _with_buffer(s, rng.choice(shared), symmetric=False) if shared else None


def _chunks(s: Schedule, rng: Random) -> Schedule | None:
    """One side of an exchange cuts its rows otherwise."""
    place = _pick(s, rng, Put)
    if place is None:
        return None
    chunks = at(s, place).chunks
    return edited(s, *place, chunks=max(1, chunks + rng.choice((-1, 1, 2))))


def _team(s: Schedule, rng: Random) -> Schedule | None:
    """A team that is shifted, larger or smaller by a core; thresholds stay."""
    q = rng.randrange(len(s.queues))
    team = s.queues[q].team
    how = rng.randrange(4)
    first = team.first + (how == 0) - (how == 1 and team.first > 0)
    size = team.size + (how == 2) - (how == 3 and team.size > 1)
    queues = list(s.queues)
    queues[q] = replace(queues[q], team=replace(team, first=first, size=size))
    return replace(s, queues=tuple(queues))


def _groups(s: Schedule, rng: Random) -> Schedule | None:
    """Another partition of the sources, with as many groups."""
    sources = list(range(s.layer.ep))
    rng.shuffle(sources)
    cuts = sorted(rng.sample(range(1, len(sources)), len(s.groups) - 1))
    bounds = [0, *cuts, len(sources)]
    found = [tuple(sources[a:b]) for a, b in pairwise(bounds)]
    return replace(s, groups=tuple(found))


def _scale(s: Schedule, rng: Random) -> Schedule | None:
    found = [p for p in places(s, Put) if at(s, p).kind == "dispatch"]
    if not found:
        return None
    place = rng.choice(found)
    return edited(s, *place, scale=not at(s, place).scale)


def _two(s: Schedule, rng: Random) -> Schedule | None:
    """Two faults of other classes, which may hide each other."""
    for _ in range(2):
        operator = CLASSES[rng.choice(SIMPLE)]
        changed = operator(s, rng)
        if changed is None:
            return None
        s = changed
    return s


CLASSES: dict[str, Operator] = {
    "drop wait": _drop(Wait),
    "drop set": _drop(Set),
    "drop put": _drop(Put),
    "drop task": _drop(Task),
    "drop barrier": _drop(Barrier),
    "duplicate wait": _duplicate(Wait),
    "duplicate set": _duplicate(Set),
    "duplicate put": _duplicate(Put),
    "duplicate task": _duplicate(Task),
    "duplicate barrier": _duplicate(Barrier),
    "move wait": _move(Wait),
    "move set": _move(Set),
    "move put": _move(Put),
    "move task": _move(Task),
    "move barrier": _move(Barrier),
    "move to other queue": _move_to_other_queue,
    "swap instructions": _swap,
    "swap steps": _swap_blocks,
    "retarget wait": _retarget(Wait),
    "retarget set": _retarget(Set),
    "retarget put": _retarget(Put),
    "threshold + 1": _threshold(1),
    "threshold - 1": _threshold(-1),
    "declared need": _declared_need,
    "swapped counters": _swapped_events,
    "wrong rank offset": _wrong_group,
    "wrong expert": _wrong_expert,
    "wrong put": _wrong_put,
    "wrong region read": _wrong_region("reads"),
    "wrong region written": _wrong_region("writes"),
    "wrong part everywhere": _wrong_part_everywhere,
    "buffer reused": _reuse_buffer,
    "signal before data": _signal_first,
    "wait behind its use": _late_wait,
    "put without signal": _silent_put,
    "set for a put's signal": _set_for_signal,
    "missing barrier": _one_barrier_less,
    "barrier scope": _narrow_barrier,
    "event id out of range": _bad_id,
    "event id twice": _same_id,
    "counter shared": _merged_counters,
    "capacity": _capacity,
    "private buffer": _private_buffer,
    "chunk count": _chunks,
    "team": _team,
    "groups": _groups,
    "router weight": _scale,
    "two faults": _two,
}
"""Operators by class; the class "one rank differs" applies any of them to one rank."""

ONE_RANK = "one rank differs"
SIMPLE = tuple(name for name in CLASSES if name != "two faults")


def mutate(s: Schedule, cls: str, rng: Random) -> Mutant | None:
    """One mutant of the class; None if the dice found nothing to change."""
    ranks = s.layer.ep
    if cls == ONE_RANK:
        inner = rng.choice(SIMPLE)
        changed = CLASSES[inner](s, rng)
        if changed is None or changed == s or ranks == 1:
            return None
        odd = rng.randrange(ranks)
        programs = tuple(changed if rank == odd else s for rank in range(ranks))
        return Mutant(f"{inner} on rank {odd}", cls, programs)
    changed = CLASSES[cls](s, rng)
    if changed is None or changed == s:
        return None
    return Mutant(cls, cls, (changed,) * ranks)
