"""The order of a static schedule: which task a team runs next.

Plain objects only. A policy's order is a permutation of the works that keeps every
dependency in front of its user; each team then runs its own works in that order.
Because all ranks run the same program, such an order is at once a witness that no rank
can hang: running the works one after the other, on all ranks together, satisfies every
wait.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Work:
    """One task of the program, as the scheduler sees it.

    `stage` counts operators in flow order, `team` is an index. `duration_us` is the
    modelled time on the whole team; `delay_us` passes between its end and the moment
    its users see the result. `deps` index other works; nobody waits for a `leaf`.
    `touches` are the parts of buffers that it reads or writes, by name, with bytes.
    """

    stage: int
    expert: int
    part: int
    team: int
    duration_us: float
    deps: tuple[int, ...]
    delay_us: float = 0.0
    exchange: bool = False
    leaf: bool = False
    touches: tuple[tuple[str, int], ...] = ()


_SAME = 1e-3
"""Modelled makespans this close are the same; the first order in the list is taken."""

_CONTENTION = 1.2
"""Puts beside matrix work are slower by 15-40 % (simpler; Hermes): an order that only
works at full rate blocks its queues behind the first late put."""

Order = tuple[int, ...]
Rank = Callable[[Work], tuple[float, ...]]


def stage_order(works: Sequence[Work], l2_bytes: int = 0) -> Order:
    """Operator after operator, within one by (expert, part): serial and paper. L2 does
    not change it."""
    keys = [(w.stage, w.expert, w.part, i) for i, w in enumerate(works)]
    return tuple(key[-1] for key in sorted(keys))


def list_order(works: Sequence[Work], l2_bytes: int) -> Order:
    """List scheduling: the best of four orders, by modelled makespan where exchanges
    take longer than planned; among equals, the one that finds most bytes in L2.

    "deepest" prefers later operators, which feeds the way back early; "oldest" runs the
    work that became ready first; both exchange own rows (part 0) first and keep
    leaves, such as weight gradients, to fill the time when nothing else is ready.
    "eager" is "oldest" with leaves in their turn, so that they run next to what reads
    the same rows. The fourth is operator after operator, which keeps a team off work
    whose turn comes too early to be waited for: queues are in order, and a wait blocks
    all behind it. ValueError if the works depend on each other in a cycle.
    """
    orders = [_simulate(works, rule) for rule in (_deepest, _oldest, _eager)]
    stages = stage_order(works)
    if first_early(works, stages) is None:
        orders.append(stages)
    slow = [_slowed(work) for work in works]
    ends_us = [makespan_us(slow, order) for order in orders]
    good_us = min(ends_us) * (1 + _SAME)
    pairs = zip(orders, ends_us, strict=True)
    good = [order for order, end_us in pairs if end_us <= good_us]
    return max(good, key=lambda order: l2_hit_bytes(works, order, l2_bytes))


def l2_hit_bytes(works: Sequence[Work], order: Order, l2_bytes: int) -> int:
    """Bytes that works in this order find in L2: what was touched last stays, least
    recently used parts go, a part that is larger than L2 never stays."""
    held: OrderedDict[str, int] = OrderedDict()
    free, hits = l2_bytes, 0
    for i in order:
        for name, size in works[i].touches:
            known = held.pop(name, None)
            hits += known or 0
            free += known or 0
            if size > l2_bytes:
                continue
            while size > free:
                free += held.popitem(last=False)[1]
            held[name] = size
            free -= size
    return hits


def _slowed(work: Work) -> Work:
    if not work.exchange:
        return work
    return replace(work, duration_us=work.duration_us * _CONTENTION)


def first_early(works: Sequence[Work], order: Order) -> int | None:
    """The first work that `order` places before one it depends on, if there is one."""
    placed: set[int] = set()
    for i in order:
        if not placed.issuperset(works[i].deps):
            return i
        placed.add(i)
    return None


def makespan_us(works: Sequence[Work], order: Order) -> float:
    """Modelled end of the last work when each team runs its works in `order`."""
    free: dict[int, float] = {}
    seen = [0.0] * len(works)
    end = 0.0
    for i in order:
        work = works[i]
        start = max([free.get(work.team, 0.0), *(seen[d] for d in work.deps)])
        free[work.team] = start + work.duration_us
        seen[i] = free[work.team] + work.delay_us
        end = max(end, seen[i])
    return end


def _exchange_rank(work: Work) -> tuple[float, ...]:
    return work.stage, work.part > 0, work.expert, work.part


def _oldest(work: Work) -> tuple[float, ...]:
    return _exchange_rank(work) if work.exchange else (work.leaf,)


def _deepest(work: Work) -> tuple[float, ...]:
    return _exchange_rank(work) if work.exchange else (work.leaf, -work.stage)


def _eager(work: Work) -> tuple[float, ...]:
    return _exchange_rank(work) if work.exchange else ()


def _simulate(works: Sequence[Work], rule: Rank) -> Order:
    """Event-driven list scheduling; returns the order of starts."""
    users: list[list[int]] = [[] for _ in works]
    missing = [len(w.deps) for w in works]
    for i, work in enumerate(works):
        for dep in work.deps:
            users[dep].append(i)
    ready: dict[int, list[tuple[tuple[float, ...], float, int]]] = {}
    idle = {w.team: True for w in works}
    # Events are (time, what, work): 0 = a team is free again, 1 = a work is ready.
    events = [(0.0, 1, i) for i, count in enumerate(missing) if count == 0]
    heapq.heapify(events)
    order: list[int] = []
    seen = [0.0] * len(works)
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, what, i = heapq.heappop(events)
            team = works[i].team
            if what == 0:
                idle[team] = True
            else:
                heapq.heappush(ready.setdefault(team, []), (rule(works[i]), now, i))
        for team in sorted(ready):
            if not idle[team] or not ready[team]:
                continue
            i = heapq.heappop(ready[team])[2]
            order.append(i)
            idle[team] = False
            end = now + works[i].duration_us
            seen[i] = end + works[i].delay_us
            heapq.heappush(events, (end, 0, i))
            for user in users[i]:
                missing[user] -= 1
                if missing[user] == 0:
                    at = max(seen[d] for d in works[user].deps)
                    heapq.heappush(events, (at, 1, user))
    if len(order) != len(works):
        raise ValueError("the works depend on each other in a cycle")
    return tuple(order)
