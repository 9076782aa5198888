"""Rows and bytes on the network for one routing table: sent, received, and room."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hpc.schedule.checks.index import Index, Place, Violation
from hpc.schedule.layer import DTYPE_BYTES
from hpc.schedule.layout import (
    Ints,
    as_counts,
    chunk_bounds,
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


def check_bytes(s: Schedule, counts: npt.ArrayLike) -> list[Violation]:
    """Conservation and capacity under `counts` [ranks, experts].

    References must be sound. ValueError if `counts` has another shape.
    """
    index, table = Index(s), as_counts(s.layer, counts)
    found = list(_capacity(index, table))
    for (kind, name), places in _puts(index).items():
        buffer = index.buffers[name]
        found += _pairs(index, kind, buffer, places, table)
        if kind == "dispatch":
            found += _ranges(index, buffer, places, table)
    return found


def put_rows(s: Schedule, counts: npt.ArrayLike, dest: str) -> Ints:
    """Rows that puts into buffer `dest` move, int64 [source rank, destination rank]."""
    index, table = Index(s), as_counts(s.layer, counts)
    total = np.zeros((s.layer.ep, s.layer.ep), dtype=np.int64)
    for (kind, name), places in _puts(index).items():
        if name == dest:
            total += _sent(index, kind, places, table)
    return total


def _puts(index: Index) -> dict[tuple[str, str], list[Place]]:
    """Puts by (kind, destination buffer)."""
    found: dict[tuple[str, str], list[Place]] = {}
    for place, instr in index.places():
        if isinstance(instr, Put):
            found.setdefault((instr.kind, instr.dest.buffer), []).append(place)
    return found


def _times(index: Index, places: list[Place]) -> Ints:
    """How often the rows of [local expert, k] are put, int64 [experts, ranks]."""
    layer = index.s.layer
    times = np.zeros((layer.local_experts, layer.ep), dtype=np.int64)
    for place in places:
        put = index.instr(place)
        assert isinstance(put, Put)
        times[put.expert, list(index.s.groups[put.group])] += 1
    return times


def _sent(index: Index, kind: str, places: list[Place], counts: Ints) -> Ints:
    """Rows that leave each rank for each other one, from the sender's side."""
    layer = index.s.layer
    times = _times(index, places)
    sent = np.zeros((layer.ep, layer.ep), dtype=np.int64)
    ks = np.arange(layer.ep)
    for rank in range(layer.ep):
        if kind == "dispatch":
            rows, to = send_rows(layer, counts, rank), (rank + ks) % layer.ep
        else:
            rows, to = receive_rows(layer, counts, rank), (rank - ks) % layer.ep
        sent[rank, to] = (rows * times).sum(axis=0)
    return sent


def _expected(index: Index, kind: str, counts: Ints) -> Ints:
    """Rows that each rank should send to each other one, from the receiver's side."""
    layer = index.s.layer
    wanted = np.zeros((layer.ep, layer.ep), dtype=np.int64)
    ks = np.arange(layer.ep)
    for rank in range(layer.ep):
        if kind == "dispatch":
            rows, source = receive_rows(layer, counts, rank), (rank - ks) % layer.ep
        else:
            rows, source = send_rows(layer, counts, rank), (rank + ks) % layer.ep
        wanted[source, rank] = rows.sum(axis=0)
    return wanted


def _pairs(
    index: Index, kind: str, buffer: Buffer, places: list[Place], counts: Ints
) -> Iterator[Violation]:
    sent = _sent(index, kind, places, counts)
    wanted = _expected(index, kind, counts)
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
    if sent.sum() != counts.sum():
        yield index.violation(
            CHECK,
            "bytes-total",
            f'{kind} into "{buffer.name}": {sent.sum() * row_bytes} bytes sent, '
            f"{counts.sum()} rows x {row_bytes} bytes = "
            f"{counts.sum() * row_bytes} expected",
        )


def _ranges(
    index: Index, buffer: Buffer, places: list[Place], counts: Ints
) -> Iterator[Violation]:
    """The row ranges that chunks write tile each rank's receive buffer."""
    layer, groups = index.s.layer, index.s.groups
    puts = [put for place in places if isinstance(put := index.instr(place), Put)]
    for rank in range(layer.ep):
        rows = receive_rows(layer, counts, rank)
        starts = source_offsets(layer, groups, counts, rank)
        writes = [
            _chunk_ranges(int(starts[put.expert, k]), int(rows[put.expert, k]), put)
            for put in puts
            for k in groups[put.group]
        ]
        ranges = np.concatenate(writes) if writes else np.zeros((0, 2), np.int64)
        yield from _tiling(index, buffer, ranges, int(rows.sum()), rank)


def _chunk_ranges(start: int, rows: int, put: Put) -> Ints:
    """[first, end) rows of each chunk, int64 [chunks, 2], empty ones left out."""
    bounds = start + chunk_bounds(rows, put.chunks)
    ranges = np.stack([bounds[:-1], bounds[1:]], axis=1)
    return ranges[ranges[:, 0] < ranges[:, 1]]


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


def _capacity(index: Index, counts: Ints) -> Iterator[Violation]:
    layer = index.s.layer
    received = [
        int(receive_rows(layer, counts, rank).sum()) for rank in range(layer.ep)
    ]
    for buffer in index.s.buffers:
        if buffer.space != "routed":
            continue
        for rank, rows in enumerate(received):
            if rows > buffer.capacity_rows:
                how = f" ({buffer.formula})" if buffer.formula else ""
                yield index.violation(
                    CHECK,
                    "capacity",
                    f"rank {rank} receives {rows} > {buffer.capacity_rows} rows of "
                    f'"{buffer.name}"{how}',
                    rank=rank,
                )
