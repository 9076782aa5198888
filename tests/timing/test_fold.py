"""One rank for all: the folded run is the full one, to the last bit."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.driver import compile_text
from hpc.interp.engine import simulate
from hpc.interp.fold import foldable
from hpc.interp.routing import routing_counts
from hpc.interp.timing import Timing
from hpc.machine.record import load_machine
from hpc.schedule.model import Base, Schedule
from tests.builders import small_layer, standard_schedule
from tests.timing.policies import balanced, deepseek, paper_schedule, serial_schedule

A3 = load_machine("ascend_a3")


def differences(one: Timing, two: Timing) -> list[str]:
    """Figures in which two results differ by a bit or more."""
    skipped = ("ranks_simulated", "spans", "trace")
    names = [f.name for f in fields(Timing) if f.name not in skipped]
    found = [n for n in names if not equal(getattr(one, n), getattr(two, n))]
    ranks = two.ranks_simulated
    spans = {
        name: tuple(np.resize(ends, ranks) for ends in span)
        for name, span in one.spans.items()
    }
    return found if equal(spans, two.spans) else [*found, "spans"]


def equal(one: object, two: object) -> bool:
    if isinstance(one, dict) and isinstance(two, dict):
        same = one.keys() == two.keys()
        return same and all(equal(one[key], two[key]) for key in one)
    return bool(np.array_equal(one, two))


@st.composite
def symmetric_cases(draw: st.DrawFn) -> tuple[Schedule, np.ndarray]:
    """A schedule, and counts that are any table of (shift, local expert), turned."""
    ep = draw(st.integers(2, 6))
    local = draw(st.integers(1, 3))
    layer = small_layer(
        tokens=(draw(st.integers(0, 200)),) * ep,
        ep=ep,
        experts=ep * local,
        hidden=draw(st.sampled_from([1, 64, 513])),
        intermediate=draw(st.sampled_from([1, 32, 300])),
    )
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    first = rng.integers(0, 90, (ep, local)) * (rng.random((ep, local)) < 0.8)
    counts = np.array([np.roll(first, r, axis=0).ravel() for r in range(ep)])
    kind = draw(st.sampled_from(["standard", "paper", "serial"]))
    if kind == "serial":
        return serial_schedule(layer), counts
    if kind == "paper":
        return paper_schedule(layer, draw(st.integers(1, 3))), counts
    ks = draw(st.permutations(range(1, ep)))
    cut = draw(st.integers(0, len(ks) - 1))
    groups = ((0, *ks[:cut]), tuple(ks[cut:]))
    base, m = Base(16, 16, 16), draw(st.sampled_from([16, 128]))
    chunks = draw(st.integers(1, 3))
    return standard_schedule(layer, groups, chunks, m=m, base=base), counts


@pytest.mark.parametrize("hbm", ["shared", "fifo"])
@settings(max_examples=80, deadline=None, derandomize=True)
@given(case=symmetric_cases())
def test_folded_and_full_run_agree_to_the_last_bit(
    hbm: str, case: tuple[Schedule, np.ndarray]
) -> None:
    schedule, counts = case
    folded = simulate(schedule, counts, A3, hbm=hbm)
    full = simulate(schedule, counts, A3, hbm=hbm, fold=False)
    assert (folded.ranks_simulated, full.ranks_simulated) == (1, schedule.layer.ep)
    assert differences(folded, full) == []


LARGE = {
    "rows of 16 fp32": (
        """
        layer a { tokens = 4096  hidden = 16  intermediate = 2048  experts = 16
                  top_k = 7  activation = swiglu  dtype = fp32 }
        parallel { ep = 8 }
        machine = ascend_a3
        mode = backward
        """,
        "serial",
    ),
    "16 ranks on another machine": (
        """
        layer b { tokens = 4096  hidden = 2048  intermediate = 96  experts = 64
                  top_k = 8  activation = relu  dtype = fp16 }
        parallel { ep = 16 }
        machine = ascend_910b4
        mode = train
        """,
        "paper",
    ),
}


@pytest.mark.parametrize(("text", "policy"), LARGE.values(), ids=LARGE)
def test_large_compiled_layers_agree_to_the_last_bit(text: str, policy: str) -> None:
    """Sizes that are no powers of two: another order of a sum shows in its last bit."""
    schedule = compile_text(text.encode(), "large.moe", policy=policy).schedule
    counts = routing_counts(schedule.layer, schedule.routing)
    machine = load_machine(schedule.machine)
    folded = simulate(schedule, counts, machine)
    full = simulate(schedule, counts, machine, fold=False)
    assert (folded.ranks_simulated, full.ranks_simulated) == (1, schedule.layer.ep)
    assert differences(folded, full) == []


@pytest.mark.parametrize("policy", [paper_schedule, serial_schedule])
def test_the_published_layer_folds(policy) -> None:
    layer = deepseek(4)
    folded, full = (
        simulate(policy(layer), balanced(layer), A3, fold=fold)
        for fold in (True, False)
    )
    assert folded.ranks_simulated == 1
    assert differences(folded, full) == []


def test_what_is_not_the_same_on_all_ranks_is_not_folded() -> None:
    layer = small_layer(ep=4, experts=8, tokens=(64,) * 4)
    even = np.full((4, 8), 16)
    assert foldable(layer, even, A3)
    assert not foldable(replace(layer, tokens=(64, 64, 64, 63)), even, A3)
    assert not foldable(replace(layer, experts=9), np.full((4, 9), 16), A3)
    hot = even.copy()
    hot[:, 0] += 1
    assert not foldable(layer, hot, A3)
    last = even.copy()
    last[3] = np.roll(np.arange(8), 4)
    assert not foldable(layer, last, A3)
    alone = small_layer(ep=1, experts=2, tokens=(8,))
    assert not foldable(alone, np.full((1, 2), 8), A3)


def test_ranks_that_touch_without_delay_are_not_folded() -> None:
    layer = small_layer(ep=2, experts=2)
    counts = np.full((2, 2), 8)
    assert not foldable(layer, counts, replace(A3, hop_us=0.0))
    instant = replace(A3, event_visible_us=0.0)
    assert not foldable(layer, counts, instant)


def test_a_trace_shows_every_rank() -> None:
    layer = small_layer(ep=4, experts=8, tokens=(64,) * 4)
    timing = simulate(standard_schedule(layer), np.full((4, 8), 16), A3, record=True)
    assert timing.ranks_simulated == 4
    assert timing.trace is not None
    assert set(timing.trace.rank) == {0, 1, 2, 3}
