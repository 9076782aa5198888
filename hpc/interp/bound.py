"""A time that no schedule of the same layer and routing can beat, resource by resource.

For every rank and resource: head + work / best rate + tail. Why each part is safe for
any schedule that passes the checks, whatever its order, groups, tiles and teams:

- AIC: multiply-adds at the cube's full rate on all cores. A tile never takes less: the
  cube works in whole steps and everything else about a tile only adds.
- AIV: the vector instructions of `hpc.machine.ops`, without their fixed costs, on all
  cores. Puts are not counted: a transport may need no core.
- HBM: only what must come from or go to memory once: matrices of experts that have
  rows, inputs, saved tensors, outputs. Everything in between might stay in L2; inputs
  are not there before the launch (a `repeated` run may beat the bound). A rank that
  sends n rows reads at least ceil(n / top_k) tokens: a token is sent at most top_k
  times.
- Egress, ingress: rows that cross a link, each shift at the faster of the two
  transports, without the cost of single messages.
- Chain: the longest path of operators, each taking no time at all, but each hand-over
  between units at its price.

Head: the launch and one fetch come before everything. If every GMM waits for rows that
were put, a put and its signal do, too. Tail: rows leave an AIC by way of an AIV and a
put; what was on a link still has to become visible. A hand-over is the cheaper of an
event (set, visible) and a barrier.

The dispatch-to-combine bound is the larger of two: of the operators that a combine
depends on, tail included, and of all operators but the epilogue, without a tail. A rank
takes part in the combine puts that it sends and receives, so its own work and all rows
over its links come before its latency ends (see `Timing`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpc.interp.flow import (
    Node,
    after_puts,
    chain_depth,
    epilogue,
    flow_nodes,
    needed_nodes,
)
from hpc.interp.pricing import MATRIX_OPS
from hpc.interp.rows import RowTable
from hpc.machine.cost import hbm_read_equivalent, vector_compute_us
from hpc.machine.record import Machine
from hpc.machine.topology import Shift, collective_share, shift_of
from hpc.schedule.layer import DTYPE_BYTES
from hpc.schedule.model import Buffer, Schedule

Floats = npt.NDArray[np.float64]

RESOURCES = ("aic", "aiv", "hbm", "egress", "ingress", "chain")


@dataclass(frozen=True, slots=True)
class Bound:
    """Lower bounds in microseconds from the launch.

    `bound_us` is for dispatch to combine and `layer_us` for the whole layer; `*_by`
    names the resource that binds and `*_rank` the rank. `terms[resource]` and
    `layer_terms[resource]` are per rank, `rank_us` and `rank_layer_us` their maxima.
    """

    bound_us: float
    bound_by: str
    bound_rank: int
    layer_us: float
    layer_by: str
    layer_rank: int
    rank_us: Floats
    rank_layer_us: Floats
    terms: dict[str, Floats]
    layer_terms: dict[str, Floats]


def lower_bound(schedule: Schedule, counts: npt.ArrayLike, machine: Machine) -> Bound:
    """Bounds for the schedule's layer and flow; its order and tiling do not matter."""
    rows = RowTable(schedule, counts)
    nodes = flow_nodes(schedule)
    needed = needed_nodes(nodes)
    combined = any(node.kind == "combine" for node in nodes)
    terms = _Terms(schedule, rows, machine, needed, combined).all()
    if combined:
        last = epilogue(nodes, {b.name: b.space for b in schedule.buffers})
        timed = [node for node in nodes if node not in last]
        other = _Terms(schedule, rows, machine, timed, False).all()
        terms = {name: np.maximum(terms[name], other[name]) for name in terms}
    layer_terms = _Terms(schedule, rows, machine, nodes, False).all()
    rank_us, by, rank = _largest(terms)
    rank_layer_us, layer_by, layer_rank = _largest(layer_terms)
    return Bound(
        bound_us=float(rank_us[rank]),
        bound_by=by,
        bound_rank=rank,
        layer_us=float(rank_layer_us[layer_rank]),
        layer_by=layer_by,
        layer_rank=layer_rank,
        rank_us=rank_us,
        rank_layer_us=rank_layer_us,
        terms=terms,
        layer_terms=layer_terms,
    )


