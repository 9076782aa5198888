"""Rows and bytes on the network for one routing table: sent, received, and room."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hpc.schedule.checks.index import Index, Violation, reads_of
from hpc.schedule.layer import DTYPE_BYTES
from hpc.schedule.layout import (
    Ints,
    as_counts,
    receive_rows,
    send_rows,
    source_offsets,
)
from hpc.schedule.model import Buffer, Put, Schedule

CHECK = "bytes"
RULES = {
    "bytes-pair": "Rows sent from one rank to another are those expected there.",
    "bytes-total": "Bytes sent are rows of the routing table times bytes of a row.",
    "range-overlap": "Puts write ranges of the receive buffer without overlap.",
    "range-gap": "Puts fill the receive buffer without a gap.",
    "capacity": "No rank receives more rows than a buffer holds.",
}

_KIND_INTO = {"routed": "dispatch", "slot": "combine"}


def check_bytes(s: Schedule, counts: npt.ArrayLike) -> list[Violation]:
    """Conservation and capacity under `counts` [ranks, experts].

    References must be sound. ValueError if `counts` has another shape.
    """
    index, rows = Index(s), _Rows(s, counts)
    found = list(_capacity(index, rows))
    for (kind, name), puts in _puts(s).items():
        buffer = index.buffers[name]
        found += _pairs(index, kind, buffer, puts, rows)
        if kind == "dispatch":
            found += _ranges(index, buffer, puts, rows)
    return found


def put_rows(s: Schedule, counts: npt.ArrayLike, dest: str) -> Ints:
    """Rows that puts into buffer `dest` move, int64 [source rank, destination rank]."""
    rows = _Rows(s, counts)
    total = np.zeros((s.layer.ep, s.layer.ep), dtype=np.int64)
    for (kind, name), puts in _puts(s).items():
        if name == dest:
            total += _sent(s, kind, puts, rows)
    return total


class _Rows:
    """Rows of each [local expert, k] on every rank, as sender and as receiver."""

    def __init__(self, s: Schedule, counts: npt.ArrayLike) -> None:
        layer, ranks = s.layer, range(s.layer.ep)
        table = as_counts(layer, counts)
        self.total = int(table.sum())
        self.sends = [send_rows(layer, table, rank) for rank in ranks]
        self.receives = [receive_rows(layer, table, rank) for rank in ranks]
        self.offsets = [source_offsets(layer, s.groups, table, rank) for rank in ranks]


def _puts(s: Schedule) -> dict[tuple[str, str], list[Put]]:
    """Puts by (kind, destination buffer).

    A symmetric buffer that is read expects puts, even if there is none, unless an
    earlier launch has left its rows there.
    """
    instrs = [instr for queue in s.queues for instr in queue.code]
    read = {region.buffer for instr in instrs for region in reads_of(instr)}
    found: dict[tuple[str, str], list[Put]] = {
        (_KIND_INTO[buffer.space], buffer.name): []
        for buffer in s.buffers
        if buffer.symmetric
        and buffer.role != "saved"
        and buffer.space in _KIND_INTO
        and buffer.name in read
    }
    for instr in instrs:
        if isinstance(instr, Put):
            found.setdefault((instr.kind, instr.dest.buffer), []).append(instr)
    return found


def _times(s: Schedule, puts: list[Put]) -> Ints:
    """How often the rows of [local expert, k] are put, int64 [experts, ranks]."""
    times = np.zeros((s.layer.local_experts, s.layer.ep), dtype=np.int64)
    for put in puts:
        times[put.expert, list(s.groups[put.group])] += 1
    return times


def _sent(s: Schedule, kind: str, puts: list[Put], rows: _Rows) -> Ints:
    """Rows that leave each rank for each other one, from the sender's side."""
    ep, times = s.layer.ep, _times(s, puts)
    sent = np.zeros((ep, ep), dtype=np.int64)
    ks = np.arange(ep)
    for rank in range(ep):
        if kind == "dispatch":
            mine, to = rows.sends[rank], (rank + ks) % ep
        else:
            mine, to = rows.receives[rank], (rank - ks) % ep
        sent[rank, to] = (mine * times).sum(axis=0)
    return sent


