"""The event loop: execution of all queues of all ranks, one event at a time.

A worker's step is: fetch, wait, run, signal. Costs, in this order, for every step:
`task_fetch_us`; if it waits, until the gate is open and then one `event_poll_us`; the
work; `event_set_us` per Set, after which the signal travels `event_visible_us`.

- Compute occupies its core for the larger of its own time and its HBM transfer.
- A put tile reads HBM and occupies the egress link of its rank; the core is busy until
  both are done and it has driven and computed all of it, plus `put_issue_us`. One hop
  after it began, it starts to occupy the ingress link and HBM of the destination:
  bandwidth there is booked at arrival, so a transfer that comes late never blocks one
  that came earlier.
  It is delivered, and its signal on its way, when every leg is done. An own-rank put is
  a core's copy. A put without a signal holds its core until delivery, so that a
  barrier covers it.
- HBM and links are shared equally (`join`, `wake`) or served first come, first served
  (`book`). Puts draw from HBM at most at a core's put rate, and as much again for a
  second row to multiply with.
  What a byte is worth on a link, and the hop, depend on the tile (see `expand`). A
  collective has no limit per core; what it sends is computed before, in a pass of its
  own, which here comes on top of the transfer.
- A barrier opens `sync_all_us` after the last arrival, later if it launches a kernel.
  Every program starts with a kernel launch.

Signals and waits are resolved ahead of time with exact time stamps; only starts of
work, arrivals and wake-ups of bandwidths are events. Simultaneous ones happen by kind,
then in the order of cores, bandwidths, put tiles, and ranks last: so a rank's part of
a run does not depend on which rank it is.

The functions are compiled as they stand by `hpc.interp.compiled`, which also exchanges
the five heap functions. So they use indexed loads, numbers and each other only: no
objects but `State`, no recursion, no lists of their own, no exceptions.
"""

from __future__ import annotations

from heapq import heappop, heappush
from operator import not_ as is_empty
from typing import TYPE_CHECKING

from hpc.interp.program import NO_GATE

if TYPE_CHECKING:
    from hpc.interp.state import State

INFINITY = float("inf")
NO_PUT = -1
NEXT_SET = -1
"""In a step's list of signals: another Set begins."""

RATE, CAP, SERVED, CLOCK, WEIGHT, LAST, TOKEN, NEXT = range(8)
"""Fields of a bandwidth: bytes per us of all and of one transfer of weight 1; bytes
asked for; virtual bytes that each has moved; sum of weights; time of the last change;
time of the one wake-up that is not stale; smallest finish mark. First come, first
served ones use CLOCK for the time at which they are free."""

push_event, pop_event = heappush, heappop
push_flow, pop_flow = heappush, heappop


def head(flows: list[tuple[float, int, float]]) -> float:
    """The smallest finish mark, or infinity."""
    return flows[0][0] if flows else INFINITY


def launch(s: State) -> None:
    """Every core's first steps, up to the first work or closed gate."""
    for core in range(s.cores):
        advance(s, core, s.launch_us)


def run_events(s: State, limit: int) -> int:
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


# -- steps -----------------------------------------------------------------------------


def advance(s: State, core: int, now: float) -> None:
    """Walks a core from the end of a step to the start of its next real work."""
    base, to_plan, fetch_us = s.base[core], s.to_plan[core], s.fetch_us
    for i in range(s.pos[core], s.stop[core]):
        plan = i + to_plan
        now += fetch_us
        s.arrive[i] = now
        put = s.plan_put[plan]
        some = s.work_us[i] > 0.0 if put == NO_PUT else has_tiles(s, core, put)
        gate = s.plan_gate[plan]
        if gate != NO_GATE:
            if gate < s.per_rank:
                gate += base
            if s.plan_barrier[plan]:
                signal(s, gate, now)
            opened = s.open_at[gate]
            if opened == INFINITY:
                s.pos[core] = i
                s.next_waiter[core] = s.waiter[gate]
                s.waiter[gate] = core
                return
            now = (now if now > opened else opened) + s.poll_us[gate]
        if some:
            s.pos[core] = i
            push_event(s.events, (now, core))
            return
        s.start[i] = now
        s.end[i] = now
        if s.plan_signals[plan] != s.plan_signals[plan + 1]:
            now = send_signals(s, plan, base, now)
    s.pos[core] = s.stop[core]
    s.done_us[core] = now


