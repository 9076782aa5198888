"""No simulated time may be below the bound: for any layer, routing and schedule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.interp.bound import lower_bound
from hpc.interp.engine import simulate
from hpc.machine.cost import vector_compute_us
from hpc.machine.record import load_machine
from hpc.schedule.layer import ACTIVATIONS, Activation, Layer
from hpc.schedule.model import Base, Schedule
from tests.builders import (
    backward_schedule,
    small_layer,
    standard_schedule,
    train_schedule,
)
from tests.timing.policies import balanced, deepseek, paper_schedule, serial_schedule

A3 = load_machine("ascend_a3")


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schedule, np.ndarray]:
    """A random layer, its counts, and one of the hand-written kinds of schedule."""
    ep = draw(st.integers(1, 5))
    experts = draw(st.integers(ep, 3 * ep + 1))
    top_k = draw(st.integers(1, min(4, experts)))
    tokens = tuple(draw(st.integers(0, 300)) for _ in range(ep))
    layer = small_layer(
        tokens=tokens,
        ep=ep,
        experts=experts,
        top_k=top_k,
        hidden=draw(st.integers(1, 700)),
        intermediate=draw(st.integers(1, 700)),
        dtype=draw(st.sampled_from(["bf16", "fp32"])),
        activation=Activation(draw(st.sampled_from(ACTIVATIONS))),
        weights_at=draw(st.sampled_from(["output", "input"])),
    )
    counts = _counts(layer, draw(st.integers(0, 1 << 16)), draw(st.booleans()))
    kind = draw(st.sampled_from(["standard", "paper", "serial"]))
    if kind == "serial":
        return serial_schedule(layer), counts
    if kind == "paper":
        return paper_schedule(layer, draw(st.integers(1, 4))), counts
    ks = draw(st.permutations(range(1, ep)))
    cut = draw(st.integers(0, len(ks)))
    groups = ((0, *ks[:cut]), tuple(ks[cut:])) if ks[cut:] else ((0, *ks),)
    base = draw(st.sampled_from([Base(16, 16, 16), Base(128, 256, 64)]))
    chunks, m = draw(st.integers(1, 4)), draw(st.sampled_from([16, 128]))
    make = draw(st.sampled_from([standard_schedule, backward_schedule, train_schedule]))
    return make(layer, groups, chunks, m=m, base=base), counts


def _counts(layer: Layer, seed: int, skewed: bool) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shares = rng.random(layer.experts) ** (8 if skewed else 1)
    rows = [tokens * layer.top_k for tokens in layer.tokens]
    return np.array([rng.multinomial(n, shares / shares.sum()) for n in rows])


@pytest.mark.parametrize("hbm", ["shared", "fifo"])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(case=cases())
def test_bound_never_above_any_rank(
    hbm: str, case: tuple[Schedule, np.ndarray]
) -> None:
    schedule, counts = case
    bound = lower_bound(schedule, counts, A3)
    timing = simulate(schedule, counts, A3, hbm=hbm)
    slack = 1 + 1e-9
    assert bound.bound_us <= timing.latency_us * slack
    assert bound.layer_us <= timing.layer_us * slack
    assert (bound.rank_us <= timing.rank_latency_us * slack).all()
    assert (bound.rank_layer_us <= timing.rank_layer_us * slack).all()


def test_bound_is_the_same_for_all_schedules_of_a_layer() -> None:
    layer = deepseek(4)
    counts = balanced(layer)
    bounds = {
        lower_bound(schedule, counts, A3).bound_us
        for schedule in (
            paper_schedule(layer),
            serial_schedule(layer),
            standard_schedule(layer, ((0, 1), (2, 3)), 3, m=64),
        )
    }
    assert len(bounds) == 1


def test_matrix_work_binds_the_large_layer_and_is_its_arithmetic() -> None:
    layer = deepseek(8)
    bound = lower_bound(paper_schedule(layer), balanced(layer), A3)
    assert bound.bound_by == "aic"
    # 32,768 rows x 3 x 7168 x 2048 multiply-adds at 4,096 a cycle on 24 cores.
    work_us = 32768 * 3 * 7168 * 2048 / (4096 * 24 * 1800)
    # launch + fetch; put issue + visible; then set + visible by way of an AIV, put
    # issue and visible. Who comes to an open event does not poll.
    ends_us = (3.7 + 0.1) + (1.3 + 1.0) + (0.2 + 1.0) + 1.3 + 1.0
    assert bound.bound_us == pytest.approx(work_us + ends_us, rel=1e-12)


def test_weights_bind_a_few_tokens() -> None:
    layer = small_layer(
        tokens=(8,) * 4, hidden=7168, intermediate=2048, experts=32, top_k=8, ep=4
    )
    counts = np.full((4, 32), 2)
    bound = lower_bound(standard_schedule(layer), counts, A3)
    assert bound.bound_by == "hbm"
    # eight experts of three 7168 x 2048 matrices in bf16, and eight tokens.
    moved = 8 * 3 * 7168 * 2048 * 2 + 8 * 7168 * 2
    assert bound.bound_us == pytest.approx(moved / 1.49e6 + 3.8 + 1.0, rel=1e-12)


def test_hand_overs_bind_a_layer_without_work() -> None:
    """One row of one element, there and back: launch and fetch; put and its signal;
    GMM, activation, GMM, put by three hand-overs; two hops; the last put visible."""
    layer = small_layer(hidden=1, intermediate=1)
    counts = np.array([[0, 0, 1, 0], [0, 0, 0, 0]])
    bound = lower_bound(standard_schedule(layer), counts, A3)
    path_us = 3.8 + (1.3 + 1.0) + 3 * (0.2 + 1.0) + 2 * 0.22 + (1.3 + 1.0)
    assert bound.bound_by == "chain"
    assert bound.bound_us == pytest.approx(path_us)
    timing = simulate(standard_schedule(layer), counts, A3)
    assert bound.bound_us <= timing.latency_us < 2 * bound.bound_us


def test_vector_instructions_bind_an_expensive_activation() -> None:
    """Exact gelu of 4096 x 512 values by 30 instructions: far more than their bytes."""
    layer = small_layer(
        tokens=(4096,), ep=1, experts=1, top_k=1, hidden=16, intermediate=512,
        activation=Activation("gelu"),
    )  # fmt: skip
    counts = np.array([[4096]])
    bound = lower_bound(standard_schedule(layer), counts, A3)
    one_us = vector_compute_us(A3, "gelu", 512, 512, "bf16")
    assert bound.terms["aiv"][0] == pytest.approx(3.8 + 4096 * one_us / 48 + 1.0)
    assert bound.bound_by == "aiv"
    timing = simulate(standard_schedule(layer), counts, A3)
    assert timing.latency_us >= bound.bound_us


def test_imbalance_is_bound_by_the_loaded_rank() -> None:
    layer = deepseek(4)
    counts = np.zeros((4, 32), dtype=int)
    counts[:, 16:24] = 4096
    bound = lower_bound(paper_schedule(layer), counts, A3)
    assert bound.bound_rank == 2
    assert bound.rank_us.argmax() == 2


def test_experts_without_rows_cost_nothing() -> None:
    layer = small_layer()
    empty = lower_bound(standard_schedule(layer), np.zeros((2, 4), int), A3)
    assert empty.bound_us == pytest.approx(3.8)
