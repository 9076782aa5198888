"""Two engines that share no code agree where both apply."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from hpc.interp.bound import lower_bound
from hpc.interp.engine import simulate
from hpc.interp.sweep import sweep
from hpc.machine.record import load_machine
from hpc.schedule.model import Schedule, Wait
from tests.timing.policies import balanced, deepseek, paper_schedule, serial_schedule
from tests.timing.test_bound import cases
from tests.timing.test_engine import ONE, layer_of, program
from tests.timing.tiny import to

A3 = load_machine("ascend_a3")
ALONE = replace(A3, hbm_gbps=1e15, link_gbps=1e15, collective_gbps=1e15)
"""Memory and links that nobody has to share; what one core gets is as ever."""


@settings(max_examples=120, deadline=None, derandomize=True)
@given(case=cases())
def test_without_contention_both_engines_agree(
    case: tuple[Schedule, np.ndarray],
) -> None:
    schedule, counts = case
    events, levels = simulate(schedule, counts, ALONE), sweep(schedule, counts, ALONE)
    assert levels.rank_layer_us == pytest.approx(events.rank_layer_us, rel=1e-9)
    assert levels.rank_latency_us == pytest.approx(events.rank_latency_us, rel=1e-9)


@pytest.mark.parametrize("policy", [paper_schedule, serial_schedule])
def test_both_engines_agree_on_the_published_layer(policy) -> None:
    layer = deepseek(4)
    schedule, counts = policy(layer), balanced(layer)
    events, levels = simulate(schedule, counts, ALONE), sweep(schedule, counts, ALONE)
    assert levels.latency_us == pytest.approx(events.latency_us, rel=1e-9)
    assert levels.layer_us == pytest.approx(events.layer_us, rel=1e-9)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(case=cases())
def test_contention_only_ever_delays(case: tuple[Schedule, np.ndarray]) -> None:
    schedule, counts = case
    levels = sweep(schedule, counts, A3)
    events = simulate(schedule, counts, A3)
    slack = 1 + 1e-9
    assert (levels.rank_layer_us <= events.rank_layer_us * slack).all()
    assert (levels.rank_latency_us <= events.rank_latency_us * slack).all()


@settings(max_examples=80, deadline=None, derandomize=True)
@given(case=cases())
def test_the_bound_holds_for_the_sweep(case: tuple[Schedule, np.ndarray]) -> None:
    """Where memory and links bind nothing, cores and hand-overs still do."""
    schedule, counts = case
    bound, levels = lower_bound(schedule, counts, ALONE), sweep(schedule, counts, ALONE)
    assert (bound.rank_us <= levels.rank_latency_us * (1 + 1e-9)).all()
    assert (bound.rank_layer_us <= levels.rank_layer_us * (1 + 1e-9)).all()


def test_a_wait_that_is_never_served_stops_the_sweep() -> None:
    schedule = program(layer_of(), (ONE, [Wait(0, 1)]), events={0: 1})
    with pytest.raises(RuntimeError, match="no queue can go on"):
        sweep(schedule, to(1, {}), A3)
