"""Whole layers: symmetry, conservation, traces, and the published table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.interp.engine import execute, simulate
from hpc.interp.expand import expand
from hpc.interp.program import build_program
from hpc.interp.timing import ConservationError, Run, measure
from hpc.interp.trace_data import WAIT, WORK
from hpc.machine.record import load_machine
from hpc.schedule.model import Schedule
from tests.builders import small_layer, standard_schedule
from tests.timing.policies import balanced, deepseek, paper_schedule, serial_schedule

A3 = load_machine("ascend_a3")
PUBLISHED_MS = {4: (16.3, 10.2), 8: (17.3, 10.3), 16: (18.4, 11.2)}
"""Forward, (serial, paper) by EP; arXiv 2605.23764."""


def medium(ep: int = 4, chunks: int = 2) -> Schedule:
    layer = small_layer(
        ep=ep, experts=2 * ep, tokens=(300,) * ep, hidden=512, intermediate=256
    )
    return standard_schedule(layer, ((0,), tuple(range(1, ep))), chunks)


def random_counts(schedule: Schedule, seed: int) -> np.ndarray:
    layer = schedule.layer
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(layer.experts, 0.5))
    return np.array([rng.multinomial(t * layer.top_k, shares) for t in layer.tokens])


def finished(schedule: Schedule, counts: np.ndarray) -> Run:
    work = expand(schedule, counts, A3)
    return execute(schedule, work, build_program(schedule, work, A3), A3)


@pytest.mark.parametrize("ep", PUBLISHED_MS)
def test_published_forward_table_within_ten_percent(ep: int) -> None:
    """First constants, not fitted; a row tile of a put is 128 rows as published."""
    layer = deepseek(ep)
    counts = balanced(layer)
    chunks = int(counts[0, 0]) // 128
    serial_ms, paper_ms = PUBLISHED_MS[ep]
    serial = simulate(serial_schedule(layer), counts, A3)
    paper = simulate(paper_schedule(layer, chunks), counts, A3)
    assert serial.latency_us / 1e3 == pytest.approx(serial_ms, rel=0.1)
    assert paper.latency_us / 1e3 == pytest.approx(paper_ms, rel=0.1)


def test_serial_grows_with_ranks_and_hides_nothing() -> None:
    times = [
        simulate(serial_schedule(deepseek(ep)), balanced(deepseek(ep)), A3)
        for ep in (4, 8, 16)
    ]
    latencies = [time.latency_us for time in times]
    assert latencies == sorted(latencies)
    assert latencies[2] > latencies[0] * 1.05
    assert all(time.comm_hidden < 0.01 for time in times)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), turn=st.integers(1, 3))
def test_renaming_the_ranks_renames_the_result(seed: int, turn: int) -> None:
    """Programs address ranks relatively, so turning the ranks turns every figure,
    to the last bit: no tie is broken by a rank's number."""
    schedule = medium()
    counts = random_counts(schedule, seed)
    turned = np.roll(counts, (turn, 2 * turn), axis=(0, 1))
    here, there = (simulate(schedule, c, A3) for c in (counts, turned))
    assert np.array_equal(np.roll(here.rank_latency_us, turn), there.rank_latency_us)
    assert np.array_equal(np.roll(here.rank_layer_us, turn), there.rank_layer_us)


@pytest.mark.parametrize("hbm", ["shared", "fifo"])
def test_repeated_runs_are_identical(hbm: str) -> None:
    schedule = medium()
    counts = random_counts(schedule, 1)
    one, two = (simulate(schedule, counts, A3, hbm=hbm, record=True) for _ in "ab")
    assert one.latency_us == two.latency_us
    assert one.trace is not None
    assert two.trace is not None
    assert np.array_equal(one.trace.end_us, two.trace.end_us)


def test_balanced_ranks_end_together() -> None:
    timing = simulate(medium(), np.full((4, 8), 75), A3)
    assert len(set(timing.rank_latency_us.tolist())) == 1


def test_times_fill_every_core_and_utilization_is_busy_time() -> None:
    schedule = medium()
    timing = simulate(schedule, random_counts(schedule, 2), A3)
    for unit, cores in (("aic", 24), ("aiv", 48)):
        waits = sum(time for time in timing.wait_us[unit].values())
        total = timing.busy_us[unit] + waits + timing.idle_us[unit]
        assert total == pytest.approx(np.full(4, cores * timing.layer_us))
    share = timing.busy_us["aic"].sum() / (4 * 24 * timing.latency_us)
    assert timing.utilization["aic"] == pytest.approx(share)
    assert set(timing.wait_us["aic"]) == {"arrived", "act_done", "launch", "overhead"}


