"""When each buffer holds something that is still needed, and how much that is at most.

Times are those of the simulated run, not of the static order: which buffers live at the
same time depends on how far the queues have come. A buffer lives on a rank from the
start of the first work that writes it (for a put: its first bytes at the destination)
to the end of the last work that touches it there. What the caller brings (inputs,
weights, saved tensors) lives from the launch on, and an output until the end.

Bytes are capacities: a buffer that lives is counted whole, however few rows it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hpc.schedule.checks.index import Index, reads_of, writes_of
from hpc.schedule.checks.router import gradient_buffers
from hpc.schedule.layer import DTYPE_BYTES
from hpc.schedule.model import Buffer, Instr, Put, Region, Schedule, Task

if TYPE_CHECKING:
    from hpc.interp.timing import Run, Timing

Floats = npt.NDArray[np.float64]
Spans = dict[str, tuple[Floats, Floats]]
"""By buffer: microseconds of first write and last use on each rank; empty (the first
behind the last) on a rank where nothing touches it."""

ROUTER = "router"
"""The buffer of the router weights, the only one that is known by its name."""
GIVEN = ("input", "weight", "saved")
"""Roles of buffers that are full when a launch begins."""


@dataclass(frozen=True, slots=True)
class BufferUse:
    """One buffer on one rank. `saved`: the forward part leaves it for the backward
    part. `formula` gives the bytes; the times are microseconds from the launch."""

    name: str
    role: str
    symmetric: bool
    saved: bool
    bytes: int
    formula: str
    from_us: float
    to_us: float


@dataclass(frozen=True, slots=True)
class Peak:
    """Most bytes that live at the same time, and the first time when they do."""

    bytes: int
    at_us: float


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The buffers of the rank that needs most at one time.

    `allocated_bytes` is the sum of all buffers. Peaks: `every` of all buffers,
    `symmetric` of those that other ranks write, `saved` of what forward leaves for
    backward, `workspace` of what is neither given, saved nor an output. A symmetric
    buffer is also either saved or workspace.
    """

    rank: int
    buffers: tuple[BufferUse, ...]
    allocated_bytes: int
    every: Peak
    symmetric: Peak
    saved: Peak
    workspace: Peak


def buffer_spans(run: Run, end_us: float) -> Spans:
    """Lifetimes on the simulated ranks of a run that ended at `end_us`."""
    spans = {
        buffer.name: (np.full(run.ranks, np.inf), np.full(run.ranks, -np.inf))
        for buffer in run.schedule.buffers
    }
    for q, queue in enumerate(run.schedule.queues):
        starts, ends = run.first_starts(q), run.last_ends(q)
        for s, step in enumerate(run.work.queues[q].steps):
            instr = queue.code[step.work] if step.work >= 0 else None
            if not isinstance(instr, Put | Task):
                continue
            first, last = starts[:, s], ends[:, s]
            for region in writes_of(instr):
                if not _is_remote(instr, region):
                    _extend(spans[region.buffer], first, last)
            for name in _read_names(instr):
                if name in spans:
                    np.maximum(spans[name][1], last, out=spans[name][1])
    _add_puts(run, spans)
    for buffer in run.schedule.buffers:
        first, last = spans[buffer.name]
        if buffer.role in GIVEN:
            first[last >= 0] = 0.0
        elif buffer.role == "output":
            last[np.isfinite(first)] = end_us
    return spans


def _read_names(instr: Put | Task) -> list[str]:
    """Buffers that an instruction reads; a put that scales names no router weights."""
    names = [region.buffer for region in reads_of(instr)]
    return [*names, ROUTER] if isinstance(instr, Put) and instr.scale else names


def _is_remote(instr: Instr, region: Region) -> bool:
    return isinstance(instr, Put) and region == instr.dest


def _extend(span: tuple[Floats, Floats], first: Floats, last: Floats) -> None:
    np.minimum(span[0], first, out=span[0])
    np.maximum(span[1], last, out=span[1])


def _add_puts(run: Run, spans: Spans) -> None:
    """What puts write, on the ranks that they write to."""
    dest = run.put_dest.reshape(run.ranks, -1)
    hop = np.tile(run.work.puts.hop_us, run.ranks)
    begin = (run.put_begin + hop).reshape(run.ranks, -1)
    delivered = run.put_delivered.reshape(run.ranks, -1)
    into: dict[str, list[slice]] = {}
    for q, i in run.work.puts.first:
        put = run.schedule.queues[q].code[i]
        assert isinstance(put, Put)
        into.setdefault(put.dest.buffer, []).append(run.work.puts.tiles_of(q, i))
    for name, slices in into.items():
        tiles = np.r_[tuple(slices)]
        first, last = spans[name]
        np.minimum.at(first, dest[:, tiles], begin[:, tiles])
        np.maximum.at(last, dest[:, tiles], delivered[:, tiles])