def _expected(s: Schedule, kind: str, rows: _Rows) -> Ints:
    """Rows that each rank should send to each other one, from the receiver's side."""
    ep = s.layer.ep
    wanted = np.zeros((ep, ep), dtype=np.int64)
    ks = np.arange(ep)
    for rank in range(ep):
        if kind == "dispatch":
            mine, source = rows.receives[rank], (rank - ks) % ep
        else:
            mine, source = rows.sends[rank], (rank + ks) % ep
        wanted[source, rank] = mine.sum(axis=0)
    return wanted


def _pairs(
    index: Index, kind: str, buffer: Buffer, puts: list[Put], rows: _Rows
) -> Iterator[Violation]:
    sent = _sent(index.s, kind, puts, rows)
    wanted = _expected(index.s, kind, rows)
    for source, dest in np.argwhere(sent != wanted):
        yield index.violation(
            CHECK,
            "bytes-pair",
            f'{kind} into "{buffer.name}": rank {source} sends '
            f"{sent[source, dest]} rows to rank {dest}, which expects "
            f"{wanted[source, dest]}",
            rank=int(dest),
        )
    row_bytes = buffer.cols * DTYPE_BYTES[buffer.dtype]
    if sent.sum() != rows.total:
        yield index.violation(
            CHECK,
            "bytes-total",
            f'{kind} into "{buffer.name}": {sent.sum() * row_bytes} bytes sent, '
            f"{rows.total} rows x {row_bytes} bytes = "
            f"{rows.total * row_bytes} expected",
        )


def _ranges(
    index: Index, buffer: Buffer, puts: list[Put], rows: _Rows
) -> Iterator[Violation]:
    """The row ranges that chunks write tile each rank's receive buffer."""
    groups = index.s.groups
    chunks = [
        (put.expert, k, c, put.chunks)
        for put in puts
        for k in groups[put.group]
        for c in range(put.chunks)
    ]
    expert, k, c, of = np.array(chunks, dtype=np.int64).reshape(-1, 4).T
    for rank in range(index.s.layer.ep):
        n = rows.receives[rank][expert, k]
        start = rows.offsets[rank][expert, k]
        ranges = np.stack([start + n * c // of, start + n * (c + 1) // of], axis=1)
        ranges = ranges[ranges[:, 0] < ranges[:, 1]]
        total = int(rows.receives[rank].sum())
        yield from _tiling(index, buffer, ranges, total, rank)


def _tiling(
    index: Index, buffer: Buffer, ranges: Ints, total: int, rank: int
) -> Iterator[Violation]:
    """Compares sorted ranges with 0..total."""
    ordered = ranges[np.lexsort((ranges[:, 1], ranges[:, 0]))]
    ends = np.concatenate([[0], np.maximum.accumulate(ordered[:, 1])])
    starts = np.concatenate([ordered[:, 0], [total]])
    for i in np.flatnonzero(starts != ends):
        overlap = starts[i] < ends[i]
        first, last = min(starts[i], ends[i]), max(starts[i], ends[i])
        what = "are written twice" if overlap else "are not written"
        yield index.violation(
            CHECK,
            "range-overlap" if overlap else "range-gap",
            f'rows {first}..{last - 1} of "{buffer.name}" {what} on rank {rank}',
            rank=rank,
        )


def _capacity(index: Index, rows: _Rows) -> Iterator[Violation]:
    received = [int(mine.sum()) for mine in rows.receives]
    for buffer in index.s.buffers:
        if buffer.space != "routed":
            continue
        for rank, n in enumerate(received):
            if n > buffer.capacity_rows:
                how = f" ({buffer.formula})" if buffer.formula else ""
                yield index.violation(
                    CHECK,
                    "capacity",
                    f"rank {rank} receives {n} > {buffer.capacity_rows} rows of "
                    f'"{buffer.name}"{how}',
                    rank=rank,
                )
