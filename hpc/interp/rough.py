"""About when every step of every queue runs: the order in which the cache is used.

The same program as the event loop's, coarse: a step takes its team as long as its
slowest core or its bytes take, and nothing contends across queues. All ranks at once,
as arrays; costs a few numpy operations per step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpc.interp.task_steps import BARRIER, COMPUTE, PUT, Floats, Shares
from hpc.machine.cost import launch_us
from hpc.machine.record import Machine
from hpc.schedule.model import Barrier, Put, Queue, Schedule, Set, Wait


@dataclass(slots=True)
class Times:
    """Start and end of the steps of one queue, us, float64 [ranks, steps]."""

    start: Floats
    end: Floats


@dataclass(slots=True)
class _Counter:
    """An event: signals so far, and the latest of them on each rank."""

    last: Floats
    count: int = 0


@dataclass(slots=True)
class _Cursor:
    """Where a queue stands: its next step, and since when on each rank."""

    queue: Queue
    shares: Shares
    now: Floats
    times: Times
    next: int = 0


def rough_times(
    schedule: Schedule,
    queues: list[Shares],
    duration_us: list[Floats],
    machine: Machine,
) -> list[Times]:
    """Times of every queue's steps; `duration_us[q]` is float64 [ranks, steps].

    A program that cannot go on (the event loop reports it) ends where it stands: the
    steps that are left follow in queue order and take no time.
    """
    return _Rough(schedule, queues, duration_us, machine).run()


class _Rough:
    def __init__(
        self,
        schedule: Schedule,
        queues: list[Shares],
        duration_us: list[Floats],
        machine: Machine,
    ) -> None:
        self.schedule, self.machine = schedule, machine
        self.duration_us = duration_us
        self.counters: dict[int, _Counter] = {}
        self.ranks = len(duration_us[0]) if duration_us else 0
        cores = sum(queue.team.size for queue in schedule.queues)
        begin = launch_us(machine, cores)
        self.cursors = [
            _Cursor(
                queue,
                shares,
                np.full(self.ranks, begin),
                Times(np.zeros(took.shape), np.zeros(took.shape)),
            )
            for queue, shares, took in zip(
                schedule.queues, queues, duration_us, strict=True
            )
        ]

    def run(self) -> list[Times]:
        moving = True
        while moving:
            moved = [self.advance(q) for q in range(len(self.cursors))]
            moving = self.pass_barrier() or any(moved)
        for cursor in self.cursors:
            for s in range(cursor.next, len(cursor.shares.steps)):
                cursor.times.start[:, s] = cursor.times.end[:, s] = cursor.now
        return [cursor.times for cursor in self.cursors]

    def advance(self, q: int) -> bool:
        """Runs queue `q` up to a closed gate or a barrier; whether it moved."""
        cursor = self.cursors[q]
        first = cursor.next
        while cursor.next < len(cursor.shares.steps):
            step = cursor.shares.steps[cursor.next]
            if step.kind == BARRIER or not self.pass_wait(cursor, step.wait):
                break
            self.take(cursor, q)
        return cursor.next > first

    def pass_wait(self, cursor: _Cursor, index: int) -> bool:
        if index < 0:
            return True
        wait = cursor.queue.code[index]
        assert isinstance(wait, Wait)
        counter = self.counters.get(wait.event)
        if counter is None or counter.count < wait.need:
            return False
        np.maximum(cursor.now, counter.last, out=cursor.now)
        return True

    def take(self, cursor: _Cursor, q: int) -> None:
        """The next step runs and signals."""
        s = cursor.next
        step = cursor.shares.steps[s]
        cursor.times.start[:, s] = cursor.now
        cursor.now = cursor.now + self.duration_us[q][:, s]
        cursor.times.end[:, s] = cursor.now
        seen = cursor.now + self.machine.event_visible_us
        for index in step.sets:
            instr = cursor.queue.code[index]
            assert isinstance(instr, Set)
            self.signal(instr.event, cursor.queue.team.size, seen)
        if step.kind == PUT:
            put = cursor.queue.code[step.work]
            assert isinstance(put, Put)
            self.signal_others(put, seen)
        cursor.next += 1

    def signal(self, event: int, count: int, seen: Floats) -> None:
        found = self.counters.setdefault(event, _Counter(np.zeros(self.ranks)))
        found.count += count
        np.maximum(found.last, seen, out=found.last)

    def signal_others(self, put: Put, seen: Floats) -> None:
        """A put's signals reach the ranks that its group names."""
        if put.event is None:
            return
        ks = self.schedule.groups[put.group]
        if np.ptp(seen):
            sign = -1 if put.kind == "combine" else 1
            rolled = [np.roll(seen, sign * k) for k in ks]
            seen = np.max(rolled, axis=0)
        self.signal(put.event, len(ks) * put.chunks, seen)

    def pass_barrier(self) -> bool:
        """If every queue that still has barriers stands at one, all pass it."""
        here = [c for c in self.cursors if self.barriers_left(c)]
        if not here or not all(self.at_barrier(c) for c in here):
            return False
        until = np.max([cursor.now for cursor in here], axis=0)
        found = [c.queue.code[c.shares.steps[c.next].work] for c in here]
        barriers = [instr for instr in found if isinstance(instr, Barrier)]
        if any(barrier.scope == "world" for barrier in barriers):
            until = np.full(self.ranks, until.max(initial=0.0))
        wait_us = self.machine.sync_all_us
        if any(barrier.launch for barrier in barriers):
            wait_us += self.machine.host_launch_us
        for cursor in here:
            s = cursor.next
            cursor.now = until + wait_us
            cursor.times.start[:, s] = cursor.times.end[:, s] = cursor.now
            cursor.next += 1
        return True

    def at_barrier(self, cursor: _Cursor) -> bool:
        steps = cursor.shares.steps
        return cursor.next < len(steps) and steps[cursor.next].kind == BARRIER

    def barriers_left(self, cursor: _Cursor) -> bool:
        return any(s.kind == BARRIER for s in cursor.shares.steps[cursor.next :])


def durations(
    shares: Shares, moved: Floats, put_us: Floats, machine: Machine
) -> Floats:
    """How long each step takes its team, us, float64 [ranks, steps].

    `moved` are a step's HBM bytes (as read), `put_us` the time of its puts.
    """
    kinds = np.array([step.kind for step in shares.steps])
    slowest = shares.work_us.max(axis=1, initial=0.0)
    by_memory = moved / (machine.hbm_gbps * 1e3)
    took = np.where(kinds == COMPUTE, np.maximum(slowest, by_memory), put_us)
    return took + machine.task_fetch_us


__all__ = ["Times", "durations", "rough_times"]