def test_hbm_bytes_are_those_of_tasks_and_puts() -> None:
    schedule = medium()
    counts = random_counts(schedule, 3)
    work = expand(schedule, counts, A3)
    puts = work.puts
    expected = sum(q.hbm_bytes.sum() for q in work.queues)
    expected += puts.fetched.sum() + puts.stored.sum()
    timing = simulate(schedule, counts, A3)
    assert timing.hbm_bytes.sum() == pytest.approx(expected)
    rows = counts.sum() - sum(counts[r, 2 * r : 2 * r + 2].sum() for r in range(4))
    assert timing.egress_bytes.sum() == 2 * rows * 512 * 2
    assert timing.ingress_bytes.sum() == timing.egress_bytes.sum()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda run: replace(run, end=run.end + 1), "misses the makespan"),
        (lambda run: replace(run, done_us=run.done_us * 2), "misses the makespan"),
        (lambda run: replace(run, served=run.served * [[1], [1.1], [1]]), "egress"),
        (lambda run: replace(run, served=run.served * [[0.9], [1], [1]]), "HBM moved"),
        (lambda run: replace(run, put_delivered=run.put_delivered * 0), "delivered"),
        (lambda run: replace(run, machine=replace(A3, link_gbps=0.5)), "carried"),
    ],
)
def test_a_run_that_loses_time_or_bytes_is_an_internal_error(spoil, message) -> None:
    schedule = medium()
    run = finished(schedule, random_counts(schedule, 4))
    measure(run, record=False)
    with pytest.raises(ConservationError, match=message):
        measure(spoil(run), record=False)


def test_trace_intervals_of_a_core_follow_each_other_and_add_up() -> None:
    schedule = medium()
    timing = simulate(schedule, random_counts(schedule, 5), A3, record=True)
    trace = timing.trace
    assert trace is not None
    assert (trace.end_us > trace.start_us).all()
    keys = np.stack((trace.rank, trace.unit, trace.core))
    same = (keys[:, 1:] == keys[:, :-1]).all(axis=0)
    gaps = trace.start_us[1:] - trace.end_us[:-1]
    assert (gaps[same] >= -1e-9).all()
    for u, unit in enumerate(trace.units):
        mine = trace.unit == u
        spent = trace.end_us - trace.start_us
        busy = spent[mine & (trace.kind == WORK)].sum()
        assert busy == pytest.approx(timing.busy_us[unit].sum())
    waits = {trace.causes[c] for c in trace.cause[trace.kind == WAIT]}
    assert waits <= {"arrived", "up_done", "act_done", "down_done", "returned"}


def test_trace_names_instructions_and_puts() -> None:
    schedule = medium()
    trace = simulate(schedule, np.full((4, 8), 75), A3, record=True).trace
    assert trace is not None
    for i in range(0, len(trace.rank), 97):
        instr = schedule.queues[trace.queue[i]].code[trace.instr[i]]
        assert (type(instr).__name__ == "Wait") == (trace.kind[i] == WAIT)
    assert len(trace.put_source) == 4 * 2 * (2 * 4) * 2
    instr = {schedule.queues[q].code[i].kind for q, i in
             zip(trace.put_queue, trace.put_instr, strict=True)}  # fmt: skip
    assert instr == {"dispatch", "combine"}
    assert (trace.put_sent_us >= trace.put_begin_us).all()
    assert (trace.put_delivered_us >= trace.put_arrive_us).all()


def test_groups_let_work_begin_earlier() -> None:
    """Own rows first: the AICs wait less than with one event per expert."""
    layer = deepseek(8)
    counts = balanced(layer)
    whole = simulate(standard_schedule(layer, chunks=8), counts, A3)
    groups = ((0,), (1, 2, 3, 4, 5, 6, 7))
    split = simulate(standard_schedule(layer, groups, chunks=8), counts, A3)
    waited = [t.wait_us["aic"]["arrived"].sum() for t in (whole, split)]
    assert waited[1] < waited[0]


def test_many_ranks_with_uneven_experts_run() -> None:
    layer = small_layer(ep=16, experts=37, tokens=(64,) * 16, hidden=64)
    schedule = standard_schedule(layer, (tuple(range(16)),))
    timing = simulate(schedule, random_counts(schedule, 6), A3)
    assert timing.latency_us > 0