def finish(s: State, core: int, now: float) -> None:
    """A core's work ends at `now`, which may lie ahead: signal and go on."""
    i = s.pos[core]
    s.end[i] = now
    s.pos[core] = i + 1
    plan = i + s.to_plan[core]
    if s.plan_signals[plan] != s.plan_signals[plan + 1]:
        now = send_signals(s, plan, s.base[core], now)
    advance(s, core, now)


def send_signals(s: State, plan: int, base: int, now: float) -> float:
    """Every Set of a step, in turn; the time after the last one."""
    for at in range(s.plan_signals[plan], s.plan_signals[plan + 1]):
        gate = s.signals[at]
        if gate == NEXT_SET:
            now += s.set_us
        else:
            signal(s, gate + base, now)
    return now


def signal(s: State, gate: int, when: float) -> None:
    """One signal stored at `when` (>= the present); the last one opens the gate."""
    if when > s.last[gate]:
        s.last[gate] = when
    s.left[gate] -= 1
    if s.left[gate]:
        return
    opened = s.last[gate] + s.delay_us[gate]
    poll_us = s.poll_us[gate]
    s.open_at[gate] = opened
    core = s.waiter[gate]
    while core >= 0:
        arrived = s.arrive[s.pos[core]]
        resumed = (arrived if arrived > opened else opened) + poll_us
        push_event(s.events, (resumed, core))
        core = s.next_waiter[core]


def begin(s: State, core: int, now: float) -> None:
    """The work of the core's current step starts, or its next put tile."""
    i = s.pos[core]
    put = s.plan_put[i + s.to_plan[core]]
    if put != NO_PUT:
        begin_put(s, core, put, now)
        return
    s.start[i] = now
    size = s.hbm_bytes[i]
    if size <= 0.0:
        finish(s, core, now + s.work_us[i])
    elif s.shared:
        join(s, s.rank_of[core], now, size, 1.0, core)
    else:
        alone = size / s.hbm_core_rate
        alone = now + (s.work_us[i] if s.work_us[i] > alone else alone)
        moved = book(s, s.rank_of[core], now, size)
        finish(s, core, moved if moved > alone else alone)


# -- bandwidths ------------------------------------------------------------------------


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
        end_flow(s, flow, now)
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


def end_flow(s: State, flow: int, now: float) -> None:
    """A transfer is complete: a core's own, or one leg of a put."""
    if flow >= s.cores:
        end_leg(s, flow - s.cores, now)
        return
    i = s.pos[flow]
    alone = s.start[i] + s.work_us[i]
    finish(s, flow, alone if alone > now else now)


def book(s: State, index: int, now: float, size: float) -> float:
    """First come, first served: the time at which a transfer is complete."""
    pool = s.pools[index]
    free = pool[CLOCK]
    done = (free if free > now else now) + size / pool[RATE]
    pool[CLOCK] = done
    pool[SERVED] += size
    return done


# -- puts ------------------------------------------------------------------------------


def has_tiles(s: State, core: int, put: int) -> bool:
    """Sets up the core's first tile of a put instruction; False if it has none."""
    offset = s.put_offset[put * s.ranks + s.rank_of[core]]
    mine = (s.member[core] - offset) % s.put_team[put]
    s.next_tile[core] = mine
    return mine < s.put_tiles[put]


def begin_put(s: State, core: int, put: int, now: float) -> None:
    """The next tile of a put starts; its instruction ends if there is none."""
    tile, team = s.next_tile[core], s.put_team[put]
    if tile < team:
        s.start[s.pos[core]] = now
    if tile >= s.put_tiles[put]:
        finish(s, core, now)
        return
    s.next_tile[core] = tile + team
    tile += s.put_first[put]
    sent = tile * s.ranks + s.rank_of[core]
    s.put_core[sent] = core
    s.began[sent] = now
    if s.shared:
        send(s, sent, tile, now)
    else:
        send_in_turn(s, sent, tile, now)


def send(s: State, sent: int, tile: int, now: float) -> None:
    """Starts the legs of a put tile at its source."""
    size, rank, remote = s.put_bytes[sent], sent % s.ranks, s.shift[tile] != 0
    if size <= 0.0:
        s.ready[sent] = now + s.hop_us[tile]
        s.sent_at[sent] = now
        deliver(s, sent, now)
        if s.signalled[s.put_of[tile]]:
            go_on(s, sent, now)
        return
    flow = s.cores + 2 * sent
    put = s.put_of[tile]
    if not remote:
        s.send_left[sent] = 1
        s.recv_left[sent] = 1
        join(s, rank, now, s.fetched[sent] + s.stored[sent], 1.0, flow)
        return
    weight = s.uncapped if s.collective[put] else s.pull_weight[put]
    s.send_left[sent] = 2
    s.recv_left[sent] = 3
    join(s, rank, now, s.fetched[sent], weight, flow)
    link(s, s.ranks + rank, tile, now, size, flow)
    push_event(s.events, (now + s.hop_us[tile], s.key_put + sent))


