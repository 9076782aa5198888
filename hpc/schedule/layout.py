"""Where rows lie: the one layout that senders, receivers, engine and values share.

`counts[source rank][global expert]` are the routing counts of one launch. Everything
here is exclusive prefix sums over them, in the order that `model` states for the
"routed" space: local expert, then group, then the ks of the group, then the source.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from hpc.schedule.layer import Layer, experts_of

Ints = npt.NDArray[np.int64]
Groups = tuple[tuple[int, ...], ...]


class _Checked(np.ndarray):
    """Counts that `as_counts` has looked through; they cannot be written any more."""


def as_counts(layer: Layer, counts: npt.ArrayLike) -> Ints:
    """`counts` as int64 [ranks, experts]; ValueError if the shape is another one.

    What it returns is known to be good: giving it back costs nothing, however large.
    """
    if isinstance(counts, _Checked) and counts.shape == (layer.ep, layer.experts):
        return counts
    table = np.asarray(counts)
    if table.dtype.kind not in "iu":
        raise ValueError(f"counts must be integers, got {table.dtype}")
    table = table.astype(np.int64, copy=False)
    wanted = (layer.ep, layer.experts)
    if table.shape != wanted:
        raise ValueError(
            f"counts must be [ranks, experts] = {list(wanted)}, got {list(table.shape)}"
        )
    if table.size and int(table.min()) < 0:
        rank, expert = np.argwhere(table < 0)[0]
        raise ValueError(
            f"counts[{rank}][{expert}] = {table[rank, expert]} is negative"
        )
    checked = table.copy().view(_Checked)
    checked.flags.writeable = False
    return checked


def chunk_bounds(rows: int, chunks: int) -> Ints:
    """Bounds of the chunks of `rows` rows, int64 [chunks + 1].

    >>> chunk_bounds(10, 4).tolist()
    [0, 2, 5, 7, 10]
    """
    return np.arange(chunks + 1, dtype=np.int64) * rows // chunks


@lru_cache(maxsize=4)
def _owned(experts: int, ep: int) -> tuple[Ints, Ints]:
    """(first expert, number of experts) of every rank."""
    owned = [experts_of(rank, experts, ep) for rank in range(ep)]
    return np.array([o.start for o in owned]), np.array([len(o) for o in owned])


def send_rows(layer: Layer, counts: npt.ArrayLike, rank: int) -> Ints:
    """Rows that `rank` sends to local expert e of rank (rank + k) mod R.

    int64 [local_experts, ranks]; 0 where that rank has no local expert e.
    """
    table = np.asarray(as_counts(layer, counts))[rank]
    first, size = (np.roll(a, -rank) for a in _owned(layer.experts, layer.ep))
    local = np.arange(layer.local_experts)[:, None]
    chosen = np.minimum(first + local, layer.experts - 1)
    return np.where(local < size, table[chosen], 0)


def receive_rows(layer: Layer, counts: npt.ArrayLike, rank: int) -> Ints:
    """Rows that local expert e of `rank` gets from rank (rank - k) mod R.

    int64 [local_experts, ranks]; 0 for an expert that `rank` does not have.
    """
    table = np.asarray(as_counts(layer, counts))
    owned = experts_of(rank, layer.experts, layer.ep)
    sources = (rank - np.arange(layer.ep)) % layer.ep
    rows = np.zeros((layer.local_experts, layer.ep), dtype=np.int64)
    rows[: len(owned)] = table[sources, owned.start : owned.stop].T
    return rows


def part_rows(layer: Layer, groups: Groups, counts: npt.ArrayLike, rank: int) -> Ints:
    """Rows of each routed part of `rank`, int64 [local_experts, groups]."""
    received = receive_rows(layer, counts, rank)
    return np.stack([received[:, list(ks)].sum(axis=1) for ks in groups], axis=1)


def source_offsets(
    layer: Layer, groups: Groups, counts: npt.ArrayLike, rank: int
) -> Ints:
    """First row, in `rank`'s routed buffers, of the rows from rank (rank - k) mod R.

    int64 [local_experts, ranks], indexed [e, k]. Part (e, g) begins at
    `[e, groups[g][0]]`.
    """
    received = receive_rows(layer, counts, rank)
    order = [k for ks in groups for k in ks]
    in_order = received[:, order].ravel()
    starts = np.cumsum(in_order) - in_order
    offsets = np.empty_like(received)
    offsets[:, order] = starts.reshape(received.shape)
    return offsets
