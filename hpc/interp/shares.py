"""How the cores of a team are bundled for value execution, and what tiles they own.

Executing every core by itself would cost Python time without showing more: thresholds
join all of a team, so the state in which a wrong one lets a reader pass is "all cores
but one are done". A team is cut into just these: one core, which the seed chooses, and
the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from hpc.interp.placement import Ints


@dataclass(frozen=True, slots=True)
class Bundle:
    """`cores` neighbours from index `first` of a team of `size`; may wrap around."""

    first: int
    cores: int
    size: int

    def owns(self, offset: int, tiles: int) -> npt.NDArray[np.bool_]:
        """Which of an instruction's tiles its cores own, bool [tiles].

        `offset` counts the tiles of all earlier instructions of the queue.
        """
        core = (np.arange(offset - self.first, offset - self.first + tiles)) % self.size
        return core < self.cores

    def __str__(self) -> str:
        if self.cores == 1:
            return f"core {self.first}"
        return f"cores {self.first}..{(self.first + self.cores - 1) % self.size}"


def bundles(size: int, random: Random) -> tuple[Bundle, ...]:
    """Cuts a team of `size` cores into one core and the others."""
    first = random.randrange(size)
    if size == 1:
        return (Bundle(0, 1, 1),)
    return Bundle(first, 1, size), Bundle((first + 1) % size, size - 1, size)


def runs(chosen: npt.NDArray[np.bool_]) -> slice | Ints:
    """Positions that are true: a slice if they are contiguous, else their numbers."""
    where = np.flatnonzero(chosen)
    if not len(where):
        return slice(0, 0)
    if where[-1] - where[0] + 1 == len(where):
        return slice(int(where[0]), int(where[-1]) + 1)
    return where


def blocks(chosen: npt.NDArray[np.bool_], width: int, limit: int) -> slice | Ints:
    """Elements of the chosen blocks of `width`, the last one cut at `limit`."""
    found = runs(chosen)
    if isinstance(found, slice):
        return slice(min(found.start * width, limit), min(found.stop * width, limit))
    elements = (found[:, None] * width + np.arange(width)).reshape(-1)
    return elements[elements < limit]
