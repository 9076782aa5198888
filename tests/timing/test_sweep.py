"""Two engines that share no code agree where both apply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.interp.bound import lower_bound
from hpc.interp.engine import simulate
from hpc.interp.routing import routing_counts
from hpc.interp.sensitivity import scaled
from hpc.interp.single import exchange_schedule, gmm_schedule, vector_schedule
from hpc.interp.sweep import sweep
from hpc.interp.timing import Timing
from hpc.machine.fields import BY_KEY
from hpc.machine.record import Machine, load_machine
from hpc.schedule.layer import Activation, Layer
from hpc.schedule.model import Base, Instr, Schedule, Set, Wait
from tests.builders import small_layer, standard_schedule, train_schedule
from tests.timing.policies import balanced, deepseek, paper_schedule, serial_schedule
from tests.timing.test_bound import cases
from tests.timing.test_engine import ONE, layer_of, program
from tests.timing.tiny import ROUND, to, work

Case = tuple[Schedule, np.ndarray]

A3 = load_machine("ascend_a3")
UNSHARED = (
    "hbm_gbps",
    "hbm_write_gbps",
    "package_gbps",
    "link_gbps",
    "across_gbps",
    "collective_gbps",
)
# All six: what a write costs beside a read, and what a byte is worth on a link, are
# their ratios, and one left behind would make times so long that all else is rounding.
ALONE = replace(A3, **dict.fromkeys(UNSHARED, 1e15), dies_per_node=4, l2_bytes=1 << 20)
"""Memory and links that nobody has to share; what one core gets is as ever. Nodes are
small, so that five ranks need all kinds of links; so is L2, so that it overflows."""


def disagreement(case: Case, events: Timing, other: Machine) -> float:
    """Largest relative difference of the sweep on `other` and of `events`."""
    levels = sweep(*case, other)
    return float(
        max(
            np.abs(levels.rank_layer_us / events.rank_layer_us - 1).max(),
            np.abs(levels.rank_latency_us / events.rank_latency_us - 1).max(),
        )
    )


@settings(max_examples=120, deadline=None, derandomize=True)
@given(case=cases())
def test_without_contention_both_engines_agree(case: Case) -> None:
    assert disagreement(case, simulate(*case, ALONE), ALONE) <= 1e-9


@pytest.mark.parametrize("policy", [paper_schedule, serial_schedule])
def test_both_engines_agree_on_the_published_layer(
    policy: Callable[[Layer], Schedule],
) -> None:
    layer = deepseek(4)
    case = policy(layer), balanced(layer)
    assert disagreement(case, simulate(*case, ALONE), ALONE) <= 1e-9


# -- the test above can fail -----------------------------------------------------------


def random_case(make: Callable[..., Schedule], **changes: object) -> Case:
    """8 ranks, that is two nodes, and counts that favour nobody but are not equal."""
    shape = {"hidden": 300, "intermediate": 200, "tokens": (300,) * 8, "experts": 16}
    layer = small_layer(ep=8, **{**shape, **changes})
    rng = np.random.default_rng(1)
    shares = np.full(layer.experts, 1 / layer.experts)
    counts = [rng.multinomial(t * layer.top_k, shares) for t in layer.tokens]
    return make(layer), np.array(counts)


def narrow(layer: Layer) -> Schedule:
    """Tiles whose operands take longer from L1 to L0 than the cube takes."""
    return standard_schedule(layer, base=Base(16, 256, 64))


def exchange() -> Case:
    """A dispatch that finds out at run time where its rows go."""
    schedule = exchange_schedule(
        ALONE, "dispatch", 64, 128, "bf16", 8, 8, 2, 128, counted=1
    )
    return schedule, routing_counts(schedule.layer, schedule.routing)


PROOFS: tuple[Callable[[], Case], ...] = (
    lambda: random_case(train_schedule),
    lambda: random_case(serial_schedule, dtype="fp32", weights_at="input"),
    lambda: random_case(narrow, activation=Activation("gelu")),
    exchange,
)
TIMELESS = {
    "dtypes", "l0a_bytes", "l0b_bytes", "hbm_bytes", "max_events", "max_tasks",
    "dynamic_fetch_us", *UNSHARED,
}  # fmt: skip
"""Limits, the other kind of dispatch, and what ALONE has without end."""


Proof = tuple[Case, Timing]


@pytest.fixture(scope="module")
def proofs() -> list[Proof]:
    """Cases, and what the event loop says to them."""
    made = [make() for make in PROOFS]
    return [(case, simulate(*case, ALONE)) for case in made]


def test_the_engines_agree_on_the_proofs(proofs: list[Proof]) -> None:
    assert max(disagreement(*proof, ALONE) for proof in proofs) <= 1e-9


@pytest.mark.parametrize("key", [key for key in BY_KEY if key not in TIMELESS])
def test_a_constant_that_differs_is_noticed(key: str, proofs: list[Proof]) -> None:
    """More or less for the sweep only: a thousand times more than rounding, at least.
    Less of a rate may be hidden behind another one; much less of it is not."""
    others = [scaled(ALONE, key, factor) for factor in (1.25, 0.125)]
    pairs = product(proofs, others)
    assert any(disagreement(*proof, other) > 1e-6 for proof, other in pairs)


# -- beside contention -----------------------------------------------------------------


@settings(max_examples=80, deadline=None, derandomize=True)
@given(case=cases(), poll_us=st.sampled_from([0.0, 0.6, 5.0]))
def test_contention_only_delays_what_does_not_poll(case: Case, poll_us: float) -> None:
    """Times with free polls are lower bounds, whatever polls cost under contention."""
    schedule, counts = case
    levels = sweep(schedule, counts, replace(A3, event_poll_us=0.0))
    events = simulate(schedule, counts, replace(A3, event_poll_us=poll_us))
    slack = 1 + 1e-9
    assert (levels.rank_layer_us <= events.rank_layer_us * slack).all()
    assert (levels.rank_latency_us <= events.rank_latency_us * slack).all()


def test_who_is_late_does_not_poll() -> None:
    """Core 0 works, alone for W us, and waits for an event that opens 1 us later.
    Beside another core it comes to it when it is open, and goes on at once."""
    code: tuple[list[Instr], ...] = ([work(), Wait(0, 1)], [Set(0)], [work()])
    queues = [(replace(ONE, first=n), instrs) for n, instrs in enumerate(code)]
    schedule, counts = program(layer_of(), *queues, events={0: 1}), to(1, {})
    slow = replace(ROUND, hbm_gbps=10.0, hbm_core_gbps=10.0, hbm_write_gbps=10.0)
    one = sweep(program(layer_of(), (ONE, [work()])), counts, slow).layer_us
    work_us = one - ROUND.kernel_launch_us - ROUND.task_fetch_us
    poll_us = 10 * work_us
    machine = replace(slow, event_visible_us=work_us, event_poll_us=poll_us)
    late, early = (
        engine(schedule, counts, machine).layer_us for engine in (simulate, sweep)
    )
    assert early == pytest.approx(1000 + 1 + 2 + work_us + poll_us)
    assert 1000 + 1 + 2 + work_us < late < early


# -- the bound -------------------------------------------------------------------------


@settings(max_examples=80, deadline=None, derandomize=True)
@given(case=cases())
def test_the_bound_holds_for_the_sweep(case: Case) -> None:
    """Where memory and links bind nothing, cores and hand-overs still do."""
    schedule, counts = case
    bound, levels = lower_bound(schedule, counts, ALONE), sweep(schedule, counts, ALONE)
    assert (bound.rank_us <= levels.rank_latency_us * (1 + 1e-9)).all()
    assert (bound.rank_layer_us <= levels.rank_layer_us * (1 + 1e-9)).all()


VECTORS = ("vadd", "vmul", "vmuls", "vdiv", "vexp", "vconv", "vmax")
IDEAL = replace(
    ALONE,
    **{key: (0.0, getattr(ALONE, key)[1], 0.0) for key in VECTORS},
    core_start_us=0.0,
    event_poll_us=0.0,
    mmad_head_cycles=0.0,
    mmad_sync_cycles=0.0,
    gm_half_bytes=0.0,
    gm_issue_cycles=0.0,
    gm_core_gbps=1e6,
    l2_gbps=1e8,
    hbm_core_gbps=1e6,
    fixpipe_bytes_per_cycle=1e5,
    l1_l0a_bytes_per_cycle=1e5,
    l1_l0b_bytes_per_cycle=1e5,
)
"""Nothing but the work itself and hand-overs takes any time."""
SLOW = replace(
    IDEAL,
    event_visible_us=1000.0,
    event_set_us=500.0,
    put_issue_us=700.0,
    across_issue_us=700.0,
    package_hop_us=300.0,
    sync_all_us=1e5,
)


def tight(resource: str) -> tuple[Schedule, np.ndarray, Machine]:
    """A layer that a perfect machine runs at the bound: nothing else is in the way."""
    if resource == "chain":
        # One row of one element, to the other rank and back.
        layer = small_layer(hidden=1, intermediate=1, experts=2, top_k=1)
        return standard_schedule(layer), np.array([[0, 1], [0, 0]]), SLOW
    if resource == "aic":
        schedule = gmm_schedule(IDEAL, 24 * 128, 2048, 4096, 1, "bf16")
    else:
        schedule = vector_schedule(IDEAL, "gelu", 48 * 256, 512, 512, "bf16")
    return schedule, routing_counts(schedule.layer, schedule.routing), IDEAL


@pytest.mark.parametrize("resource", ["aic", "aiv", "chain"])
def test_the_bound_is_reached_where_nothing_else_binds(resource: str) -> None:
    schedule, counts, machine = tight(resource)
    bound = lower_bound(schedule, counts, machine)
    levels = sweep(schedule, counts, machine)
    assert bound.layer_by == resource
    for low, time_us in (
        (bound.bound_us, levels.latency_us),
        (bound.layer_us, levels.layer_us),
    ):
        assert 0.999 * time_us <= low <= time_us * (1 + 1e-9)


def test_a_wait_that_is_never_served_stops_the_sweep() -> None:
    schedule = program(layer_of(), (ONE, [Wait(0, 1)]), events={0: 1})
    with pytest.raises(RuntimeError, match="no queue can go on"):
        sweep(schedule, to(1, {}), A3)
