"""The timing engine: discrete-event execution of all queues of all ranks.

A worker's step is: fetch, wait, run, signal. Costs, in this order, for every step:
`task_fetch_us`; if it waits, until the gate is open and then one `event_poll_us`; the
work; `event_set_us` per Set, after which the signal travels `event_visible_us`.

- Compute occupies its core for the larger of its own time and its HBM transfer.
- A put tile reads HBM and drives the egress link of its rank; the core is busy until
  both are done, plus `put_issue_us`. One hop after it began, it starts to occupy the
  ingress link and HBM of the destination: bandwidth there is booked at arrival, so a
  transfer that comes late never blocks one that came earlier. It is delivered, and its
  signal on its way, when every leg is done. An own-rank put is one copy in HBM. A put
  without a signal holds its core until delivery, so that a barrier covers it.
- HBM and links are shared equally (`hbm="shared"`, see `pool`) or served first come,
  first served (`hbm="fifo"`). Puts draw from HBM at most at a core's put rate.
- A collective moves at `collective_gbps` instead, with no limit per core.
- A barrier opens `sync_all_us` after the last arrival, later if it launches a kernel.
  Every program starts with a kernel launch.

Signals and waits are resolved ahead of time with exact time stamps; only starts of
work, gate openings, arrivals and pool wake-ups are events. Ties are broken by kind and
then by rank, queue, core: results do not depend on the heap.
"""

from __future__ import annotations

from heapq import heappop, heappush

from hpc.interp.pool import INFINITY
from hpc.interp.program import NO_GATE
from hpc.interp.state import PutStep, State
from hpc.interp.stuck import SimulationDeadlock, deadlock_message
from hpc.interp.task_steps import BARRIER

UNCAPPED = float(1 << 20)
"""Weight of a collective's transfers: their share is never limited by one core."""


