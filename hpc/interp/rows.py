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
    """

    def __init__(self, schedule: Schedule, counts: npt.ArrayLike) -> None:
        layer = schedule.layer
        table = as_counts(layer, counts)
        ranks = np.arange(layer.ep)
        by_owner = np.zeros((layer.ep, layer.ep, layer.local_experts), dtype=np.int64)
        for owner in range(layer.ep):
            owned = experts_of(owner, layer.experts, layer.ep)
            by_owner[:, owner, : len(owned)] = table[:, owned.start : owned.stop]
        to = (ranks[:, None] + ranks) % layer.ep
        self.sent: Ints = by_owner[ranks[:, None], to].transpose(0, 2, 1)
        source = (ranks[:, None] - ranks) % layer.ep
        self.received: Ints = self.sent[source, :, ranks[None, :]].transpose(0, 2, 1)
        self.ranks = layer.ep
        self._schedule = schedule
        self._space = {buffer.name: buffer.space for buffer in schedule.buffers}
        self._tokens = np.array(layer.tokens, dtype=np.int64)
        columns = [list(ks) for ks in schedule.groups]
        # [ranks, local experts, groups]
        self._routed = np.stack([self.received[:, :, ks].sum(2) for ks in columns], 2)
        self._slots = np.stack([self.sent[:, :, ks].sum(2) for ks in columns], 2)

    def rows(self, region: Region) -> Ints:
        """Rows of `region` on each rank, int64 [ranks]."""
        space = self._space[region.buffer]
        if space == "token":
            return self._token_rows(region.part)
        parts = self._routed if space == "routed" else self._slots
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
