"""Right values, and the same bits, for every kind of layer, routing and schedule."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.interp.data import make_data
from hpc.interp.routing import routing_ids
from hpc.interp.values import ExecutionError, execute
from hpc.schedule.layer import ACTIVATIONS, Activation, Layer, Routing
from hpc.schedule.model import Base
from tests.builders import small_layer, standard_schedule
from tests.values.cases import (
    NARROW,
    add_then_swiglu,
    bits,
    judge,
    one_expert,
    random_ids,
    run,
)


@pytest.mark.parametrize("weights_at", ["input", "output"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_and_dtype(
    activation: str, dtype: str, weights_at: str
) -> None:
    layer = small_layer(
        activation=Activation(activation), dtype=dtype, weights_at=weights_at
    )
    schedule = standard_schedule(layer, chunks=2, m=16, base=NARROW)
    verdict = judge(schedule, random_ids(layer, 1))
    assert verdict.ok
    assert verdict.max_rel_err > 0


@pytest.mark.parametrize("rows", [*range(1, 66), 127, 128, 129, 385])
def test_any_number_of_rows_on_one_expert(rows: int) -> None:
    """Partial row tiles are computed up to their last row, and nothing beyond."""
    layer, ids = one_expert(rows, expert=3)
    verdict = judge(standard_schedule(layer, m=64, base=Base(64, 16, 64)), ids)
    assert verdict.ok


def test_a_later_expert_with_one_row_is_not_lost() -> None:
    """All rows on expert 0 but the last token's, which goes to expert 3 (EP2, k=1)."""
    layer, ids = one_expert(200, expert=0, experts=8)
    ids[0][-1] = 3
    schedule = standard_schedule(layer, base=NARROW)
    assert judge(schedule, ids).ok
    assert np.asarray(run(schedule, ids).outputs["out"][0][-1], np.float32).all()


def test_unequal_counts_from_three_ranks() -> None:
    """Row offsets of the second and third source are prefix sums, not equal shares."""
    layer = small_layer(tokens=(5, 40, 17), ep=3, experts=6, top_k=1)
    ids = [np.full((t, 1), 4) for t in layer.tokens]
    for groups in (None, ((0,), (1,), (2,)), ((0, 2), (1,)), ((0,), (2, 1))):
        assert judge(standard_schedule(layer, groups, 2), ids).ok


def test_a_rank_without_tokens_takes_part() -> None:
    layer = small_layer(tokens=(0, 9, 16), ep=3, experts=6)
    schedule = standard_schedule(layer, chunks=3)
    ids = random_ids(layer, 2)
    assert judge(schedule, ids).ok
    assert run(schedule, ids).outputs["out"][0].shape == (0, layer.hidden)


def test_no_tokens_at_all() -> None:
    layer = small_layer(tokens=(0, 0))
    assert judge(standard_schedule(layer), random_ids(layer, 0)).ok


def test_only_rank_0_has_tokens_the_others_send_nothing() -> None:
    """EP8; the others' slots are all -1, so their sums are exactly zero."""
    layer = small_layer(tokens=(8,) * 8, ep=8, experts=16)
    ids = random_ids(layer, 3)
    for table in ids[1:]:
        table[:] = -1
    schedule = standard_schedule(layer, tuple((k,) for k in range(8)))
    assert judge(schedule, ids).ok
    outputs = run(schedule, ids).outputs["out"]
    assert np.asarray(outputs[0], np.float32).any()
    assert not any(np.asarray(out, np.float32).any() for out in outputs[1:])


@pytest.mark.parametrize("weights_at", ["input", "output"])
def test_slots_that_send_nothing_contribute_nothing(weights_at: str) -> None:
    layer = small_layer(top_k=4, weights_at=weights_at)
    assert judge(standard_schedule(layer), random_ids(layer, 4, unsent=0.4)).ok


def test_the_same_expert_twice_adds_both_weights() -> None:
    layer = small_layer(repeats=True, top_k=3)
    ids = [np.array([[e, e, 3 - e] for e in [0, 1, 2, 3] * 4]) for _ in range(2)]
    assert judge(standard_schedule(layer, ((0,), (1,)), 2), ids).ok


def test_every_expert_at_once() -> None:
    layer = small_layer(top_k=16, experts=16)
    assert judge(standard_schedule(layer), random_ids(layer, 5)).ok


@pytest.mark.parametrize(
    ("experts", "ep"), [(30, 8), (60, 8), (80, 8), (129, 8), (5, 3), (8, 8), (64, 2)]
)
def test_experts_need_not_divide(experts: int, ep: int) -> None:
    layer = small_layer(tokens=(12,) * ep, ep=ep, experts=experts, top_k=4)
    assert judge(standard_schedule(layer), random_ids(layer, 6)).ok


@pytest.mark.parametrize(
    ("hidden", "intermediate"), [(1, 1), (17, 5), (100, 33), (288, 40)]
)
def test_columns_need_not_divide(hidden: int, intermediate: int) -> None:
    layer = small_layer(hidden=hidden, intermediate=intermediate)
    assert judge(standard_schedule(layer, base=NARROW), random_ids(layer, 7)).ok


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_a_long_inner_dimension(dtype: str) -> None:
    layer = small_layer(
        hidden=14336, intermediate=40, dtype=dtype, tokens=(6, 2), experts=2
    )
    schedule = standard_schedule(layer, base=Base(16, 4096, 64))
    assert judge(schedule, random_ids(layer, 8)).ok


