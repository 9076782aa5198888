"""Which row lies where, on every rank, for one routing: `layout` with real tokens.

The row formulas are `hpc.schedule.layout`'s; this adds the slots themselves (which
(token, slot) is the i-th row that a rank sends to an expert) and turns a region of a
buffer into rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hpc.schedule.layer import Layer, experts_of
from hpc.schedule.layout import (
    chunk_bounds,
    part_rows,
    receive_rows,
    source_offsets,
)
from hpc.schedule.model import Buffer, Region, Schedule

Ints = npt.NDArray[np.int64]
Rows = slice | Ints
"""Rows of an array: a slice where they are contiguous, else their numbers."""


def row_count(rows: Rows) -> int:
    """How many rows; slices here always have plain bounds."""
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def numbers(rows: Rows) -> Ints:
    """The row numbers themselves."""
    if not isinstance(rows, slice):
        return rows
    start: int = rows.start
    stop: int = rows.stop
    return np.arange(start, stop, dtype=np.int64)


def pick(rows: Rows, chosen: slice | Ints) -> Rows:
    """The rows at positions `chosen` of `rows`."""
    if not isinstance(rows, slice):
        return rows[chosen]
    if isinstance(chosen, slice):
        return slice(rows.start + chosen.start, rows.start + chosen.stop)
    return chosen + rows.start


class Placement:
    """Rows of every part, offset and slot; ids[rank] is int [tokens, top_k]."""

    def __init__(self, schedule: Schedule, ids: Sequence[npt.NDArray[Any]]) -> None:
        self.layer: Layer = schedule.layer
        self.groups = schedule.groups
        self.row_chunks = schedule.row_chunks
        self.sent = [np.asarray(table).reshape(-1) >= 0 for table in ids]
        self.counts, self._slots, self._starts = _sort_slots(self.layer, ids)
        ranks = range(self.layer.ep)
        args = self.layer, self.groups, self.counts
        self._regions: dict[tuple[Any, ...], Rows] = {}
        self._owned = [experts_of(r, self.layer.experts, self.layer.ep) for r in ranks]
        self._parts = [part_rows(*args, rank) for rank in ranks]
        self._offsets = [source_offsets(*args, rank) for rank in ranks]

    @cached_property
    def received(self) -> list[int]:
        """Rows in the routed buffers of every rank."""
        return [int(parts.sum()) for parts in self._parts]

    def buffer_rows(self, buffer: Buffer, rank: int) -> int:
        """Rows that `buffer` has in use on `rank`; for matrices, those of all its
        local experts."""
        if buffer.space == "weight":
            return self.layer.local_experts * buffer.rows
        tokens = self.layer.tokens[rank]
        if buffer.space == "token":
            return tokens
        if buffer.space == "slot":
            return tokens * self.layer.top_k
        return self.received[rank]

    def global_expert(self, rank: int, local: int) -> int | None:
        """Global number of a rank's local expert; None if the rank has fewer."""
        owned = self._owned[rank]
        return owned[local] if local < len(owned) else None

    def slots(self, source: int, owner: int, local: int) -> Ints:
        """Slots (token * top_k + slot, ascending) that `source` sends there."""
        expert = self.global_expert(owner, local)
        if expert is None:
            return self._slots[source][:0]
        starts = self._starts[source]
        return self._slots[source][starts[expert] : starts[expert + 1]]

    def received_from(self, rank: int, local: int, k: int) -> slice:
        """Rows in `rank`'s routed buffers of local expert from rank (rank - k)."""
        start = int(self._offsets[rank][local, k])
        source = (rank - k) % self.layer.ep
        return slice(start, start + len(self.slots(source, rank, local)))

    def expert_rows(self, rank: int, local: int) -> Rows:
        """All routed rows of a local expert by k ascending, whatever the groups."""
        spans = [self.received_from(rank, local, k) for k in range(self.layer.ep)]
        return _joined([span for span in spans if span.start < span.stop])

    def region_rows(self, buffer: Buffer, region: Region, rank: int) -> Rows:
        """Rows of `region` in `buffer` on `rank`; of matrices, below each other."""
        key = (buffer.space, buffer.rows, region.expert, region.part, rank)
        if key not in self._regions:
            self._regions[key] = self._find_region(buffer, region, rank)
        return self._regions[key]

    def _find_region(self, buffer: Buffer, region: Region, rank: int) -> Rows:
        everything = slice(0, self.buffer_rows(buffer, rank))
        if region.expert is None and region.part is None:
            return everything
        if buffer.space == "token":
            bounds = chunk_bounds(everything.stop, self.row_chunks)
            part = region.part or 0
            return slice(int(bounds[part]), int(bounds[part + 1]))
        if buffer.space == "weight":
            first = (region.expert or 0) * buffer.rows
            return slice(first, first + buffer.rows)
        if buffer.space == "routed":
            return self._routed_rows(region, rank)
        return self._slot_rows(region, rank)

    def _region_pairs(self, region: Region) -> list[tuple[int, int]]:
        """The (expert, group) pairs of a region, in the order of the routed space."""
        experts, groups = range(self.layer.local_experts), range(len(self.groups))
        return [
            (e, g)
            for e in (experts if region.expert is None else [region.expert])
            for g in (groups if region.part is None else [region.part])
        ]

    def _routed_rows(self, region: Region, rank: int) -> Rows:
        spans: list[slice] = []
        for e, g in self._region_pairs(region):
            start = int(self._offsets[rank][e, self.groups[g][0]])
            spans.append(slice(start, start + int(self._parts[rank][e, g])))
        return _joined(spans)

    def _slot_rows(self, region: Region, rank: int) -> Rows:
        found = [
            self.slots(rank, (rank + k) % self.layer.ep, e)
            for e, g in self._region_pairs(region)
            for k in self.groups[g]
        ]
        return np.sort(np.concatenate(found))

    def by_slot(self, arrays: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Routed rows of all ranks brought home: per source rank [T * top_k, cols].

        Slots that were not sent are zero. The result no longer depends on groups.
        """
        layer = self.layer
        home = [
            np.zeros((tokens * layer.top_k, arrays[0].shape[1]), arrays[0].dtype)
            for tokens in layer.tokens
        ]
        for rank in range(layer.ep):
            received = receive_rows(layer, self.counts, rank)
            for local, k in np.argwhere(received):
                source = int(rank - k) % layer.ep
                rows = arrays[rank][self.received_from(rank, int(local), int(k))]
                home[source][self.slots(source, rank, int(local))] = rows
        return home

    def at_expert(
        self, home: Sequence[npt.NDArray[Any]], rank: int
    ) -> npt.NDArray[Any]:
        """`rank`'s routed rows, out of rows by slot; the inverse of `by_slot`."""
        shape = (self.received[rank], home[0].shape[1])
        rows = np.empty(shape, home[0].dtype)
        received = receive_rows(self.layer, self.counts, rank)
        for local, k in np.argwhere(received).tolist():
            source = (rank - k) % self.layer.ep
            slots = self.slots(source, rank, local)
            rows[self.received_from(rank, local, k)] = home[source][slots]
        return rows


def _joined(spans: list[slice]) -> Rows:
    """The rows of several slices in their order; a slice if that is contiguous."""
    if not spans:
        return slice(0, 0)
    if all(a.stop == b.start for a, b in pairwise(spans)):
        return slice(spans[0].start, spans[-1].stop)
    return np.concatenate([numbers(span) for span in spans])


def _sort_slots(
    layer: Layer, ids: Sequence[npt.NDArray[Any]]
) -> tuple[Ints, list[Ints], list[list[int]]]:
    """(counts [ranks, experts], sent slots by expert, their starts) of every rank.

    ValueError if `ids` does not fit the layer.
    """
    counts = np.zeros((layer.ep, layer.experts), np.int64)
    slots: list[Ints] = []
    starts: list[list[int]] = []
    shapes = [tuple(np.shape(table)) for table in ids]
    wanted = [(tokens, layer.top_k) for tokens in layer.tokens]
    if shapes != wanted:
        raise ValueError(f"ids must have the shapes {wanted}, got {shapes}")
    for rank, table in enumerate(ids):
        flat = np.asarray(table).reshape(-1)
        if flat.size and (flat.min() < -1 or flat.max() >= layer.experts):
            bad = int(np.flatnonzero((flat < -1) | (flat >= layer.experts))[0])
            token, slot = divmod(bad, layer.top_k)
            raise ValueError(
                f"rank {rank} token {token} slot {slot}: expert id {flat[bad]} "
                f"is not in 0..{layer.experts - 1} and not -1"
            )
        order = np.argsort(flat, kind="stable")
        slots.append(order[np.count_nonzero(flat < 0) :])
        counts[rank] = np.bincount(flat[flat >= 0], minlength=layer.experts)
        starts.append([0, *np.cumsum(counts[rank]).tolist()])
    return counts, slots, starts
