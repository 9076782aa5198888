"""The arithmetic of relative ranks against plain sets and dictionaries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hpc.schedule.checks.offsets import Offsets, joined, reached, steps

RANKS = 7
MASKS = st.integers(0, 2**RANKS - 1)
KNOWN = st.dictionaries(st.integers(0, RANKS - 1), st.integers(1, 5))


def as_steps(known):
    """Steps of {rank: count}."""
    found = ()
    for d, count in known.items():
        found = joined(found, steps(count, 1 << d))
    return found


def as_dict(known):
    return {d: count for count, mask in known for d in range(RANKS) if mask >> d & 1}


@given(KNOWN)
def test_steps_keep_the_count_of_every_rank(known):
    found = as_steps(known)
    assert as_dict(found) == known
    counts = [count for count, _ in found]
    assert counts == sorted(set(counts), reverse=True)


@given(KNOWN, KNOWN)
def test_joined_is_the_maximum_rank_by_rank(a, b):
    wanted = {d: max(a.get(d, 0), b.get(d, 0)) for d in a | b}
    assert as_dict(joined(as_steps(a), as_steps(b))) == wanted


@given(KNOWN, st.integers(1, 6))
def test_reached_lists_the_ranks_that_are_far_enough(known, count):
    wanted = {d for d, done in known.items() if done >= count}
    assert set(Offsets(RANKS).listed(reached(as_steps(known), count))) == wanted


@given(MASKS, MASKS)
def test_sums_and_negatives_are_those_of_the_offsets(a, b):
    offsets = Offsets(RANKS)
    some, other = offsets.listed(a), offsets.listed(b)
    if a and b:
        wanted = {(d + e) % RANKS for d in some for e in other}
        assert set(offsets.listed(offsets.sum(a, b))) == wanted
    assert set(offsets.listed(offsets.negated(a))) == {-d % RANKS for d in some}


@given(KNOWN, MASKS.filter(bool))
def test_shifted_is_what_the_others_told(known, by):
    offsets = Offsets(RANKS)
    wanted: dict[int, int] = {}
    for d, count in known.items():
        for e in offsets.listed(by):
            to = (d + e) % RANKS
            wanted[to] = max(count, wanted.get(to, 0))
    assert as_dict(offsets.shifted(as_steps(known), by)) == wanted
