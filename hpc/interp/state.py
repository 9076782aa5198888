"""State of a timing run: flat arrays for cores, gates, put tiles and shared pools."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

from hpc.interp.expand import Expanded
from hpc.interp.pool import INFINITY, SharedPool
from hpc.interp.program import NO_GATE, Program, put_signals
from hpc.interp.task_steps import PUT
from hpc.interp.timing import Run
from hpc.machine.record import Machine
from hpc.schedule.model import Put, Schedule


@dataclass(slots=True)
class PutStep:
    """A put of a queue: its tiles, where they begin in the rank's list of put tiles,
    and each rank's count of tiles before it, modulo the team."""

    first: int
    tiles: int
    team: int
    offset: list[int]


PlannedStep = tuple[int, int, tuple[tuple[int, ...], ...], PutStep | None]


def dyadic(ratio: float) -> float:
    """`ratio` as a positive multiple of 2^-10 (see SharedPool)."""
    return max(1, round(ratio * 1024)) / 1024


def zeros(count: int) -> array[float]:
    """A flat array of doubles: eight bytes each, and fast to index one by one."""
    return array("d", [0.0]) * count


class State:
    """Everything that a run changes.

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
        self._init_plans()
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
        self.work_us, self.hbm_bytes = self.work.work_us, self.work.hbm_bytes
        self.arrive, self.start, self.end = (zeros(at) for _ in range(3))

    def _init_gates(self) -> None:
        gates = self.program.gates
        self.per_rank = len(gates)
        self.left = [gate.need for gate in gates] * (self.ranks + 1)
        self.last = [0.0] * len(self.left)
        self.open_at = [INFINITY if left else 0.0 for left in self.left]
        self.delay = [gate.delay_us for gate in gates]
        self.poll = [gate.poll_us for gate in gates]
        self.waiters: dict[int, list[int]] = {}
        self.base = [rank * self.per_rank for rank in self.rank_of]

    def _init_plans(self) -> None:
        """Per queue and step: (kind, gate, signals, put). World gates get absolute
        numbers, beyond those of every rank."""
        gates, world = self.program.gates, self.ranks * self.per_rank
        self.plans: list[list[PlannedStep]] = []
        for q, code in enumerate(self.program.codes):
            plan: list[PlannedStep] = []
            for s, kind in enumerate(code.kinds):
                gate = code.gates[s]
                if gate != NO_GATE and gates[gate].world:
                    gate += world
                put = self._put_step(q, code.works[s]) if kind == PUT else None
                plan.append((kind, gate, code.signals[s], put))
            self.plans.append(plan)

    def _put_step(self, q: int, i: int) -> PutStep:
        queue, shares = self.schedule.queues[q], self.work.queues[q]
        put = queue.code[i]
        assert isinstance(put, Put)
        return PutStep(
            first=self.work.puts.first[q, i],
            tiles=len(self.schedule.groups[put.group]) * put.chunks,
            team=queue.team.size,
            offset=(shares.offsets[:, i] % queue.team.size).tolist(),
        )

    def _init_puts(self) -> None:
        tiles = self.work.puts
        self.per_put = len(tiles.shift)
        count = self.ranks * self.per_put
        self.put_bytes = array("d", tiles.bytes.tobytes())
        self.shift: list[int] = tiles.shift.tolist()
        self.put_gates: list[tuple[int, ...]] = [()] * self.per_put
        self.collective = bytearray(self.per_put)
        self.signalled = bytearray(self.per_put)
        for (q, i), first in tiles.first.items():
            put = self.schedule.queues[q].code[i]
            assert isinstance(put, Put)
            signals = put_signals(put, self.program.of_event)
            for t in range(first, first + self._put_step(q, i).tiles):
                self.put_gates[t] = signals
                self.collective[t] = put.transport == "collective"
                self.signalled[t] = put.event is not None
        self.next_tile = [0] * self.cores
        self.put_core = array("i", bytes(4 * count))
        self.send_left = bytearray(count)
        self.recv_left = bytearray(count)
        self.ready, self.sent_at, self.began, self.delivered = (
            zeros(count) for _ in range(4)
        )

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