def _largest(terms: dict[str, Floats]) -> tuple[Floats, str, int]:
    """(largest term of each rank, resource and rank of the largest of all)."""
    table = np.array([terms[name] for name in RESOURCES])
    per_rank = table.max(axis=0)
    rank = int(per_rank.argmax())
    return per_rank, RESOURCES[int(table[:, rank].argmax())], rank


def _cheapest(machine: Machine, shift: Shift) -> float:
    """What a byte is worth on a link by the cheaper transport; 0 for own rows."""
    if not shift.link_share:
        return 0.0
    return min(shift.link_share, collective_share(machine, shift))


class _Terms:
    """The terms of one span: of the operators in `nodes`; `combined` if it ends with
    the last combine put."""

    def __init__(
        self,
        schedule: Schedule,
        rows: RowTable,
        machine: Machine,
        nodes: list[Node],
        combined: bool,
    ) -> None:
        self.layer = schedule.layer
        self.buffers = {buffer.name: buffer for buffer in schedule.buffers}
        self.rows, self.machine, self.nodes = rows, machine, nodes
        self.kinds = {node.kind for node in nodes}
        # A consumer that comes when its event is open already does not poll.
        self.event_us = machine.event_visible_us
        self.issue_us = min(machine.put_issue_us, machine.across_issue_us)
        self.cross_us = min(machine.event_set_us + self.event_us, machine.sync_all_us)
        self.put_us = min(self.event_us, machine.sync_all_us) + self.issue_us
        self.head_us = machine.kernel_launch_us + machine.task_fetch_us
        ep = schedule.layer.ep
        self.shifts = [shift_of(machine, ep, k) for k in range(ep)]
        self.hop_us = min((s.hop_us for s in self.shifts[1:]), default=0.0)
        self.tail_us = machine.event_visible_us if combined else 0.0
        self.leave_us = 0.0
        if combined:
            self.leave_us = self.cross_us + self.issue_us + self.tail_us

    def all(self) -> dict[str, Floats]:
        """All terms, each float64 [ranks]."""
        egress, ingress = self._links()
        return {
            "aic": self._aic(),
            "aiv": self._around(self._aiv_us(), self.head_us, self.tail_us),
            "hbm": self._around(self._hbm_us(), self.head_us, self.tail_us),
            "egress": egress,
            "ingress": ingress,
            "chain": self._chain(),
        }

    def _around(self, work_us: Floats, head_us: float, tail_us: float) -> Floats:
        """Head and tail count only where there is work between them."""
        return np.where(work_us > 0, head_us + work_us + tail_us, self.head_us)

    def _node_rows(self, buffer: Buffer) -> Floats:
        """Rows of a whole buffer that carry data, per rank."""
        if buffer.space == "weight":
            return np.full(self.layer.ep, float(self.layer.local_experts * buffer.rows))
        if buffer.space == "token":
            return np.array(self.layer.tokens, dtype=np.float64)
        table = self.rows.received if buffer.space == "routed" else self.rows.sent
        return table.sum(axis=(1, 2)).astype(np.float64)

    def _aic(self) -> Floats:
        work = np.zeros(self.layer.ep)
        products = [node for node in self.nodes if node.kind in MATRIX_OPS]
        for node in products:
            # Every row meets every element of the matrix, whichever operand that is.
            matrix = node.writes[0] if node.kind == "gmm_tn" else node.reads[1]
            weight = self.buffers[matrix]
            cube = self.machine.cube_m0 * self.machine.cube_n0
            cube *= self.machine.cube_k0(weight.dtype)
            step = weight.rows * weight.cols / cube
            work += self._node_rows(self.buffers[node.reads[0]]) * step
        rate = self.machine.clock_ghz * 1e3 * self.machine.aic_cores
        waits = after_puts(self.nodes).issuperset(products)
        head = self.head_us + (self.put_us if waits else 0.0)
        return self._around(work / rate, head, self.leave_us)

    def _aiv_us(self) -> Floats:
        work = np.zeros(self.layer.ep)
        for node in self.nodes:
            if node.is_put or node.kind in MATRIX_OPS:
                continue
            made = self.buffers[node.write]
            read = sum(self._row_cols(name, made) for name in node.reads)
            written = sum(self._row_cols(name, made) for name in node.writes)
            one = vector_compute_us(self.machine, node.kind, read, written, made.dtype)
            work += self._node_rows(made) * one
        return work / self.machine.aiv_cores

    def _row_cols(self, name: str, made: Buffer) -> int:
        """Elements of a buffer that belong to one row of a result."""
        buffer = self.buffers[name]
        gathers = made.space == "token" and buffer.space == "slot"
        return buffer.cols * (self.layer.top_k if gathers else 1)

    def _hbm_us(self) -> Floats:
        moved = np.zeros(self.layer.ep)
        store = hbm_read_equivalent(self.machine)
        read = {name for node in self.nodes for name in node.reads}
        written = {name for node in self.nodes for name in node.writes}
        sent = {node.reads[0] for node in self.nodes if node.kind == "dispatch"}
        for name in sorted(read | written):
            buffer = self.buffers[name]
            if buffer.role == "weight" and name in read:
                moved += self._experts_with_rows() * buffer.rows * self._row(buffer)
            elif name in read and buffer.role in ("input", "saved"):
                rows = self._node_rows(buffer)
                if name in sent:
                    rows = np.ceil(self.rows.sent.sum(axis=(1, 2)) / self.layer.top_k)
                moved += rows * self._row(buffer)
            elif name in written and buffer.role == "output":
                moved += self._node_rows(buffer) * self._row(buffer) * store
        return moved / (self.machine.hbm_gbps * 1e3)

    def _experts_with_rows(self) -> Floats:
        return np.count_nonzero(self.rows.received.sum(axis=2), axis=1).astype(float)

    def _row(self, buffer: Buffer) -> int:
        return buffer.cols * DTYPE_BYTES[buffer.dtype]

    def _links(self) -> tuple[Floats, Floats]:
        """Rows over the links of each rank: egress and ingress terms."""
        out = np.zeros(self.layer.ep)
        into = np.zeros(self.layer.ep)
        # Bytes at `link_gbps` that a byte is worth; the way back is the shift -k.
        there = np.array([_cheapest(self.machine, s) for s in self.shifts])
        back = np.roll(there[::-1], 1)
        sent, received = self.rows.sent.sum(axis=1), self.rows.received.sum(axis=1)
        for node in self.nodes:
            row = self._row(self.buffers[node.write])
            if node.kind == "dispatch":
                out, into = out + sent @ there * row, into + received @ there * row
            elif node.kind == "combine":
                out, into = out + received @ back * row, into + sent @ back * row
        machine = self.machine
        rate = machine.link_gbps * 1e3
        ends = self.hop_us + self.issue_us + machine.event_visible_us
        return (
            self._around(out / rate, self.head_us, ends),
            self._around(into / rate, self.head_us, ends),
        )

    def _chain(self) -> Floats:
        """The path of one row, where a rank has any; a remote row makes the hops."""
        every = self.rows.sent.sum(axis=1) + self.rows.received.sum(axis=1)
        some = every.sum(axis=1) > 0
        path = np.where(some, chain_depth(self.nodes, self.cross_us, self.put_us), 0.0)
        if "combine" not in self.kinds:
            return self._around(path, self.head_us, 0.0)
        returning = needed_nodes(self.nodes)
        hops = len({node.kind for node in returning if node.is_put})
        away = every[:, 1:].sum(axis=1) > 0
        there = chain_depth(returning, self.cross_us, self.put_us)
        there += self.issue_us + self.machine.event_visible_us
        back = np.where(some, there + away * hops * self.hop_us, 0.0)
        return self._around(np.maximum(path, back), self.head_us, 0.0)
