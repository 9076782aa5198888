"""The engine against a lean SimPy model of the same run, and its memory.

`python -m tests.bench.test_engine_speed` prints the figures.
"""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from hpc.interp.engine import execute, simulate
from hpc.interp.expand import expand
from hpc.interp.program import build_program
from hpc.interp.timing import Timing, measure
from hpc.machine.record import load_machine
from hpc.schedule.model import Schedule
from tests.bench.simpy_model import Model
from tests.builders import small_layer, standard_schedule

A3 = load_machine("ascend_a3")
RUNS = 3


def case(experts_per_rank: int = 16) -> tuple[Schedule, np.ndarray]:
    """Eight ranks, eight groups, and so fine a split that every core has work in every
    instruction: 123,000 task instances with 16 experts per rank."""
    layer = small_layer(
        ep=8,
        experts=8 * experts_per_rank,
        top_k=8,
        tokens=(8192,) * 8,
        hidden=7168,
        intermediate=2048,
    )
    groups = tuple((k,) for k in range(8))
    rows = 8192 * 8 // layer.experts
    schedule = standard_schedule(layer, groups, chunks=24, m=16)
    return schedule, np.full((8, layer.experts), rows)


def seconds(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def ratio_to_simpy() -> tuple[float, Timing]:
    """Median of (SimPy seconds / our seconds) over interleaved runs.

    Our time is all of `simulate`; SimPy gets the expansion for free.
    """
    schedule, counts = case()
    work = expand(schedule, counts, A3)
    program = build_program(schedule, work, A3)
    timing = simulate(schedule, counts, A3, hbm="fifo")
    ratios: list[float] = []
    for _ in range(RUNS):
        ours = seconds(lambda: simulate(schedule, counts, A3, hbm="fifo"))
        theirs = seconds(Model(schedule, work, program, A3).run)
        ratios.append(theirs / ours)
    return statistics.median(ratios), timing


def bytes_per_instance() -> tuple[float, float]:
    """(kept, peak) bytes per task instance of an engine and its work."""
    schedule, counts = case()
    gc.collect()
    tracemalloc.start()
    work = expand(schedule, counts, A3)
    program = build_program(schedule, work, A3)
    run = execute(schedule, work, program, A3, shared=False)
    timing = measure(run, record=False)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept / timing.tasks, peak / timing.tasks


def test_simpy_model_and_engine_agree() -> None:
    """The opponent does the same work: same end, to rounding of its relative delays.
    Simultaneous bookings may be served in another order, hence the tolerance."""
    schedule, counts = case(experts_per_rank=2)
    work = expand(schedule, counts, A3)
    model = Model(schedule, work, build_program(schedule, work, A3), A3)
    ours = simulate(schedule, counts, A3, hbm="fifo").layer_us
    assert model.run() == pytest.approx(ours, rel=2e-3)


def test_at_least_as_fast_as_simpy() -> None:
    ratio, timing = ratio_to_simpy()
    assert timing.tasks > 100_000
    assert ratio >= 1.0


def test_under_a_hundred_bytes_per_instance() -> None:
    kept, _ = bytes_per_instance()
    assert kept < 100


def main() -> None:
    schedule, counts = case()
    for hbm in ("fifo", "shared"):
        run = partial(simulate, schedule, counts, A3, hbm=hbm)
        tasks, best = run().tasks, min(seconds(run) for _ in range(RUNS))
        print(f"{hbm}: {tasks} task instances, {tasks / best:,.0f} a second")  # noqa: T201
    ratio, _ = ratio_to_simpy()
    kept, peak = bytes_per_instance()
    print(f"SimPy seconds / ours: {ratio:.2f}")  # noqa: T201
    print(f"bytes per task instance: {kept:.0f} kept, {peak:.0f} at most")  # noqa: T201


if __name__ == "__main__":
    main()
