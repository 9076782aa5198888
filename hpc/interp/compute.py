"""What one share of one instruction does to memory: puts, products, row operators.

A share computes its own tiles and writes nothing else, so that a tile nobody owns
stays poisoned. Tiles of one share are computed together where that gives the same bits
(`numerics` sees to it that it does).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hpc.interp import ops
from hpc.interp.data import Data
from hpc.interp.memory import ExecutionError, Memory
from hpc.interp.numerics import F32, Array, Packed, multiply, pack, widen
from hpc.interp.placement import Ints, Placement, Rows, numbers, pick, row_count
from hpc.interp.shares import Bundle, blocks
from hpc.schedule.layout import chunk_bounds
from hpc.schedule.model import Put, Region, Schedule, Task

Mask = npt.NDArray[np.bool_]

_PACKED_BYTES = 1 << 28
_ROWS_AT_ONCE = 512


class Compute:
    """Executes shares of the instructions of one schedule on one memory."""

    def __init__(
        self, schedule: Schedule, placement: Placement, memory: Memory, data: Data
    ) -> None:
        self.layer = schedule.layer
        self.groups = schedule.groups
        self.placement = placement
        self.memory = memory
        self.data = data
        self._packed: OrderedDict[tuple[str, int], Packed] = OrderedDict()
        self._packed_bytes = 0

    def tiles(self, instr: Put | Task, rank: int) -> int:
        """Number of tiles of an instruction on `rank`."""
        if isinstance(instr, Put):
            return len(self.groups[instr.group]) * instr.chunks
        row_tiles = -(-row_count(self._rows(instr.writes[0], rank)) // instr.base.m)
        if instr.op != "gmm":
            return row_tiles
        cols = self.memory.buffers[instr.writes[0].buffer].cols
        return row_tiles * -(-cols // instr.base.n)

    def put_target(self, instr: Put, rank: int, tile: int) -> int:
        """The rank that tile `tile` of a put writes to, and signals."""
        k = self.groups[instr.group][tile // instr.chunks]
        step = k if instr.kind == "dispatch" else -k
        return (rank + step) % self.layer.ep

    def put_tile(self, instr: Put, rank: int, tile: int) -> None:
        """Copies the rows of one (destination, chunk)."""
        k = self.groups[instr.group][tile // instr.chunks]
        target = self.put_target(instr, rank, tile)
        dispatch = instr.kind == "dispatch"
        owner, source = (target, rank) if dispatch else (rank, target)
        slots = self.placement.slots(source, owner, instr.expert)
        bounds = chunk_bounds(len(slots), instr.chunks)
        chunk = slice(*bounds[tile % instr.chunks : tile % instr.chunks + 2].tolist())
        slots = slots[chunk]
        if not len(slots):
            return
        routed = pick(self.placement.received_from(owner, instr.expert, k), chunk)
        if dispatch:
            self._send(instr, rank, target, slots, routed)
            return
        rows = self.memory.array(rank, instr.source.buffer)[routed]
        self.memory.write(target, instr.dest.buffer, slots, rows)

    def _send(
        self, instr: Put, rank: int, target: int, slots: Ints, routed: Rows
    ) -> None:
        """Gathers token rows, scaled if the put says so, into `target`'s buffer."""
        rows = self.memory.array(rank, instr.source.buffer)[slots // self.layer.top_k]
        if instr.scale:
            weights = self.data.router(rank).reshape(-1)[slots]
            rows = widen(rows) * weights[:, None]
        self.memory.write(target, instr.dest.buffer, routed, rows)

    def task(self, task: Task, rank: int, bundle: Bundle, offset: int) -> None:
        """Computes the tiles of `task` that `bundle` owns."""
        tiles = self.tiles(task, rank)
        if not tiles:
            return
        owned = bundle.owns(offset, tiles)
        if task.op == "gmm":
            self._gmm(task, rank, owned)
            return
        rows = self._rows(task.writes[0], rank)
        rows = pick(rows, blocks(owned, task.base.m, row_count(rows)))
        if not row_count(rows):
            return
        if task.op != "reduce" and task.op not in ops.OPS:
            known = ", ".join(["gmm", "reduce", *sorted(ops.OPS)])
            raise ExecutionError(f"unknown operator {task.op!r}; known are {known}")
        work = self._reduce if task.op == "reduce" else self._row_op
        for start in range(0, row_count(rows), _ROWS_AT_ONCE):
            stop = min(start + _ROWS_AT_ONCE, row_count(rows))
            work(task, rank, pick(rows, slice(start, stop)))

    def _gmm(self, task: Task, rank: int, owned: Mask) -> None:
        source, weight = task.reads
        dest = task.writes[0]
        rows, array = self._operand(source, rank, self._rows(dest, rank))
        expert = self._expert(weight, rank, array.shape[1])
        cols = self.memory.buffers[dest.buffer].cols
        for row_tiles, col_tiles in _rectangles(owned, -(-cols // task.base.n)):
            at = pick(rows, blocks(row_tiles, task.base.m, row_count(rows)))
            across = blocks(col_tiles, task.base.n, cols)
            packed = self._weight(weight.buffer, expert, across, cols)
            product = multiply(array[at], packed)
            self.memory.write(rank, dest.buffer, at, product, across)

    def _expert(self, weight: Region, rank: int, k: int) -> int:
        """Global expert of a weight region whose matrix has `k` rows."""
        buffer = self.memory.buffers[weight.buffer]
        if weight.expert is None or buffer.space != "weight" or buffer.rows != k:
            raise ExecutionError(
                f"gmm: {weight.buffer} is no matrix of one expert with {k} rows"
            )
        expert = self.placement.global_expert(rank, weight.expert)
        if expert is None:
            raise ExecutionError(f"gmm: rank {rank} has no expert {weight.expert}")
        return expert

    def _weight(self, name: str, expert: int, across: Rows, cols: int) -> Packed:
        """Columns `across` of a matrix; whole matrices are kept while they fit."""
        if row_count(across) < cols:
            return pack(self.data.weight(name, expert)[:, across])
        key = (name, expert)
        if key in self._packed:
            self._packed.move_to_end(key)
            return self._packed[key]
        packed = pack(self.data.weight(name, expert))
        self._packed[key] = packed
        self._packed_bytes += packed.blocks.nbytes
        while self._packed_bytes > _PACKED_BYTES and len(self._packed) > 1:
            self._packed_bytes -= self._packed.popitem(last=False)[1].blocks.nbytes
        return packed

    def _row_op(self, task: Task, rank: int, rows: Rows) -> None:
        operands: list[F32] = []
        for region in task.reads:
            _, array = self._operand(region, rank, rows)
            operands.append(widen(array[rows]))
        activation = self.layer.activation
        params = {"alpha": activation.alpha, "limit": activation.limit}
        result = ops.apply(task.op, operands, {**params, **dict(task.params)})
        self.memory.write(rank, task.writes[0].buffer, rows, result)

    def _reduce(self, task: Task, rank: int, rows: Rows) -> None:
        """Sums the slots of tokens `rows`; a second operand is the router weights."""
        slots, k = task.reads[0], self.layer.top_k
        if slots.expert is not None or slots.part is not None:
            raise ExecutionError("reduce must read all of its slot buffer")
        array = self.memory.array(rank, slots.buffer)
        cut = array.reshape(-1, k, array.shape[1])[rows]
        sent = self.placement.sent[rank].reshape(-1, k)[rows]
        weights = None
        if len(task.reads) > 1:
            router = self.memory.array(rank, task.reads[1].buffer)
            weights = widen(router.reshape(-1, k)[rows])
        total = ops.reduce_slots(widen(cut), sent, weights)
        self.memory.write(rank, task.writes[0].buffer, rows, total)

    def _rows(self, region: Region, rank: int) -> Rows:
        buffer = self.memory.buffers[region.buffer]
        return self.placement.region_rows(buffer, region, rank)

    def _operand(self, region: Region, rank: int, rows: Rows) -> tuple[Rows, Array]:
        """(`rows`, the array) of an operand that is read at the rows written.

        ExecutionError if the declared region does not hold them: what is proven about
        a schedule is proven for the regions it declares.
        """
        array = self.memory.array(rank, region.buffer)
        declared = self._rows(region, rank)
        if not _covers(declared, rows):
            raise ExecutionError(f"rank {rank} reads {region.buffer} outside {region}")
        return rows, array


def _covers(declared: Rows, rows: Rows) -> bool:
    if isinstance(declared, slice) and isinstance(rows, slice):
        inside = declared.start <= rows.start and rows.stop <= declared.stop
        return inside or row_count(rows) == 0
    return bool(np.isin(numbers(rows), numbers(declared)).all())


def _rectangles(owned: Mask, col_tiles: int) -> Iterator[tuple[Mask, Mask]]:
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
