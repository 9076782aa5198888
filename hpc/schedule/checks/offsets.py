"""Sets of relative ranks as bit masks, and how far each of them is known to be.

Bit d of a mask stands for rank (me + d) mod R, so a statement about one rank is one
about every rank that runs the program, and costs the same for any number of ranks.

`Steps` say how far a queue is on each rank: (count, mask) means that on the ranks of
`mask` at least the first `count` instructions are done. Counts fall, masks are
disjoint and not empty; a rank in no mask is not known to have done anything.
"""

from __future__ import annotations

Steps = tuple[tuple[int, int], ...]

NOTHING: Steps = ()


def steps(count: int, mask: int) -> Steps:
    """The first `count` instructions, on the ranks of `mask`."""
    return ((count, mask),) if count > 0 and mask else NOTHING


def reached(known: Steps, count: int) -> int:
    """Mask of the ranks on which at least `count` instructions are done.

    >>> bin(reached(((7, 0b01), (3, 0b10)), 5))
    '0b1'
    """
    mask = 0
    for done, ranks in known:
        if done < count:
            break
        mask |= ranks
    return mask


def joined(a: Steps, b: Steps) -> Steps:
    """Rank by rank the further of two.

    >>> joined(((7, 0b001), (3, 0b110)), ((5, 0b011),))
    ((7, 1), (5, 2), (3, 4))
    """
    if a == b or not b:
        return a
    if not a:
        return b
    found: list[tuple[int, int]] = []
    seen = 0
    for count, ranks in sorted(a + b, reverse=True):
        fresh = ranks & ~seen
        if not fresh:
            continue
        seen |= fresh
        if found and found[-1][0] == count:
            found[-1] = (count, found[-1][1] | fresh)
        else:
            found.append((count, fresh))
    return tuple(found)


class Offsets:
    """Arithmetic on masks for a number of ranks."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.full = (1 << ranks) - 1
        self._sums: dict[tuple[int, int], int] = {}

    def of(self, ks: tuple[int, ...], sign: int = 1) -> int:
        """The mask of the offsets sign * k."""
        mask = 0
        for k in ks:
            mask |= 1 << (sign * k) % self.ranks
        return mask

    def negated(self, mask: int) -> int:
        """-d for every offset d."""
        return self.of(tuple(self.listed(mask)), -1)

    def listed(self, mask: int) -> list[int]:
        """The offsets of a mask, ascending."""
        return [d for d in range(self.ranks) if mask >> d & 1]

    def sum(self, a: int, b: int) -> int:
        """All d + e of d in `a` and e in `b`."""
        if a == 1 or b == 0:
            return b
        if b == 1 or a == 0:
            return a
        if self.full in (a, b):
            return self.full
        key = (a, b) if a < b else (b, a)
        if key not in self._sums:
            few, many = sorted(key, key=int.bit_count)
            total = 0
            for d in self.listed(few):
                total |= self._turned(many, d)
            self._sums[key] = total
        return self._sums[key]

    def shifted(self, known: Steps, by: int) -> Steps:
        """What is known of ranks me + d, told by ranks me + s for all s in `by`."""
        if by == 1:
            return known
        found = NOTHING
        for count, ranks in known:
            found = joined(found, ((count, self.sum(ranks, by)),))
        return found

    def _turned(self, mask: int, d: int) -> int:
        return ((mask << d) | (mask >> (self.ranks - d))) & self.full
