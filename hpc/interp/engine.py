"""The timing engine: discrete-event execution of all queues of all ranks.

A worker's step is: fetch, wait, run, signal. Costs, in this order, for every step:
`task_fetch_us`; if it waits, until the gate is open and then one `event_poll_us`; the
work; `event_set_us` per Set, after which the signal travels `event_visible_us`.

- Compute occupies its core for the larger of its own time and its HBM transfer.
- A put tile reads HBM and drives the egress link of its rank; the core is busy until
  both are done, plus `put_issue_us`. One hop after it began, it starts to occupy the
  ingress link and HBM of the destination: bandwidth there is booked at arrival, so a
  transfer that comes late never blocks one that came earlier. It is delivered, and its
  signal on its way, when every leg is done. An own-rank put is one copy in HBM.
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

from array import array
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from hpc.interp.expand import BARRIER, COMPUTE, PUT, Expanded, expand
from hpc.interp.pool import INFINITY, FifoPool, SharedPool
from hpc.interp.program import NO_GATE, Program, build_program, put_signals
from hpc.interp.stuck import deadlock_message
from hpc.interp.timing import Run, Timing, measure
from hpc.machine.record import Machine
from hpc.schedule.model import Put, Schedule

UNCAPPED = float(1 << 20)
"""Weight of a collective's transfers: their share is never limited by one core."""


class SimulationDeadlock(RuntimeError):
    """Some cores wait for ever; the message says who waits for what."""


def simulate(
    schedule: Schedule,
    counts: npt.ArrayLike,
    machine: Machine,
    *,
    record: bool = False,
    hbm: str = "shared",
) -> Timing:
    """Simulated time of one launch with routing `counts[source rank][expert]`.

    `record` keeps the intervals of all cores and puts for traces. `hbm` is "shared"
    or "fifo". Raises SimulationDeadlock, and ValueError for counts of another shape.
    """
    if hbm not in ("shared", "fifo"):
        raise ValueError(f"hbm must be 'shared' or 'fifo', got {hbm!r}")
    work = expand(schedule, counts, machine)
    program = build_program(schedule, work, machine)
    engine = (Engine if hbm == "shared" else FifoEngine)(
        schedule, work, program, machine
    )
    engine.run()
    return measure(engine.result(), record=record)


def dyadic(ratio: float) -> float:
    """`ratio` as a positive multiple of 2^-10 (see SharedPool)."""
    return max(1, round(ratio * 1024)) / 1024


def _floats(values: npt.NDArray[np.float64]) -> array[float]:
    return array("d", np.ascontiguousarray(values).tobytes())


