"""Executes a schedule on real data: all ranks, any legal interleaving.

Every bundle of cores of every queue of every rank is an agent with an instruction
pointer. One step of one agent is a wait, a set, a barrier, its share of a task, or one
tile of a put. Which agent goes next is drawn from the seed, for as long as it can or
for a few steps. Random choice alone seldom lets one queue fall far behind, which is
what shows that another does not wait for it; so on every rank one queue is slow and
goes only when nothing else can, a different one from rank to rank and seed to seed.
Semantics are those of `hpc.schedule.model`; a step and its signal are visible at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy.typing as npt

from hpc.interp.compute import Compute
from hpc.interp.data import Data
from hpc.interp.memory import ExecutionError, Memory, Pool
from hpc.interp.numerics import Array
from hpc.interp.placement import Placement
from hpc.interp.shares import Bundle, bundles
from hpc.schedule.model import Barrier, Instr, Put, Queue, Schedule, Set, Task, Wait

__all__ = ["ExecutionDeadlock", "ExecutionError", "Result", "execute"]

_BURSTS = (1, 4, 1 << 30)


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


class _Ready:
    """Agents that can go on. A slow one is taken only when there is no other, and the
    slow ones of the ranks in a fixed order, so that one is the slowest of all."""

    def __init__(self, ranks: int, random: Random) -> None:
        self._fast: list[_Agent] = []
        self._slow: list[list[_Agent]] = [[] for _ in range(ranks)]
        self._random = random
        self._order = random.sample(range(ranks), ranks)

    def put(self, agent: _Agent) -> None:
        (self._slow[agent.rank] if agent.slow else self._fast).append(agent)

    def take(self) -> _Agent | None:
        """One at random, None if there is none."""
        agents = self._fast
        if not agents:
            slow = (self._slow[rank] for rank in self._order)
            agents = next((agents for agents in slow if agents), None)
        if not agents:
            return None
        index = int(self._random.random() * len(agents))
        agents[index], agents[-1] = agents[-1], agents[index]
        return agents.pop()


def execute(
    schedule: Schedule,
    ids: Sequence[npt.NDArray[Any]],
    *,
    seed: int,
    data: Data,
    pool: Pool | None = None,
) -> Result:
    """Runs `schedule` on all ranks; `seed` chooses the interleaving.

    `ids[rank]` is int [tokens, top_k], -1 where a slot sends nothing. `pool` keeps
    workspace for further executions. Raises
    `ExecutionDeadlock` if cores wait for ever, `ExecutionError` for a schedule that
    cannot be executed, ValueError if `ids` does not fit the layer.
    """
    placement = Placement(schedule, ids)
    memory = Memory(schedule, placement, data, pool)
    compute = Compute(schedule, placement, memory, data)
    _Execution(schedule, compute, seed).run()
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

    def __init__(self, schedule: Schedule, compute: Compute, seed: int) -> None:
        self.schedule = schedule
        self.compute = compute
        self.random = random = Random(seed)
        self.ranks = range(schedule.layer.ep)
        self.counters: list[dict[int, int]] = [defaultdict(int) for _ in self.ranks]
        self.blocked: dict[tuple[int, int], list[_Agent]] = {}
        self.gathered: dict[int | None, list[_Agent]] = {}
        self.ready = _Ready(len(self.ranks), random)
        self.agents = self._make_agents(seed)
        for agent in self.agents:
            self.ready.put(agent)

    def _make_agents(self, seed: int) -> list[_Agent]:
        made: list[_Agent] = []
        for index, queue in enumerate(self.schedule.queues):
            for rank in self.ranks:
                turn = seed * len(self.ranks) + rank
                slow = turn % len(self.schedule.queues) == index
                offsets = self._offsets(queue, rank)
                made += [
                    _Agent(rank, index, bundle, queue.code, offsets, slow=slow)
                    for bundle in bundles(queue.team.size, self.random)
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
        while agent := self.ready.take():
            for _ in range(1 if agent.slow else self.random.choice(_BURSTS)):
                if not self._step(agent):
                    break
            else:
                self.ready.put(agent)
        if not all(agent.done for agent in self.agents):
            raise ExecutionDeadlock(self._who_waits())

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
            self.ready.put(agent)

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
            self.ready.put(each)
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
