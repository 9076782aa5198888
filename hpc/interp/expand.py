"""A schedule and its routing become arrays of task instances, one per core and step.

A *step* of a queue is what a worker does in one go: fetch, wait, run, signal. Every
core of a team has the same steps; what differs is its share of the work. Shares follow
`hpc.schedule.model`: tile t of an instruction belongs to core (offset + t) mod team.

Bytes charged to HBM are those that L2 does not have (`l2`), written ones at what they
cost beside read ones. Each core pays in proportion to its tiles: the cores of a die
share through L2. What a put tile costs on the links depends on its shift and the length
of its rows (`hpc.machine.topology`); one with a dot product reads a second row and
writes the product, at its source.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpc.interp.bandwidth import dyadic
from hpc.interp.l2 import Footprint, Traffic, replay
from hpc.interp.pricing import Pricer, spread
from hpc.interp.rough import durations, rough_times
from hpc.interp.rows import Ints, RowTable
from hpc.interp.task_steps import COMPUTE, PUT, Floats, Shares, queue_steps
from hpc.machine.cost import hbm_read_equivalent, message_factor, vector_compute_us
from hpc.machine.record import Machine
from hpc.machine.topology import Shift, collective_share, shift_of
from hpc.schedule.layer import DTYPE_BYTES
from hpc.schedule.model import Buffer, Put, Schedule


@dataclass(slots=True)
class PutTiles:
    """All tiles of all puts of one rank's program, in program order by queue.

    `first[q, i]` is the first tile of put instruction i of queue q. Per tile: `shift`
    (destination = rank + shift), `combine`, the latency `hop_us`, the fixed
    cost `issue_us`, `link_share`: bytes at `link_gbps` that one of its bytes is worth,
    and `link_weight`: the part of it that is due to the place, not to short rows, at
    least 1: what a core drives at most counts bytes, not what they are worth. As
    float64 [ranks, tiles]: `bytes` that it moves; `fetched` from and `stored`
    to HBM, in bytes read; and of its core `work_us` of arithmetic (scaling, dot
    product), which runs behind the transfer, and `busy_us`, the longer of that and of
    driving a link. `pull` has one number per put instruction: bytes at the source over
    bytes moved.
    """

    first: dict[tuple[int, int], int]
    shift: Ints
    combine: npt.NDArray[np.bool_]
    hop_us: Floats
    issue_us: Floats
    link_share: Floats
    link_weight: Floats
    bytes: Floats
    work_us: Floats
    busy_us: Floats
    fetched: Floats
    stored: Floats
    pull: list[float]

    def tiles_of(self, q: int, i: int) -> slice:
        """The tiles of put instruction i of queue q."""
        first = self.first[q, i]
        ordered = [*self.first.values(), len(self.shift)]
        return slice(first, ordered[bisect_right(ordered, first)])


@dataclass(slots=True)
class Expanded:
    """Everything the engine needs to know about the work of a run.

    `work_us` and `hbm_bytes` have one entry per task instance, ordered by rank, queue,
    core and step. They are the engine's own arrays: nothing is held twice.
    """

    rows: RowTable
    work_us: array[float]
    hbm_bytes: array[float]
    queues: list[Shares]
    puts: PutTiles
    traffic: list[Traffic]


def expand(
    schedule: Schedule,
    counts: npt.ArrayLike,
    machine: Machine,
    ranks: int | None = None,
    *,
    repeated: bool = False,
) -> Expanded:
    """Shares of all cores of all ranks, or of the first `ranks`.

    `repeated`: an identical launch came before (see `l2`). Raises ValueError if
    `counts` has another shape.
    """
    rows = RowTable(schedule, counts, ranks)
    ranks = rows.ranks
    steps = [queue_steps(queue) for queue in schedule.queues]
    sizes = [q.team.size * len(s) for q, s in zip(schedule.queues, steps, strict=True)]
    work_us = array("d", [0.0]) * (ranks * sum(sizes))
    hbm_bytes = array("d", [0.0]) * (ranks * sum(sizes))
    work = np.frombuffer(work_us).reshape(ranks, -1)
    moved = np.frombuffer(hbm_bytes).reshape(ranks, -1)
    queues: list[Shares] = []
    first = 0
    for queue, mine, size in zip(schedule.queues, steps, sizes, strict=True):
        shape = (ranks, queue.team.size, len(mine))
        shares = Shares(
            mine,
            work[:, first : first + size].reshape(shape),
            moved[:, first : first + size].reshape(shape),
            np.zeros(shape, dtype=np.int32),
            np.zeros((ranks, len(queue.code) + 1), dtype=np.int64),
            np.ones((ranks, len(mine))),
        )
        first += size
        queues.append(shares)
    pricer = Pricer(schedule, rows, machine)
    for queue, shares in zip(schedule.queues, queues, strict=True):
        pricer.fill(queue, shares)
    puts = _put_tiles(schedule, rows, machine)
    traffic = _charge(schedule, rows, machine, queues, puts, repeated)
    return Expanded(rows, work_us, hbm_bytes, queues, puts, traffic)


def _charge(
    schedule: Schedule,
    rows: RowTable,
    machine: Machine,
    queues: list[Shares],
    puts: PutTiles,
    repeated: bool,
) -> list[Traffic]:
    """Fills in what every task and put tile moves from and to HBM."""
    footprint = Footprint(schedule, rows, machine, [q.steps for q in queues])
    cost = hbm_read_equivalent(machine)
    took: list[Floats] = []
    traffic = footprint.traffic()
    for q, (shares, cold) in enumerate(zip(queues, traffic, strict=True)):
        moved = cold.read + cold.written * cost
        put_us = _put_us(puts, q, shares, machine)
        took.append(durations(shares, moved, put_us, machine))
    times = rough_times(schedule, queues, took, machine)
    replay(footprint, traffic, times, repeated=repeated)
    for q, (shares, mine) in enumerate(zip(queues, traffic, strict=True)):
        for s, step in enumerate(shares.steps):
            if step.kind == COMPUTE:
                missed, stored = mine.missed[:, s], mine.stored[:, s]
                moved = missed + stored * cost
                held = shares.tiles[:, :, s].astype(np.int64)
                shares.hbm_bytes[:, :, s] = spread(moved, held)
                real = missed + stored
                # Where nothing moves, the weight does not matter.
                ratio = moved / np.where(real > 0, real, np.inf)
                shares.weight[:, s] = dyadic(ratio)
            elif step.kind == PUT:
                _charge_put(puts, puts.tiles_of(q, step.work), mine, s, cost)
    return traffic


def _charge_put(
    puts: PutTiles, tiles: slice, traffic: Traffic, s: int, cost: float
) -> None:
    """A put's bytes over its tiles, in proportion to what they move. What it writes at
    its source (the results of dot products) counts as fetched: it is moved there."""
    size = puts.bytes[:, tiles]
    share = size / np.maximum(size.sum(axis=1), 1.0)[:, None]
    local = traffic.local[:, s]
    fetched = traffic.missed[:, s] + local * cost
    away = (traffic.stored[:, s] - local) * cost
    # What arrives here stands for what is sent: a rank is paid for what others write.
    arriving = np.maximum(traffic.written[:, s] - local, 1.0)
    puts.fetched[:, tiles] = share * fetched[:, None]
    puts.stored[:, tiles] = size * (away / arriving)[:, None]


def _put_us(puts: PutTiles, q: int, shares: Shares, machine: Machine) -> Floats:
    """About how long the puts of each step take a team, float64 [ranks, steps]."""
    found = np.zeros(shares.work_us[:, 0].shape)
    for s, step in enumerate(shares.steps):
        if step.kind == PUT:
            tiles = puts.tiles_of(q, step.work)
            over = puts.bytes[:, tiles] @ puts.link_share[tiles]
            driven = puts.busy_us[:, tiles].sum(axis=1) / shares.work_us.shape[1]
            found[:, s] = np.maximum(over / (machine.link_gbps * 1e3), driven)
    return found


def _put_tiles(schedule: Schedule, rows: RowTable, machine: Machine) -> PutTiles:
    """Destination, bytes and costs of every put tile of every rank."""
    first: dict[tuple[int, int], int] = {}
    shifts: list[npt.NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)]
    empty = np.zeros((rows.ranks, 0))
    sizes, work_us, busy_us = [empty], [empty], [empty]
    costs: list[Floats] = [np.zeros((5, 0))]
    combine: list[bool] = []
    pull: list[float] = []
    buffers = {buffer.name: buffer for buffer in schedule.buffers}
    links = _Links(machine, schedule.layer.ep)
    for q, queue in enumerate(schedule.queues):
        for i, put in enumerate(queue.code):
            if not isinstance(put, Put):
                continue
            first[q, i] = len(combine)
            ks = np.array(schedule.groups[put.group], dtype=np.int64)
            back = put.kind == "combine"
            table = rows.received if back else rows.sent
            n = table[:, put.expert, ks]
            bounds = np.arange(put.chunks + 1) * n[:, :, None] // put.chunks
            tile_rows = np.diff(bounds).reshape(len(n), -1).astype(np.float64)
            row_bytes, extra, row_us = _put_row(put, buffers, machine)
            ks = -ks if back else ks
            cost = links.costs(ks.tolist(), row_bytes, put.transport)
            cost = np.repeat(cost, put.chunks, axis=1)
            sizes.append(tile_rows * row_bytes)
            work_us.append(tile_rows * row_us)
            drive_us = tile_rows * row_bytes * cost[3]
            busy_us.append(np.maximum(drive_us, work_us[-1]))
            costs.append(cost)
            pull.append(1 + extra / row_bytes)
            shifts.append(np.repeat(ks, put.chunks))
            combine += [back] * cost.shape[1]
    size = _by_tile(sizes)
    hop_us, issue_us, link_share, _, place = np.concatenate(costs, axis=1)
    return PutTiles(
        first=first,
        shift=np.concatenate(shifts),
        combine=np.array(combine, dtype=np.bool_),
        hop_us=hop_us,
        issue_us=issue_us,
        link_share=link_share,
        link_weight=np.maximum(1.0, dyadic(place)),
        bytes=size,
        work_us=_by_tile(work_us),
        busy_us=_by_tile(busy_us),
        fetched=np.zeros(size.T.shape).T,
        stored=np.zeros(size.T.shape).T,
        pull=pull,
    )


def _by_tile(pieces: list[Floats]) -> Floats:
    """[ranks, tiles] from pieces of tiles; in memory tile by tile, as the event loop
    numbers them, so that it needs no copy."""
    return np.concatenate([piece.T for piece in pieces]).T


class _Links:
    """What shifts cost; each is priced once."""

    def __init__(self, machine: Machine, ep: int) -> None:
        self.machine, self.ep = machine, ep
        self._shifts: dict[int, Shift] = {}

    def costs(self, ks: list[int], row_bytes: int, transport: str) -> Floats:
        """Latency, fixed cost, bytes at `link_gbps` per byte, the driving core's us per
        byte, and bytes at `link_gbps` per byte of long rows, float64 [5, shifts]."""
        machine = self.machine
        factor = message_factor(machine, row_bytes)
        core_us = factor / (machine.put_core_gbps * 1e3)
        found: list[tuple[float, float, float, float, float]] = []
        for k in ks:
            shift = self._shift(k)
            hop_us, issue_us = shift.hop_us, shift.issue_us
            if not k % self.ep:
                found.append((hop_us, issue_us, 0.0, 0.0, 0.0))
            elif transport == "collective":
                share = collective_share(machine, shift)
                found.append((hop_us, issue_us, share, 0.0, share))
            else:
                place = shift.link_share
                found.append((hop_us, issue_us, place * factor, core_us, place))
        return np.array(found).T

    def _shift(self, k: int) -> Shift:
        if k not in self._shifts:
            self._shifts[k] = shift_of(self.machine, self.ep, k)
        return self._shifts[k]


def _put_row(
    put: Put, buffers: dict[str, Buffer], machine: Machine
) -> tuple[int, int, float]:
    """(bytes moved, further bytes at the source, microseconds) of one row of a put."""
    dest = buffers[put.dest.buffer]
    row_bytes, extra = dest.cols * DTYPE_BYTES[dest.dtype], 0
    for region in put.dot:
        buffer = buffers[region.buffer]
        extra += buffer.cols * DTYPE_BYTES[buffer.dtype]
    return row_bytes, extra, _put_row_us(put, dest, row_bytes, extra, machine)


def _put_row_us(
    put: Put, dest: Buffer, row_bytes: int, extra: int, machine: Machine
) -> float:
    """Arithmetic of a core for one row of a put.

    A core that puts computes on rows on their way through it. A collective sends what
    lies in memory: a pass of its own reads the rows, and those to multiply with, and
    writes what is sent, all vector cores at once.
    """
    work_us = 0.0
    if put.scale:
        work_us += vector_compute_us(machine, "scale", dest.cols, dest.cols, dest.dtype)
    if put.dot:
        work_us += vector_compute_us(machine, "dot", dest.cols, 0, dest.dtype)
    if not work_us or put.transport != "collective":
        return work_us
    rate = min(machine.hbm_core_gbps, machine.hbm_gbps / machine.aiv_cores) * 1e3
    moved = row_bytes * (1 + hbm_read_equivalent(machine)) + extra
    return max(work_us, moved / rate)