def memory_use(schedule: Schedule, timing: Timing) -> MemoryUse:
    """What the buffers of a schedule need in a simulated run."""
    saved = saved_buffers(schedule)
    buffers = schedule.buffers
    sizes = np.array([buffer_bytes(buffer) for buffer in buffers], dtype=np.int64)
    first = np.array([timing.spans[buffer.name][0] for buffer in buffers])
    last = np.array([timing.spans[buffer.name][1] for buffer in buffers])
    peaks = [_peak(sizes, first[:, r], last[:, r]) for r in range(first.shape[1])]
    rank = max(range(len(peaks)), key=lambda r: peaks[r].bytes)

    def peak_of(member: Callable[[Buffer], bool]) -> Peak:
        mine = np.array([member(buffer) for buffer in buffers])
        return _peak(sizes[mine], first[mine, rank], last[mine, rank])

    return MemoryUse(
        rank=rank,
        buffers=tuple(
            _use(
                buffer,
                buffer.name in saved,
                float(first[i, rank]),
                float(last[i, rank]),
            )
            for i, buffer in enumerate(buffers)
        ),
        allocated_bytes=int(sizes.sum()),
        every=peaks[rank],
        symmetric=peak_of(lambda b: b.symmetric),
        saved=peak_of(lambda b: b.name in saved),
        workspace=peak_of(lambda b: b.role == "workspace" and b.name not in saved),
    )


def _use(buffer: Buffer, saved: bool, first: float, last: float) -> BufferUse:
    lives = first <= last
    return BufferUse(
        name=buffer.name,
        role=buffer.role,
        symmetric=buffer.symmetric,
        saved=saved,
        bytes=buffer_bytes(buffer),
        formula=bytes_formula(buffer),
        from_us=first if lives else 0.0,
        to_us=last if lives else 0.0,
    )


def _peak(sizes: npt.NDArray[np.int64], first: Floats, last: Floats) -> Peak:
    """Most bytes alive; those that end where others begin are not counted together."""
    some = first < last
    sizes, first, last = sizes[some], first[some], last[some]
    if not sizes.size:
        return Peak(0, 0.0)
    live = (first[None, :] <= first[:, None]) & (first[:, None] < last[None, :])
    held = live @ sizes
    # The first of equal peaks: candidates are the times at which something begins.
    order = np.argsort(first, kind="stable")
    best = order[int(held[order].argmax())]
    return Peak(int(held[best]), float(first[best]))


def saved_buffers(schedule: Schedule) -> frozenset[str]:
    """Buffers that the forward part leaves for the backward part: in a backward program
    those with that role, in a training step those that gradient operators read beside
    gradients."""
    index = Index(schedule)
    found = {b.name for b in schedule.buffers if b.role == "saved"}
    for queue in schedule.queues:
        for instr in queue.code:
            found.update(region.buffer for region in _forward_operands(instr))
    given = {b.name for b in schedule.buffers if b.role in ("input", "weight")}
    return frozenset(found - given - gradient_buffers(index))


def _forward_operands(instr: Instr) -> tuple[Region, ...]:
    if isinstance(instr, Put):
        return instr.dot[:1]
    if not isinstance(instr, Task):
        return ()
    if instr.op == "gmm_tn" or instr.op.endswith("_grad"):
        return instr.reads[:1]
    return instr.reads[2:] if instr.op == "reduce_dot" else ()


def buffer_bytes(buffer: Buffer) -> int:
    """Bytes of a buffer on one rank, at its capacity."""
    rows = buffer.capacity_rows * (buffer.rows if buffer.space == "weight" else 1)
    return rows * buffer.cols * DTYPE_BYTES[buffer.dtype]


def bytes_formula(buffer: Buffer) -> str:
    """The arithmetic behind `buffer_bytes`, with that behind its capacity."""
    rows = f"{buffer.capacity_rows} rows"
    if buffer.space == "weight":
        rows = f"{buffer.capacity_rows} experts x {buffer.rows} rows"
    size = DTYPE_BYTES[buffer.dtype]
    why = f"; rows: {buffer.formula}" if buffer.formula else ""
    return f"{rows} x {buffer.cols} columns x {size} bytes{why}"
