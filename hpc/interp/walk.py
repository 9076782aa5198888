"""How cores walk through their steps, and how signals open gates.

Signals and waits are resolved ahead of time with exact time stamps: a core walks on
from the end of a step, which may lie ahead, until it waits or has work to start.
"""

from __future__ import annotations

from heapq import heappush
from typing import TYPE_CHECKING

from hpc.interp.program import NO_GATE

if TYPE_CHECKING:
    from hpc.interp.state import State

INFINITY = float("inf")
NO_PUT, NO_TILE = -1, -1
MANY = -2
"""For the one signal of a step: it has others, or none of a Set that it has."""
NEXT_SET = -1
"""In a step's list of signals: another Set begins."""

push_event = heappush


def launch(s: State) -> None:
    """Every core's first steps, up to the first work or closed gate."""
    for core in range(s.cores):
        advance(s, core, s.pos[core], s.launch_us)


def advance(s: State, core: int, first: int, now: float) -> None:
    """Walks a core from step `first`, which it comes to at `now`, to the start of its
    next real work."""
    base, to_plan, fetch_us = s.base[core], s.to_plan[core], s.fetch_us
    for i in range(first, s.stop[core]):
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
            now = now if now >= opened else opened + s.poll_us[gate]
        if some:
            s.pos[core] = i
            push_event(s.events, (now, core))
            return
        s.start[i] = now
        s.end[i] = now
        if s.plan_signal[plan] != NO_GATE:
            now = send_signals(s, plan, base, now)
    s.pos[core] = s.stop[core]
    s.done_us[core] = now


def finish(s: State, core: int, now: float) -> None:
    """A core's work ends at `now`, which may lie ahead: signal and go on."""
    i = s.pos[core]
    s.end[i] = now
    plan = i + s.to_plan[core]
    gate = s.plan_signal[plan]
    if gate >= 0:
        now += s.set_us
        signal(s, gate + s.base[core], now)
    elif gate == MANY:
        now = send_signals(s, plan, s.base[core], now)
    advance(s, core, i + 1, now)


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
    left = s.left[gate] - 1
    s.left[gate] = left
    if left == 0:
        open_gate(s, gate)


def open_gate(s: State, gate: int) -> None:
    """All signals are known: the cores that wait go on when the last one is seen."""
    opened = s.last[gate] + s.delay_us[gate]
    poll_us = s.poll_us[gate]
    s.open_at[gate] = opened
    core = s.waiter[gate]
    while core >= 0:
        arrived = s.arrive[s.pos[core]]
        resumed = arrived if arrived >= opened else opened + poll_us
        push_event(s.events, (resumed, core))
        core = s.next_waiter[core]


def has_tiles(s: State, core: int, put: int) -> bool:
    """Sets up the core's first tile of a put instruction; False if it has none."""
    offset = s.put_offset[put * s.ranks + s.rank_of[core]]
    mine = (s.member[core] - offset) % s.put_team[put]
    s.next_tile[core] = mine
    return mine < s.put_tiles[put]


def next_tile(s: State, core: int, put: int, now: float) -> int:
    """The tile of a put that the core starts now, counted over all puts of a rank. A
    core that has waited for a put in which it has no tile gets NO_TILE and goes on."""
    tile, team = s.next_tile[core], s.put_team[put]
    if tile < team:
        s.start[s.pos[core]] = now
    if tile >= s.put_tiles[put]:
        finish(s, core, now)
        return NO_TILE
    s.next_tile[core] = tile + team
    return tile + s.put_first[put]


def go_on(s: State, core: int, put: int, now: float) -> None:
    """A core is rid of a tile at `now`, its fixed cost included: the next tile comes,
    or the end of the instruction."""
    if s.next_tile[core] < s.put_tiles[put]:
        push_event(s.events, (now, core))
    else:
        finish(s, core, now)
