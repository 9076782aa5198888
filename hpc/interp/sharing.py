"""The event loop with memories and links that all transfers share equally.

With total weight w each transfer gets min(cap, rate / w) times its own weight. So a
transfer's end depends on those that come later: bandwidths wake up when their next
transfer may be complete.
"""

from __future__ import annotations

from heapq import heappop, heappush
from operator import not_ as is_empty
from typing import TYPE_CHECKING

from hpc.interp.bandwidth import CAP, CLOCK, LAST, NEXT, RATE, SERVED, TOKEN, WEIGHT
from hpc.interp.walk import INFINITY, NO_PUT, NO_TILE, finish, go_on, next_tile, signal

if TYPE_CHECKING:
    from hpc.interp.state import State

push_event, pop_event = heappush, heappop
push_flow, pop_flow = heappush, heappop


def head(flows: list[tuple[float, int, float]]) -> float:
    """The smallest finish mark, or infinity."""
    return flows[0][0] if flows else INFINITY


def run_shared(s: State, limit: int) -> int:
    """Handles up to `limit` events; fewer than that when none is left."""
    events, cores, key_put = s.events, s.cores, s.key_put
    now = s.clock[0]
    for handled in range(limit):
        if is_empty(events):
            s.clock[0] = now
            return handled
        now, key = pop_event(events)
        if key < cores:
            begin(s, key, now)
        elif key < key_put:
            wake(s, key - cores, now)
        else:
            arrive(s, key - key_put, now)
    s.clock[0] = now
    return limit


def begin(s: State, core: int, now: float) -> None:
    """The work of the core's current step starts, or its next put tile."""
    i = s.pos[core]
    plan = i + s.to_plan[core]
    put = s.plan_put[plan]
    if put != NO_PUT:
        send(s, core, put, now)
        return
    s.start[i] = now
    size = s.hbm_bytes[i]
    if size > 0.0:
        rank = s.rank_of[core]
        join(s, rank, now, size, s.hbm_weight[plan * s.ranks + rank], core)
    else:
        finish(s, core, now + s.work_us[i])


def join(
    s: State, index: int, now: float, size: float, weight: float, flow: int
) -> None:
    """A transfer enters a shared bandwidth.

    With total weight w each gets min(cap, rate / w) times its own weight. All advance
    by the same *virtual bytes* (per weight), so one is finished when the virtual clock
    has moved by its size: a heap of finish marks is exact, and costs O(log n) per
    transfer however often the rates change. Weights are multiples of 2^-10, so that
    their sums are exact and the result does not depend on the order of joining.
    """
    pool = s.pools[index]
    rate, cap, total, clock = pool[RATE], pool[CAP], pool[WEIGHT], pool[CLOCK]
    if total > 0.0:
        speed = rate / total
        clock += (now - pool[LAST]) * (speed if speed < cap else cap)
    total += weight
    mark = clock + size / weight
    push_flow(s.flows[index], (mark, flow, weight))
    pool[CLOCK] = clock
    pool[LAST] = now
    pool[SERVED] += size
    pool[WEIGHT] = total
    if mark < pool[NEXT]:
        pool[NEXT] = mark
    speed = rate / total
    due = now + (pool[NEXT] - clock) / (speed if speed < cap else cap)
    # More flows only slow the earlier ones: an old token is at worst too early.
    if due < pool[TOKEN]:
        pool[TOKEN] = due
        push_event(s.events, (due, s.cores + index))


def wake(s: State, index: int, now: float) -> None:
    """Finishes the transfers that are complete, unless the wake-up is stale."""
    pool = s.pools[index]
    if pool[TOKEN] != now:
        return
    flows = s.flows[index]
    rate, cap, total = pool[RATE], pool[CAP], pool[WEIGHT]
    speed = rate / total
    if speed > cap:
        speed = cap
    clock = pool[CLOCK] + (now - pool[LAST]) * speed
    mark = pool[NEXT]
    # A remainder too small to move the clock counts as finished.
    while mark <= clock or now + (mark - clock) / speed <= now:
        mark, flow, weight = pop_flow(flows)
        if mark > clock:
            clock = mark
        total -= weight
        if flow >= s.cores:
            end_leg(s, flow - s.cores, now)
        else:
            i = s.pos[flow]
            alone = s.start[i] + s.work_us[i]
            finish(s, flow, alone if alone > now else now)
        mark = head(flows)
    pool[LAST] = now
    pool[NEXT] = mark
    if mark == INFINITY:
        # Restarting at zero keeps the marks small, hence precise.
        pool[CLOCK] = 0.0
        pool[WEIGHT] = 0.0
        pool[TOKEN] = INFINITY
        return
    speed = rate / total
    token = now + (mark - clock) / (speed if speed < cap else cap)
    pool[CLOCK] = clock
    pool[WEIGHT] = total
    pool[TOKEN] = token
    push_event(s.events, (token, s.cores + index))


