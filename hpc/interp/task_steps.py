"""Queues cut into steps: what a worker does in one go."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hpc.interp.rows import Ints
from hpc.schedule.model import Barrier, Put, Queue, Set, Task, Wait

Floats = npt.NDArray[np.float64]

NONE, COMPUTE, PUT, BARRIER = range(4)
"""Kinds of work of a step."""


@dataclass(slots=True)
class Step:
    """One step of a queue. `wait` and `work` are instruction indices or -1."""

    wait: int = -1
    kind: int = NONE
    work: int = -1
    sets: list[int] = field(default_factory=list)

    @property
    def first(self) -> int:
        """Index of the step's first instruction, or -1 for an empty step."""
        found = [i for i in (self.wait, self.work, *self.sets) if i >= 0]
        return min(found, default=-1)


@dataclass(slots=True)
class Shares:
    """Work of one queue: arrays [ranks, cores, steps].

    `work_us` is a core's time alone, `hbm_bytes` what it moves from and to HBM (both
    views into `Expanded`'s arrays), `tiles` how many tiles it has. `offsets[r, i]` is
    the number of tiles of all instructions of rank r before instruction i.
    `weight[r, s]`, a multiple of 2^-10, is what a byte that a step moves costs HBM, in
    bytes read: a core's own limit counts bytes. `members` are the cores of the team in
    the order of the arrays, if that is another one.
    """

    steps: list[Step]
    work_us: Floats
    hbm_bytes: Floats
    tiles: npt.NDArray[np.int32]
    offsets: Ints
    weight: Floats
    members: list[int] | None = None


def queue_steps(queue: Queue) -> list[Step]:
    """The queue's instructions fused into steps: at most one wait, one work each."""
    steps = [Step()]
    for i, instr in enumerate(queue.code):
        step = steps[-1]
        if isinstance(instr, Set):
            step.sets.append(i)
            continue
        waiting = isinstance(instr, Wait)
        if step.work >= 0 or step.sets or (waiting and step.wait >= 0):
            step = Step()
            steps.append(step)
        if isinstance(instr, Wait):
            step.wait = i
            continue
        # A barrier is itself a wait, so it cannot share a step with one.
        if isinstance(instr, Barrier) and step.wait >= 0:
            step = Step()
            steps.append(step)
        step.work = i
        step.kind = _kind(instr)
    return [step for step in steps if step.first >= 0]


def _kind(instr: Put | Task | Barrier) -> int:
    if isinstance(instr, Put):
        return PUT
    return COMPUTE if isinstance(instr, Task) else BARRIER
