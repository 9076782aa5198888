"""The operators behind a schedule: which buffers each reads and writes, and how deep
they are chained. Groups, tiles and order are gone."""

from __future__ import annotations

from dataclasses import dataclass

from hpc.machine.ops import op_cost
from hpc.schedule.checks.index import reads_of, writes_of
from hpc.schedule.model import Put, Region, Schedule, Task


@dataclass(frozen=True, slots=True)
class Node:
    """One operator: `kind` is an op name, "dispatch" or "combine". The dot product of a
    put is its second result."""

    kind: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def write(self) -> str:
        """The main result, which is the first."""
        return self.writes[0]

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
            if isinstance(instr, Put | Task):
                found[node_of(instr)] = None
    return list(found)


def node_of(instr: Put | Task) -> Node:
    """The operator that an instruction is a part of."""
    kind = instr.kind if isinstance(instr, Put) else instr.op
    return Node(kind, _names(reads_of(instr)), _names(writes_of(instr)))


def _names(regions: tuple[Region, ...]) -> tuple[str, ...]:
    return tuple(region.buffer for region in regions)


def epilogue(nodes: list[Node], spaces: dict[str, str]) -> list[Node]:
    """Local work on tokens or slots that no put depends on, such as the reduce."""
    before_puts = set(_ancestors(nodes, {node for node in nodes if node.is_put}))
    return [
        node
        for node in nodes
        if node not in before_puts and spaces[node.write] in ("token", "slot")
    ]


def after_puts(nodes: list[Node]) -> set[Node]:
    """Operators that cannot begin before a put has arrived."""
    found = {node for node in nodes if node.is_put}
    grew = True
    while grew:
        made = {name for node in found for name in node.writes}
        more = {node for node in nodes if made.intersection(node.reads)} - found
        found |= more
        grew = bool(more)
    return {node for node in found if not node.is_put}


def needed_nodes(nodes: list[Node]) -> list[Node]:
    """The operators that a combine depends on, combines included; all without one."""
    if not any(node.kind == "combine" for node in nodes):
        return nodes
    return _ancestors(nodes, {node for node in nodes if node.kind == "combine"})


def _ancestors(nodes: list[Node], kept: set[Node]) -> list[Node]:
    """`kept` and what they depend on, in the order of `nodes`."""
    wanted: set[str] = set()
    grew = True
    while grew:
        wanted |= {name for node in kept for name in node.reads}
        more = {node for node in nodes if wanted.intersection(node.writes)} - kept
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
    return [made for made in nodes if set(made.writes).intersection(node.reads)]


def _edge(made: Node, node: Node, cross_us: float, put_us: float) -> float:
    if made.unit == node.unit:
        return 0.0
    return put_us if made.is_put else cross_us
