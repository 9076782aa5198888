"""Faults in what instructions name: counters, regions, sizes, teams."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

from hpc.schedule.model import (
    Event,
    Instr,
    Put,
    Region,
    Schedule,
    Set,
    Task,
    Wait,
)
from tests.builders import edited
from tests.safety.edits import (
    Operator,
    at,
    map_events,
    map_instrs,
    map_needs,
    map_regions,
    other,
    pick,
    places,
    with_buffer_at,
    with_event_at,
)


def retarget(kind: type) -> Operator:
    """Another counter, from those declared."""

    def operator(s: Schedule, rng: Random) -> Schedule | None:
        place = pick(s, rng, kind)
        if place is None or len(s.events) < 2 or at(s, place).event is None:
            return None
        others = [e.id for e in s.events if e.id != at(s, place).event]
        return edited(s, *place, event=rng.choice(others))

    return operator


def threshold(step: int) -> Operator:
    def operator(s: Schedule, rng: Random) -> Schedule | None:
        place = pick(s, rng, Wait)
        return edited(s, *place, need=at(s, place).need + step) if place else None

    return operator


def declared_need(s: Schedule, rng: Random) -> Schedule | None:
    if not s.events:
        return None
    i = rng.randrange(len(s.events))
    need = s.events[i].need + rng.choice((-1, 1))
    return with_event_at(s, i, need=need)


def bad_id(s: Schedule, rng: Random) -> Schedule | None:
    """A counter that is not declared, or declared out of the machine's range."""
    place = pick(s, rng, Wait, Set)
    if place is None:
        return None
    if rng.random() < 0.5:
        return edited(s, *place, event=max(e.id for e in s.events) + 1)
    i = rng.randrange(len(s.events))
    old, new = s.events[i].id, 1 << 20
    return map_events(with_event_at(s, i, id=new), old, new)


def same_id(s: Schedule, rng: Random) -> Schedule | None:
    if len(s.events) < 2:
        return None
    i, j = rng.sample(range(len(s.events)), 2)
    return with_event_at(s, i, id=s.events[j].id)


def merged_counters(s: Schedule, rng: Random) -> Schedule | None:
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
    return map_needs(replace(s, events=changed), kept.id, need)


def swapped_events(s: Schedule, rng: Random) -> Schedule | None:
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

    return map_instrs(s, mapped)


def wrong_group(s: Schedule, rng: Random) -> Schedule | None:
    place = pick(s, rng, Put)
    if place is None:
        return None
    return edited(s, *place, group=other(rng, len(s.groups), at(s, place).group) or 0)


def wrong_expert(s: Schedule, rng: Random) -> Schedule | None:
    place = pick(s, rng, Put)
    if place is None:
        return None
    expert = other(rng, s.layer.local_experts, at(s, place).expert) or 0
    return edited(s, *place, expert=expert)


def wrong_put(s: Schedule, rng: Random) -> Schedule | None:
    """A put of another part altogether: expert, group and regions agree."""
    place = pick(s, rng, Put)
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


def wrong_region(field: str) -> Operator:
    """An operand of a task or put: another expert, part or buffer."""

    def operator(s: Schedule, rng: Random) -> Schedule | None:
        place = pick(s, rng, Task, Put)
        if place is None:
            return None
        instr = at(s, place)
        if isinstance(instr, Put):
            if instr.dot and rng.random() < 0.5:
                i = ("reads", "writes").index(field)
                dot = list(instr.dot)
                dot[i] = changed(s, rng, dot[i])
                return edited(s, *place, dot=tuple(dot))
            name = "source" if field == "reads" else "dest"
            region = changed(s, rng, getattr(instr, name))
            return edited(s, *place, **{name: region})
        regions = list(getattr(instr, field))
        i = rng.randrange(len(regions))
        regions[i] = changed(s, rng, regions[i])
        return edited(s, *place, **{field: tuple(regions)})

    return operator


def changed(s: Schedule, rng: Random, region: Region) -> Region:
    what = rng.randrange(3)
    if what == 0:
        return replace(region, expert=other(rng, s.layer.local_experts, region.expert))
    if what == 1:
        return replace(region, part=other(rng, len(s.groups), region.part))
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


def wrong_part_everywhere(s: Schedule, rng: Random) -> Schedule | None:
    """A producer and its readers move to another part together."""
    place = pick(s, rng, Task)
    if place is None:
        return None
    old = at(s, place).writes[0]
    if old.expert is None:
        return None
    e = rng.randrange(s.layer.local_experts)
    new = replace(old, expert=e, part=rng.randrange(len(s.groups)))
    return map_regions(s, lambda region: new if region == old else region)


def reuse_buffer(s: Schedule, rng: Random) -> Schedule | None:
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
    s = map_regions(s, lambda r: replace(r, buffer=kept) if r.buffer == gone else r)
    return replace(s, buffers=tuple(b for b in s.buffers if b.name != gone))


def capacity(s: Schedule, rng: Random) -> Schedule | None:
    """One row less, or one more, than the compiler reserved."""
    i = rng.randrange(len(s.buffers))
    buffer = s.buffers[i]
    if buffer.space == "weight":
        return None
    rows = buffer.capacity_rows + rng.choice((-1, -1, 1))
    return with_buffer_at(s, i, capacity_rows=rows) if rows > 0 else None


def private_buffer(s: Schedule, rng: Random) -> Schedule | None:
    shared = [i for i, b in enumerate(s.buffers) if b.symmetric]
    return with_buffer_at(s, rng.choice(shared), symmetric=False) if shared else None


def chunks(s: Schedule, rng: Random) -> Schedule | None:
    """One side of an exchange cuts its rows otherwise."""
    place = pick(s, rng, Put)
    if place is None:
        return None
    chunks = at(s, place).chunks
    return edited(s, *place, chunks=max(1, chunks + rng.choice((-1, 1, 2))))


def team(s: Schedule, rng: Random) -> Schedule | None:
    """A team that is shifted, larger or smaller by a core; thresholds stay."""
    q = rng.randrange(len(s.queues))
    team = s.queues[q].team
    how = rng.randrange(4)
    first = team.first + (how == 0) - (how == 1 and team.first > 0)
    size = team.size + (how == 2) - (how == 3 and team.size > 1)
    queues = list(s.queues)
    queues[q] = replace(queues[q], team=replace(team, first=first, size=size))
    return replace(s, queues=tuple(queues))


def groups(s: Schedule, rng: Random) -> Schedule | None:
    """Another partition of the sources, with as many groups."""
    sources = list(range(s.layer.ep))
    rng.shuffle(sources)
    cuts = sorted(rng.sample(range(1, len(sources)), len(s.groups) - 1))
    bounds = [0, *cuts, len(sources)]
    found = [tuple(sources[a:b]) for a, b in pairwise(bounds)]
    return replace(s, groups=tuple(found))


def scale(s: Schedule, rng: Random) -> Schedule | None:
    found = [p for p in places(s, Put) if at(s, p).kind == "dispatch"]
    if not found:
        return None
    place = rng.choice(found)
    return edited(s, *place, scale=not at(s, place).scale)