@pytest.mark.parametrize("kind", ["zipf", "hot", "one_rank", "uniform", "balanced"])
def test_generated_routings(kind: str) -> None:
    params = {
        "zipf": (("s", 1.2), ("seed", 7)),
        "hot": (("n", 2), ("share", 0.7), ("seed", 1)),
        "one_rank": (("r", 1),),
        "uniform": (("seed", 3),),
        "balanced": (),
    }[kind]
    layer = small_layer(tokens=(50, 31), experts=8)
    routing = Routing(kind, params)
    schedule = standard_schedule(layer, ((0,), (1,)), 2, routing=routing)
    assert judge(schedule, routing_ids(layer, routing)).ok


def test_a_flow_without_communication() -> None:
    layer = small_layer(tokens=(37, 5))
    ids = random_ids(layer, 0)
    whole = run(add_then_swiglu(layer, m=64, row_chunks=1), ids)
    for row_chunks in (1, 2, 5):
        schedule = add_then_swiglu(layer, row_chunks=row_chunks)
        assert judge(schedule, ids, seed=row_chunks).ok
        assert bits(run(schedule, ids)) == bits(whole)


@st.composite
def partitions(draw: st.DrawFn, ep: int) -> tuple[tuple[int, ...], ...]:
    """Groups of relative sources, 0 in the first."""
    rest = draw(st.permutations(range(1, ep)))
    cuts = draw(st.lists(st.integers(0, ep - 1), max_size=ep, unique=True))
    order = [0, *rest]
    bounds = [0, *sorted(c for c in cuts if c), ep]
    groups = pairwise(bounds)
    return tuple(tuple(order[a:b]) for a, b in groups)


LAYERS = st.builds(
    lambda ep, local, tokens, k, act, weights_at: small_layer(
        ep=ep,
        experts=ep * local + ep // 2,
        tokens=tuple(tokens[:ep]),
        top_k=min(k, ep * local),
        activation=Activation(act),
        weights_at=weights_at,
        hidden=40,
        intermediate=24,
    ),
    st.integers(1, 4),
    st.integers(1, 3),
    st.lists(st.integers(0, 40), min_size=4, max_size=4),
    st.integers(1, 4),
    st.sampled_from(ACTIVATIONS),
    st.sampled_from(["input", "output"]),
)


@settings(max_examples=150)
@given(layer=LAYERS, seed=st.integers(0, 99), data=st.data())
def test_every_legal_schedule_gives_the_same_right_bits(
    layer: Layer, seed: int, data: st.DataObject
) -> None:
    """Groups, chunks, tiles, teams' shares and order have no say in the values."""
    ids = random_ids(layer, seed, unsent=0.1)
    plain = standard_schedule(layer)
    groups = data.draw(partitions(layer.ep))
    chunks = data.draw(st.integers(1, 4))
    m = data.draw(st.sampled_from([1, 5, 16, 128]))
    base = data.draw(st.builds(Base, *[st.sampled_from([3, 16, 64])] * 3))
    other = standard_schedule(layer, groups, chunks, m=m, base=base)
    assert judge(plain, ids).ok
    assert bits(run(other, ids, seed)) == bits(run(plain, ids))


def test_many_interleavings_give_the_same_bits() -> None:
    layer = small_layer(tokens=(33, 20, 9, 1), ep=4, experts=8)
    ids = random_ids(layer, 9)
    schedule = standard_schedule(layer, ((0, 1), (2,), (3,)), 3, m=4, base=NARROW)
    assert len({bits(run(schedule, ids, seed)) for seed in range(20)}) == 1


def test_seeds_of_data_differ() -> None:
    layer = small_layer()
    schedule = standard_schedule(layer)
    ids = random_ids(layer, 0)
    one, two = (make_data(layer, schedule.buffers, seed) for seed in (0, 1))
    assert bits(execute(schedule, ids, seed=0, data=one)) != bits(
        execute(schedule, ids, seed=0, data=two)
    )


def test_more_rows_than_the_buffer_holds_are_refused() -> None:
    layer, ids = one_expert(20, expert=0)
    schedule = standard_schedule(layer)
    buffers = tuple(
        replace(b, capacity_rows=22, formula="10 + 12") if b.name == "recv" else b
        for b in schedule.buffers
    )
    with pytest.raises(ExecutionError, match=r"rank 0 receives 23 > 22 .*10 \+ 12"):
        run(replace(schedule, buffers=buffers), ids)


def test_ids_must_fit_the_layer() -> None:
    layer = small_layer()
    schedule = standard_schedule(layer)
    ids = random_ids(layer, 0)
    with pytest.raises(ValueError, match="shapes"):
        run(schedule, ids[:1])
    ids[1][3, 1] = 4
    with pytest.raises(ValueError, match="rank 1 token 3 slot 1: expert id 4"):
        run(schedule, ids)
