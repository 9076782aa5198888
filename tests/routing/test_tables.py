"""Routing tables: counts, ids with -1, unequal ranks, files, load figures."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.interp.routing import (
    RoutingError,
    load_report,
    routing_counts,
    routing_ids,
)
from hpc.interp.routing_file import fit_layer, read_routing
from hpc.schedule.layer import Routing
from tests.builders import small_layer

PROPERTY = settings(max_examples=80, deadline=None, derandomize=True)


def counts_table(*rows: tuple[int, ...]) -> Routing:
    return Routing("counts", counts=rows)


@PROPERTY
@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_any_feasible_row_of_counts_becomes_ids(
    tokens: int, experts: int, data: st.DataObject
) -> None:
    """Feasible: the sum is tokens * top_k and no count exceeds tokens."""
    top_k = data.draw(st.integers(1, experts))
    counts = [0] * experts
    for token in range(tokens):
        chosen = data.draw(st.permutations(range(experts)), label=str(token))[:top_k]
        for expert in chosen:
            counts[expert] += 1
    layer = small_layer(ep=1, experts=experts, top_k=top_k, tokens=(tokens,))
    routing = counts_table(tuple(counts))
    (ids,) = routing_ids(layer, routing)
    assert np.bincount(ids.ravel(), minlength=experts).tolist() == counts
    assert all(len(set(token)) == top_k for token in ids.tolist())
    assert routing_counts(layer, routing).tolist() == [counts]


def test_three_ranks_with_unequal_tokens_and_one_with_none() -> None:
    layer = small_layer(ep=3, experts=3, top_k=2, tokens=(5, 0, 2))
    routing = counts_table((5, 4, 1), (0, 0, 0), (2, 0, 2))
    assert [ids.shape for ids in routing_ids(layer, routing)] == [
        (5, 2),
        (0, 2),
        (2, 2),
    ]
    assert routing_counts(layer, routing).sum() == 14


def test_only_rank_0_has_tokens() -> None:
    layer = small_layer(ep=8, experts=8, top_k=2, tokens=(16,) + (0,) * 7)
    counts = routing_counts(layer, Routing("balanced"))
    assert counts[0].tolist() == [4] * 8
    assert not counts[1:].any()


def test_all_rows_on_one_expert() -> None:
    """65, 127 and 385 rows of one expert, the sizes of public tiling bugs."""
    for rows in (1, 63, 64, 65, 127, 385):
        layer = small_layer(ep=1, experts=4, top_k=1, tokens=(rows,))
        (ids,) = routing_ids(layer, counts_table((0, rows, 0, 0)))
        assert ids.tolist() == [[1]] * rows


def test_minus_one_sends_nothing() -> None:
    layer = small_layer(ep=2, experts=4, top_k=2, tokens=(3, 1))
    routing = Routing("ids", ids=(((0, 1), (-1, 3), (-1, -1)), ((2, -1),)))
    assert routing_counts(layer, routing).tolist() == [[1, 1, 0, 1], [0, 0, 1, 0]]
    ids = routing_ids(layer, routing)
    assert [rank.tolist() for rank in ids] == [
        [[0, 1], [-1, 3], [-1, -1]],
        [[2, -1]],
    ]


def test_an_expert_twice_by_one_token_needs_repeats() -> None:
    routing = Routing("ids", ids=(((3, 3),), ((0, 1),)))
    with pytest.raises(RoutingError, match="expert 3 twice, in slots 0 and 1"):
        routing_counts(small_layer(tokens=(1, 1)), routing)
    layer = small_layer(tokens=(1, 1), repeats=True)
    assert routing_counts(layer, routing)[0].tolist() == [0, 0, 0, 2]


@pytest.mark.parametrize("expert", [4, -2, 2_000_000_000])
def test_an_expert_id_outside_is_named_with_rank_token_slot(expert: int) -> None:
    layer = small_layer(tokens=(1, 2))
    routing = Routing("ids", ids=(((0, 1),), ((0, 1), (2, expert))))
    with pytest.raises(RoutingError) as caught:
        routing_ids(layer, routing)
    assert caught.value.problems == (
        f"topk_ids: rank 1, token 1, slot 1: expert id {expert} is outside "
        "0 to 3 (-1 means not sent)",
    )


def test_a_sum_that_is_wrong_names_rank_and_both_numbers() -> None:
    layer = small_layer(tokens=(4, 4))
    with pytest.raises(RoutingError) as caught:
        routing_counts(layer, counts_table((2, 2, 2, 2), (2, 2, 2, 3)))
    assert caught.value.problems == (
        "counts of rank 1 sum to 9, but tokens * top_k = 4 * 2 = 8",
    )


def test_more_rows_of_an_expert_than_tokens_needs_repeats() -> None:
    routing = counts_table((5, 1, 1, 1), (2, 2, 2, 2))
    with pytest.raises(
        RoutingError, match=r"counts\[0\]\[0\] = 5 exceeds the 4 tokens"
    ):
        routing_ids(small_layer(tokens=(4, 4)), routing)
    layer = small_layer(tokens=(4, 4), repeats=True)
    ids = routing_ids(layer, routing)[0]
    assert np.bincount(ids.ravel()).tolist() == [5, 1, 1, 1]


def test_a_cumulative_list_is_no_list_of_counts() -> None:
    """[10, 25, 30] as counts does not add up to 30 rows, and both numbers are said."""
    layer = small_layer(ep=1, experts=3, top_k=1, tokens=(30,))
    with pytest.raises(RoutingError, match=r"sum to 65, but .* = 30"):
        routing_counts(layer, counts_table((10, 25, 30)))
    assert routing_counts(layer, counts_table((10, 15, 5))).tolist() == [[10, 15, 5]]


def test_a_file_round_trip() -> None:
    data = {"ranks": 2, "experts": 4, "top_k": 2, "counts": [[2] * 4, [4, 0, 1, 3]]}
    file = read_routing(json.dumps(data).encode(), "r.json")
    layer, problems = fit_layer(file, small_layer(tokens=(4, 4)))
    assert not problems
    assert routing_counts(layer, file.routing).tolist() == data["counts"]
    assert file.routing.origin == "r.json"


def test_a_file_with_fewer_tokens_lowers_those_of_the_layer() -> None:
    data = {"tokens_per_rank": [4, 1], "counts": [[2] * 4, [1, 0, 1, 0]]}
    file = read_routing(json.dumps(data).encode(), "r.json")
    layer, problems = fit_layer(file, small_layer(tokens=(4, 4)))
    assert (layer.tokens, problems) == ((4, 1), ())


def test_all_faults_of_a_file_are_listed() -> None:
    data = {"cuonts": 1, "top_k": -1, "counts": [[-1, 2.5], 3]}
    with pytest.raises(RoutingError) as caught:
        read_routing(json.dumps(data).encode(), "r.json")
    assert len(caught.value.problems) == 5


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.binary(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    ["counts", "topk_ids", "ranks", "top_k", "tokens_per_rank", "x"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_json_is_a_table_or_a_routing_error(data: bytes) -> None:
    try:
        file = read_routing(data, "r.json")
    except RoutingError as error:
        problems = error.problems
    else:
        _, problems = fit_layer(file, small_layer())
    assert all(problems)


def test_load_figures_have_both_names_and_formulas() -> None:
    layer = small_layer(tokens=(4, 4))
    counts = routing_counts(layer, counts_table((4, 4, 0, 0), (3, 1, 4, 0)))
    report = load_report(layer, counts)
    assert report.rank_rows == (12, 4)
    assert report.expert_rows == (7, 5, 4, 0)
    assert report.max_over_mean == pytest.approx(1.5)
    assert report.mean_over_max == pytest.approx(1 / 1.5)
    assert report.expert_max_over_mean == pytest.approx(7 / 4)
    assert report.idle_ranks == ()
    assert report.lines() == [
        "rows received per rank: 12, 4",
        "max/mean = 12 / 8 = 1.500",
        "mean/max = 8 / 12 = 0.667",
        "max/mean over experts = 1.750",
    ]


def test_load_of_nothing_is_even() -> None:
    layer = small_layer(tokens=(1, 1))
    report = load_report(layer, np.zeros((2, 4), dtype=np.int64))
    assert (report.max_over_mean, report.mean_over_max) == (1.0, 1.0)
    assert report.idle_ranks == (0, 1)
    assert report.lines()[2] == "mean/max = 1.000 (no rows)"
