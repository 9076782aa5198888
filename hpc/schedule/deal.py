"""How the pieces of puts fall to the cores of a team, and the cut that fills it.

A put moves the rows of one exchange, for every destination in `chunks` pieces. Each
piece is driven by one core; a team deals the pieces of its puts like cards, one after
the other and on from put to put. Few pieces leave cores without any; and where pieces
of own rows, which are only copied, alternate with others in step with the team, the
same cores get all the slow ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

_WORTH = 0.1
"""A finer cut must gain more than this share: combines begin at other cores and in
another order than dealt here, and what gained 9 % here was seen to cost 2 % there."""

_PIECES_PER_CORE = 32
"""With so many the last one is 3 % of a core's list: no cut gains enough."""


@dataclass(frozen=True, slots=True)
class Exchanges:
    """One operator's exchanges over a balanced layer: (expert, group) for `experts`
    experts and the given groups of relative destinations, 0 = own rows.

    A destination gets `rows` rows. A piece takes `issue_us[destination]`, and `own_us`
    or `remote_us` for each of its rows. `own` and `remote` are the pieces for each
    destination in groups with own rows alone and in all others.
    """

    groups: tuple[tuple[int, ...], ...]
    experts: int
    rows: int
    issue_us: tuple[float, ...]
    own_us: float
    remote_us: float
    own: int = 1
    remote: int = 1

    def pieces_us(self, group: Sequence[int]) -> NDArray[np.float64]:
        """Durations of the pieces of one group's put, in the order they are dealt."""
        chunks = self.remote if any(group) else self.own
        longest = -(-self.rows // chunks)
        row_us = [self.remote_us if k else self.own_us for k in group]
        issue_us = [self.issue_us[k] for k in group]
        return np.repeat(np.array(issue_us) + longest * np.array(row_us), chunks)

    def arrivals_us(self, cores: int) -> NDArray[np.float64]:
        """When the last piece of each put is sent if `cores` cores begin together and
        never wait: the first group of all experts, then expert by expert."""
        parts = [self.pieces_us(group) for group in self.groups]
        pieces = [np.tile(parts[0], self.experts)]
        sizes = [len(parts[0])] * self.experts
        if len(parts) > 1:
            pieces.append(np.tile(np.concatenate(parts[1:]), self.experts))
            sizes += [len(part) for part in parts[1:]] * self.experts
        dealt = np.concatenate(pieces)
        rounds = np.zeros((-(-len(dealt) // cores), cores))
        rounds.flat[: len(dealt)] = dealt
        ends = rounds.cumsum(axis=0).flat[: len(dealt)]
        return np.maximum.reduceat(ends, np.cumsum([0, *sizes[:-1]]))

    def cost_us(self, cores: int) -> float:
        """The end of the last put, and that of the mean: the team is free after the
        first, and what waits for a put can begin after the second."""
        arrivals = self.arrivals_us(cores)
        return float(arrivals.max() + arrivals.mean())

    def filled(self, cores: int) -> Exchanges:
        """The same in the pieces that occupy `cores` cores best: no fewer than now, at
        most one for each core and row, and those of now unless others are clearly
        better."""
        best = self
        for kind in ("remote", "own"):
            tried = best.finer(kind, cores)
            best = min([best, *tried], key=lambda cut: cut.cost_us(cores))
        worth = best.cost_us(cores) < (1 - _WORTH) * self.cost_us(cores)
        return best if worth else self

    def finer(self, kind: str, cores: int) -> Iterator[Exchanges]:
        """All cuts with more pieces for the groups of one kind, coarsest first."""
        among = [g for g in self.groups if any(g) == (kind == "remote")]
        destinations = sum(map(len, among)) * self.experts
        if not destinations:
            return
        most = min(cores, self.rows, cores * _PIECES_PER_CORE // destinations)
        for chunks in range(getattr(self, kind) + 1, most + 1):
            yield replace(self, **{kind: chunks})
