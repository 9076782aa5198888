"""The same queues as SimPy processes: one a core, events, first-come-first-served HBM
and links by booking. Kept lean, so that it is a fair opponent; shares of work are
taken from the engine's own expansion, so it measures event handling only."""

from __future__ import annotations

from collections.abc import Iterator

import simpy

from hpc.interp.expand import Expanded
from hpc.interp.program import NO_GATE, Program, put_signals
from hpc.interp.task_steps import BARRIER, PUT
from hpc.machine.cost import launch_us
from hpc.machine.record import Machine
from hpc.schedule.model import Schedule


class FifoPool:
    """A bandwidth in bytes per microsecond, one transfer at a time."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.free = 0.0

    def book(self, now: float, size: float) -> float:
        """Time at which a transfer asked for at `now` is complete."""
        self.free = max(self.free, now) + size / self.rate
        return self.free


class Model:
    """All cores of all ranks; `run` returns the time at which everything is done."""

    def __init__(
        self, schedule: Schedule, work: Expanded, program: Program, machine: Machine
    ) -> None:
        self.schedule, self.work = schedule, work
        self.program, self.machine = program, machine
        self.ranks = schedule.layer.ep
        cores = sum(queue.team.size for queue in schedule.queues)
        self.launch_us = launch_us(machine, cores)
        self.env = simpy.Environment()
        self.hbm = [FifoPool(machine.hbm_gbps * 1e3) for _ in range(self.ranks)]
        self.egress = [FifoPool(machine.link_gbps * 1e3) for _ in range(self.ranks)]
        self.ingress = [FifoPool(machine.link_gbps * 1e3) for _ in range(self.ranks)]
        gates = program.gates
        self.left = [[gate.need for gate in gates] for _ in range(self.ranks)]
        self.last = [[0.0] * len(gates) for _ in range(self.ranks)]
        self.opened = [[self.env.event() for _ in gates] for _ in range(self.ranks)]
        puts = work.puts
        self.shift, self.hop_us = puts.shift.tolist(), puts.hop_us.tolist()
        self.issue_us = puts.issue_us.tolist()
        # Per rank and tile, which are all puts here: over the link; from and to memory;
        # time of the core.
        self.carried = (puts.bytes * puts.link_share).tolist()
        self.fetched, self.stored = puts.fetched.tolist(), puts.stored.tolist()
        self.busy_us = puts.busy_us.tolist()

    def run(self) -> float:
        for rank in range(self.ranks):
            for q, queue in enumerate(self.schedule.queues):
                shares = self.work.queues[q]
                for core in range(queue.team.size):
                    work = shares.work_us[rank, core].tolist()
                    moved = shares.hbm_bytes[rank, core].tolist()
                    self.env.process(self.core(rank, q, core, work, moved))
        self.env.run()
        return self.env.now

    def core(
        self, rank: int, q: int, core: int, work: list[float], moved: list[float]
    ) -> Iterator[simpy.Event]:
        env, machine, code = self.env, self.machine, self.program.codes[q]
        owed = self.launch_us
        for step, kind in enumerate(code.kinds):
            owed += machine.task_fetch_us
            gate = code.gates[step]
            assert kind != BARRIER
            if gate != NO_GATE:
                yield env.timeout(owed)
                opened = self.opened[rank][gate]
                owed = 0.0
                if not opened.processed:
                    yield opened
                    owed = machine.event_poll_us
            if kind == PUT:
                yield env.timeout(owed)
                yield from self.put(rank, q, core, step)
                owed = 0.0
            elif work[step]:
                yield env.timeout(owed)
                size, now = moved[step], env.now
                alone = max(work[step], size / (machine.hbm_core_gbps * 1e3))
                yield env.timeout(max(alone, self.hbm[rank].book(now, size) - now))
                owed = 0.0
            for gates in code.signals[step]:
                owed += machine.event_set_us
                for target in gates:
                    self.signal(rank, target, env.now + owed)
        yield env.timeout(owed)

    def put(self, rank: int, q: int, core: int, step: int) -> Iterator[simpy.Event]:
        env = self.env
        i = self.program.codes[q].works[step]
        put = self.schedule.queues[q].code[i]
        team = self.schedule.queues[q].team.size
        first = self.work.puts.first[q, i]
        offset = int(self.work.queues[q].offsets[rank, i])
        gates = put_signals(put, self.program.of_event)
        tiles = len(self.schedule.groups[put.group]) * put.chunks
        for tile in range((core - offset) % team, tiles, team):
            at, shift = first + tile, self.shift[first + tile]
            now, dest = env.now, (rank + shift) % self.ranks
            moved, stored = self.fetched[rank][at], self.stored[rank][at]
            sent = self.hbm[rank].book(now, moved if shift else moved + stored)
            if shift:
                sent = max(sent, self.egress[rank].book(now, self.carried[rank][at]))
            sent = max(sent, now + self.busy_us[rank][at])
            arrival = env.timeout(sent + self.hop_us[at] - now)
            arrival.callbacks.append(
                lambda _, r=rank, t=at, d=dest, s=shift, g=gates: self.arrive(
                    r, t, d, s, g
                )
            )
            yield env.timeout(sent + self.issue_us[at] - now)

    def arrive(
        self, rank: int, tile: int, dest: int, shift: int, gates: tuple[int, ...]
    ) -> None:
        now, done = self.env.now, self.env.now
        if shift:
            carried, stored = self.carried[rank][tile], self.stored[rank][tile]
            for pool, size in (
                (self.ingress[dest], carried),
                (self.hbm[dest], stored),
            ):
                done = max(done, pool.book(now - size / pool.rate, size))
        for gate in gates:
            self.signal(dest, gate, done + self.issue_us[tile])

    def signal(self, rank: int, gate: int, when: float) -> None:
        self.last[rank][gate] = max(self.last[rank][gate], when)
        self.left[rank][gate] -= 1
        if self.left[rank][gate]:
            return
        delay = self.last[rank][gate] + self.machine.event_visible_us - self.env.now
        opened = self.opened[rank][gate]
        self.env.timeout(delay).callbacks.append(lambda _: opened.succeed())
