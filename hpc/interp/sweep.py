"""A second, independent engine for the case without contention: a numpy level sweep.

Every transfer has its own memory and links; what remains are the costs of `events`:
fetch, gates, work, signals, and each core's own rates. Then nothing depends on the
order of events, and a queue can be walked step by step for all cores of all ranks at
once, as soon as the gate of its next step is known on every rank.

It shares no code with the event loop, so it checks it. Its times are no lower bounds of
contended runs: a core that contention delays until its event is open does not poll, one
that is in time does. All else only comes later: with `event_poll_us` = 0 they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpc.interp.expand import expand
from hpc.interp.flow import epilogue, flow_nodes, node_of
from hpc.interp.program import NO_GATE, Gate, build_program
from hpc.interp.task_steps import BARRIER, COMPUTE, PUT, Floats
from hpc.machine.cost import launch_us
from hpc.machine.record import Machine
from hpc.schedule.model import Put, Schedule, Task

Ints = npt.NDArray[np.int64]

UNCAPPED = float(1 << 20)
"""A collective's transfers are limited by memory and links, never by one core."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Times in microseconds from the launch, per rank; as in `timing.Timing`."""

    rank_latency_us: Floats
    rank_layer_us: Floats
    done_us: list[Floats]
    """Per queue, [ranks, cores]: the end of each core's last step."""

    @property
    def latency_us(self) -> float:
        return float(self.rank_latency_us.max())

    @property
    def layer_us(self) -> float:
        return float(self.rank_layer_us.max())


def sweep(schedule: Schedule, counts: npt.ArrayLike, machine: Machine) -> Sweep:
    """Times of a launch without contention; RuntimeError if no queue can go on."""
    return _Sweep(schedule, counts, machine).run()


