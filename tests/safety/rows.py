"""Which rows a region holds, written from the text of `hpc.schedule.model` alone.

The oracle has its own layout: plain loops over (token, slot) pairs, no prefix sums. A
mistake that the compiler, the engines and the checker share would show here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hpc.schedule.model import Region, Schedule

Ids = Sequence[Sequence[Sequence[int]]]
"""`ids[rank][token][slot]`: the global expert chosen, -1 for none."""


class Illegal(Exception):
    """The schedule has no meaning; the message says which rule it breaks."""


class RoutedRow(NamedTuple):
    """A row of a rank's routed buffers: for which expert, from where."""

    expert: int
    group: int
    source: int
    slot: int


def owned_experts(s: Schedule) -> list[list[int]]:
    """Global experts by rank: even shares, the first ranks hold one more."""
    owned: list[list[int]] = [[] for _ in range(s.layer.ep)]
    share, extra = divmod(s.layer.experts, s.layer.ep)
    expert = 0
    for rank in range(s.layer.ep):
        for _ in range(share + (rank < extra)):
            owned[rank].append(expert)
            expert += 1
    return owned


class Rows:
    """Rows of all buffers of all ranks for one table of expert choices."""

    def __init__(self, s: Schedule, ids: Ids) -> None:
        self.s, self.ep = s, s.layer.ep
        self.owned = owned_experts(s)
        self.tokens = [len(table) for table in ids]
        self.choice = [[e for slots in table for e in slots] for table in ids]
        self._known: dict[tuple[int, Region], frozenset[int]] = {}
        self.routed = [self._received(rank) for rank in range(self.ep)]
        self.row_of = [
            {(row.expert, row.source, row.slot): i for i, row in enumerate(rows)}
            for rows in self.routed
        ]

    def sent(self, source: int, owner: int, local: int) -> list[int]:
        """Slots (token * top_k + slot) that `source` sends to an expert of `owner`."""
        if local >= len(self.owned[owner]):
            return []
        expert = self.owned[owner][local]
        return [i for i, e in enumerate(self.choice[source]) if e == expert]

    def _received(self, rank: int) -> list[RoutedRow]:
        return [
            RoutedRow(local, g, source, slot)
            for local in range(len(self.owned[rank]))
            for g, ks in enumerate(self.s.groups)
            for source in ((rank - k) % self.ep for k in ks)
            for slot in self.sent(source, rank, local)
        ]

    def rows(self, rank: int, region: Region) -> list[int]:
        """Row numbers of a region; Illegal if it names a part that does not exist."""
        space = self.s.buffer(region.buffer).space
        experts = max(len(mine) for mine in self.owned)
        if space == "token":
            return self._token_rows(rank, region)
        _within(region.expert, experts, f"expert of {region}")
        _within(region.part, len(self.s.groups), f"group of {region}")
        if space == "routed":
            found = [(row.expert, row.group) for row in self.routed[rank]]
            return [i for i, (e, g) in enumerate(found) if _matches(region, e, g)]
        if space == "slot":
            return self._slot_rows(rank, region)
        raise Illegal(f"{region.buffer} holds matrices, not rows")

    def row_set(self, rank: int, region: Region) -> frozenset[int]:
        """The same as a set, made once."""
        key = (rank, region)
        if key not in self._known:
            self._known[key] = frozenset(self.rows(rank, region))
        return self._known[key]

    def _token_rows(self, rank: int, region: Region) -> list[int]:
        if region.expert is not None:
            raise Illegal(f"{region}: tokens belong to no expert")
        n, chunks = self.tokens[rank], self.s.row_chunks
        _within(region.part, chunks, f"chunk of {region}")
        if region.part is None:
            return list(range(n))
        c = region.part
        return list(range(n * c // chunks, n * (c + 1) // chunks))

    def _slot_rows(self, rank: int, region: Region) -> list[int]:
        """Slots that send nothing have no row: nobody may need them."""
        found: list[int] = []
        for g, ks in enumerate(self.s.groups):
            for owner in ((rank + k) % self.ep for k in ks):
                for local in range(len(self.owned[owner])):
                    if _matches(region, local, g):
                        found += self.sent(rank, owner, local)
        return sorted(found)


def _matches(region: Region, expert: int, group: int) -> bool:
    return region.expert in (None, expert) and region.part in (None, group)


def _within(index: int | None, count: int, what: str) -> None:
    if index is not None and not 0 <= index < count:
        raise Illegal(f"{what} is not below {count}")
