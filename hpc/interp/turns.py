"""The event loop with memories and links that serve first come, first served.

A transfer is *booked*: it begins when those booked before it are done. So its end is
known at once, and only starts of work and arrivals of puts are events.
"""

from __future__ import annotations

from heapq import heappop, heappush
from operator import not_ as is_empty
from typing import TYPE_CHECKING

from hpc.interp.bandwidth import CLOCK, RATE, SERVED
from hpc.interp.walk import NO_PUT, NO_TILE, finish, go_on, next_tile, signal

if TYPE_CHECKING:
    from hpc.interp.state import State

push_event, pop_event = heappush, heappop


def run_in_turn(s: State, limit: int) -> int:
    """Handles up to `limit` events; fewer than that when none is left."""
    events, cores, key_put = s.events, s.cores, s.key_put
    pos, to_plan, rank_of, pools = s.pos, s.to_plan, s.rank_of, s.pools
    now = s.clock[0]
    for handled in range(limit):
        if is_empty(events):
            s.clock[0] = now
            return handled
        now, key = pop_event(events)
        if key >= cores:
            arrive_in_turn(s, key - key_put, now)
            continue
        i = pos[key]
        put = s.plan_put[i + to_plan[key]]
        if put != NO_PUT:
            put_in_turn(s, key, put, now)
            continue
        s.start[i] = now
        done, size = now + s.work_us[i], s.hbm_bytes[i]
        if size > 0.0:
            weight = s.hbm_weight[(i + to_plan[key]) * s.ranks + rank_of[key]]
            moved = now + size / (s.hbm_core_rate * weight)
            done = done if done > moved else moved
            pool = pools[rank_of[key]]
            free = pool[CLOCK]
            moved = (free if free > now else now) + size / pool[RATE]
            pool[CLOCK] = moved
            pool[SERVED] += size
            done = done if done > moved else moved
        finish(s, key, done)
    s.clock[0] = now
    return limit


def book(s: State, index: int, now: float, size: float) -> float:
    """The time at which a transfer is complete."""
    pool = s.pools[index]
    free = pool[CLOCK]
    done = (free if free > now else now) + size / pool[RATE]
    pool[CLOCK] = done
    pool[SERVED] += size
    return done


def put_in_turn(s: State, core: int, put: int, now: float) -> None:
    """The core's next tile of a put starts: memory and egress are booked at once, the
    destination's at arrival."""
    tile, rank = next_tile(s, core, put, now), s.rank_of[core]
    if tile == NO_TILE:
        return
    sent = tile * s.ranks + rank
    s.put_core[sent] = core
    s.began[sent] = now
    remote = s.shift[tile] != 0
    if remote:
        done = book(s, rank, now, s.fetched[sent])
        carried = s.put_bytes[sent] * s.link_share[tile]
        moved = book(s, s.ranks + rank, now, carried)
        done = done if done > moved else moved
    else:
        done = book(s, rank, now, s.fetched[sent] + s.stored[sent])
    if s.collective[put]:
        done += s.put_work_us[sent]
    else:
        worked = now + s.put_work_us[sent]
        done = done if done > worked else worked
    s.sent_at[sent] = done
    if s.signalled[put]:
        go_on(s, core, put, done + s.issue_us[tile])
    if remote:
        push_event(s.events, (done + s.hop_us[tile], s.key_put + sent))
    else:
        deliver_in_turn(s, sent, put, rank, done + s.issue_us[tile])


def arrive_in_turn(s: State, sent: int, now: float) -> None:
    """The last bytes of a put reach their destination, whose link and memory may have
    moved the others before: they are done now, or behind all that they still owe."""
    tile = sent // s.ranks
    dest = (sent % s.ranks + s.shift[tile]) % s.ranks
    carried, size = s.put_bytes[sent] * s.link_share[tile], s.stored[sent]
    pool = s.pools[2 * s.ranks + dest]
    done = pool[CLOCK] + carried / pool[RATE]
    done = done if done > now else now
    pool[CLOCK] = done
    pool[SERVED] += carried
    pool = s.pools[dest]
    stored = pool[CLOCK] + size / pool[RATE]
    stored = stored if stored > now else now
    pool[CLOCK] = stored
    pool[SERVED] += size
    done = (done if done > stored else stored) + s.issue_us[tile]
    deliver_in_turn(s, sent, s.put_of[tile], dest, done)


def deliver_in_turn(s: State, sent: int, put: int, dest: int, when: float) -> None:
    """All of a put is in the destination's memory, its fixed cost included; its signal
    follows."""
    s.delivered[sent] = when
    if not s.signalled[put]:
        go_on(s, s.put_core[sent], put, when)
    base = dest * s.per_rank
    for at in range(s.put_signals[put], s.put_signals[put + 1]):
        signal(s, s.signals[at] + base, when)
