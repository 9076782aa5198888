"""How much memory values take, to refuse in words what would end in a kill."""

from __future__ import annotations

from pathlib import Path

from hpc.interp.numerics import numpy_dtype
from hpc.schedule.model import Buffer, Schedule

_MEMINFO = Path("/proc/meminfo")
_F64_PAIR = 16


def needed_bytes(schedule: Schedule) -> int:
    """Bytes of all ranks' buffers, all experts' weights, and the reference.

    What is saved exists twice: as the schedule lays it out, and by slot. The reference
    keeps two f64 numbers for every element of an output, and of the slot buffers that
    dispatched rows come back to of one rank at a time.
    """
    layer = schedule.layer
    total = sum(_buffer_bytes(schedule, buffer) for buffer in schedule.buffers)
    for buffer in schedule.buffers:
        if buffer.role == "output":
            total += _rows(schedule, buffer) * buffer.cols * _F64_PAIR
        elif buffer.role == "saved":
            total += _buffer_bytes(schedule, buffer)
    cols = sum(b.cols for b in schedule.buffers if b.space == "slot" and b.cols > 1)
    return total + layer.max_tokens * layer.top_k * cols * _F64_PAIR


def available_bytes() -> int | None:
    """Memory that the system says is free for new work; None if it does not say."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) * 1024
    return None


def _buffer_bytes(schedule: Schedule, buffer: Buffer) -> int:
    size = numpy_dtype(buffer.dtype).itemsize
    return _rows(schedule, buffer) * buffer.cols * size


def _rows(schedule: Schedule, buffer: Buffer) -> int:
    """Rows over all ranks, as if every slot were sent."""
    layer = schedule.layer
    if buffer.space == "weight":
        return layer.experts * buffer.rows
    tokens = sum(layer.tokens)
    return tokens if buffer.space == "token" else tokens * layer.top_k
