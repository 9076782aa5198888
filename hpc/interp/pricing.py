"""The time of every core's share of every task, in numpy.

No Python loop runs over cores or tiles: a core's tiles of a GMM come in four kinds
(whole, cut at the bottom, cut at the right, cut at both) and are counted, not listed.
"""

from __future__ import annotations

import numpy as np

from hpc.interp.rows import Ints, RowTable
from hpc.interp.task_steps import COMPUTE, PUT, Floats, Shares
from hpc.machine.cost import GmmCost, alignment, op_cost, vector_share_us
from hpc.machine.record import Machine
from hpc.schedule.layer import DTYPE_BYTES
from hpc.schedule.model import Base, Put, Queue, Region, Schedule, Task

MATRIX_OPS = ("gmm", "gmm_nt", "gmm_tn")
"""Operators of the cube."""


KNOWN = 32
"""Shares that are kept in case an instruction like it comes again."""


def ceil_div(a: Ints, b: int) -> Ints:
    return -(-a // b)


def share_counts(tiles: Ints, residues: Ints, team: int) -> Ints:
    """How many t in 0 .. tiles-1 have t mod team == residue."""
    return np.maximum(0, (tiles - residues + team - 1) // team)


class Pricer:
    """Prices the shares of queues; one per run, for its caches."""

    def __init__(self, schedule: Schedule, rows: RowTable, machine: Machine) -> None:
        self.schedule = schedule
        self.rows = rows
        self.machine = machine
        self.ranks = rows.ranks
        self.buffers = {buffer.name: buffer for buffer in schedule.buffers}
        self._prices: dict[tuple[object, ...], tuple[float, ...]] = {}
        self._known: dict[tuple[object, ...], tuple[Ints, Floats]] = {}

    def fill(self, queue: Queue, shares: Shares) -> None:
        """Writes work, tiles and offsets of one queue's shares in place."""
        steps, offsets = shares.steps, shares.offsets
        tiles = self._tiles(queue)
        np.cumsum(tiles, axis=1, out=offsets[:, 1:])
        for s, step in enumerate(steps):
            if step.kind not in (COMPUTE, PUT):
                continue
            instr, i = queue.code[step.work], step.work
            assert isinstance(instr, Task | Put)
            first = offsets[:, i] % queue.team.size
            held, work_us = self._shares(instr, tiles[:, i], first, queue.team.size)
            shares.tiles[:, :, s] = held
            shares.work_us[:, :, s] = work_us

    def _shares(
        self, instr: Task | Put, tiles: Ints, first: Ints, team: int
    ) -> tuple[Ints, Floats]:
        """Tiles and time of each core, [ranks, cores]; `first` is the core of tile 0
        on each rank. Experts with the same rows often begin at the same core, too."""
        key = self._key(instr, tiles, first, team)
        found = self._known.get(key)
        if found is None:
            residue = (np.arange(team) - first[:, None]) % team
            held = share_counts(tiles[:, None], residue, team)
            work_us = np.zeros(held.shape)
            if isinstance(instr, Task) and instr.op in MATRIX_OPS:
                work_us = self._gmm_shares(instr, residue, held)
            elif isinstance(instr, Task):
                work_us = self._vector_shares(instr, tiles, residue, held)
            # Few are kept: with other rows everywhere, nothing comes twice.
            if len(self._known) >= KNOWN:
                self._known.clear()
            found = self._known[key] = held, work_us
        return found

    def _key(
        self, instr: Task | Put, tiles: Ints, first: Ints, team: int
    ) -> tuple[object, ...]:
        """All that the shares of an instruction depend on."""
        place = tiles.tobytes(), first.tobytes(), team
        if isinstance(instr, Put):
            return place
        regions = (*instr.reads, *instr.writes)
        names = tuple(region.buffer for region in regions)
        rows = (instr.reads[0], instr.writes[0])
        held = tuple(self.rows.rows(region).tobytes() for region in rows)
        return (*place, instr.op, instr.base, names, held)

    def _tiles(self, queue: Queue) -> Ints:
        """Tiles of every instruction, int64 [ranks, instructions]."""
        tiles = np.zeros((self.ranks, len(queue.code)), dtype=np.int64)
        for i, instr in enumerate(queue.code):
            if isinstance(instr, Put):
                tiles[:, i] = len(self.schedule.groups[instr.group]) * instr.chunks
            elif isinstance(instr, Task) and instr.op in MATRIX_OPS:
                m, n, _ = self._gmm_size(instr)
                tiles[:, i] = ceil_div(m, instr.base.m) * -(-n // instr.base.n)
            elif isinstance(instr, Task):
                rows = self.rows.rows(instr.writes[0])
                tiles[:, i] = ceil_div(rows, instr.base.m)
        return tiles

    def _gmm_size(self, task: Task) -> tuple[Ints, int, Ints]:
        """(rows on each rank, columns, depth on each rank) of a matrix product.

        Rows of an expert are the rows of "gmm" and "gmm_nt", but the depth of "gmm_tn",
        whose result is the whole matrix on every rank.
        """
        rows = self.rows.rows(task.reads[0])
        if task.op == "gmm_tn":
            out = self.buffers[task.writes[0].buffer]
            return np.full_like(rows, out.rows), out.cols, rows
        weight = self.buffers[task.reads[1].buffer]
        n, k = weight.cols, weight.rows
        if task.op == "gmm_nt":
            n, k = k, n
        return rows, n, np.full_like(rows, k)

    def _gmm_shares(self, task: Task, residue: Ints, held: Ints) -> Floats:
        """Time of each core, by its count of whole and cut tiles."""
        m, n, depth = self._gmm_size(task)
        base, dtype = task.base, self.buffers[task.writes[0].buffer].dtype
        wide, high = -(-n // base.n), ceil_div(m, base.m)
        before = share_counts((high * (wide - 1))[:, None], residue, residue.shape[1])
        low, corner = _bottom_tiles(high, wide, residue)
        right = held - before - corner
        sizes = zip(m.tolist(), depth.tolist(), strict=True)
        price = np.array(
            [self._tile_prices(task.op, base, *mk, n, dtype) for mk in sizes]
        )
        kinds = (before - low, right, low, corner, held > 0)
        time = np.zeros(held.shape)
        for k, count in enumerate(kinds):
            time += count * price[:, k, None]
        return time

    def _tile_prices(
        self, op: str, base: Base, m: int, k: int, n: int, dtype: str
    ) -> tuple[float, ...]:
        """Time of a whole tile, one cut at the right, at the bottom, at both, and of
        what every core has once: its first loads and its last store."""
        if not m:
            return (0.0,) * 5
        key = (op, base, m, k, n, dtype)
        found = self._prices.get(key)
        if found is None:
            # Columns of the rows in which the operands lie in memory.
            left, right = {"gmm": (k, n), "gmm_nt": (k, k), "gmm_tn": (m, n)}[op]
            size = DTYPE_BYTES[dtype]
            factors = (alignment(self.machine, cols * size) for cols in (left, right))
            cost = GmmCost(self.machine, base, k, dtype, *factors)
            top, left = min(base.m, m), min(base.n, n)
            edge_m, edge_n = (m - 1) % base.m + 1, (n - 1) % base.n + 1
            sizes = (top, left), (top, edge_n), (edge_m, left), (edge_m, edge_n)
            times = [cost.tile_us(*size)[0] for size in sizes]
            ends = cost.tile_us(top, left)[1] + cost.fill_us(top, left)
            found = self._prices[key] = (*times, ends)
        return found

    def _vector_shares(
        self, task: Task, tiles: Ints, residue: Ints, held: Ints
    ) -> Floats:
        """Time of each core of a vector task."""
        op_cost(task.op)
        team = residue.shape[1]
        written = self.buffers[task.writes[0].buffer]
        rows = self.rows.rows(task.writes[0])
        short = np.where(rows > 0, tiles * task.base.m - rows, 0)
        owns_last = (tiles[:, None] > 0) & (residue == (tiles[:, None] - 1) % team)
        mine = held * task.base.m - np.where(owns_last, short[:, None], 0)
        read_cols = self._per_row(task, task.reads)
        write_cols = self._per_row(task, task.writes)
        first = self.buffers[task.reads[0].buffer]
        aligned = alignment(self.machine, first.cols * DTYPE_BYTES[first.dtype])
        # (rows, tiles) as one number, which sorts many times faster than pairs do.
        step = int(held.max(initial=0)) + 1
        unique, inverse = np.unique(mine * step + held, return_inverse=True)
        price = [
            vector_share_us(
                self.machine,
                task.op,
                n * read_cols,
                n * write_cols,
                written.dtype,
                count,
                aligned,
            )
            for n, count in (divmod(pair, step) for pair in unique.tolist())
        ]
        table = np.array(price, dtype=np.float64)
        return table[inverse.ravel()].reshape(mine.shape)

    def _per_row(self, task: Task, regions: tuple[Region, ...]) -> int:
        """Elements of `regions` for one row of a vector task's result."""
        to_token = self.buffers[task.writes[0].buffer].space == "token"
        elements = 0
        for region in regions:
            buffer = self.buffers[region.buffer]
            # A token's row comes from all its slots.
            slots = self.schedule.layer.top_k
            times = slots if to_token and buffer.space == "slot" else 1
            elements += times * buffer.cols
        return elements


def _bottom_tiles(high: Ints, wide: int, residue: Ints) -> tuple[Ints, Ints]:
    """Tiles of the last row of tiles, per rank and core: (all but the last column,
    the last column)."""
    ranks, team = residue.shape
    # residue[r, c] = (c - offset) mod team, so core of tile t is (t + offset) mod team.
    offset = (-residue[:, 0]) % team
    last: Ints = np.arange(1, wide + 1, dtype=np.int64) * high[:, None] - 1
    core: Ints = (offset[:, None] + last) % team
    core += np.arange(ranks, dtype=np.int64)[:, None] * team
    low = np.bincount(core[:, :-1].ravel(), minlength=ranks * team)
    corner = np.bincount(core[:, -1], minlength=ranks * team)
    some = (high > 0)[:, None]
    shape = (ranks, team)
    return low.reshape(shape) * some, corner.reshape(shape) * some


def spread(total: Floats, held: Ints) -> Floats:
    """`total` of each rank over its cores, in proportion to the tiles they hold."""
    tiles = np.maximum(held.sum(axis=1), 1).astype(np.float64)
    return held * (total / tiles)[:, None]