class _Sweep:
    """Signals that have come so far, and where each queue stands."""

    def __init__(
        self, schedule: Schedule, counts: npt.ArrayLike, machine: Machine
    ) -> None:
        self.schedule, self.machine = schedule, machine
        self.ranks = schedule.layer.ep
        self.work = expand(schedule, counts, machine)
        self.program = build_program(schedule, self.work, machine)
        gates = self.program.gates
        need = [gate.need // (self.ranks if gate.world else 1) for gate in gates]
        self.left = np.tile(np.array(need, dtype=np.int64)[:, None], self.ranks)
        self.last = np.zeros((len(gates), self.ranks))
        self.at = [0] * len(schedule.queues)
        cores = sum(queue.team.size for queue in schedule.queues)
        self.now = [
            np.full((self.ranks, q.team.size), launch_us(machine, cores))
            for q in schedule.queues
        ]
        self.barrier_at = [-1] * len(schedule.queues)
        self.layer_us = np.zeros(self.ranks)
        self.latency_us = np.zeros(self.ranks)
        self.combines = False
        spaces = {buffer.name: buffer.space for buffer in schedule.buffers}
        self.epilogue = set(epilogue(flow_nodes(schedule), spaces))

    def run(self) -> Sweep:
        moving = True
        while moving:
            moving = False
            for q in range(len(self.at)):
                while self._step(q):
                    moving = True
        if any(
            at < len(code.kinds)
            for at, code in zip(self.at, self.program.codes, strict=True)
        ):
            raise RuntimeError("no queue can go on")
        for now in self.now:
            np.maximum(self.layer_us, now.max(axis=1), out=self.layer_us)
        latency = self.latency_us if self.combines else self.layer_us
        return Sweep(latency, self.layer_us, self.now)

    def _step(self, q: int) -> bool:
        """One step of a queue on all cores; False if it cannot be taken yet."""
        code, s = self.program.codes[q], self.at[q]
        if s == len(code.kinds):
            return False
        now = self.now[q] + self.machine.task_fetch_us
        number = code.gates[s]
        if number != NO_GATE:
            gate = self.program.gates[number]
            if code.kinds[s] == BARRIER and self.barrier_at[q] != s:
                self.barrier_at[q] = s
                for core in range(now.shape[1]):
                    self._signal(number, now[:, core], np.arange(self.ranks))
            if self.left[number].any():
                return False
            opened = self._opened(number, gate)[:, None]
            now = np.where(now < opened, opened + gate.poll_us, now)
        if code.kinds[s] == COMPUTE:
            now = now + self._compute_us(q, s)
        elif code.kinds[s] == PUT:
            now = self._puts(q, code.works[s], now)
        self._note_work(q, s, now)
        for gates in code.signals[s]:
            now = now + self.machine.event_set_us
            for target in gates:
                for core in range(now.shape[1]):
                    self._signal(target, now[:, core], np.arange(self.ranks))
        self.now[q] = now
        self.at[q] = s + 1
        return True

    def _note_work(self, q: int, s: int, ends: Floats) -> None:
        """Work that a rank's latency includes, beside its combine puts."""
        i = self.program.codes[q].works[s]
        instr = self.schedule.queues[q].code[i] if i >= 0 else None
        if not isinstance(instr, Put | Task) or node_of(instr) in self.epilogue:
            return
        worked = np.where(self.work.queues[q].tiles[:, :, s] > 0, ends, 0.0)
        np.maximum(self.latency_us, worked.max(axis=1), out=self.latency_us)

    def _opened(self, number: int, gate: Gate) -> Floats:
        last = self.last[number]
        if gate.world:
            last = np.full(self.ranks, last.max())
        return last + gate.delay_us

    def _signal(self, number: int, when: Floats, ranks: Ints) -> None:
        """One signal to each of `ranks`, which are all different."""
        self.left[number, ranks] -= 1
        self.last[number, ranks] = np.maximum(self.last[number, ranks], when)

    def _compute_us(self, q: int, s: int) -> Floats:
        shares = self.work.queues[q]
        machine, weight = self.machine, shares.weight[:, s, None]
        hbm = machine.hbm_gbps, machine.hbm_core_gbps
        moved = _alone_us(shares.hbm_bytes[:, :, s], weight, *hbm)
        return np.maximum(shares.work_us[:, :, s], moved)

    def _puts(self, q: int, i: int, now: Floats) -> Floats:
        """All tiles of a put instruction, each by its core, one after the other."""
        queue = self.schedule.queues[q]
        put = queue.code[i]
        assert isinstance(put, Put)
        first, size = self.work.puts.first[q, i], queue.team.size
        offsets = self.work.queues[q].offsets[:, i]
        pull = self.work.puts.pull[list(self.work.puts.first).index((q, i))]
        ranks = np.arange(self.ranks)
        now = now.copy()
        for t in range(len(self.schedule.groups[put.group]) * put.chunks):
            cores = (offsets + t) % size
            begin = now[ranks, cores]
            send_us, arrive_us, hop_us = self._tile_us(put, first + t, pull)
            sent = begin + send_us
            arrived = np.maximum(sent, begin + arrive_us) + hop_us
            ends = arrived if put.event is None else sent
            issue_us = float(self.work.puts.issue_us[first + t])
            now[ranks, cores] = ends + issue_us
            dests = (ranks + int(self.work.puts.shift[first + t])) % self.ranks
            self._deliver(put, arrived + issue_us, dests)
        return now

    def _tile_us(
        self, put: Put, tile: int, pull: float
    ) -> tuple[Floats, Floats, float]:
        """(at the source, at the destination, between them) by source rank."""
        machine, puts = self.machine, self.work.puts
        size, core = puts.bytes[:, tile], machine.put_core_gbps / machine.hbm_core_gbps
        # Shares of a core's memory rate are rounded to 2^-10. What is written costs
        # more of memory's time; a core's limit counts bytes.
        cost = machine.hbm_gbps / machine.hbm_write_gbps
        share = max(1, round(core * 1024)) / 1024
        read = min(1.0, max(1, round(share * pull * 1024)) / 1024)
        write = max(1, round(share * cost * 1024)) / 1024
        copy = max(1, round((1 + cost) / 2 * 1024)) / 1024
        line = float(puts.link_weight[tile])
        if put.transport == "collective":
            write = read = line = UNCAPPED
        hbm = machine.hbm_gbps, machine.hbm_core_gbps
        link = machine.link_gbps, machine.put_core_gbps
        fetched, stored = puts.fetched[:, tile], puts.stored[:, tile]
        # A tile without rows costs nothing but its fixed parts.
        work = puts.busy_us[:, tile]
        work = np.where(size > 0, work, 0.0)
        join = np.add if put.transport == "collective" else np.maximum
        if int(puts.shift[tile]) == 0:
            copied = _alone_us(fetched + stored, copy, *hbm)
            return join(copied, work), np.zeros(self.ranks), 0.0
        carried = _alone_us(size * puts.link_share[tile], line, *link)
        source = np.maximum(_alone_us(fetched, read, *hbm), carried)
        arrived = np.maximum(_alone_us(stored, write, *hbm), carried)
        return join(source, work), arrived, float(puts.hop_us[tile])

    def _deliver(self, put: Put, when: Floats, dests: Ints) -> None:
        seen = when + self.machine.event_visible_us
        self.layer_us[dests] = np.maximum(self.layer_us[dests], seen)
        if put.kind == "combine":
            self.combines = True
            np.maximum(self.latency_us, seen, out=self.latency_us)
            self.latency_us[dests] = np.maximum(self.latency_us[dests], seen)
        if put.event is not None:
            for gate in self.program.of_event.get(put.event, ()):
                self._signal(gate, when, dests)


def _alone_us(
    size: Floats, weight: Floats | float, gbps: float, core_gbps: float
) -> Floats:
    """Time of a transfer that has a memory or link for itself."""
    return size / (np.minimum(gbps, weight * core_gbps) * 1e3)
