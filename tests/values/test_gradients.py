"""Gradients of whole layers: right values, and the same bits whatever the schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.interp.data import make_data
from hpc.interp.values import Result, execute
from hpc.interp.verify import same_bits, verify_policies, verify_values
from hpc.schedule.layer import ACTIVATIONS, Activation, Layer
from hpc.schedule.model import Base, Schedule
from tests.builders import backward_schedule, small_layer, train_schedule
from tests.values.cases import (
    NARROW,
    bits,
    data_for,
    judge,
    one_expert,
    random_ids,
    run,
    with_teams,
)

Make = Callable[..., Schedule]
GRADIENTS = ("dx", "dw_up", "dw_down", "dweights")

both_modes = pytest.mark.parametrize("make", [backward_schedule, train_schedule])
both_places = pytest.mark.parametrize("weights_at", ["input", "output"])


def gradient_bits(result: Result) -> bytes:
    return b"".join(a.tobytes() for name in GRADIENTS for a in result.outputs[name])


@both_places
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_and_dtype(
    activation: str, dtype: str, weights_at: str
) -> None:
    """Both modes are right, and what training saves on the way is what a backward
    program finds: the gradients have the same bits."""
    layer = small_layer(
        activation=Activation(activation, limit=1.5),
        dtype=dtype,
        weights_at=weights_at,
        tokens=(40, 23),
    )
    ids = random_ids(layer, 1, unsent=0.1)
    schedules = [
        make(layer, ((0,), (1,)), 2, m=16, base=NARROW)
        for make in (backward_schedule, train_schedule)
    ]
    for schedule in schedules:
        verdict = judge(schedule, ids)
        assert verdict.ok
        assert verdict.max_rel_err > 0
        assert set(verdict.outputs) >= set(GRADIENTS)
    one, two = (gradient_bits(run(schedule, ids)) for schedule in schedules)
    assert one == two


@pytest.mark.parametrize("activation", ["relu", "swiglu_oai"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_slopes_that_jump(activation: str, dtype: str) -> None:
    """Rounding moves some operands over the jump; the bound knows which, and is no
    wider for it than what a wrong row would show."""
    layer = small_layer(
        activation=Activation(activation, limit=0.5), dtype=dtype, tokens=(60, 60)
    )
    schedule = backward_schedule(layer)
    for seed in range(6):
        verdict = judge(schedule, random_ids(layer, seed))
        assert verdict.ok, verdict
        assert verdict.bound < 0.06


@both_modes
@both_places
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 127, 128, 129, 300])
def test_any_number_of_rows_on_one_expert(
    rows: int, weights_at: str, make: Make
) -> None:
    """Sums over partial blocks of rows; the other experts have none, or almost."""
    layer, ids = one_expert(rows, expert=3, weights_at=weights_at)
    assert judge(make(layer, m=64, base=Base(64, 16, 64)), ids).ok


@both_modes
def test_experts_without_rows_have_gradients_of_zero(make: Make) -> None:
    layer, ids = one_expert(70, expert=2)
    found = run(make(layer, ((0,), (1,)), base=NARROW), ids).outputs
    for name in ("dw_up", "dw_down"):
        first, second = (np.split(a.astype(float), 2) for a in found[name])
        assert first[0].any()  # rank 1 sends three rows to expert 0
        assert not first[1].any()
        assert second[0].any()
        assert not second[1].any()


@both_places
def test_ranks_without_tokens_and_uneven_experts(weights_at: str) -> None:
    """Seven experts on three ranks: the last two ranks have no third one, and write
    zeros in its place."""
    layer = small_layer(
        tokens=(0, 30, 9), ep=3, experts=7, top_k=3, weights_at=weights_at
    )
    ids = random_ids(layer, 2)
    for make in (backward_schedule, train_schedule):
        schedule = make(layer, ((0, 2), (1,)), 3)
        assert judge(schedule, ids).ok
        found = run(schedule, ids).outputs
        assert found["dx"][0].shape == (0, layer.hidden)
        assert found["dw_up"][1].shape == (3 * layer.hidden, layer.up_width)
        assert not found["dw_up"][1].astype(float)[2 * layer.hidden :].any()


@both_modes
def test_no_tokens_at_all(make: Make) -> None:
    layer = small_layer(tokens=(0, 0))
    assert judge(make(layer), random_ids(layer, 0)).ok


@both_modes
@both_places
def test_slots_that_send_nothing_have_no_gradient(weights_at: str, make: Make) -> None:
    layer = small_layer(top_k=4, weights_at=weights_at)
    ids = random_ids(layer, 4, unsent=0.4)
    schedule = make(layer, ((0,), (1,)))
    assert judge(schedule, ids).ok
    for table, weights in zip(ids, run(schedule, ids).outputs["dweights"], strict=True):
        sent = np.asarray(table).reshape(-1) >= 0
        assert weights[sent].all()
        assert not weights[~sent].any()
        assert weights.dtype == np.float32


@both_modes
@both_places
def test_the_same_expert_twice(weights_at: str, make: Make) -> None:
    layer = small_layer(repeats=True, top_k=3, weights_at=weights_at)
    ids = [np.array([[e, e, 3 - e] for e in [0, 1, 2, 3] * 4]) for _ in range(2)]
    assert judge(make(layer, ((0,), (1,)), 2), ids).ok


@both_modes
@both_places
def test_router_weights_of_zero(weights_at: str, make: Make) -> None:
    """With weight zero a slot adds nothing to dx and the matrices where it scales the
    gradient; the gradient of the weight itself is not zero (gelu has a slope at zero,
    which is where a row scaled by zero ends)."""
    layer = small_layer(weights_at=weights_at, activation=Activation("gelu"))
    ids = random_ids(layer, 0)
    schedule = make(layer)
    data = make_data(layer, schedule.buffers)
    for rank in range(layer.ep):
        data.router(rank)[:, 0] = 0
    if make is backward_schedule:
        filled = train_like(layer, ids, zero=True)
        for name in ("recv", "h", "a", "back"):
            if name in data.buffers:
                for rank, values in enumerate(filled[name]):
                    data.save(name, rank, values)
    found = execute(schedule, ids, seed=0, data=data).outputs
    for weights in found["dweights"]:
        assert weights.reshape(-1, layer.top_k)[:, 0].all()
    assert all(
        np.isfinite(a.astype(float)).all() for each in found.values() for a in each
    )


def train_like(layer: Layer, ids: list[np.ndarray], zero: bool) -> dict[str, list]:
    """What a train program leaves in the buffers that a backward one finds saved."""
    schedule = train_schedule(layer)
    names = ("recv", "h", "a", "back")
    buffers = tuple(
        replace(b, role="output") if b.name in names else b for b in schedule.buffers
    )
    schedule = replace(schedule, buffers=buffers)
    data = make_data(layer, buffers)
    for rank in range(layer.ep):
        if zero:
            data.router(rank)[:, 0] = 0
    found = execute(schedule, ids, seed=0, data=data).outputs
    return {name: found[name] for name in names}


@both_places
def test_saved_values_are_what_training_leaves(weights_at: str) -> None:
    """Bit for bit, for every saved buffer, by slot."""
    layer = small_layer(tokens=(40, 9), weights_at=weights_at)
    ids = random_ids(layer, 3, unsent=0.2)
    schedule = backward_schedule(layer, ((0,), (1,)))
    data = data_for(schedule, ids)
    saved = [b.name for b in schedule.buffers if b.role == "saved"]
    wanted = train_like(layer, ids, zero=False)
    assert len(saved) == (4 if weights_at == "output" else 3)
    for name in saved:
        for rank, values in enumerate(wanted[name]):
            sent = np.asarray(ids[rank]).reshape(-1) >= 0
            assert data.input(name, rank)[sent].tobytes() == values[sent].tobytes()


@st.composite
def partitions(draw: st.DrawFn, ep: int) -> tuple[tuple[int, ...], ...]:
    """Groups of relative sources, 0 in the first."""
    rest = draw(st.permutations(range(1, ep)))
    cuts = draw(st.lists(st.integers(0, ep - 1), max_size=ep, unique=True))
    order = [0, *rest]
    bounds = [0, *sorted(c for c in cuts if c), ep]
    return tuple(tuple(order[a:b]) for a, b in pairwise(bounds))


LAYERS = st.builds(
    lambda ep, local, tokens, k, act, weights_at, dtype: small_layer(
        ep=ep,
        experts=ep * local + ep // 2,
        tokens=tuple(tokens[:ep]),
        top_k=min(k, ep * local),
        activation=Activation(act, limit=1.0),
        weights_at=weights_at,
        dtype=dtype,
        hidden=40,
        intermediate=24,
    ),
    st.integers(1, 4),
    st.integers(1, 3),
    st.lists(st.integers(0, 40), min_size=4, max_size=4),
    st.integers(1, 4),
    st.sampled_from(ACTIVATIONS),
    st.sampled_from(["input", "output"]),
    st.sampled_from(["bf16", "fp16", "fp32"]),
)


@settings(max_examples=60)
@given(layer=LAYERS, seed=st.integers(0, 99), data=st.data())
def test_every_legal_schedule_gives_the_same_right_bits(
    layer: Layer, seed: int, data: st.DataObject
) -> None:
    """Groups, chunks, tiles, teams' shares, order and mode have no say in gradients:
    sums over rows run in one order however the rows are grouped in memory."""
    ids = random_ids(layer, seed, unsent=0.1)
    groups = data.draw(partitions(layer.ep))
    chunks = data.draw(st.integers(1, 4))
    m = data.draw(st.sampled_from([1, 5, 16, 128]))
    base = data.draw(st.builds(Base, *[st.sampled_from([3, 16, 64])] * 3))
    plain = train_schedule(layer)
    other = backward_schedule(layer, groups, chunks, m=m, base=base)
    other = with_teams(other, data.draw(st.sampled_from([1, 5, 24])))
    assert judge(plain, ids).ok
    assert gradient_bits(run(other, ids, seed)) == gradient_bits(run(plain, ids))


@both_modes
def test_many_interleavings_give_the_same_bits(make: Make) -> None:
    layer = small_layer(tokens=(33, 20, 9, 1), ep=4, experts=8)
    ids = random_ids(layer, 9)
    schedule = make(layer, ((0, 1), (2,), (3,)), 3, m=4, base=NARROW)
    assert len({bits(run(schedule, ids, seed)) for seed in range(12)}) == 1


@both_modes
@both_places
def test_wide_layers_shrink_and_agree(weights_at: str, make: Make) -> None:
    """One digest for all groupings; the report knows the error of every gradient."""
    layer = small_layer(
        hidden=1024, intermediate=512, tokens=(70, 30), weights_at=weights_at
    )
    reports = verify_policies(
        {
            "one": make(layer),
            "fine": make(layer, ((0,), (1,)), 3, base=Base(64, 96, 64)),
        }
    )
    assert same_bits(reports)
    for report in reports.values():
        assert report.ok
        assert report.what == "shrunk"
        found = {name: (error, bound) for name, error, bound in report.outputs}
        assert set(found) == set(GRADIENTS) | (
            {"out"} if make is train_schedule else set()
        )
        assert all(0 < error < bound for error, bound in found.values())
        assert report.worst is not None
        assert found[report.worst[0]][0] == report.max_rel_err


def test_a_gradient_that_is_not_a_number_names_the_output() -> None:
    schedule = backward_schedule(small_layer())
    code = schedule.queues[0].code
    broken = replace(schedule.queues[0], code=code[:-1])
    report = verify_values(
        replace(schedule, queues=(broken, *schedule.queues[1:])), mode="full"
    )
    assert report.max_rel_err is None
    assert report.worst is not None
    assert report.worst[0] == "dw_up"
    assert "dw_up on rank 0: 32 rows not written exactly once" in report.faults[0]
