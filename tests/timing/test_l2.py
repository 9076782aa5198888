"""The cache: what is found depends on order and distance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.interp.expand import expand
from hpc.interp.routing import routing_counts
from hpc.interp.single import gmm_schedule, pair_schedule, vector_schedule
from hpc.machine.record import load_machine
from hpc.schedule.model import Schedule
from tests.builders import small_layer, standard_schedule

A3 = load_machine("ascend_a3")


def traffic(schedule: Schedule, machine=A3, *, repeated: bool = False):
    counts = routing_counts(schedule.layer, schedule.routing)
    return expand(schedule, counts, machine, repeated=repeated).traffic


def passes(megabytes: int, times: int, blocks: int) -> Schedule:
    return vector_schedule(
        A3, "load", megabytes * 32, 8192, 1, "fp32", 1, times, blocks
    )


def hit(found) -> float:
    return float(sum(t.hit.sum() for t in found) / sum(t.read.sum() for t in found))


def test_a_scan_that_fits_is_found_again_and_a_larger_one_is_not() -> None:
    """Three of four passes over 100 MB hit; over 300 MB, more than L2, none does."""
    assert hit(traffic(passes(100, 4, 1))) == pytest.approx(0.75)
    assert hit(traffic(passes(300, 4, 1))) == 0


def test_block_by_block_finds_what_a_scan_does_not() -> None:
    assert hit(traffic(passes(300, 4, 4))) == pytest.approx(0.75)


def test_a_repeated_launch_finds_its_data_and_writes_nothing_back() -> None:
    small = vector_schedule(A3, "relu", 1024, 2048, 2048, "bf16")
    cold, warm = traffic(small), traffic(small, repeated=True)
    assert hit(cold) == 0
    assert hit(warm) == 1
    assert cold[0].stored.sum() == 1024 * 2048 * 2
    assert warm[0].stored.sum() == 0


def test_interleaving_finds_results_in_the_cache() -> None:
    late = traffic(pair_schedule(A3, 32768, 2048, "bf16", 64, 0))
    soon = traffic(pair_schedule(A3, 32768, 2048, "bf16", 64, 1))
    assert hit(late) == 0
    # A quarter of what both operators read is what the first one wrote.
    assert hit(soon) == pytest.approx(0.25)


def test_weights_of_a_grouped_product_are_read_once() -> None:
    (mine,) = traffic(gmm_schedule(A3, 1024, 2048, 4096, 32, "fp16"))
    assert mine.missed.sum() == (1024 + 32 * 2048) * 4096 * 2
    assert mine.written.sum() == 1024 * 2048 * 2


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 99),
    ep=st.integers(1, 3),
    kilobytes=st.integers(1, 4096),
    repeated=st.booleans(),
)
def test_hits_are_part_of_reads_and_grow_with_the_cache(
    seed: int, ep: int, kilobytes: int, repeated: bool
) -> None:
    layer = small_layer(ep=ep, experts=2 * ep, tokens=(200,) * ep, hidden=256)
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(400, np.full(2 * ep, 0.5 / ep), size=ep)
    schedule = standard_schedule(layer, chunks=2)
    found = []
    for size in (kilobytes << 10, A3.l2_bytes):
        machine = replace(A3, l2_bytes=size)
        work = expand(schedule, counts, machine, repeated=repeated)
        for mine in work.traffic:
            assert (mine.hit <= mine.read * (1 + 1e-9)).all()
            assert (mine.absorbed <= mine.written * (1 + 1e-9)).all()
        found.append(hit(work.traffic))
    assert found[0] <= found[1] + 1e-9
