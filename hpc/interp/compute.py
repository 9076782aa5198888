"""What one share of one instruction does to memory: puts and row operators.

A share computes its own tiles and writes nothing else, so that a tile nobody owns
stays poisoned. Tiles of one share are computed together where that gives the same bits
(`numerics` sees to it that it does).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hpc.interp import ops
from hpc.interp.data import Data
from hpc.interp.memory import ExecutionError, Memory
from hpc.interp.numerics import F32, Array, widen
from hpc.interp.placement import Ints, Placement, Rows, numbers, pick, row_count
from hpc.interp.products import PRODUCTS, Products
from hpc.interp.shares import Bundle, blocks
from hpc.schedule.layout import chunk_bounds
from hpc.schedule.model import Put, Schedule, Task

Mask = npt.NDArray[np.bool_]

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
        self.products = Products(placement, memory, data)

    def tiles(self, instr: Put | Task, rank: int) -> int:
        """Number of tiles of an instruction on `rank`."""
        if isinstance(instr, Put):
            return len(self.groups[instr.group]) * instr.chunks
        rows = row_count(self.memory.rows(instr.writes[0], rank))
        row_tiles = -(-rows // instr.base.m)
        if instr.op not in PRODUCTS:
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
        if instr.dot:
            self._dot(instr, rank, slots, rows)
        if instr.scale:
            weights = self.data.router(rank).reshape(-1)[slots]
            rows = widen(rows) * weights[:, None]
        self.memory.write(target, instr.dest.buffer, routed, rows)

    def _dot(self, instr: Put, rank: int, slots: Ints, rows: Array) -> None:
        """Products of the token rows of a put with the rows of their slots."""
        other, result = instr.dot
        part = instr.expert, instr.group
        if {(region.expert, region.part) for region in instr.dot} != {part}:
            raise ExecutionError(f"dispatch of {part}, dot product of {instr.dot}")
        for start in range(0, len(slots), _ROWS_AT_ONCE):
            cut = slice(start, start + _ROWS_AT_ONCE)
            there = self.memory.array(rank, other.buffer)[slots[cut]]
            dots = ops.row_dot(widen(rows[cut]), widen(there))
            self.memory.write(rank, result.buffer, slots[cut], dots[:, None])

    def task(self, task: Task, rank: int, bundle: Bundle, offset: int) -> None:
        """Computes the tiles of `task` that `bundle` owns."""
        tiles = self.tiles(task, rank)
        if not tiles:
            return
        owned = bundle.owns(offset, tiles)
        if task.op in PRODUCTS:
            self.products.run(task, rank, owned)
            return
        rows = self.memory.rows(task.writes[0], rank)
        rows = pick(rows, blocks(owned, task.base.m, row_count(rows)))
        if not row_count(rows):
            return
        work = self._work(task.op)
        for start in range(0, row_count(rows), _ROWS_AT_ONCE):
            stop = min(start + _ROWS_AT_ONCE, row_count(rows))
            work(task, rank, pick(rows, slice(start, stop)))

    def _work(self, op: str) -> Callable[[Task, int, Rows], None]:
        """What computes some rows of an operator's result."""
        special = {"reduce": self._reduce, "reduce_dot": self._reduce_dot}
        if op in special:
            return special[op]
        if op not in ops.OPS:
            known = ", ".join([*PRODUCTS, *special, *sorted(ops.OPS)])
            raise ExecutionError(f"unknown operator {op!r}; known are {known}")
        return self._row_op

    def _row_op(self, task: Task, rank: int, rows: Rows) -> None:
        operands = [
            widen(self.memory.operand(region, rank, rows)[rows])
            for region in task.reads
        ]
        activation = self.layer.activation
        params = {"alpha": activation.alpha, "limit": activation.limit}
        result = ops.apply(task.op, operands, {**params, **dict(task.params)})
        self.memory.write(rank, task.writes[0].buffer, rows, result)

    def _reduce(self, task: Task, rank: int, rows: Rows) -> None:
        """Sums the slots of tokens `rows`; a second operand is the router weights."""
        cut, sent = self._slots(task, rank, rows)
        weights = None
        if len(task.reads) > 1:
            router = self.memory.array(rank, task.reads[1].buffer)
            weights = widen(router.reshape(-1, self.layer.top_k)[rows])
        total = ops.reduce_slots(cut, sent, weights)
        self.memory.write(rank, task.writes[0].buffer, rows, total)

    def _reduce_dot(self, task: Task, rank: int, rows: Rows) -> None:
        """The weighted sum, and each slot's product with its token's row."""
        self._reduce(task, rank, rows)
        cut, _ = self._slots(task, rank, rows)
        tokens = widen(self.memory.operand(task.reads[2], rank, rows)[rows])
        k = self.layer.top_k
        dots = np.stack([ops.row_dot(cut[:, slot], tokens) for slot in range(k)], 1)
        slots = (numbers(rows)[:, None] * k + np.arange(k)).reshape(-1)
        self.memory.write(rank, task.writes[1].buffer, slots, dots.reshape(-1, 1))

    def _slots(self, task: Task, rank: int, rows: Rows) -> tuple[F32, Mask]:
        """(values [tokens, k, cols], sent [tokens, k]) of the slots of some tokens."""
        slots, k = task.reads[0], self.layer.top_k
        if slots.expert is not None or slots.part is not None:
            raise ExecutionError(f"{task.op} must read all of its slot buffer")
        array = self.memory.array(rank, slots.buffer)
        cut = array.reshape(-1, k, array.shape[1])[rows]
        return widen(cut), self.placement.sent[rank].reshape(-1, k)[rows]
