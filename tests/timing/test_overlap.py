"""Unions and overlaps of intervals."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.interp.engine import simulate
from hpc.interp.overlap import covered, union
from hpc.machine.record import load_machine
from tests.builders import small_layer, standard_schedule

INTERVALS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=12)


def floats(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.float64)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(pairs=INTERVALS, times=st.lists(st.integers(0, 45), min_size=1, max_size=5))
def test_union_and_cover_against_unit_cells(
    pairs: list[tuple[int, int]], times: list[int]
) -> None:
    cells = {t for start, size in pairs for t in range(start, start + size)}
    start = floats([s for s, _ in pairs])
    end = start + floats([size for _, size in pairs])
    low, high = union(start, end)
    assert (high - low).sum() == len(cells)
    assert (low[1:] > high[:-1]).all()
    seen = covered(low, high, floats(times))
    assert seen.tolist() == [len([c for c in cells if c < t]) for t in times]


def test_hidden_share_is_none_without_computation_beside_it() -> None:
    """One rank's rows all go away and come back: the sender never computes, the
    receiver computes only when everything has arrived."""
    layer = small_layer(hidden=4096, intermediate=16)
    counts = np.array([[0, 0, 16, 16], [0, 0, 0, 0]])
    timing = simulate(standard_schedule(layer), counts, load_machine("ascend_a3"))
    # Rank 1's one AIC phase falls between its two link phases or beside one of them.
    assert timing.comm_hidden < 0.5


def test_more_computation_hides_more() -> None:
    def hidden(intermediate: int) -> float:
        layer = small_layer(
            ep=4, experts=8, tokens=(512,) * 4, hidden=2048, intermediate=intermediate
        )
        counts = np.full((4, 8), 128)
        schedule = standard_schedule(layer, chunks=4)
        return simulate(schedule, counts, load_machine("ascend_a3")).comm_hidden

    assert hidden(64) < hidden(1024) < hidden(4096)
