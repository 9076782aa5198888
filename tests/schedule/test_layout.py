"""The row layout: prefix sums over the routing counts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.schedule.layer import experts_of, owner_of
from hpc.schedule.layout import (
    as_counts,
    chunk_bounds,
    part_rows,
    receive_rows,
    send_rows,
    source_offsets,
)
from tests.builders import small_layer

FAST = settings(derandomize=True, deadline=None, max_examples=60)


@st.composite
def layouts(draw):
    """(layer, groups, counts): 1..5 ranks, uneven experts, a random partition."""
    ep = draw(st.integers(1, 5))
    experts = draw(st.integers(ep, 3 * ep))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    order = [0, *(1 + rng.permutation(ep - 1)).tolist()]
    cuts = sorted(rng.choice(np.arange(1, ep), rng.integers(0, ep), replace=False))
    bounds = [0, *cuts, ep]
    groups = tuple(tuple(order[a:b]) for a, b in itertools.pairwise(bounds))
    counts = rng.integers(0, 6, (ep, experts))
    layer = small_layer(ep=ep, experts=experts, tokens=(16,) * ep)
    return layer, groups, counts


@FAST
@given(layouts())
def test_every_pair_of_ranks_agrees_on_rows(case):
    """What rank s sends to expert e of (s + k) is what that rank expects from k."""
    layer, _, counts = case
    for source in range(layer.ep):
        sent = send_rows(layer, counts, source)
        for k in range(layer.ep):
            received = receive_rows(layer, counts, (source + k) % layer.ep)
            assert (sent[:, k] == received[:, k]).all()
        assert sent.sum() == counts[source].sum()


@FAST
@given(layouts())
def test_ranges_tile_the_routed_buffer(case):
    """Ranges [offset, offset + rows) cover 0..total with no gap and no overlap."""
    layer, groups, counts = case
    for rank in range(layer.ep):
        starts = source_offsets(layer, groups, counts, rank)
        rows = receive_rows(layer, counts, rank)
        covered = np.zeros(int(rows.sum()), dtype=int)
        for start, n in zip(starts.ravel(), rows.ravel(), strict=True):
            covered[start : start + n] += 1
        assert (covered == 1).all()


@FAST
@given(layouts())
def test_parts_are_contiguous_and_in_order(case):
    layer, groups, counts = case
    for rank in range(layer.ep):
        starts = source_offsets(layer, groups, counts, rank)
        parts = part_rows(layer, groups, counts, rank)
        flat = parts.ravel()
        firsts = np.array([[row[ks[0]] for ks in groups] for row in starts])
        assert (firsts.ravel() == np.cumsum(flat) - flat).all()


def test_unequal_counts_start_at_the_exclusive_prefix_sum():
    """Three ranks, unequal counts: right for every receiver, not only the first."""
    layer = small_layer(ep=3, experts=3, tokens=(16, 16, 16))
    counts = [[1, 2, 3], [10, 20, 30], [100, 200, 300]]
    # Rank 1 owns expert 1; ks 0, 1, 2 are the sources 1, 0, 2.
    assert source_offsets(layer, ((0, 1, 2),), counts, 1).tolist() == [[0, 20, 22]]
    assert source_offsets(layer, ((0,), (2, 1)), counts, 1).tolist() == [[0, 220, 20]]


def test_a_missing_last_expert_has_no_rows():
    layer = small_layer(ep=2, experts=3, tokens=(4, 4))
    counts = np.array([[1, 2, 3], [4, 5, 6]])
    assert send_rows(layer, counts, 0).tolist() == [[1, 3], [2, 0]]
    assert receive_rows(layer, counts, 1).tolist() == [[6, 3], [0, 0]]


@pytest.mark.parametrize(("rows", "chunks"), [(0, 4), (1, 4), (10, 3), (385, 8)])
def test_chunks_cover_all_rows(rows, chunks):
    bounds = chunk_bounds(rows, chunks)
    assert bounds[0] == 0
    assert bounds[-1] == rows
    assert (np.diff(bounds) >= 0).all()
    assert np.diff(bounds).max() - np.diff(bounds).min() <= 1


def test_owners_are_the_inverse_of_ranges():
    for experts, ep in [(30, 8), (60, 8), (129, 16), (4, 4)]:
        for rank in range(ep):
            for local, expert in enumerate(experts_of(rank, experts, ep)):
                assert owner_of(expert, experts, ep) == (rank, local)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([[1, 2]], r"\[2, 4\], got \[1, 2\]"),
        ([[1.5, 2, 3, 4]] * 2, r"must be integers, got float64"),
        ([[1, 2, 3, -4]] * 2, r"counts\[0\]\[3\] = -4 is negative"),
    ],
)
def test_counts_of_the_wrong_shape_or_sign_are_refused(counts, message):
    with pytest.raises(ValueError, match=message):
        as_counts(small_layer(), counts)
