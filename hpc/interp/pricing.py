"""The time and HBM bytes of every core's share of every task, in numpy.

No Python loop runs over cores or tiles: a core's tiles of a GMM come in four kinds
(whole, cut at the bottom, cut at the right, cut at both) and are counted, not listed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpc.interp.rows import Ints, RowTable
from hpc.interp.task_steps import COMPUTE, PUT, Floats, Shares
from hpc.machine.cost import GmmCost, op_cost, vector_share_us
from hpc.machine.record import Machine
from hpc.schedule.layer import DTYPE_BYTES
from hpc.schedule.model import Put, Queue, Region, Schedule, Task


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
        self._gmm: dict[tuple[object, ...], GmmCost] = {}

    def fill(self, queue: Queue, shares: Shares) -> None:
        """Writes work, bytes, tiles and offsets of one queue's shares in place."""
        steps, offsets = shares.steps, shares.offsets
        tiles = self._tiles(queue)
        np.cumsum(tiles, axis=1, out=offsets[:, 1:])
        fresh = self._fresh_weights(queue)
        for s, step in enumerate(steps):
            if step.kind not in (COMPUTE, PUT):
                continue
            instr, i = queue.code[step.work], step.work
            residue = self._residues(offsets[:, i], queue.team.size)
            held = share_counts(tiles[:, i, None], residue, queue.team.size)
            shares.tiles[:, :, s] = held
            if not isinstance(instr, Task):
                continue
            if instr.op == "gmm":
                priced = self._gmm_shares(instr, fresh[i], residue, held)
            else:
                priced = self._vector_shares(instr, tiles[:, i], residue, held)
            shares.work_us[:, :, s], shares.hbm_bytes[:, :, s] = priced

    def _tiles(self, queue: Queue) -> Ints:
        """Tiles of every instruction, int64 [ranks, instructions]."""
        tiles = np.zeros((self.ranks, len(queue.code)), dtype=np.int64)
        for i, instr in enumerate(queue.code):
            if isinstance(instr, Put):
                tiles[:, i] = len(self.schedule.groups[instr.group]) * instr.chunks
            elif isinstance(instr, Task):
                high = ceil_div(self.rows.rows(instr.writes[0]), instr.base.m)
                tiles[:, i] = high * self._wide(instr)
        return tiles

    def _wide(self, task: Task) -> int:
        """Tiles across the columns of a task's result."""
        if task.op != "gmm":
            return 1
        return -(-self.buffers[task.writes[0].buffer].cols // task.base.n)

    def _residues(self, offset: Ints, team: int) -> Ints:
        """t mod team of the tiles of each core, int64 [ranks, cores]."""
        return (np.arange(team) - offset[:, None]) % team

    def _fresh_weights(self, queue: Queue) -> dict[int, npt.NDArray[np.bool_]]:
        """Per GMM instruction and rank: do its weights come from HBM?"""
        fresh: dict[int, npt.NDArray[np.bool_]] = {}
        names: dict[Region, int] = {}
        last = np.full(self.ranks, -1, dtype=np.int64)
        for i, instr in enumerate(queue.code):
            if not isinstance(instr, Task) or instr.op != "gmm":
                continue
            used = self.rows.rows(instr.reads[0]) > 0
            weight = names.setdefault(instr.reads[1], len(names))
            buffer = self.buffers[instr.reads[1].buffer]
            size = buffer.rows * buffer.cols * DTYPE_BYTES[buffer.dtype]
            cached = (last == weight) & (size <= self.machine.l2_bytes)
            fresh[i] = used & ~cached
            last[used] = weight
        return fresh

    def _gmm_shares(
        self,
        task: Task,
        fresh: npt.NDArray[np.bool_],
        residue: Ints,
        held: Ints,
    ) -> tuple[Floats, Floats]:
        """(time, HBM bytes) of each core, by its count of whole and cut tiles."""
        rows = self.rows.rows(task.reads[0])
        weight = self.buffers[task.reads[1].buffer]
        n, team = weight.cols, residue.shape[1]
        wide = -(-n // task.base.n)
        high = ceil_div(rows, task.base.m)
        edge_m = np.where(rows > 0, rows - (high - 1) * task.base.m, 0)
        edge_n = n - (wide - 1) * task.base.n
        cost = self._gmm_cost(task, weight.rows)
        before = share_counts((high * (wide - 1))[:, None], residue, team)
        low, corner = _bottom_tiles(high, wide, residue)
        right = held - before - corner
        whole = before - low
        time = np.zeros(held.shape)
        time += whole * cost.tile_us(task.base.m, min(task.base.n, n))[0]
        time += right * cost.tile_us(task.base.m, edge_n)[0]
        drain = np.zeros(self.ranks)
        fill = np.zeros(self.ranks)
        for r, m in enumerate(edge_m.tolist()):
            if not m:
                continue
            top = task.base.m if high[r] > 1 else m
            time[r] += low[r] * cost.tile_us(m, task.base.n)[0]
            time[r] += corner[r] * cost.tile_us(m, edge_n)[0]
            drain[r] = cost.tile_us(top, min(task.base.n, n))[1]
            fill[r] = cost.fill_us(top, min(task.base.n, n))
        time += np.where(held > 0, (drain + fill)[:, None], 0.0)
        moved = rows * (weight.rows + n) + np.where(fresh, weight.rows * n, 0)
        return time, _spread(moved * DTYPE_BYTES[weight.dtype], high * wide, held)

    def _gmm_cost(self, task: Task, k: int) -> GmmCost:
        dtype = self.buffers[task.reads[1].buffer].dtype
        key = (task.base, k, dtype)
        if key not in self._gmm:
            self._gmm[key] = GmmCost(self.machine, task.base, k, dtype)
        return self._gmm[key]

    def _vector_shares(
        self, task: Task, tiles: Ints, residue: Ints, held: Ints
    ) -> tuple[Floats, Floats]:
        """(time, HBM bytes) of each core of a vector task."""
        op_cost(task.op)
        team = residue.shape[1]
        written = self.buffers[task.writes[0].buffer]
        rows = self.rows.rows(task.writes[0])
        short = np.where(rows > 0, tiles * task.base.m - rows, 0)
        owns_last = (tiles[:, None] > 0) & (residue == (tiles[:, None] - 1) % team)
        mine = held * task.base.m - np.where(owns_last, short[:, None], 0)
        read_cols, row_bytes = self._row_reads(task)
        row_bytes += written.cols * DTYPE_BYTES[written.dtype]
        unique, inverse = np.unique(mine, return_inverse=True)
        price = [
            vector_share_us(
                self.machine, task.op, n * read_cols, n * written.cols, written.dtype
            )
            for n in unique.tolist()
        ]
        table = np.array(price, dtype=np.float64)
        return table[inverse].reshape(mine.shape), mine.astype(np.float64) * row_bytes

    def _row_reads(self, task: Task) -> tuple[int, int]:
        """(elements, bytes) that one row of a vector task's result reads."""
        to_token = self.buffers[task.writes[0].buffer].space == "token"
        elements = size = 0
        for region in task.reads:
            buffer = self.buffers[region.buffer]
            # A token's row comes from all its slots.
            slots = self.schedule.layer.top_k
            times = slots if to_token and buffer.space == "slot" else 1
            elements += times * buffer.cols
            size += times * buffer.cols * DTYPE_BYTES[buffer.dtype]
        return elements, size


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


def _spread(total: Ints, tiles: Ints, held: Ints) -> Floats:
    """`total` of each rank over its cores, in proportion to the tiles they hold."""
    return held * _ratio(total, np.maximum(tiles, 1))[:, None]


def _ratio(total: Ints, parts: Ints) -> Floats:
    return total.astype(np.float64) / parts.astype(np.float64)