class SharedEngine(State):
    """The event loop, with every HBM and link shared equally by its transfers."""

    def run(self) -> None:
        """Runs to the end; raises SimulationDeadlock if some cores cannot finish."""
        for core in range(self.cores):
            self._advance(core, self.machine.kernel_launch_us)
        events, cores = self.events, self.cores
        key_pool, key_recv = self.key_pool, self.key_recv
        while events:
            now, key = heappop(events)
            if key < cores:
                self._begin(core=key, now=now)
            elif key < key_pool:
                self._open(key - self.key_gate, now)
            elif key < key_recv:
                self._wake(key - key_pool, now)
            else:
                self._arrival(key - key_recv, now)
        if any(pos < stop for pos, stop in zip(self.pos, self.stop, strict=True)):
            raise SimulationDeadlock(self._stuck())

    def _advance(self, core: int, now: float) -> None:
        """Walks a core from the end of a step to the start of its next real work."""
        plan, base = self.plans[self.code_of[core]], self.base[core]
        first, per_rank, fetch_us = self.first[core], self.per_rank, self.fetch_us
        for i in range(self.pos[core], self.stop[core]):
            kind, gate, signals, put = plan[i - first]
            now += fetch_us
            self.arrive[i] = now
            if put is None:
                some = self.work_us[i] > 0
            else:
                mine = (self.member[core] - put.offset[self.rank_of[core]]) % put.team
                self.next_tile[core] = mine
                some = mine < put.tiles
            if gate != NO_GATE:
                if gate < per_rank:
                    gate += base
                if kind == BARRIER:
                    self._signal(gate, now)
                opened = self.open_at[gate]
                if opened == INFINITY or kind == BARRIER:
                    self.pos[core] = i
                    self.waiters.setdefault(gate, []).append(core)
                    return
                now = (now if now > opened else opened) + self.poll[gate % per_rank]
            if some:
                self.pos[core] = i
                heappush(self.events, (now, core))
                return
            self.start[i] = self.end[i] = now
            for targets in signals:
                now += self.set_us
                for target in targets:
                    self._signal(target + base, now)
        self.pos[core] = self.stop[core]
        self.done_us[core] = now

    def _finish(self, core: int, now: float) -> None:
        """A core's work ends at `now`, which may lie ahead: signal and go on."""
        i = self.pos[core]
        self.end[i] = now
        base = self.base[core]
        for targets in self.plans[self.code_of[core]][i - self.first[core]][2]:
            now += self.set_us
            for target in targets:
                self._signal(target + base, now)
        self.pos[core] = i + 1
        self._advance(core, now)

    def _signal(self, gate: int, when: float) -> None:
        """One signal stored at `when` (>= the present); the last one opens the gate."""
        if when > self.last[gate]:
            self.last[gate] = when
        left = self.left[gate] - 1
        self.left[gate] = left
        if left:
            return
        kind = gate % self.per_rank
        opened = self.last[gate] + self.delay[kind]
        self.open_at[gate] = opened
        heappush(self.events, (opened + self.poll[kind], self.key_gate + gate))

    def _open(self, gate: int, now: float) -> None:
        """A gate is open and its waiters have seen it: they start, in core order."""
        opened = self.open_at[gate]
        poll = self.poll[gate % self.per_rank]
        for core in sorted(self.waiters.pop(gate, ())):
            i = self.pos[core]
            arrived = self.arrive[i]
            if arrived > opened:
                heappush(self.events, (arrived + poll, core))
            else:
                self._begin(core, now)

    def _begin(self, core: int, now: float) -> None:
        """The work of the core's current step starts, or its next put tile."""
        i = self.pos[core]
        put = self.plans[self.code_of[core]][i - self.first[core]][3]
        if put is not None:
            self._put(core, i, put, now)
            return
        self.start[i] = now
        size = self.hbm_bytes[i]
        if size > 0:
            self._move(core, i, now, size)
        else:
            self._finish(core, now + self.work_us[i])

    def _move(self, core: int, i: int, now: float, size: float) -> None:
        """Compute that moves `size` bytes: its end is known when they have moved."""
        rank = self.rank_of[core]
        if self.hbm[rank].join(now, size, 1.0, core):
            heappush(self.events, (self.hbm[rank].token, self.key_pool + rank))

    def _wake(self, pool: int, now: float) -> None:
        """A pool's wake-up: finish what is complete, unless the wake-up is stale."""
        shared = self.pools[pool]
        if shared.token != now:
            return
        cores = self.cores
        done = shared.finished(now)
        if shared.token != INFINITY:
            heappush(self.events, (shared.token, self.key_pool + pool))
        for flow in done:
            if flow >= cores:
                self._leg(flow - cores, now)
                continue
            i = self.pos[flow]
            alone = self.start[i] + self.work_us[i]
            self._finish(flow, alone if alone > now else now)

    # -- puts --------------------------------------------------------------------

    def _put(self, core: int, i: int, step: PutStep, now: float) -> None:
        tile = self.next_tile[core]
        if tile < step.team:
            self.start[i] = now
        if tile >= step.tiles:
            self._finish(core, now)
            return
        self.next_tile[core] = tile + step.team
        rank = self.rank_of[core]
        tile += step.first
        put = rank * self.per_put + tile
        self.put_core[put] = core
        self.began[put] = now
        self._send(put, rank, tile, now)

    def _send(self, put: int, rank: int, tile: int, now: float) -> None:
        """Starts the legs of a put tile at its source."""
        size = self.put_bytes[put]
        remote = self.shift[tile] != 0
        if not size:
            self.ready[put] = now + (self.machine.hop_us if remote else 0.0)
            self.sent_at[put] = now
            self._deliver(put, now)
            if self.signalled[tile]:
                self._sent(put, now)
            return
        weight = UNCAPPED if self.collective[tile] else self.put_weight
        flow = self.cores + 2 * put
        if not remote:
            self.send_left[put] = self.recv_left[put] = 1
            self._join(rank, now, 2 * size, weight, flow)
            return
        self.send_left[put], self.recv_left[put] = 2, 3
        self._join(rank, now, size, weight, flow)
        self._link(self.ranks + rank, tile, now, size, flow)
        heappush(self.events, (now + self.machine.hop_us, self.key_recv + put))

    def _arrival(self, put: int, now: float) -> None:
        """The first bytes of a put reach the destination: book bandwidth there."""
        tile = put % self.per_put
        dest = (put // self.per_put + self.shift[tile]) % self.ranks
        size = self.put_bytes[put]
        flow = self.cores + 2 * put + 1
        weight = UNCAPPED if self.collective[tile] else self.put_weight
        self._join(dest, now, size, weight, flow)
        self._link(2 * self.ranks + dest, tile, now, size, flow)

    def _link(self, pool: int, tile: int, now: float, size: float, flow: int) -> None:
        if self.collective[tile]:
            self._join(pool, now, size * self.stretch, UNCAPPED, flow)
        else:
            self._join(pool, now, size, 1.0, flow)

    def _join(
        self, pool: int, now: float, size: float, weight: float, flow: int
    ) -> None:
        if self.pools[pool].join(now, size, weight, flow):
            heappush(self.events, (self.pools[pool].token, self.key_pool + pool))

    def _leg(self, flow: int, now: float) -> None:
        """One leg of a put is complete: at the source (even) or the destination."""
        put, arriving = divmod(flow, 2)
        if arriving:
            self._received(put, now)
            return
        self.send_left[put] -= 1
        if self.send_left[put]:
            return
        remote = self.shift[put % self.per_put] != 0
        self.sent_at[put] = now
        self.ready[put] = now + (self.machine.hop_us if remote else 0.0)
        self._received(put, now)
        if self.signalled[put % self.per_put]:
            self._sent(put, now)

    def _received(self, put: int, now: float) -> None:
        self.recv_left[put] -= 1
        if not self.recv_left[put]:
            self._deliver(put, now)

    def _sent(self, put: int, now: float) -> None:
        """The core goes on with its next tile, after the fixed cost of this one."""
        core = self.put_core[put]
        heappush(self.events, (now + self.machine.put_issue_us, core))

    def _deliver(self, put: int, now: float) -> None:
        arrived = max(now, self.ready[put])
        when = arrived + self.machine.put_issue_us
        self.delivered[put] = when
        tile = put % self.per_put
        if not self.signalled[tile]:
            self._sent(put, arrived)
        base = (put // self.per_put + self.shift[tile]) % self.ranks * self.per_rank
        for gate in self.put_gates[tile]:
            self._signal(base + gate, when)

    def _stuck(self) -> str:
        return deadlock_message(
            self.schedule,
            self.program,
            self.work,
            [
                (self.rank_of[core], self.code_of[core], self.pos[core] - first)
                for core, first in enumerate(self.first)
                if self.pos[core] < self.stop[core]
            ],
            self.left,
        )
