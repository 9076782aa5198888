"""Executes a schedule on real data: all ranks, any legal interleaving.

Every bundle of cores of every queue of every rank is an agent with an instruction
pointer. One step of one agent is a wait, a set, a barrier, its share of a task, or one
tile of a put. Which agent goes next is drawn from the seed: agents run in bursts,
often until they block, and one queue of the program is slow on all ranks, so that both
orders of every unordered pair of steps come up soon. Semantics are those of
`hpc.schedule.model`; a step and its signal are visible at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy.typing as npt

from hpc.interp.compute import Compute
from hpc.interp.data import Data
from hpc.interp.memory import ExecutionError, Memory
from hpc.interp.numerics import Array
from hpc.interp.placement import Placement
from hpc.interp.shares import Bundle, bundles
from hpc.schedule.model import Barrier, Instr, Put, Queue, Schedule, Set, Task, Wait

__all__ = ["ExecutionDeadlock", "ExecutionError", "Result", "execute"]

_BURSTS = (1, 4, 1 << 30)
_SLOW_ODDS = 1 / 32


class ExecutionDeadlock(ExecutionError):
    """No core can go on; the message lists who waits for what."""


@dataclass(frozen=True)
class Result:
    """Outputs of one execution, in the dtype of the buffer.

    `outputs[name][rank]` is [tokens, cols], or [tokens * top_k, cols] for a routed or
    slot output: the row of (token, slot) on the token's own rank, zero where the slot
    was not sent. `faults` lists rows not written exactly once.
    """

    outputs: dict[str, list[Array]]
    faults: tuple[str, ...]

    @property
    def writes_ok(self) -> bool:
        return not self.faults


@dataclass(slots=True, eq=False)
class _Agent:
    """A bundle of cores of one queue of one rank, and how far it is."""

    rank: int
    queue: int
    bundle: Bundle
    code: tuple[Instr, ...]
    offsets: list[int]
    pc: int = 0
    tile: int = 0
    slow: bool = False

    @property
    def done(self) -> bool:
        return self.pc >= len(self.code)


@dataclass(slots=True)
class _Ready:
    """Agents that can go on; taking one at random costs the same for any number."""

    agents: list[_Agent] = field(default_factory=list[_Agent])

    def take(self, random: Random) -> _Agent:
        index = int(random.random() * len(self.agents))
        self.agents[index], self.agents[-1] = self.agents[-1], self.agents[index]
        return self.agents.pop()


def execute(
    schedule: Schedule, ids: Sequence[npt.NDArray[Any]], *, seed: int, data: Data
) -> Result:
    """Runs `schedule` on all ranks; `seed` chooses the interleaving.

    `ids[rank]` is int [tokens, top_k], -1 where a slot sends nothing. Raises
    `ExecutionDeadlock` if cores wait for ever, `ExecutionError` for a schedule that
    cannot be executed, ValueError if `ids` does not fit the layer.
    """
    placement = Placement(schedule, ids)
    memory = Memory(schedule, placement, data)
    compute = Compute(schedule, placement, memory, data)
    _Execution(schedule, compute, Random(seed)).run()
    outputs: dict[str, list[Array]] = {}
    for buffer in schedule.buffers:
        if buffer.role != "output":
            continue
        arrays = [memory.array(rank, buffer.name) for rank in range(schedule.layer.ep)]
        if buffer.space == "routed":
            arrays = placement.by_slot(arrays)
        elif buffer.space == "slot":
            for array, sent in zip(arrays, placement.sent, strict=True):
                array[~sent] = 0
        outputs[buffer.name] = arrays
    return Result(outputs, memory.faults())


class _Execution:
    """The state of one run: agents, counters, and who is blocked on what."""

    def __init__(self, schedule: Schedule, compute: Compute, random: Random) -> None:
        self.schedule = schedule
        self.compute = compute
        self.random = random
        self.ranks = range(schedule.layer.ep)
        self.counters: list[dict[int, int]] = [defaultdict(int) for _ in self.ranks]
        self.blocked: dict[tuple[int, int], list[_Agent]] = {}
        self.gathered: dict[int | None, list[_Agent]] = {}
        self.ready = {False: _Ready(), True: _Ready()}
        self.agents = list(self._make_agents())
        for agent in self.agents:
            self._wake(agent)

    def _make_agents(self) -> list[_Agent]:
        queues = self.schedule.queues
        slow = self.random.randrange(len(queues)) if queues else 0
        made: list[_Agent] = []
        for index, queue in enumerate(queues):
            for rank in self.ranks:
                offsets = self._offsets(queue, rank)
                made += [
                    _Agent(rank, index, b, queue.code, offsets, slow=index == slow)
                    for b in bundles(queue.team.size, self.random)
                ]
        return made

    def _offsets(self, queue: Queue, rank: int) -> list[int]:
        """Tiles of all earlier instructions, for each instruction of the queue."""
        offsets: list[int] = []
        total = 0
        for instr in queue.code:
            offsets.append(total)
            if isinstance(instr, Put | Task):
                total += self.compute.tiles(instr, rank)
        return offsets

    def run(self) -> None:
        """Runs until every agent is done, or none can go on."""
        while agent := self._next():
            for _ in range(self.random.choice(_BURSTS)):
                if not self._step(agent):
                    break
            else:
                self._wake(agent)
        if not all(agent.done for agent in self.agents):
            raise ExecutionDeadlock(self._who_waits())

    def _next(self) -> _Agent | None:
        fast, slow = self.ready[False], self.ready[True]
        if slow.agents and (not fast.agents or self.random.random() < _SLOW_ODDS):
            return slow.take(self.random)
        return fast.take(self.random) if fast.agents else None

    def _wake(self, agent: _Agent) -> None:
        self.ready[agent.slow].agents.append(agent)

    def _step(self, agent: _Agent) -> bool:
        """One step of `agent`; False if it is blocked or done and was put aside."""
        if agent.done:
            return False
        instr = agent.code[agent.pc]
        if isinstance(instr, Put):
            self._put(agent, instr)
            return True
        if isinstance(instr, Wait):
            if self.counters[agent.rank][instr.event] < instr.need:
                self.blocked.setdefault((agent.rank, instr.event), []).append(agent)
                return False
        elif isinstance(instr, Set):
            self._signal(agent.rank, instr.event, agent.bundle.cores)
        elif isinstance(instr, Barrier):
            return self._arrive(agent, instr)
        else:
            offset = agent.offsets[agent.pc]
            self.compute.task(instr, agent.rank, agent.bundle, offset)
        agent.pc += 1
        return True

    def _put(self, agent: _Agent, put: Put) -> None:
        """The next tile of a put that the agent owns; behind the last, goes on."""
        tiles = self.compute.tiles(put, agent.rank)
        owned = agent.bundle.owns(agent.offsets[agent.pc], tiles)
        while agent.tile < tiles and not owned[agent.tile]:
            agent.tile += 1
        if agent.tile == tiles:
            agent.tile = 0
            agent.pc += 1
            return
        self.compute.put_tile(put, agent.rank, agent.tile)
        if put.event is not None:
            target = self.compute.put_target(put, agent.rank, agent.tile)
            self._signal(target, put.event, 1)
        agent.tile += 1

    def _signal(self, rank: int, event: int, times: int) -> None:
        self.counters[rank][event] += times
        for agent in self.blocked.pop((rank, event), ()):
            self._wake(agent)

    def _arrive(self, agent: _Agent, barrier: Barrier) -> bool:
        """Puts the agent aside until all of the scope have arrived."""
        scope = agent.rank if barrier.scope == "rank" else None
        here = self.gathered.setdefault(scope, [])
        here.append(agent)
        expected = len(self.agents) // (1 if scope is None else len(self.ranks))
        if len(here) < expected:
            return False
        del self.gathered[scope]
        for each in here:
            each.pc += 1
            self._wake(each)
        return False

    def _who_waits(self) -> str:
        """One line per blocked (queue, instruction), with the ranks it happens on."""
        lines: dict[str, list[str]] = {}
        for agent in self.agents:
            if agent.done:
                continue
            instr = agent.code[agent.pc]
            queue = self.schedule.queues[agent.queue].team
            place = f"{queue.unit}[{queue.first}:{queue.first + queue.size}]"
            loc = self.schedule.locs[instr.loc] if self.schedule.locs else "?"
            where = f"{place} instruction {agent.pc} ({loc})"
            line = f"{where}: {self._reason(agent, instr)}"
            lines.setdefault(line, []).append(f"{agent.rank} {agent.bundle}")
        listed = [
            f"  {line}, rank {'; rank '.join(who)}" for line, who in lines.items()
        ]
        return "\n".join(["deadlock in execution:", *listed])

    def _reason(self, agent: _Agent, instr: Instr) -> str:
        if not isinstance(instr, Wait):
            scope = instr.scope if isinstance(instr, Barrier) else "?"
            return f"waits at a {scope} barrier"
        names = {event.id: event.name for event in self.schedule.events}
        have = self.counters[agent.rank][instr.event]
        name = names.get(instr.event, f"event {instr.event}")
        return f"waits for {name}, has {have} of {instr.need}"
