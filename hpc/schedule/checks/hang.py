"""A replay that got stuck, as a graph of who needs whom, and the words for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from hpc.schedule.checks.index import Index, Violation
from hpc.schedule.checks.replay import Lost, Node, Replay
from hpc.schedule.model import Barrier, Instr, Put, Set, Wait
from hpc.schedule.render import render_team

_SHOWN = 8
"""Blocked queues that a witness lists by name; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Producer:
    """Instruction `index` of `node` sends `signals` to a wait."""

    node: Node
    index: int
    signals: int


class Hang:
    """`needs[node]` are the blocked queues that a blocked queue waits for."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.blocked = replay.blocked
        known = {id(s): Index(s) for s in replay.programs}
        self._index = [known[id(s)] for s in replay.programs]
        self._pending: dict[tuple[int, int], list[Producer]] = {}
        self._sent: dict[tuple[int, int], list[Producer]] = {}
        self._collect()
        self._mates: dict[tuple[str, int], list[Node]] = {}
        self._left: dict[tuple[Node, str], bool] = {}
        self.needs = {node: self._needed(node) for node in self.blocked}

    def at(self, node: Node) -> Instr:
        """The instruction at which a blocked queue stands."""
        return self.replay.code(node)[self.replay.pc[node]]

    def ended(self, node: Node) -> bool:
        return self.replay.pc[node] >= len(self.replay.code(node))

    def need(self, node: Node) -> int:
        return self._wait(node).need

    def have(self, node: Node) -> int:
        return self.replay.counters[node[0]].get(self._wait(node).event, 0)

    def most(self, node: Node) -> int:
        """Signals that the counter would have if every queue went on."""
        return self.have(node) + sum(each.signals for each in self.pending(node))

    def pending(self, node: Node) -> list[Producer]:
        """Producers that a blocked wait still lacks."""
        return self._pending.get((node[0], self._wait(node).event), [])

    def sent(self, node: Node) -> list[Producer]:
        """Producers that have signalled a blocked wait."""
        return self._sent.get((node[0], self._wait(node).event), [])

    def absent(self, node: Node) -> list[Node]:
        """Queues in a barrier's scope that stand at no such barrier."""
        barrier = self._barrier(node)
        key = (barrier.scope, node[0] if barrier.scope == "rank" else -1)
        if key not in self._mates:
            self._mates[key] = [
                mate
                for mate in self.replay.nodes
                if key[1] in (-1, mate[0]) and not self._meets(mate, barrier.scope)
            ]
        return self._mates[key]

    def lacking(self, node: Node) -> list[Node]:
        """Those of `absent` that have no such barrier left: they never come."""
        scope = self._barrier(node).scope
        return [mate for mate in self.absent(node) if not self._has(mate, scope)]

    def _has(self, node: Node, scope: str) -> bool:
        key = (node, scope)
        if key not in self._left:
            rest = self.replay.code(node)[self.replay.pc[node] :]
            self._left[key] = any(
                isinstance(instr, Barrier) and instr.scope == scope for instr in rest
            )
        return self._left[key]

    def _meets(self, node: Node, scope: str) -> bool:
        if self.ended(node):
            return False
        instr = self.at(node)
        return isinstance(instr, Barrier) and instr.scope == scope

    def _barrier(self, node: Node) -> Barrier:
        instr = self.at(node)
        assert isinstance(instr, Barrier)
        return instr

    def _wait(self, node: Node) -> Wait:
        instr = self.at(node)
        assert isinstance(instr, Wait)
        return instr

    def _collect(self) -> None:
        """Sorts the producers of what blocked queues wait for by done or not."""
        at = [(node[0], self.at(node)) for node in self.blocked]
        wanted = {(rank, i.event) for rank, i in at if isinstance(i, Wait)}
        events = {event for _, event in wanted}
        for node in self.replay.nodes:
            for i, instr in enumerate(self.replay.code(node)):
                if not isinstance(instr, Set | Put) or instr.event not in events:
                    continue
                late = i >= self.replay.pc[node]
                table = self._pending if late else self._sent
                for rank, signals in self.replay.targets(node, i):
                    if (rank, instr.event) in wanted:
                        producer = Producer(node, i, signals)
                        table.setdefault((rank, instr.event), []).append(producer)

    def _needed(self, node: Node) -> list[Node]:
        if isinstance(self.at(node), Wait):
            return list(dict.fromkeys(each.node for each in self.pending(node)))
        lacking = set(self.lacking(node))
        return [mate for mate in self.absent(node) if mate not in lacking]

    @cached_property
    def _needed_by(self) -> dict[Node, list[Node]]:
        back: dict[Node, list[Node]] = {}
        for node, needed in self.needs.items():
            for each in needed:
                back.setdefault(each, []).append(node)
        return back

    def behind(self, roots: list[Node]) -> list[str]:
        """Witness lines for the queues that `roots` hold up."""
        held: dict[Node, None] = dict.fromkeys(roots)
        stack = list(roots)
        while stack:
            for node in self._needed_by.get(stack.pop(), ()):
                if node not in held:
                    held[node] = None
                    stack.append(node)
        rest = sorted(node for node in held if node not in roots)
        lines = [
            f"blocked behind it: {self.state_text(node)}" for node in rest[:_SHOWN]
        ]
        if len(rest) > _SHOWN:
            lines.append(f"and {len(rest) - _SHOWN} more")
        return lines

    def where(self, node: Node) -> str:
        """`queue 1 of rank 0` or `queue 1 of every rank`."""
        rank = "every rank" if self.replay.alike else f"rank {node[0]}"
        return f"queue {node[1]} of {rank}"

    def queue_text(self, node: Node) -> str:
        team = self.replay.programs[node[0]].queues[node[1]].team
        return f"{self.where(node)} ({render_team(team)})"

    def label(self, node: Node) -> str:
        """A blocked queue and the instruction at which it stands."""
        return f"{self._rank(node)}{self._text(node, self.replay.pc[node])}"

    def at_text(self, node: Node) -> str:
        """The place of a blocked queue, without its name."""
        return f"instruction {self.replay.pc[node]}"

    def state_text(self, node: Node) -> str:
        """`label`, and what the counter has if it is a wait."""
        if isinstance(self.at(node), Wait):
            return f"{self.label(node)}, has {self.have(node)}"
        return self.label(node)

    def reason(self, node: Node, needed: Node) -> str:
        """Which instruction of `needed` would let `node` go on."""
        if isinstance(self.at(node), Wait):
            producer = next(p for p in self.pending(node) if p.node == needed)
            return f"{self.producer_text(producer)}, which is not reached"
        return f"{self.queue_text(needed)} at the barrier"

    def producer_text(self, producer: Producer) -> str:
        """A producer, and of which ranks where one rank stands for all."""
        text = self._rank(producer.node) + self._text(producer.node, producer.index)
        instr = self.replay.code(producer.node)[producer.index]
        if not self.replay.alike or not isinstance(instr, Put):
            return text
        sign = "-" if instr.kind == "dispatch" else "+"
        ks = self.replay.programs[0].groups[instr.group]
        ranks = ", ".join(f"me{sign}{k}" if k else "me" for k in ks)
        return f"{text} (of rank {ranks})"

    def lost_texts(self, node: Node) -> list[str]:
        """Signals dropped on purpose that the event of this wait would have had."""
        event = self._wait(node).event
        texts: list[str] = []
        for lost in sorted(self.replay.lost, key=_lost_key):
            source = (lost.rank, lost.queue)
            instr = self.replay.code(source)[lost.index]
            if isinstance(instr, Set | Put) and instr.event == event:
                to = "" if lost.k is None else f", k = {lost.k}"
                texts.append(
                    f"{self._rank(source)}{self._text(source, lost.index)}{to}"
                )
        return texts

    def event_text(self, node: Node) -> str:
        return self._index[node[0]].event_text(self._wait(node).event)

    def _rank(self, node: Node) -> str:
        return "every rank " if self.replay.alike else f"rank {node[0]} "

    def _text(self, node: Node, index: int) -> str:
        return self._index[node[0]].text((node[1], index))

    def violation(
        self, check: str, code: str, message: str, node: Node, lines: Iterable[str]
    ) -> Violation:
        """A violation at the instruction where a blocked queue stands."""
        place = (node[1], self.replay.pc[node])
        rank = None if self.replay.alike else node[0]
        return self._index[node[0]].violation(
            check, code, message, place, rank=rank, witness=tuple(lines)
        )


def _lost_key(lost: Lost) -> tuple[int, int, int, int]:
    return lost.rank, lost.queue, lost.index, -1 if lost.k is None else lost.k
