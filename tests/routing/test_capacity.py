"""The receive bound and the bytes of a layer, against hand arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.interp.routing import routing_counts
from hpc.schedule.capacity import (
    layer_bytes,
    pair_rows,
    receive_bound,
    received_rows,
    standard_shapes,
)
from hpc.schedule.layer import Activation, Routing, owner_of
from tests.builders import small_layer, standard_buffers


def test_the_worst_case_with_its_arithmetic() -> None:
    """max_tokens_per_rank * ep * min(top_k, experts_per_rank)."""
    layer = small_layer(ep=8, experts=16, top_k=4, tokens=(100,) * 7 + (50,))
    bound = receive_bound(layer)
    assert (bound.rows, bound.worst_rows, bound.exact_rows) == (1600, 1600, None)
    assert bound.formula == (
        "max tokens 100 * ep 8 * min(top_k 4, local experts 2) = 1600"
    )


@pytest.mark.parametrize(("top_k", "most"), [(1, 1), (3, 3), (4, 4), (7, 4)])
def test_a_token_sends_a_rank_no_more_rows_than_choices_or_experts_there(
    top_k: int, most: int
) -> None:
    layer = small_layer(ep=2, experts=8, top_k=top_k, tokens=(10, 10))
    assert receive_bound(layer).rows == 10 * 2 * most


def test_repeats_may_send_every_choice_to_one_rank() -> None:
    layer = small_layer(ep=8, experts=16, top_k=4, tokens=(100,) * 8, repeats=True)
    assert receive_bound(layer).formula == "max tokens 100 * ep 8 * top_k 4 = 3200"


def test_a_table_gives_the_exact_bound_when_smaller() -> None:
    layer = small_layer(tokens=(8, 8))
    counts = np.array([[4, 4, 8, 0], [0, 8, 2, 6]])
    bound = receive_bound(layer, counts)
    assert (bound.rows, bound.exact_rows, bound.worst_rows) == (16, 16, 32)
    assert bound.formula == "largest receiver of the routing table, rank 0 = 16"


def test_received_rows_with_experts_that_do_not_divide() -> None:
    """30 experts on 8 ranks: expert e counts for its owner."""
    layer = small_layer(ep=8, experts=30, tokens=(16,) * 8)
    counts = np.arange(240).reshape(8, 30)
    expected = np.zeros(8, dtype=np.int64)
    for expert in range(30):
        expected[owner_of(expert, 30, 8)[0]] += counts[:, expert].sum()
    assert received_rows(layer, counts).tolist() == expected.tolist()


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(1, 6), st.integers(1, 5), st.booleans(), st.data())
def test_no_routing_exceeds_the_worst_case(
    ep: int, local: int, repeats: bool, data: st.DataObject
) -> None:
    """And the routing that aims at one rank reaches it, if the rank is a full one."""
    experts = ep * local - data.draw(st.integers(0, min(ep - 1, ep * local - ep)))
    top_k = data.draw(st.integers(1, experts))
    tokens = data.draw(st.lists(st.integers(0, 9), min_size=ep, max_size=ep))
    layer = small_layer(
        ep=ep, experts=experts, top_k=top_k, tokens=tuple(tokens), repeats=repeats
    )
    worst = receive_bound(layer).rows
    for routing in (Routing("balanced"), Routing("uniform", (("seed", 1.0),))):
        assert received_rows(layer, routing_counts(layer, routing)).max() <= worst
    if repeats or top_k <= layer.local_experts:
        counts = routing_counts(layer, Routing("one_rank", (("r", 0.0),)))
        assert received_rows(layer, counts)[0] == sum(tokens) * top_k <= worst


def test_bytes_by_term() -> None:
    """2 ranks, 4 experts, top-2, 16 tokens, 32 x 16 columns, bf16, worst case."""
    layer = small_layer()
    terms = {t.term: t.bytes for t in layer_bytes(layer, receive_bound(layer))}
    assert terms == {
        "x": 16 * 32 * 2,
        "router": 16 * 2 * 4,
        "w_up": 2 * 32 * 32 * 2,
        "w_down": 2 * 16 * 32 * 2,
        "recv": 64 * 32 * 2,
        "h": 64 * 32 * 2,
        "a": 64 * 16 * 2,
        "y": 64 * 32 * 2,
        "back": 32 * 32 * 2,
        "out": 16 * 32 * 2,
    }


def test_formulas_show_the_numbers() -> None:
    layer = small_layer(dtype="fp32")
    terms = {t.term: t.formula for t in layer_bytes(layer, receive_bound(layer))}
    assert terms["recv"] == "64 received rows x 32 columns x 4 bytes = 8,192 bytes"
    assert terms["back"] == ("16 tokens x top_k 2 x 32 columns x 4 bytes = 4,096 bytes")
    assert terms["w_down"] == (
        "2 experts x 16 rows x 32 columns x 4 bytes = 4,096 bytes"
    )


@pytest.mark.parametrize("activation", ["swiglu", "relu"])
def test_the_shapes_are_those_of_the_standard_schedule(activation: str) -> None:
    layer = small_layer(activation=Activation(activation))
    shapes = {(s.name, s.space, s.cols, s.rows) for s in standard_shapes(layer)}
    buffers = standard_buffers(layer)
    assert shapes == {(b.name, b.space, b.cols, b.rows) for b in buffers}


@given(st.integers(1, 5), st.integers(0, 9), st.integers(0, 99))
def test_pair_rows_are_the_most_over_all_sources(ep: int, more: int, seed: int) -> None:
    """Also where experts do not divide: what a rank does not hold counts as no rows."""
    layer = small_layer(ep=ep, experts=ep + more, top_k=1, tokens=(20,) * ep)
    counts = np.random.default_rng(seed).integers(0, 9, (ep, ep + more))
    want = np.zeros((layer.local_experts, ep), dtype=np.int64)
    for source, row in enumerate(counts):
        for expert, rows in enumerate(row):
            rank, local = owner_of(expert, ep + more, ep)
            k = (rank - source) % ep
            want[local, k] = max(want[local, k], rows)
    assert pair_rows(layer, counts).tolist() == want.tolist()
