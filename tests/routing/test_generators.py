"""Generated routings: exact agreement of counts and ids, balance, distributions."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.interp.routing import (
    RoutingError,
    check_routing,
    routing_counts,
    routing_ids,
)
from hpc.interp.routing_draws import without_replacement
from hpc.schedule.capacity import received_rows
from hpc.schedule.layer import Layer, Routing, experts_of
from tests.builders import small_layer

PROPERTY = settings(max_examples=80, deadline=None, derandomize=True)

BALANCED = Routing("balanced")


def uniform(seed: int = 0) -> Routing:
    return Routing("uniform", (("seed", float(seed)),))


def zipf(s: float, seed: int = 0) -> Routing:
    return Routing("zipf", (("s", s), ("seed", float(seed))))


def hot(n: int, share: float, seed: int = 0) -> Routing:
    return Routing("hot", (("n", n), ("share", share), ("seed", float(seed))))


def one_rank(rank: int) -> Routing:
    return Routing("one_rank", (("r", float(rank)),))


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    ep = draw(st.integers(1, 6))
    experts = draw(st.integers(ep, 20))
    repeats = draw(st.booleans())
    top_k = draw(st.integers(1, 24 if repeats else experts))
    tokens = draw(st.lists(st.integers(0, 20), min_size=ep, max_size=ep))
    return small_layer(
        ep=ep, experts=experts, top_k=top_k, tokens=tuple(tokens), repeats=repeats
    )


@st.composite
def routings(draw: st.DrawFn) -> Routing:
    seed = draw(st.integers(0, 5))
    return draw(
        st.sampled_from([BALANCED, uniform(seed)])
        | st.builds(zipf, st.floats(0, 50), st.just(seed))
        | st.builds(hot, st.integers(1, 8), st.floats(0.05, 1), st.just(seed))
        | st.builds(one_rank, st.integers(0, 4))
    )


@PROPERTY
@given(layers(), routings())
def test_counts_are_those_of_the_ids_and_nobody_is_sent_twice(
    layer: Layer, routing: Routing
) -> None:
    if check_routing(layer, routing):
        with pytest.raises(RoutingError):
            routing_counts(layer, routing)
        return
    counts, ids = routing_counts(layer, routing), routing_ids(layer, routing)
    assert counts.shape == (layer.ep, layer.experts)
    assert counts.dtype == np.int64
    for rank, chosen in enumerate(ids):
        assert chosen.shape == (layer.tokens[rank], layer.top_k)
        assert chosen.dtype == np.int32
        found = np.bincount(chosen.ravel(), minlength=layer.experts)
        assert found.tolist() == counts[rank].tolist()
        if not layer.repeats:
            assert all(len(set(token)) == layer.top_k for token in chosen.tolist())


@PROPERTY
@given(layers(), routings())
def test_the_same_routing_twice_is_the_same(layer: Layer, routing: Routing) -> None:
    if check_routing(layer, routing):
        return
    first, second = routing_ids(layer, routing), routing_ids(layer, routing)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@PROPERTY
@given(layers())
def test_balanced_experts_differ_by_at_most_one_row(layer: Layer) -> None:
    counts = routing_counts(layer, BALANCED)
    assert np.ptp(counts.sum(axis=0)) <= 1
    assert all(np.ptp(row) <= 1 for row in counts)


@PROPERTY
@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 12), st.data())
def test_balanced_ranks_differ_by_at_most_one_row_if_experts_divide(
    ep: int, local: int, tokens: int, data: st.DataObject
) -> None:
    """In total and from every single source."""
    top_k = data.draw(st.integers(1, ep * local))
    layer = small_layer(ep=ep, experts=ep * local, top_k=top_k, tokens=(tokens,) * ep)
    counts = routing_counts(layer, BALANCED)
    assert np.ptp(received_rows(layer, counts)) <= 1
    assert np.ptp(counts.reshape(ep, ep, local).sum(axis=2)) <= 1


def test_balanced_is_exact_when_it_divides() -> None:
    layer = small_layer(ep=8, experts=64, top_k=8, tokens=(4096,) * 8)
    assert np.all(routing_counts(layer, BALANCED) == 512)


@pytest.mark.parametrize("tokens", [1, 2, 3, 8])
def test_balanced_leaves_no_rank_idle_for_few_tokens(tokens: int) -> None:
    """256 experts, top-8, 16 ranks, `tokens` tokens in all: half the ranks idle was
    the public bug; here every rank works as soon as there are 16 rows."""
    per_rank = tuple(1 if r < tokens else 0 for r in range(16))
    layer = small_layer(ep=16, experts=256, top_k=8, tokens=per_rank)
    received = received_rows(layer, routing_counts(layer, BALANCED))
    assert received.sum() == tokens * 8
    assert np.ptp(received) <= 1
    assert (received == 0).sum() == max(0, 16 - tokens * 8)


def test_consecutive_balanced_rows_go_to_different_ranks() -> None:
    layer = small_layer(ep=4, experts=8, top_k=4, tokens=(1, 1, 1, 1))
    for chosen in routing_ids(layer, BALANCED):
        assert {int(e) // 2 for e in chosen[0]} == {0, 1, 2, 3}


def test_balanced_is_fast_for_the_largest_layers() -> None:
    layer = small_layer(ep=256, experts=2048, top_k=8, tokens=(4096,) * 256)
    start = time.process_time()
    counts = routing_counts(layer, BALANCED)
    assert time.process_time() - start < 1
    assert np.all(counts == 16)


def test_slots_are_not_sorted_by_expert() -> None:
    """Otherwise the order of the sum over slots could not be seen to matter."""
    layer = small_layer(ep=2, experts=16, top_k=4, tokens=(64, 64))
    table = Routing("counts", counts=((16,) * 16,) * 2)
    for routing in (BALANCED, table, uniform(), zipf(1.0), hot(4, 0.5)):
        ids = np.concatenate(routing_ids(layer, routing))
        assert np.any(np.diff(ids, axis=1) < 0)


def test_different_seeds_and_ranks_choose_differently() -> None:
    layer = small_layer(ep=2, experts=16, top_k=4, tokens=(64, 64))
    first, second = routing_ids(layer, uniform(1)), routing_ids(layer, uniform(2))
    assert not np.array_equal(first[0], second[0])
    assert not np.array_equal(first[0], first[1])


def test_random_draws_are_fast_for_many_experts() -> None:
    """Time grows with the rows, not with rows x experts."""
    layer = small_layer(ep=16, experts=2048, top_k=8, tokens=(4096,) * 16)
    start = time.process_time()
    for routing in (uniform(), zipf(0.8), hot(16, 0.3)):
        assert routing_counts(layer, routing).sum() == 16 * 4096 * 8
    assert time.process_time() - start < 5


@pytest.mark.parametrize("s", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("enough", [0.0, 1.0])
def test_pairs_are_drawn_by_weight_among_what_is_left(
    monkeypatch: pytest.MonkeyPatch, s: float, enough: float
) -> None:
    """Both ways of drawing against P(i, j) = w_i * w_j / (1 - w_i), six deviations."""
    monkeypatch.setattr("hpc.interp.routing_draws._ENOUGH", enough)
    weights = np.arange(1, 5) ** -s
    share = weights / weights.sum()
    n = 20_000
    drawn = without_replacement(np.random.default_rng(1), np.log(weights), n, 2)
    found = np.zeros((4, 4))
    np.add.at(found, (drawn[:, 0], drawn[:, 1]), 1)
    expected = share[:, None] * share[None, :] / (1 - share[:, None])
    np.fill_diagonal(expected, 0)
    spread = np.sqrt(n * expected * (1 - expected))
    assert np.all(np.abs(found - n * expected) <= 6 * spread)


def test_very_steep_weights_take_the_heaviest_in_order() -> None:
    drawn = without_replacement(
        np.random.default_rng(1), -100 * np.log(np.arange(1.0, 65)), 50, 64
    )
    assert drawn[:, :8].tolist() == [list(range(8))] * 50
    assert np.sort(drawn, axis=1).tolist() == [list(range(64))] * 50


def test_uniform_experts_are_equally_likely() -> None:
    """16,000 rows over 8 experts: 2,000 each, within six standard deviations."""
    layer = small_layer(ep=1, experts=8, top_k=2, tokens=(8000,))
    counts = routing_counts(layer, uniform())[0]
    spread = np.sqrt(8000 * 0.25 * 0.75)
    assert np.all(np.abs(counts - 2000) < 6 * spread)


def test_zipf_follows_its_weights_for_top_1() -> None:
    """Sorted counts against i^-s / sum, each within six standard deviations."""
    layer = small_layer(ep=1, experts=8, top_k=1, tokens=(20_000,))
    weights = np.arange(1, 9) ** -1.2
    share = weights / weights.sum()
    for repeats in (False, True):
        layer = small_layer(ep=1, experts=8, top_k=1, tokens=(20_000,), repeats=repeats)
        counts = np.sort(routing_counts(layer, zipf(1.2))[0])[::-1]
        spread = np.sqrt(20_000 * share * (1 - share))
        assert np.all(np.abs(counts - 20_000 * share) < 6 * spread)


def test_zipf_without_replacement_caps_the_most_popular_expert() -> None:
    """With s = 50 every token takes the first two experts, once each."""
    layer = small_layer(ep=2, experts=4, top_k=2, tokens=(16, 16))
    counts = np.sort(routing_counts(layer, zipf(50.0)).sum(axis=0))
    assert counts.tolist() == [0, 0, 32, 32]


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("share", [0.25, 0.5, 0.61, 1.0])
def test_hot_experts_take_exactly_the_rounded_share_of_a_rank(
    share: float, repeats: bool
) -> None:
    layer = small_layer(ep=3, experts=16, top_k=4, tokens=(50, 0, 7), repeats=repeats)
    counts = routing_counts(layer, hot(4, share, 5))
    order = np.random.default_rng((1, 5)).permutation(16)
    for rank, tokens in enumerate(layer.tokens):
        assert counts[rank, order[:4]].sum() == round(share * tokens * 4)


def test_hot_slots_are_spread_evenly_over_tokens() -> None:
    layer = small_layer(ep=1, experts=16, top_k=4, tokens=(50,))
    order = np.random.default_rng((1, 0)).permutation(16)
    (ids,) = routing_ids(layer, hot(4, 0.6))
    hot_slots = np.isin(ids, order[:4]).sum(axis=1)
    assert np.ptp(hot_slots) == 1


@pytest.mark.parametrize("rank", [0, 4])
def test_one_rank_receives_everything_evenly(rank: int) -> None:
    """13 experts on 5 ranks: rank 0 holds three, rank 4 two."""
    layer = small_layer(ep=5, experts=13, top_k=2, tokens=(10,) * 5)
    counts = routing_counts(layer, one_rank(rank)).sum(axis=0)
    mine = list(experts_of(rank, 13, 5))
    assert counts[mine].sum() == 100
    assert np.ptp(counts[mine]) <= 1


@pytest.mark.parametrize(
    ("routing", "problem"),
    [
        (Routing("balance"), "unknown routing 'balance', known: balanced"),
        (hot(5, 0.5), "hot needs 1 to 4 experts, got 5"),
        (hot(1, 0.6), "share 0.6 cannot be met: 1 hot experts of 4 take 0 to 0.5"),
        (hot(4, 0.5), "4 hot experts of 4 take 1 to 1 of the rows"),
        (one_rank(2), "rank 2 does not exist: ranks are 0 to 1"),
        (one_rank(-1), "one_rank: r is 0 to inf, got -1"),
        (Routing("one_rank", (("rank", 0.0),)), "one_rank has no parameter 'rank'"),
        (Routing("hot", (("n", 1.0),)), "hot needs the parameter 'share'"),
        (Routing("zipf", ()), "zipf needs the parameter 's'"),
        (zipf(-1.0), "zipf: s is 0 to 100, got -1"),
        (uniform(-1), "uniform: seed is a whole number from 0 to 4294967295, got -1"),
        (Routing("uniform", (("seed", 1.5),)), "0 to 4294967295, got 1.5"),
    ],
)
def test_what_cannot_be_met_is_said(routing: Routing, problem: str) -> None:
    with pytest.raises(RoutingError, match=problem.replace("(", r"\(")):
        routing_counts(small_layer(), routing)


def test_absurdly_many_rows_are_not_drawn() -> None:
    layer = small_layer(tokens=(1 << 25, 1))
    for routing in (uniform(), zipf(1.0), hot(1, 0.1)):
        with pytest.raises(RoutingError, match="would draw 67108866 rows, at most 67"):
            routing_counts(layer, routing)
    assert routing_counts(layer, BALANCED).sum() == 67108866


def test_top_k_above_experts_needs_repeats() -> None:
    layer = small_layer(top_k=5)
    with pytest.raises(RoutingError, match="top_k 5 exceeds experts 4"):
        routing_ids(layer, BALANCED)
    assert routing_counts(small_layer(top_k=5, repeats=True), BALANCED).sum() == 160
