"""Where rows lie: the one layout that senders, receivers, engine and values share.

`counts[source rank][global expert]` are the routing counts of one launch. Everything
here is exclusive prefix sums over them, in the order that `model` states for the
"routed" space: local expert, then group, then the ks of the group, then the source.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpc.schedule.layer import Layer, experts_of

Ints = npt.NDArray[np.int64]
Groups = tuple[tuple[int, ...], ...]


def as_counts(layer: Layer, counts: npt.ArrayLike) -> Ints:
    """`counts` as int64 [ranks, experts]; ValueError if the shape is another one."""
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
    return table


def chunk_bounds(rows: int, chunks: int) -> Ints:
    """Bounds of the chunks of `rows` rows, int64 [chunks + 1].

    >>> chunk_bounds(10, 4).tolist()
    [0, 2, 5, 7, 10]
    """
    return np.arange(chunks + 1, dtype=np.int64) * rows // chunks


def send_rows(layer: Layer, counts: npt.ArrayLike, rank: int) -> Ints:
    """Rows that `rank` sends to local expert e of rank (rank + k) mod R.

    int64 [local_experts, ranks]; 0 where that rank has no local expert e.
    """
    table = as_counts(layer, counts)[rank]
    rows = np.zeros((layer.local_experts, layer.ep), dtype=np.int64)
    for k in range(layer.ep):
        owned = experts_of((rank + k) % layer.ep, layer.experts, layer.ep)
        rows[: len(owned), k] = table[owned.start : owned.stop]
    return rows


def receive_rows(layer: Layer, counts: npt.ArrayLike, rank: int) -> Ints:
    """Rows that local expert e of `rank` gets from rank (rank - k) mod R.

    int64 [local_experts, ranks]; 0 for an expert that `rank` does not have.
    """
    table = as_counts(layer, counts)
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
