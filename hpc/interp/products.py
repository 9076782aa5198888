"""Matrix products of a schedule: the tiles of one share, computed together.

- gmm: rows @ weight; gmm_nt: rows @ weight transposed. Row i of the result depends on
  row i of the operand.
- gmm_tn: p transposed @ q over all rows of an expert. The rows are brought into one
  order first, by the source's distance k and then as that source sent them: they lie
  group by group in memory, and the bits must not depend on the groups.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hpc.interp.data import Data
from hpc.interp.memory import ExecutionError, Memory
from hpc.interp.numerics import Packed, multiply, pack
from hpc.interp.placement import Placement, Rows, pick, row_count
from hpc.interp.shares import blocks
from hpc.schedule.model import Task

Mask = npt.NDArray[np.bool_]

PRODUCTS = ("gmm", "gmm_nt", "gmm_tn")

_PACKED_BYTES = 1 << 28


class Products:
    """Executes shares of matrix products on one memory."""

    def __init__(self, placement: Placement, memory: Memory, data: Data) -> None:
        self.placement = placement
        self.memory = memory
        self.data = data
        self._packed: OrderedDict[tuple[str, int, bool], Packed] = OrderedDict()
        self._packed_bytes = 0

    def run(self, task: Task, rank: int, owned: Mask) -> None:
        """Computes the tiles where `owned` [tiles] is true."""
        if task.op == "gmm_tn":
            self._gradient(task, rank, owned)
        else:
            self._rows_times_weight(task, rank, owned)

    def _rows_times_weight(self, task: Task, rank: int, owned: Mask) -> None:
        source, weight = task.reads
        dest = task.writes[0]
        rows = self.memory.rows(dest, rank)
        array = self.memory.operand(source, rank, rows)
        turned = task.op == "gmm_nt"
        expert = self._expert(task, rank, array.shape[1], turned)
        cols = self.memory.buffers[dest.buffer].cols
        for at, across in self._cuts(task, rank, owned):
            packed = self._weight(weight.buffer, expert, turned, across, cols)
            product = multiply(array[pick(rows, at)], packed)
            self.memory.write(rank, dest.buffer, pick(rows, at), product, across)

    def _gradient(self, task: Task, rank: int, owned: Mask) -> None:
        dest = task.writes[0]
        expert = dest.expert
        parts = {(region.expert, region.part) for region in task.reads}
        if expert is None or parts != {(expert, None)}:
            reads = " and ".join(map(str, task.reads))
            raise ExecutionError(f"gmm_tn: {reads} are not all rows of one {dest}")
        matrix = self.memory.rows(dest, rank)
        rows = self.placement.expert_rows(rank, expert)
        left, right = (self.memory.array(rank, r.buffer)[rows] for r in task.reads)
        shape = (row_count(matrix), self.memory.buffers[dest.buffer].cols)
        if (left.shape[1], right.shape[1]) != shape:
            raise ExecutionError(
                f"gmm_tn: columns {left.shape[1]} and {right.shape[1]} for a matrix of "
                f"{shape[0]} x {shape[1]}"
            )
        for at, across in self._cuts(task, rank, owned):
            product = multiply(left[:, at].T, pack(right[:, across]))
            self.memory.write(rank, dest.buffer, pick(matrix, at), product, across)

    def _cuts(self, task: Task, rank: int, owned: Mask) -> Iterator[tuple[Rows, Rows]]:
        """(rows, columns) of the result that the owned tiles cover, as rectangles."""
        dest, base = task.writes[0], task.base
        rows = row_count(self.memory.rows(dest, rank))
        cols = self.memory.buffers[dest.buffer].cols
        for row_tiles, col_tiles in rectangles(owned, -(-cols // base.n)):
            yield blocks(row_tiles, base.m, rows), blocks(col_tiles, base.n, cols)

    def _expert(self, task: Task, rank: int, k: int, turned: bool) -> int:
        """Global expert of a product's weight, whose inner size must be `k`."""
        weight = task.reads[1]
        buffer = self.memory.buffers[weight.buffer]
        inner = buffer.cols if turned else buffer.rows
        if weight.expert is None or buffer.space != "weight" or inner != k:
            side = "columns" if turned else "rows"
            raise ExecutionError(
                f"{task.op}: {weight.buffer} is no matrix of one expert with {k} {side}"
            )
        expert = self.placement.global_expert(rank, weight.expert)
        if expert is None:
            raise ExecutionError(
                f"{task.op}: rank {rank} has no expert {weight.expert}"
            )
        return expert

    def _weight(
        self, name: str, expert: int, turned: bool, across: Rows, cols: int
    ) -> Packed:
        """Columns `across` of a matrix; whole matrices are kept while they fit."""
        weight = self.data.weight(name, expert)
        weight = weight.T if turned else weight
        if row_count(across) < cols:
            return pack(weight[:, across])
        key = (name, expert, turned)
        if key in self._packed:
            self._packed.move_to_end(key)
            return self._packed[key]
        packed = pack(weight)
        self._packed[key] = packed
        self._packed_bytes += packed.blocks.nbytes
        while self._packed_bytes > _PACKED_BYTES and len(self._packed) > 1:
            self._packed_bytes -= self._packed.popitem(last=False)[1].blocks.nbytes
        return packed


def rectangles(owned: Mask, col_tiles: int) -> Iterator[tuple[Mask, Mask]]:
    """Cuts owned tiles (t = column tile * row tiles + row tile) into rectangles.

    Yields (row tiles, column tiles) as masks: each set of columns once, with all the
    row tiles of which exactly these columns are owned.
    """
    table = owned.reshape(col_tiles, -1)
    if table.all():
        yield table[0], table[:, 0]
        return
    alike: dict[bytes, list[int]] = {}
    by_row = np.ascontiguousarray(table.T)
    for index in np.flatnonzero(by_row.any(axis=1)).tolist():
        alike.setdefault(by_row[index].tobytes(), []).append(index)
    for indices in alike.values():
        row_tiles = np.zeros(table.shape[1], np.bool_)
        row_tiles[indices] = True
        yield row_tiles, by_row[indices[0]]