class Engine:
    """State of a run as flat arrays; every HBM and link shared by weight.

    Cores are numbered rank by rank, queue by queue; a core's steps are consecutive
    in the instance arrays (`work_us`, `hbm_bytes`, `arrive`, `start`, `end`).
    """

    def __init__(
        self, schedule: Schedule, work: Expanded, program: Program, machine: Machine
    ) -> None:
        self.schedule, self.work = schedule, work
        self.program, self.machine = program, machine
        self.ranks = schedule.layer.ep
        self.events: list[tuple[float, int]] = []
        self._init_cores()
        self._init_gates()
        self._init_puts()
        self._init_pools()

    def _init_cores(self) -> None:
        program, machine = self.program, self.machine
        self.fetch_us, self.set_us = machine.task_fetch_us, machine.event_set_us
        self.code_of: list[int] = []
        self.first: list[int] = []
        self.rank_of: list[int] = []
        self.member: list[int] = []
        at = 0
        for rank in range(self.ranks):
            for q, queue in enumerate(self.schedule.queues):
                steps = len(program.codes[q].kinds)
                for core in range(queue.team.size):
                    self.code_of.append(q)
                    self.rank_of.append(rank)
                    self.member.append(core)
                    self.first.append(at)
                    at += steps
        self.cores = len(self.first)
        self.pos = list(self.first)
        self.stop = [*self.first[1:], at]
        self.done_us = [0.0] * self.cores
        flat = [q.work_us.reshape(self.ranks, -1) for q in self.work.queues]
        self.work_us = _floats(np.concatenate(flat, axis=1))
        flat = [q.hbm_bytes.reshape(self.ranks, -1) for q in self.work.queues]
        self.hbm_bytes = _floats(np.concatenate(flat, axis=1))
        self.arrive, self.start, self.end = (_floats(np.zeros(at)) for _ in range(3))

    def _init_gates(self) -> None:
        gates = self.program.gates
        self.per_rank = len(gates)
        world = self.ranks * self.per_rank
        self.left = [gate.need for gate in gates] * (self.ranks + 1)
        self.last = [0.0] * len(self.left)
        self.open_at = [INFINITY if left else 0.0 for left in self.left]
        self.delay = [gate.delay_us for gate in gates]
        self.poll = [gate.poll_us for gate in gates]
        self.waiters: dict[int, list[int]] = {}
        # World gates get absolute numbers, beyond those of every rank.
        self.gates = [
            [g + world if g >= 0 and gates[g].world else g for g in code.gates]
            for code in self.program.codes
        ]
        self.kinds = [code.kinds for code in self.program.codes]
        self.signals = [code.signals for code in self.program.codes]

    def _init_puts(self) -> None:
        tiles = self.work.puts
        self.per_put = len(tiles.shift)
        count = self.ranks * self.per_put
        self.put_bytes = _floats(tiles.bytes)
        self.shift: list[int] = tiles.shift.tolist()
        self.put_gates: list[tuple[int, ...]] = [()] * self.per_put
        self.collective = bytearray(self.per_put)
        for (q, i), first in tiles.first.items():
            put = self.schedule.queues[q].code[i]
            assert isinstance(put, Put)
            signals = put_signals(put, self.program.of_event)
            for t in range(first, first + self._put_tiles(put)):
                self.put_gates[t] = signals
                self.collective[t] = put.transport == "collective"
        self.next_tile = [0] * self.cores
        self.put_core = array("i", bytes(4 * count))
        self.send_left = bytearray(count)
        self.recv_left = bytearray(count)
        self.ready, self.sent_at, self.began, self.delivered = (
            _floats(np.zeros(count)) for _ in range(4)
        )

    def _put_tiles(self, put: Put) -> int:
        return len(self.schedule.groups[put.group]) * put.chunks

    def _init_pools(self) -> None:
        machine, ranks = self.machine, range(self.ranks)
        hbm, core = machine.hbm_gbps * 1e3, machine.hbm_core_gbps * 1e3
        link, put = machine.link_gbps * 1e3, machine.put_core_gbps * 1e3
        self.hbm = [SharedPool(hbm, core) for _ in ranks]
        self.egress = [SharedPool(link, put) for _ in ranks]
        self.ingress = [SharedPool(link, put) for _ in ranks]
        self.pools = [*self.hbm, *self.egress, *self.ingress]
        self.put_weight = dyadic(machine.put_core_gbps / machine.hbm_core_gbps)
        self.stretch = machine.link_gbps / machine.collective_gbps
        # Keys of the event heap, in the order in which ties are handled.
        self.key_gate = self.cores
        self.key_pool = self.key_gate + len(self.left)
        self.key_recv = self.key_pool + len(self.pools)

    # -- the event loop ----------------------------------------------------------

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
        q = self.code_of[core]
        kinds, gates, signals = self.kinds[q], self.gates[q], self.signals[q]
        work_us, first = self.work_us, self.first[core]
        for i in range(self.pos[core], self.stop[core]):
            step = i - first
            kind = kinds[step]
            now += self.fetch_us
            self.arrive[i] = now
            some = work_us[i] > 0 if kind != PUT else self._first_tile(core, step)
            gate = gates[step]
            if gate != NO_GATE:
                if gate < self.per_rank:
                    gate += self.rank_of[core] * self.per_rank
                if kind == BARRIER:
                    self._signal(gate, now)
                opened = self.open_at[gate]
                if opened == INFINITY or kind == BARRIER:
                    self.pos[core] = i
                    self.waiters.setdefault(gate, []).append(core)
                    return
                now = max(now, opened) + self.poll[gate % self.per_rank]
            if some:
                self.pos[core] = i
                heappush(self.events, (now, core))
                return
            self.start[i] = self.end[i] = now
            for targets in signals[step]:
                now += self.set_us
                for target in targets:
                    self._signal(target + self.rank_of[core] * self.per_rank, now)
        self.pos[core] = self.stop[core]
        self.done_us[core] = now

    def _finish(self, core: int, now: float) -> None:
        """A core's work ends at `now`, which may lie ahead: signal and go on."""
        i = self.pos[core]
        self.end[i] = now
        base = self.rank_of[core] * self.per_rank
        for targets in self.signals[self.code_of[core]][i - self.first[core]]:
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
        step = i - self.first[core]
        kind = self.kinds[self.code_of[core]][step]
        if kind == PUT:
            self._put(core, i, step, now)
            return
        self.start[i] = now
        size = self.hbm_bytes[i]
        if kind == COMPUTE and size > 0:
            rank = self.rank_of[core]
            if self.hbm[rank].join(now, size, 1.0, core):
                heappush(self.events, (self.hbm[rank].token, self.key_pool + rank))
            return
        self._finish(core, now + self.work_us[i])

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

    def _first_tile(self, core: int, step: int) -> bool:
        """Does this core have a tile of the put? Notes its first one."""
        tiles, _, team, offset = self._put_at(core, step)
        mine = (self.member[core] - offset) % team
        self.next_tile[core] = mine
        return mine < tiles

    def _put_at(self, core: int, step: int) -> tuple[int, int, int, int]:
        """(tiles, first tile of the rank's list, team size, offset) of a put step."""
        q = self.code_of[core]
        queue = self.schedule.queues[q]
        i = self.program.codes[q].works[step]
        put = queue.code[i]
        assert isinstance(put, Put)
        offset = int(self.work.queues[q].offsets[self.rank_of[core], i])
        first = self.work.puts.first[q, i]
        return self._put_tiles(put), first, queue.team.size, offset

    def _put(self, core: int, i: int, step: int, now: float) -> None:
        tiles, first, team, _ = self._put_at(core, step)
        tile = self.next_tile[core]
        if tile < team:
            self.start[i] = now
        if tile >= tiles:
            self._finish(core, now)
            return
        self.next_tile[core] = tile + team
        rank = self.rank_of[core]
        put = rank * self.per_put + first + tile
        self.put_core[put] = core
        self.began[put] = now
        self._send(put, rank, first + tile, now)

    def _send(self, put: int, rank: int, tile: int, now: float) -> None:
        """Starts the legs of a put tile at its source."""
        size = self.put_bytes[put]
        remote = self.shift[tile] != 0
        if not size:
            self.ready[put] = now + (self.machine.hop_us if remote else 0.0)
            self.sent_at[put] = now
            self._deliver(put, now)
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
        when = max(now, self.ready[put]) + self.machine.put_issue_us
        self.delivered[put] = when
        tile = put % self.per_put
        base = (put // self.per_put + self.shift[tile]) % self.ranks * self.per_rank
        for gate in self.put_gates[tile]:
            self._signal(base + gate, when)

    # -- the end -----------------------------------------------------------------

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

    def result(self) -> Run:
        """What the run left behind, for `timing.measure`."""
        return Run(
            schedule=self.schedule,
            machine=self.machine,
            program=self.program,
            work=self.work,
            arrive=np.frombuffer(self.arrive),
            start=np.frombuffer(self.start),
            end=np.frombuffer(self.end),
            done_us=np.array(self.done_us),
            put_begin=np.frombuffer(self.began),
            put_sent=np.frombuffer(self.sent_at),
            put_delivered=np.frombuffer(self.delivered),
            put_core=np.frombuffer(self.put_core, dtype=np.int32),
            served=np.array(self._served()).reshape(3, self.ranks),
        )

    def _served(self) -> list[float]:
        return [pool.served for pool in self.pools]


class FifoEngine(Engine):
    """The same engine with HBM and links served first come, first served."""

    def _init_pools(self) -> None:
        super()._init_pools()
        self.queues = [FifoPool(pool.rate) for pool in self.pools]

    def _begin(self, core: int, now: float) -> None:
        i = self.pos[core]
        step = i - self.first[core]
        if self.kinds[self.code_of[core]][step] == PUT:
            self._put(core, i, step, now)
            return
        self.start[i] = now
        end = now + self.work_us[i]
        size = self.hbm_bytes[i]
        if size > 0:
            moved = self.queues[self.rank_of[core]].book(now, size)
            end = moved if moved > end else end
        self._finish(core, end)

    def _send(self, put: int, rank: int, tile: int, now: float) -> None:
        size = self.put_bytes[put]
        remote = self.shift[tile] != 0
        sent = self.queues[rank].book(now, size if remote else 2 * size)
        if remote:
            link = self.queues[self.ranks + rank]
            sent = max(sent, link.book(now, self._link_bytes(tile, size)))
        self.sent_at[put] = sent
        self.ready[put] = sent
        self._sent(put, sent)
        if remote:
            self.ready[put] += self.machine.hop_us
            heappush(self.events, (self.ready[put], self.key_recv + put))
        else:
            self._deliver(put, sent)

    def _arrival(self, put: int, now: float) -> None:
        """The last bytes arrive; the link may have carried the first ones before."""
        tile = put % self.per_put
        dest = (put // self.per_put + self.shift[tile]) % self.ranks
        size = self.put_bytes[put]
        done = now
        for pool, moved in (
            (2 * self.ranks + dest, self._link_bytes(tile, size)),
            (dest, size),
        ):
            queue = self.queues[pool]
            done = max(done, queue.book(now - moved / queue.rate, moved))
        self._deliver(put, done)

    def _link_bytes(self, tile: int, size: float) -> float:
        return size * self.stretch if self.collective[tile] else size

    def _served(self) -> list[float]:
        return [queue.served for queue in self.queues]