def send_in_turn(s: State, sent: int, tile: int, now: float) -> None:
    """The same with bandwidths that serve first come, first served."""
    size, rank, remote = s.put_bytes[sent], sent % s.ranks, s.shift[tile] != 0
    moved = s.fetched[sent] if remote else s.fetched[sent] + s.stored[sent]
    done = book(s, rank, now, moved)
    if remote:
        moved = book(s, s.ranks + rank, now, size * s.link_share[tile])
        done = done if done > moved else moved
    done = computed(s, sent, done)
    s.sent_at[sent] = done
    s.ready[sent] = done
    if s.signalled[s.put_of[tile]]:
        go_on(s, sent, done)
    if remote:
        s.ready[sent] = done + s.hop_us[tile]
        push_event(s.events, (s.ready[sent], s.key_put + sent))
    else:
        deliver(s, sent, done)


def arrive(s: State, sent: int, now: float) -> None:
    """A put reaches its destination (its first bytes; its last if served in turn,
    when the link may have carried the others before): books bandwidth there."""
    tile = sent // s.ranks
    dest = (sent % s.ranks + s.shift[tile]) % s.ranks
    size = s.put_bytes[sent]
    if s.shared:
        flow = s.cores + 2 * sent + 1
        join(s, dest, now, s.stored[sent], hbm_weight(s, tile), flow)
        link(s, 2 * s.ranks + dest, tile, now, size, flow)
        return
    carried = size * s.link_share[tile]
    into = 2 * s.ranks + dest
    done = book(s, into, now - carried / s.pools[into][RATE], carried)
    size = s.stored[sent]
    stored = book(s, dest, now - size / s.pools[dest][RATE], size)
    done = done if done > stored else stored
    deliver(s, sent, done if done > now else now)


def hbm_weight(s: State, tile: int) -> float:
    return s.uncapped if s.collective[s.put_of[tile]] else s.put_weight


def link(s: State, index: int, tile: int, now: float, size: float, flow: int) -> None:
    """A leg of a put over a link."""
    weight = s.uncapped if s.collective[s.put_of[tile]] else 1.0
    join(s, index, now, size * s.link_share[tile], weight, flow)


def end_leg(s: State, leg: int, now: float) -> None:
    """One leg of a put is complete: at the source (even) or the destination."""
    sent = leg // 2
    if leg % 2 == 0:
        s.send_left[sent] -= 1
        if s.send_left[sent]:
            return
        done = computed(s, sent, now)
        s.sent_at[sent] = done
        tile = sent // s.ranks
        s.ready[sent] = done + s.hop_us[tile]
        if s.signalled[s.put_of[tile]]:
            go_on(s, sent, done)
    s.recv_left[sent] -= 1
    if not s.recv_left[sent]:
        deliver(s, sent, now)


def computed(s: State, sent: int, now: float) -> float:
    """When the arithmetic of a put tile is done, too, if its rows have left `now`."""
    if s.collective[s.put_of[sent // s.ranks]]:
        return now + s.put_work_us[sent]
    worked = s.began[sent] + s.put_work_us[sent]
    return now if now > worked else worked


def go_on(s: State, sent: int, now: float) -> None:
    """The core goes on with its next tile, after the fixed cost of this one."""
    push_event(s.events, (now + s.issue_us, s.put_core[sent]))


def deliver(s: State, sent: int, now: float) -> None:
    """All of a put is in the destination's memory; its signal follows."""
    arrived = now if now > s.ready[sent] else s.ready[sent]
    when = arrived + s.issue_us
    s.delivered[sent] = when
    tile = sent // s.ranks
    put = s.put_of[tile]
    if not s.signalled[put]:
        go_on(s, sent, arrived)
    base = (sent % s.ranks + s.shift[tile]) % s.ranks * s.per_rank
    for at in range(s.put_signals[put], s.put_signals[put + 1]):
        signal(s, s.signals[at] + base, when)
