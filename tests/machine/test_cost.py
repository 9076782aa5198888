"""Costs: the arithmetic of single tasks, and that more work never costs less."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hpc.machine.cost import (
    OP_COSTS,
    GmmCost,
    gmm_tile_us,
    gmm_us,
    op_cost,
    piece_rows,
    put_us,
    vector_compute_us,
    vector_share_us,
    vector_us,
)
from hpc.machine.record import load_machine
from hpc.schedule.layer import ACTIVATIONS
from hpc.schedule.model import Base

A3 = load_machine("ascend_a3")
BASE = Base(128, 256, 64)
SIZES = st.integers(1, 4000)
quick = settings(max_examples=60, deadline=None, derandomize=True)


def test_full_tile_is_cube_time_and_an_exposed_drain() -> None:
    """32 Mmads of 6 + 69 + 8 x 4 x 16 cycles; 128 x 256 bf16 leave at 38 B/cycle,
    behind two of the Mmads."""
    cost = GmmCost(A3, BASE, 2048, "bf16")
    assert not cost.double_l0c
    main, drain = cost.tile_us(128, 256)
    cycles = 30 * (6 + 69 + 512) + 128 * 256 * 2 / 38
    assert main == pytest.approx(cycles / 1800)
    assert drain == 0


def test_accumulator_that_fits_twice_hides_the_drain() -> None:
    cost = GmmCost(A3, Base(128, 128, 64), 4096, "bf16")
    assert cost.double_l0c
    main, drain = cost.tile_us(128, 128)
    assert drain == pytest.approx(128 * 128 * 2 / 38 / 1800)
    assert main == GmmCost(A3, Base(128, 128, 64), 4096, "bf16")._price(128, 128)[0]


def test_partial_depth_costs_whole_cube_steps() -> None:
    cost = GmmCost(A3, BASE, 4096, "bf16")
    assert cost._step_cycles(128, 256, 1) == 6 + 69 + 8 * 16
    assert cost._step_cycles(128, 256, 17) == 6 + 69 + 2 * 8 * 16


def test_fp32_takes_four_times_the_cube_steps() -> None:
    tile = Base(128, 128, 64)
    half = GmmCost(A3, tile, 4096, "bf16")._step_cycles(128, 128, 64)
    full = GmmCost(A3, tile, 4096, "fp32")._step_cycles(128, 128, 64)
    assert full - 75 == 4 * (half - 75)


def test_a_fast_machine_is_limited_by_its_loads() -> None:
    slow = replace(A3, l2_gbps=500.0)
    loads_us = (128 + 256) * 4096 * 2 / (500 / 24 * 1e3)
    assert GmmCost(slow, BASE, 4096, "bf16").tile_us(128, 256)[0] > loads_us


@quick
@given(rows=SIZES, n=SIZES, k=SIZES, cores=st.integers(1, 24))
def test_gmm_grows_with_every_dimension(rows: int, n: int, k: int, cores: int) -> None:
    """Once all cores have tiles: until then a further tile brings more HBM."""
    assume(-(-rows // BASE.m) * -(-n // BASE.n) >= cores)
    here = gmm_us(A3, rows, n, k, BASE, "bf16", cores)
    assert gmm_us(A3, rows + 128, n, k, BASE, "bf16", cores) >= here
    assert gmm_us(A3, rows, n + 256, k, BASE, "bf16", cores) >= here
    assert gmm_us(A3, rows, n, k + 256, BASE, "bf16", cores) >= here
    assert gmm_us(A3, rows, n, k, BASE, "bf16", cores + 1) <= here
    assert gmm_tile_us(A3, min(rows, 128), min(n, 256), k, BASE, "bf16") <= here + 1e-9


@quick
@given(rows=SIZES, n=SIZES, k=SIZES)
def test_gmm_is_never_below_the_peak(rows: int, n: int, k: int) -> None:
    peak_us = rows * n * k / (4096 * 24 * 1800)
    assert gmm_us(A3, rows, n, k, BASE, "bf16", 24) >= peak_us


@quick
@given(op=st.sampled_from(ACTIVATIONS), rows=SIZES, cols=SIZES)
def test_vector_grows_with_rows_and_columns(op: str, rows: int, cols: int) -> None:
    here = vector_us(A3, op, rows, 2 * cols, cols, "bf16", 24)
    assert vector_us(A3, op, rows + 24, 2 * cols, cols, "bf16", 24) >= here
    assert vector_us(A3, op, rows, 2 * cols + 2, cols + 1, "bf16", 24) >= here
    assert vector_us(A3, op, rows, 2 * cols, cols, "bf16", 48) <= here


@quick
@given(op=st.sampled_from(ACTIVATIONS), read=SIZES, written=SIZES)
def test_a_vector_share_is_never_below_its_instructions(
    op: str, read: int, written: int
) -> None:
    share = vector_share_us(A3, op, read, written, "bf16")
    assert share >= vector_compute_us(A3, op, read, written, "bf16")


def test_swiglu_instructions_by_hand() -> None:
    """Per 64 results: 2 x 2 converts in, 2 muls, exp 2, div 4, mul 2, convert out 2."""
    one = vector_compute_us(A3, "swiglu", 128, 64, "bf16")
    assert one == pytest.approx((4 + 2 + 2 + 4 + 2 + 2) / 1800)


def test_no_work_takes_no_time() -> None:
    assert gmm_us(A3, 0, 64, 64, BASE, "bf16", 24) == 0
    assert vector_us(A3, "relu", 0, 64, 64, "bf16", 48) == 0
    assert vector_share_us(A3, "relu", 0, 0, "bf16") == 0


def test_puts_by_hand() -> None:
    """24 cores drive the link fully at 137 GB/s (24 x 5.7 = 136.8), 12 do half; rows of
    1,000 bytes take four times as long as long messages."""
    fixed = 1.3 + 0.93 + 1.0
    assert put_us(A3, 1000, 1000, 48, True) == pytest.approx(4e6 / 137e3 + fixed)
    assert put_us(A3, 1000, 1000, 12, True) == pytest.approx(4e6 / 68.4e3 + fixed)
    assert put_us(A3, 1000, 1000, 48, True, "collective") > 1e6 / 110e3
    local = put_us(A3, 1000, 1000, 48, False)
    assert local == pytest.approx(1e3 / 1490 + 1e3 / 906 + 1.3 + 1.0)


def test_offsets_are_summed_one_number_after_the_other() -> None:
    """A table of 128 ranks x 256 experts: no bandwidth helps."""
    table = 128 * 256
    assert vector_share_us(A3, "offsets", table, table, "fp32") == table * 0.125


def test_every_activation_has_a_cost_and_a_typo_gets_a_guess() -> None:
    assert set(ACTIVATIONS) <= set(OP_COSTS)
    with pytest.raises(KeyError, match="did you mean 'swiglu'"):
        op_cost("swigul")
    with pytest.raises(KeyError, match="known: gmm"):
        vector_us(A3, "fft", 1, 1, 1, "bf16", 1)


@quick
@given(SIZES, SIZES, st.integers(1, 48), st.booleans())
def test_no_other_piece_costs_less(
    rows: int, row_bytes: int, cores: int, remote: bool
) -> None:
    """Fixed costs of all pieces, shared by the cores, and time of the last piece."""

    def cost_us(piece: float) -> float:
        row_us = put_us(A3, 2, row_bytes, 1, remote) - put_us(
            A3, 1, row_bytes, 1, remote
        )
        return rows / piece / cores * A3.put_issue_us + piece * row_us

    best = piece_rows(A3, rows, row_bytes, cores, remote)
    assert best >= 1
    for other in (best * 1.1, best * 2, max(1, best / 1.1), max(1, best / 2)):
        assert cost_us(best) <= cost_us(other) * (1 + 1e-9)


def test_pieces_of_own_rows_are_longer() -> None:
    """A copy is faster than a link, so the fixed cost of a put weighs more."""
    own, away = (piece_rows(A3, 2048, 4096, 24, remote) for remote in (False, True))
    assert own > 2 * away