# -- puts ------------------------------------------------------------------------------


def send(s: State, core: int, put: int, now: float) -> None:
    """The core's next tile of a put: its legs at the source start."""
    tile, rank = next_tile(s, core, put, now), s.rank_of[core]
    if tile == NO_TILE:
        return
    sent = tile * s.ranks + rank
    s.put_core[sent] = core
    s.began[sent] = now
    size = s.put_bytes[sent]
    if size <= 0.0:
        s.delivered[sent] = now + s.hop_us[tile]
        s.sent_at[sent] = now
        if s.signalled[put]:
            go_on(s, core, put, now + s.issue_us[tile])
        deliver(s, sent, now)
        return
    flow = s.cores + 2 * sent
    if s.shift[tile] == 0:
        s.send_left[sent] = 1
        s.recv_left[sent] = 1
        size = s.fetched[sent] + s.stored[sent]
        join(s, rank, now, size, s.copy_weight, flow)
        return
    # Of HBM, and of the link.
    weight, share = s.pull_weight[put], s.link_weight[tile]
    if s.collective[put]:
        weight, share = s.uncapped, s.uncapped
    s.send_left[sent] = 2
    s.recv_left[sent] = 3
    join(s, rank, now, s.fetched[sent], weight, flow)
    join(s, s.ranks + rank, now, size * s.link_share[tile], share, flow)
    push_event(s.events, (now + s.hop_us[tile], s.key_put + sent))


def arrive(s: State, sent: int, now: float) -> None:
    """The first bytes of a put reach its destination: bandwidth there is shared."""
    tile = sent // s.ranks
    dest = (sent % s.ranks + s.shift[tile]) % s.ranks
    flow = s.cores + 2 * sent + 1
    weight, share = s.store_weight, s.link_weight[tile]
    if s.collective[s.put_of[tile]]:
        weight, share = s.uncapped, s.uncapped
    join(s, dest, now, s.stored[sent], weight, flow)
    size = s.put_bytes[sent] * s.link_share[tile]
    join(s, 2 * s.ranks + dest, now, size, share, flow)


def end_leg(s: State, leg: int, now: float) -> None:
    """One leg of a put is complete: at the source (even) or the destination."""
    sent = leg // 2
    if leg % 2 == 0:
        s.send_left[sent] -= 1
        if s.send_left[sent]:
            return
        left(s, sent, now)
    s.recv_left[sent] -= 1
    if not s.recv_left[sent]:
        deliver(s, sent, now)


def left(s: State, sent: int, now: float) -> None:
    """All of a put has left its source at `now`; its arithmetic may take longer."""
    tile = sent // s.ranks
    put, work_us = s.put_of[tile], s.put_work_us[sent]
    done = now + work_us
    if not s.collective[put]:
        worked = s.began[sent] + work_us
        done = now if now > worked else worked
    s.sent_at[sent] = done
    # Its last bytes are there at the earliest then; `deliver` knows better.
    s.delivered[sent] = done + s.hop_us[tile]
    if s.signalled[put]:
        go_on(s, s.put_core[sent], put, done + s.issue_us[tile])


def deliver(s: State, sent: int, now: float) -> None:
    """All of a put is in the destination's memory; its signal follows."""
    arrived = s.delivered[sent]
    tile = sent // s.ranks
    put, when = s.put_of[tile], (now if now > arrived else arrived) + s.issue_us[tile]
    s.delivered[sent] = when
    if not s.signalled[put]:
        go_on(s, s.put_core[sent], put, when)
    base = (sent % s.ranks + s.shift[tile]) % s.ranks * s.per_rank
    for at in range(s.put_signals[put], s.put_signals[put + 1]):
        signal(s, s.signals[at] + base, when)
