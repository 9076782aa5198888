"""Lifetimes of buffers and the memory that lives at one time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.interp.engine import simulate
from hpc.interp.lifetimes import (
    GIVEN,
    MemoryUse,
    Peak,
    _peak,
    buffer_bytes,
    bytes_formula,
    memory_use,
    saved_buffers,
)
from hpc.interp.timing import Timing
from hpc.machine.record import load_machine
from hpc.schedule.layer import Layer
from hpc.schedule.model import Put, Schedule, Task
from tests.builders import (
    backward_schedule,
    small_layer,
    standard_schedule,
    train_schedule,
    with_buffer,
)
from tests.timing.test_bound import cases

A3 = load_machine("ascend_a3")
LAYER = small_layer(tokens=(64, 64), hidden=320, intermediate=160)
COUNTS = np.array([[32, 0, 32, 64], [32, 0, 32, 64]])
MAKERS = (standard_schedule, backward_schedule, train_schedule)


def used(schedule: Schedule, counts: np.ndarray = COUNTS) -> tuple[MemoryUse, Timing]:
    timing = simulate(schedule, counts, A3, record=True)
    return memory_use(schedule, timing), timing


@pytest.mark.parametrize("maker", MAKERS)
def test_a_buffer_lives_from_its_first_write_to_its_last_use(maker) -> None:
    """Against the recorded intervals of all cores and puts, on each rank."""
    schedule = maker(LAYER)
    _, timing = used(schedule)
    trace = timing.trace
    assert trace is not None
    for buffer in schedule.buffers:
        for rank in range(2):
            begins, ends = [], []
            for q, queue in enumerate(schedule.queues):
                for i, instr in enumerate(queue.code):
                    if not isinstance(instr, Put | Task):
                        continue
                    mine = (trace.queue == q) & (trace.instr == i) & (trace.kind == 0)
                    mine &= trace.rank == rank
                    reads = _names(instr, "reads")
                    writes = _names(instr, "writes")
                    if buffer.name in writes:
                        begins += trace.start_us[mine].tolist()
                    if buffer.name in reads + writes:
                        ends += trace.end_us[mine].tolist()
                    if isinstance(instr, Put) and instr.dest.buffer == buffer.name:
                        land = (trace.put_queue == q) & (trace.put_instr == i)
                        land &= trace.put_dest == rank
                        begins += trace.put_arrive_us[land].tolist()
                        ends += trace.put_delivered_us[land].tolist()
            first, last = (times[rank] for times in timing.spans[buffer.name])
            begin = 0.0 if buffer.role in GIVEN else min(begins)
            end = timing.layer_us if buffer.role == "output" else max(ends)
            assert (first, last) == (begin, end), buffer.name


def _names(instr: Put | Task, which: str) -> list[str]:
    """Buffers that an instruction touches on its own rank."""
    if isinstance(instr, Task):
        return [region.buffer for region in getattr(instr, which)]
    dot = [region.buffer for region in instr.dot]
    if which == "writes":
        return dot[1:]
    return [instr.source.buffer, *dot[:1], *(["router"] if instr.scale else [])]


@pytest.mark.parametrize("maker", MAKERS)
def test_a_folded_run_gives_the_lifetimes_of_any_rank(maker) -> None:
    layer, counts = small_layer(tokens=(64, 64)), np.full((2, 4), 32)
    schedule = maker(layer)
    one = simulate(schedule, counts, A3)
    assert one.ranks_simulated == 1
    assert memory_use(schedule, one) == used(schedule, counts)[0]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(case=cases())
def test_peaks_are_between_the_largest_buffer_and_all_of_them(
    case: tuple[Schedule, np.ndarray],
) -> None:
    schedule, counts = case
    use = memory_use(schedule, simulate(schedule, counts, A3))
    assert use.allocated_bytes == sum(buffer_bytes(b) for b in schedule.buffers)
    lives = [b for b in use.buffers if b.from_us < b.to_us]
    assert max((b.bytes for b in lives), default=0) <= use.every.bytes
    assert use.every.bytes <= use.allocated_bytes
    for part in (use.symmetric, use.saved, use.workspace):
        assert part.bytes <= use.every.bytes


intervals = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(1, 9)), max_size=8
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(items=intervals)
def test_the_peak_is_the_largest_sum_at_any_time(
    items: list[tuple[int, int, int]],
) -> None:
    """Against a look at every half-unit of time."""
    held = [
        (sum(size for a, b, size in items if a <= t < b), -t)
        for t in np.arange(0, 21, 0.5).tolist()
    ]
    most, when = max(held)
    sizes = np.array([size for _, _, size in items], dtype=np.int64)
    first, last = (np.array([x[i] for x in items], dtype=float) for i in (0, 1))
    assert _peak(sizes, first, last) == Peak(most, -when if most else 0.0)


def test_what_forward_leaves_for_backward() -> None:
    """By its role alone, or in a training step by what reads it."""
    kept = {"recv", "h", "a", "back"}
    assert saved_buffers(standard_schedule(LAYER)) == frozenset()
    assert saved_buffers(backward_schedule(LAYER)) == kept
    assert saved_buffers(train_schedule(LAYER)) == kept
    at_input = replace(LAYER, weights_at="input")
    for maker in (backward_schedule, train_schedule):
        assert saved_buffers(maker(at_input)) == kept - {"back"}


def test_saved_tensors_of_a_training_step_live_across_both_parts() -> None:
    use, _ = used(train_schedule(LAYER))
    by_name = {buffer.name: buffer for buffer in use.buffers}
    assert by_name["recv"].from_us < by_name["y"].to_us
    assert by_name["recv"].to_us > by_name["dx_rows"].from_us
    saved = [by_name[name] for name in ("recv", "h", "a", "back")]
    assert use.saved.bytes == sum(buffer.bytes for buffer in saved)
    assert all(buffer.saved for buffer in saved)
    # "y" is done with before the gradients begin, so the peak is below the sum.
    assert use.every.bytes < use.allocated_bytes


def test_the_rank_that_needs_most_is_shown() -> None:
    """Rank 0 owns the only expert with rows; the other has no workspace in use."""
    counts = np.array([[128, 0, 0, 0], [128, 0, 0, 0]])
    layer: Layer = small_layer(tokens=(64, 64), repeats=True)
    schedule = with_buffer(standard_schedule(layer), "recv", capacity_rows=256)
    use, timing = used(schedule, counts)
    assert use.rank == 0
    assert timing.spans["h"][0][1] == np.inf


def test_formulas_give_the_bytes() -> None:
    for buffer in train_schedule(LAYER).buffers:
        product = bytes_formula(replace(buffer, formula="3 * 4")).split(";")[0]
        words = [word for word in product.split() if word.isdigit()]
        assert np.prod([int(word) for word in words]) == buffer_bytes(buffer)
    assert bytes_formula(replace(buffer, formula="3 * 4")).endswith("; rows: 3 * 4")
