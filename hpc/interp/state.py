"""State of a timing run: flat arrays for cores, gates, put tiles and bandwidths."""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from hpc.interp.bandwidth import SERVED, bandwidth, dyadic
from hpc.interp.expand import Expanded
from hpc.interp.program import NO_GATE, Program, put_signals
from hpc.interp.task_steps import BARRIER, PUT
from hpc.interp.timing import Run
from hpc.interp.walk import INFINITY, MANY, NEXT_SET, NO_PUT
from hpc.machine.cost import hbm_read_equivalent, launch_us
from hpc.machine.record import Machine
from hpc.schedule.model import Put, Schedule

UNCAPPED = float(1 << 20)
"""Weight of a collective's transfers: their share is never limited by one core."""

Flow = tuple[float, int, float]


def only_signal(signals: tuple[tuple[int, ...], ...]) -> int:
    """The gate that a step signals if there is one Set of one gate, the common case;
    MANY for other Sets, NO_GATE without any."""
    if not signals:
        return NO_GATE
    return signals[0][0] if [len(gates) for gates in signals] == [1] else MANY


def zeros(count: int) -> array[float]:
    """A flat array of doubles: eight bytes each, and fast to index one by one."""
    return array("d", [0.0]) * count


class State:
    """Everything that the event loop reads and changes.

    `ranks` may be fewer than the layer's: the rest repeat them (see `fold`). Cores are
    numbered rank by rank, queue by queue; a core's steps are consecutive in the
    instance arrays (`work_us`, `hbm_bytes`, `arrive`, `start`, `end`). Put tiles are
    numbered tile by tile and then by source rank, so that a destination handles
    simultaneous arrivals in the same order whichever rank it is. `pools` and `flows`
    are the HBMs of all ranks, then the egress links, then the ingress links.
    """

    __slots__ = (
        "arrive", "base", "began", "clock", "collective", "copy_weight", "cores",
        "delay_us", "delivered", "done_us", "end", "events", "fetch_us", "fetched",
        "flows", "hbm_bytes", "hbm_core_rate", "hbm_weight", "hop_us", "issue_us",
        "key_put", "last", "launch_us", "left", "link_share", "link_weight", "member",
        "next_tile", "next_waiter", "open_at", "per_rank", "plan_barrier", "plan_gate",
        "plan_put", "plan_signal", "plan_signals", "poll_us", "pools", "pos",
        "pull_weight", "put_bytes", "put_core", "put_first", "put_of", "put_offset",
        "put_signals", "put_team", "put_tiles", "put_weight", "put_work_us", "rank_of",
        "ranks", "recv_left", "send_left", "sent_at", "set_us", "shared", "shift",
        "signalled", "signals", "start", "stop", "store_weight", "stored", "to_plan",
        "uncapped", "waiter", "work_us",
    )  # fmt: skip

    def __init__(
        self,
        schedule: Schedule,
        work: Expanded,
        program: Program,
        machine: Machine,
        *,
        shared: bool = True,
    ) -> None:
        self.ranks, self.shared = work.rows.ranks, shared
        self.events: list[tuple[float, int]] = []
        self.clock = [0.0]
        self._init_costs(schedule, machine)
        self._init_cores(schedule, work, program)
        self._init_gates(schedule, program)
        self._init_plan(schedule, program)
        self._init_puts(schedule, work, program)
        self._init_bandwidths(machine)

    def _init_costs(self, schedule: Schedule, machine: Machine) -> None:
        cores = sum(queue.team.size for queue in schedule.queues)
        self.launch_us, self.fetch_us = launch_us(machine, cores), machine.task_fetch_us
        self.set_us = machine.event_set_us
        self.hbm_core_rate = machine.hbm_core_gbps * 1e3
        # Shares of HBM by what a byte costs there, limits of a core by its bytes: what
        # is written costs more, and a copy is read and written.
        cost = hbm_read_equivalent(machine)
        self.put_weight = float(dyadic(machine.put_core_gbps / machine.hbm_core_gbps))
        self.store_weight = float(dyadic(self.put_weight * cost))
        self.copy_weight = float(dyadic((1 + cost) / 2))
        self.uncapped = UNCAPPED

    def _init_cores(self, schedule: Schedule, work: Expanded, program: Program) -> None:
        lengths = [len(code.kinds) for code in program.codes]
        plans = list(accumulate(lengths, initial=0))
        first: list[int] = []
        self.rank_of: list[int] = []
        self.member: list[int] = []
        self.to_plan: list[int] = []
        at = 0
        for rank in range(self.ranks):
            for q, queue in enumerate(schedule.queues):
                for core in work.queues[q].members or range(queue.team.size):
                    self.rank_of.append(rank)
                    self.member.append(core)
                    self.to_plan.append(plans[q] - at)
                    first.append(at)
                    at += lengths[q]
        self.cores = len(first)
        self.pos, self.stop = first, [*first[1:], at]
        self.done_us = [0.0] * self.cores
        self.work_us, self.hbm_bytes = work.work_us, work.hbm_bytes
        # By step of all queues, then by rank.
        weights = [shares.weight.T.ravel() for shares in work.queues]
        self.hbm_weight = array("d", np.concatenate(weights).tobytes())
        self.arrive, self.start, self.end = (zeros(at) for _ in range(3))

    def _init_gates(self, schedule: Schedule, program: Program) -> None:
        """Gates of every rank, then a block of which the world's gates are used."""
        gates, ranks = program.gates, self.ranks
        self.per_rank = len(gates)
        self.left = [gate.need for gate in gates] * ranks
        # Ranks that are not simulated do not arrive at a barrier of the world.
        self.left += [gate.need * ranks // schedule.layer.ep for gate in gates]
        self.last = zeros(len(self.left))
        self.open_at = [INFINITY if left else 0.0 for left in self.left]
        self.delay_us = [gate.delay_us for gate in gates] * (ranks + 1)
        self.poll_us = [gate.poll_us for gate in gates] * (ranks + 1)
        self.waiter, self.next_waiter = [-1] * len(self.left), [-1] * self.cores
        self.base = [rank * self.per_rank for rank in self.rank_of]

    def _init_plan(self, schedule: Schedule, program: Program) -> None:
        """Steps of all queues, one after the other. World gates get absolute numbers,
        beyond those of every rank; puts are numbered in program order by queue."""
        world = self.ranks * self.per_rank
        self.plan_gate: list[int] = []
        self.plan_put: list[int] = []
        self.plan_barrier = bytearray()
        self.plan_signal: list[int] = []
        self.plan_signals = [0]
        self.signals: list[int] = []
        puts = 0
        for code in program.codes:
            for s, kind in enumerate(code.kinds):
                gate = code.gates[s]
                away = gate != NO_GATE and program.gates[gate].world
                self.plan_gate.append(gate + world if away else gate)
                self.plan_barrier.append(kind == BARRIER)
                self.plan_put.append(puts if kind == PUT else NO_PUT)
                puts += kind == PUT
                for targets in code.signals[s]:
                    self.signals += (NEXT_SET, *targets)
                self.plan_signal.append(only_signal(code.signals[s]))
                self.plan_signals.append(len(self.signals))

    def _init_puts(self, schedule: Schedule, work: Expanded, program: Program) -> None:
        """Per put instruction: its tiles, where they begin among the rank's, the team,
        each rank's count of tiles before it modulo the team, the gates it signals."""
        self.put_first: list[int] = []
        self.put_tiles: list[int] = []
        self.put_team: list[int] = []
        self.put_offset: list[int] = []
        self.put_signals = [len(self.signals)]
        self.put_of: list[int] = []
        self.collective, self.signalled = bytearray(), bytearray()
        for (q, i), first in work.puts.first.items():
            queue = schedule.queues[q]
            put = queue.code[i]
            assert isinstance(put, Put)
            tiles = len(schedule.groups[put.group]) * put.chunks
            self.put_of += [len(self.put_first)] * tiles
            self.put_first.append(first)
            self.put_tiles.append(tiles)
            self.put_team.append(queue.team.size)
            offsets = work.queues[q].offsets[:, i] % queue.team.size
            self.put_offset += offsets.tolist()
            self.signals += put_signals(put, program.of_event)
            self.put_signals.append(len(self.signals))
            self.collective.append(put.transport == "collective")
            self.signalled.append(put.event is not None)
        # A put that reads a second row takes a second share, up to a whole core's.
        shares = dyadic(self.put_weight * np.array(work.puts.pull))
        self.pull_weight = array("d", np.minimum(1.0, shares).tobytes())
        self._init_tiles(work)

    def _init_tiles(self, work: Expanded) -> None:
        count = self.ranks * len(work.puts.shift)
        self.shift: list[int] = work.puts.shift.tolist()
        puts = work.puts
        self.put_bytes, self.put_work_us, self.fetched, self.stored = (
            memoryview(np.ascontiguousarray(values.T).ravel().data)
            for values in (puts.bytes, puts.busy_us, puts.fetched, puts.stored)
        )
        self.hop_us = array("d", puts.hop_us.tobytes())
        self.issue_us = array("d", puts.issue_us.tobytes())
        self.link_share = array("d", puts.link_share.tobytes())
        self.link_weight = array("d", puts.link_weight.tobytes())
        self.next_tile = [0] * self.cores
        self.put_core = array("i", bytes(4 * count))
        self.send_left, self.recv_left = bytearray(count), bytearray(count)
        self.sent_at, self.began, self.delivered = (zeros(count) for _ in range(3))

    def _init_bandwidths(self, machine: Machine) -> None:
        hbm = machine.hbm_gbps * 1e3, machine.hbm_core_gbps * 1e3
        link = machine.link_gbps * 1e3, machine.put_core_gbps * 1e3
        kinds = (hbm, link, link)
        self.pools = [bandwidth(*kind) for kind in kinds for _ in range(self.ranks)]
        self.flows: list[list[Flow]] = [[] for _ in self.pools]
        # Keys of the event heap, in the order in which ties are handled.
        self.key_put = self.cores + len(self.pools)

    def result(
        self, schedule: Schedule, work: Expanded, program: Program, machine: Machine
    ) -> Run:
        """What the run left behind, for `timing.measure`; this state is used up."""
        del self.put_bytes, self.put_work_us, self.fetched, self.stored
        served = np.array([pool[SERVED] for pool in self.pools])
        return Run(
            schedule=schedule,
            machine=machine,
            program=program,
            work=work,
            arrive=np.frombuffer(self.arrive),
            start=np.frombuffer(self.start),
            end=np.frombuffer(self.end),
            done_us=np.array(self.done_us),
            put_begin=self._by_source("began"),
            put_sent=self._by_source("sent_at"),
            put_delivered=self._by_source("delivered"),
            put_core=self._by_source("put_core"),
            served=served.reshape(3, self.ranks),
        )

    def _by_source(self, name: str) -> npt.NDArray[Any]:
        """Put tiles ordered by source rank and program, as in `Run`; not kept here."""
        values: array[float] = getattr(self, name)
        delattr(self, name)
        flat = np.frombuffer(values, dtype=values.typecode)
        return flat.reshape(-1, self.ranks).T.ravel()

    def stuck(self) -> bool:
        """Whether some core has not finished its queue."""
        return any(at < stop for at, stop in zip(self.pos, self.stop, strict=True))

    def steps(self) -> list[int]:
        """The step of its queue that each core stands at; their number at its end."""
        first = 0
        found: list[int] = []
        for at, stop in zip(self.pos, self.stop, strict=True):
            found.append(at - first)
            first = stop
        return found
