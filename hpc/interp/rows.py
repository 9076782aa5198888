"""How many rows each region holds, for all ranks at once.

The same meaning as `hpc.schedule.layout`, whose functions answer for one rank; here as
arrays over ranks, because the timing engine needs every rank and must not loop.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpc.schedule.layer import experts_of
from hpc.schedule.layout import as_counts
from hpc.schedule.model import Region, Schedule

Ints = npt.NDArray[np.int64]


class RowTable:
    """Rows of every part of every space, as int64 arrays over ranks.

    `sent[r, e, k]`: rows that rank r sends to local expert e of rank (r + k) mod R;
    `received[r, e, k]`: rows that local expert e of rank r gets from (r - k) mod R.
    With `ranks`, only the first so many ranks are in the arrays.
    """

    def __init__(
        self, schedule: Schedule, counts: npt.ArrayLike, ranks: int | None = None
    ) -> None:
        layer = schedule.layer
        table = as_counts(layer, counts)
        self.ranks = layer.ep if ranks is None else ranks
        every = np.arange(layer.ep)
        owned = [experts_of(rank, layer.experts, layer.ep) for rank in range(layer.ep)]
        # Column of each [owner, local expert]; -1, a column of zeros, for none.
        column = np.full((layer.ep, layer.local_experts), -1, dtype=np.int64)
        for owner, experts in enumerate(owned):
            column[owner, : len(experts)] = experts
        shape = (self.ranks, layer.local_experts, layer.ep)
        self.sent: Ints = np.zeros(shape, dtype=np.int64)
        self.received: Ints = np.zeros(shape, dtype=np.int64)
        for rank in range(self.ranks):
            row = np.append(table[rank], 0)
            self.sent[rank] = row[column[(rank + every) % layer.ep]].T
            mine = slice(owned[rank].start, owned[rank].stop)
            sources = (rank - every) % layer.ep
            self.received[rank, : len(owned[rank])] = table[sources, mine].T
        self._schedule = schedule
        self._space = {buffer.name: buffer.space for buffer in schedule.buffers}
        self._tokens = np.array(layer.tokens[: self.ranks], dtype=np.int64)
        columns = [list(ks) for ks in schedule.groups]
        # [ranks, local experts, groups]
        self._routed = np.stack([self.received[:, :, ks].sum(2) for ks in columns], 2)
        self._slots = np.stack([self.sent[:, :, ks].sum(2) for ks in columns], 2)
        self._found: dict[Region, Ints] = {}

    def rows(self, region: Region) -> Ints:
        """Rows of `region` on each rank, int64 [ranks]; not to be written to."""
        found = self._found.get(region)
        if found is None:
            found = self._found[region] = self._count(region)
        return found

    def _count(self, region: Region) -> Ints:
        space = self._space[region.buffer]
        if space == "token":
            return self._token_rows(region.part)
        parts = self._routed if space == "routed" else self._slots
        if region.expert is not None and region.part is not None:
            return parts[:, region.expert, region.part]
        if region.expert is not None:
            parts = parts[:, region.expert : region.expert + 1]
        if region.part is not None:
            parts = parts[:, :, region.part : region.part + 1]
        return parts.sum(axis=(1, 2))

    def _token_rows(self, part: int | None) -> Ints:
        if part is None:
            return self._tokens
        chunks = self._schedule.row_chunks
        first = self._tokens * part // chunks
        return self._tokens * (part + 1) // chunks - first
