"""Greedy replay of a program on all ranks: does every queue reach its end?

Why this is exact. A counter never goes down and a wait asks only for "at least", so an
instruction that can run stays able to run whatever else runs first: steps commute.
Hence all maximal runs end in the same state, and one greedy run decides for every
interleaving, every duration and every routing (signals do not depend on row counts).

Cores. A team's cores run one list and nothing but waits and barriers holds them up, so
in the final state all of them stand at the same instruction; the replay steps a team as
one and a `Set` adds the team's size.

Symmetry. If all ranks run one program, run them in lockstep: an instruction that can
run on one rank can run on all, and running a put on all ranks gives each rank the
signals of each k once, since me -> me + k is a bijection. So all ranks stay alike, and
one rank whose puts signal itself stands for all. With different programs, or a signal
that is lost on one rank, every rank is replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpc.schedule.model import Barrier, Instr, Put, Schedule, Set, Wait

Node = tuple[int, int]
"""(rank, queue)."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A signal that never arrives: of the instruction `index` of `queue` on `rank`.

    `k` picks one destination of a put; None loses all its signals.
    """

    rank: int
    queue: int
    index: int
    k: int | None = None


class Replay:
    """State of a greedy replay; `run` drives it as far as it goes.

    `programs` has one entry a rank, or a single one that stands for all ranks alike.
    After `run`, `pc` tells where each (rank, queue) stands and `blocked` which are not
    at their end. Work is linear in the number of instructions.
    """

    def __init__(
        self, programs: Sequence[Schedule], lost: frozenset[Lost] = frozenset()
    ) -> None:
        self.programs = programs
        self.lost = lost
        self.alike = len(programs) == 1
        self.nodes: list[Node] = [
            (r, q) for r, s in enumerate(programs) for q in range(len(s.queues))
        ]
        self.pc: dict[Node, int] = dict.fromkeys(self.nodes, 0)
        self.counters: list[dict[int, int]] = [{} for _ in programs]
        self._waiting: dict[tuple[int, int], list[Node]] = {}
        self._ready: list[Node] = list(reversed(self.nodes))
        self._met: dict[tuple[str, int], list[Node]] = {}
        self._crowd = [len(s.queues) for s in programs]

    def run(self) -> None:
        while self._ready:
            self._advance(self._ready.pop())

    @property
    def blocked(self) -> list[Node]:
        """Queues that have not reached their end."""
        return [node for node in self.nodes if self.pc[node] < len(self.code(node))]

    def code(self, node: Node) -> tuple[Instr, ...]:
        return self.programs[node[0]].queues[node[1]].code

    def targets(self, node: Node, index: int) -> list[tuple[int, int]]:
        """(rank, signals) that an instruction sends to its event, lost ones left out.

        A replay of ranks alike names its only rank, 0.
        """
        instr = self.code(node)[index]
        rank, queue = node
        s = self.programs[rank]
        if isinstance(instr, Set):
            if Lost(rank, queue, index) in self.lost:
                return []
            return [(rank, s.queues[queue].team.size)]
        if not isinstance(instr, Put) or instr.event is None:
            return []
        ks = s.groups[instr.group]
        if self.alike:
            return [(0, len(ks) * instr.chunks)]
        sign = 1 if instr.kind == "dispatch" else -1
        return [
            ((rank + sign * k) % len(self.programs), instr.chunks)
            for k in ks
            if not self._is_lost(rank, queue, index, k)
        ]

    def _is_lost(self, rank: int, queue: int, index: int, k: int) -> bool:
        return bool(self.lost) and (
            Lost(rank, queue, index) in self.lost
            or Lost(rank, queue, index, k) in self.lost
        )

    def _advance(self, node: Node) -> None:
        """Runs one queue until it blocks or ends."""
        rank = node[0]
        code = self.code(node)
        counters = self.counters[rank]
        i = self.pc[node]
        while i < len(code):
            instr = code[i]
            if isinstance(instr, Wait):
                if counters.get(instr.event, 0) < instr.need:
                    self._waiting.setdefault((rank, instr.event), []).append(node)
                    break
            elif isinstance(instr, Barrier):
                self.pc[node] = i
                self._arrive(node, instr)
                return
            elif isinstance(instr, Set | Put) and instr.event is not None:
                for target, signals in self.targets(node, i):
                    self._signal(target, instr.event, signals)
            i += 1
        self.pc[node] = i

    def _signal(self, rank: int, event: int, signals: int) -> None:
        counters = self.counters[rank]
        counters[event] = counters.get(event, 0) + signals
        # A woken queue looks at its own threshold again.
        self._ready += self._waiting.pop((rank, event), ())

    def _arrive(self, node: Node, barrier: Barrier) -> None:
        """Holds a queue at a barrier; the last one to come frees all."""
        world = barrier.scope == "world"
        key = (barrier.scope, -1 if world else node[0])
        met = self._met.setdefault(key, [])
        met.append(node)
        if len(met) < (sum(self._crowd) if world else self._crowd[node[0]]):
            return
        for each in met:
            self.pc[each] += 1
        self._ready += met
        self._met[key] = []
