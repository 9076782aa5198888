"""The operators behind a schedule: which buffers each reads and writes, and how deep
they are chained. Groups, tiles and order are gone."""

from __future__ import annotations

from dataclasses import dataclass

from hpc.machine.ops import op_cost
from hpc.schedule.model import Put, Schedule, Task


@dataclass(frozen=True, slots=True)
class Node:
    """One operator: `kind` is an op name, "dispatch" or "combine"."""

    kind: str
    reads: tuple[str, ...]
    write: str

    @property
    def unit(self) -> str:
        return op_cost(self.kind).unit

    @property
    def is_put(self) -> bool:
        return self.kind in ("dispatch", "combine")


def flow_nodes(schedule: Schedule) -> list[Node]:
    """Distinct operators, in the order in which the queues first name them."""
    found: dict[Node, None] = {}
    for queue in schedule.queues:
        for instr in queue.code:
            if isinstance(instr, Put):
                reads = (instr.source.buffer,)
                found[Node(instr.kind, reads, instr.dest.buffer)] = None
            elif isinstance(instr, Task):
                reads = tuple(region.buffer for region in instr.reads)
                found[Node(instr.op, reads, instr.writes[0].buffer)] = None
    return list(found)


def needed_nodes(nodes: list[Node]) -> list[Node]:
    """The operators that a combine depends on, combines included; all without one."""
    if not any(node.kind == "combine" for node in nodes):
        return nodes
    wanted: set[str] = set()
    kept: set[Node] = {node for node in nodes if node.kind == "combine"}
    grew = True
    while grew:
        wanted |= {name for node in kept for name in node.reads}
        more = {node for node in nodes if node.write in wanted} - kept
        kept |= more
        grew = bool(more)
    return [node for node in nodes if node in kept]


def chain_depth(nodes: list[Node], cross_us: float, put_us: float) -> float:
    """Longest path through the operators, counting only hand-overs between units.

    `cross_us` between AIC and AIV, `put_us` from a put to an AIC. A put to an AIV, and
    operators of one unit, may share a core and cost nothing. 0 if buffers are reused so
    that the operators do not form an order.
    """
    depth: dict[Node, float] = {}
    left = nodes
    while left:
        ready = [node for node in left if not _makers(node, left)]
        if not ready:
            return 0.0
        for node in ready:
            earlier = _makers(node, nodes)
            depth[node] = max(
                (depth[made] + _edge(made, node, cross_us, put_us) for made in earlier),
                default=0.0,
            )
        left = [node for node in left if node not in depth]
    return max(depth.values(), default=0.0)


def _makers(node: Node, nodes: list[Node]) -> list[Node]:
    """Those of `nodes` that write what `node` reads."""
    return [made for made in nodes if made.write in node.reads]


def _edge(made: Node, node: Node, cross_us: float, put_us: float) -> float:
    if made.unit == node.unit:
        return 0.0
    return put_us if made.is_put else cross_us
