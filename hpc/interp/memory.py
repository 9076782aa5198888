"""The buffers of all ranks while a schedule's values are computed.

Everything that is not given starts as NaN, so that a row read before it was written, or
never written, shows in the outputs. Arrays hold the rows in use, not the capacity;
rows beyond the capacity are refused. A gradient in space "weight" is one array with the
matrices of all local experts below each other.
"""

from __future__ import annotations

import numpy as np

from hpc.interp.data import Data
from hpc.interp.numerics import Array, numpy_dtype, round_to
from hpc.interp.placement import Ints, Placement, Rows, numbers, row_count
from hpc.schedule.model import Buffer, Region, Schedule


class ExecutionError(Exception):
    """The schedule cannot be executed on these values; the message says why."""


GIVEN = ("input", "saved")
"""Roles of the buffers that a launch finds filled, and that it only reads."""

Pool = dict[tuple[int, str], Array]
"""Workspace arrays by (rank, buffer), for the next execution to poison and use again:
fresh memory costs more time than all the arithmetic."""


class Memory:
    """Arrays by rank and buffer name, and how much of each output row was written."""

    def __init__(
        self,
        schedule: Schedule,
        placement: Placement,
        data: Data,
        pool: Pool | None = None,
    ) -> None:
        self._pool = {} if pool is None else pool
        self.buffers = {buffer.name: buffer for buffer in schedule.buffers}
        self._placement = placement
        self._arrays: list[dict[str, Array]] = []
        self._written: list[dict[str, Ints]] = []
        for rank in range(schedule.layer.ep):
            self._arrays.append({})
            self._written.append({})
            for buffer in schedule.buffers:
                if buffer.role != "weight":
                    self._add(buffer, rank, data)

    def _add(self, buffer: Buffer, rank: int, data: Data) -> None:
        weight = buffer.space == "weight"
        rows = self._placement.buffer_rows(buffer, rank)
        if rows > buffer.capacity_rows * (buffer.rows if weight else 1):
            verb = "receives" if buffer.space == "routed" else "has"
            raise ExecutionError(
                f"rank {rank} {verb} {rows} > {buffer.capacity_rows} rows of buffer "
                f"{buffer.name} ({buffer.formula or 'its capacity'})"
            )
        if buffer.role in GIVEN:
            self._arrays[rank][buffer.name] = self._given(buffer, rank, data)
            return
        shape = (rows, buffer.cols)
        self._arrays[rank][buffer.name] = self._poisoned(buffer, rank, shape)
        if buffer.role == "output":
            self._written[rank][buffer.name] = np.zeros(rows, np.int64)

    def _given(self, buffer: Buffer, rank: int, data: Data) -> Array:
        """An input, or what the forward pass saved, where this schedule expects it."""
        if buffer.space != "routed":
            return data.input(buffer.name, rank)
        homes = range(len(self._placement.sent))
        return self._placement.at_expert(
            [data.input(buffer.name, home) for home in homes], rank
        )

    def _poisoned(self, buffer: Buffer, rank: int, shape: tuple[int, int]) -> Array:
        """An array of NaN; a new one for outputs, which outlive the memory."""
        dtype = numpy_dtype(buffer.dtype)
        if buffer.role == "output":
            return np.full(shape, np.nan, dtype)
        array = self._pool.get((rank, buffer.name))
        if array is None or array.shape != shape or array.dtype != dtype:
            array = self._pool[rank, buffer.name] = np.empty(shape, dtype)
        # As bits: filling an array of a dtype that numpy does not know itself is slow.
        bits = f"u{dtype.itemsize}"
        array.view(bits).fill(np.array(np.nan, dtype).view(bits))
        return array

    def array(self, rank: int, name: str) -> Array:
        """All rows of a buffer; ExecutionError if there is no such buffer."""
        if name not in self._arrays[rank]:
            raise ExecutionError(f"no rows of a buffer {name!r} to read")
        return self._arrays[rank][name]

    def rows(self, region: Region, rank: int) -> Rows:
        """Rows of a region of a buffer on `rank`."""
        return self._placement.region_rows(self.buffers[region.buffer], region, rank)

    def operand(self, region: Region, rank: int, rows: Rows) -> Array:
        """The array of an operand of which `rows` are read.

        ExecutionError if the declared region does not hold them: what is proven about
        a schedule is proven for the regions it declares.
        """
        array = self.array(rank, region.buffer)
        if not _covers(self.rows(region, rank), rows):
            raise ExecutionError(f"rank {rank} reads {region.buffer} outside {region}")
        return array

    def write(
        self,
        rank: int,
        name: str,
        rows: Rows,
        values: Array,
        cols: Rows | None = None,
    ) -> None:
        """Stores `values` where `rows` and `cols` (None: all) meet, rounded once.

        ExecutionError if the buffer is given or a weight, or the shape is wrong.
        """
        buffer = self.buffers[name]
        if buffer.role in (*GIVEN, "weight"):
            raise ExecutionError(f"buffer {name!r} is not to be written")
        target = self._arrays[rank][name]
        wanted = (row_count(rows), buffer.cols if cols is None else row_count(cols))
        if values.shape != wanted:
            raise ExecutionError(f"{values.shape} values for {wanted} of {name!r}")
        values = round_to(values, target.dtype)
        if cols is None:
            target[rows] = values
        elif isinstance(rows, slice) or isinstance(cols, slice):
            target[rows, cols] = values
        else:
            target[np.ix_(rows, cols)] = values
        if buffer.role == "output":
            self._written[rank][name][rows] += values.shape[1]

    def faults(self) -> tuple[str, ...]:
        """Output rows that were not written exactly once, as messages."""
        found: list[str] = []
        for rank, outputs in enumerate(self._written):
            for name, written in outputs.items():
                buffer = self.buffers[name]
                wrong = written != buffer.cols
                if buffer.space == "slot":
                    wrong &= self._placement.sent[rank] | (written > 0)
                if wrong.any():
                    found.append(_fault(rank, buffer, written, wrong))
        return tuple(found)


def _covers(declared: Rows, rows: Rows) -> bool:
    if isinstance(declared, slice) and isinstance(rows, slice):
        inside = declared.start <= rows.start and rows.stop <= declared.stop
        return inside or row_count(rows) == 0
    return bool(np.isin(numbers(rows), numbers(declared)).all())


def _fault(rank: int, buffer: Buffer, written: Ints, wrong: Array) -> str:
    first = int(np.flatnonzero(wrong)[0])
    return (
        f"{buffer.name} on rank {rank}: {np.count_nonzero(wrong)} rows not written "
        f"exactly once, first row {first} ({written[first]} of {buffer.cols} elements)"
    )
