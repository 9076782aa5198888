"""Base tiles: what fits, why the rest does not, and the choice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.machine.cost import gmm_us
from hpc.machine.record import load_machine
from hpc.machine.tiles import check_gmm_tile, choose_gmm_tile
from hpc.schedule.model import Base

A3 = load_machine("ascend_a3")


@pytest.mark.parametrize(
    ("base", "dtype", "limit"),
    [
        (Base(128, 256, 64), "bf16", None),
        (Base(256, 128, 64), "fp16", None),
        (Base(16, 16, 16), "fp32", None),
        (Base(512, 32, 64), "bf16", "needs 131072 bytes of L0A"),
        (Base(128, 256, 128), "bf16", "needs 131072 bytes of L0B"),
        (Base(256, 256, 32), "bf16", "needs 262144 bytes of L0C"),
        (Base(128, 256, 64), "fp32", "of L0B (2 x k x n, fp32), ascend_a3 has 65536"),
        (Base(100, 256, 64), "bf16", "m = 100 is not a positive multiple of 16"),
        (Base(128, 0, 64), "bf16", "n = 0 is not a positive multiple of 16"),
        (Base(128, 256, -16), "bf16", "k = -16 is not a positive multiple of 16"),
        (Base(128, 256, 64), "fp8", "dtype fp8 is not one of ascend_a3's"),
    ],
)
def test_check_names_the_limit(base: Base, dtype: str, limit: str | None) -> None:
    reason = check_gmm_tile(A3, base, dtype)
    if limit is None:
        assert reason is None
    else:
        assert reason is not None
        assert limit in reason


def test_l1_limits_a_machine_with_a_small_one() -> None:
    small = replace(A3, l1_bytes=65536)
    reason = check_gmm_tile(small, Base(128, 256, 64), "bf16")
    assert reason is not None
    assert "needs 98304 bytes of L1 (2 x (m + n) x k, bf16)" in reason


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    rows=st.integers(0, 40000),
    n=st.integers(1, 8192),
    k=st.integers(1, 16384),
    dtype=st.sampled_from(["bf16", "fp16", "fp32"]),
    cores=st.integers(1, 24),
)
def test_choice_fits_and_is_no_slower_than_the_vendors_tile(
    rows: int, n: int, k: int, dtype: str, cores: int
) -> None:
    base = choose_gmm_tile(A3, rows, n, k, dtype, cores)
    assert check_gmm_tile(A3, base, dtype) is None
    assert base == choose_gmm_tile(A3, rows, n, k, dtype, cores)
    if dtype == "bf16" and rows >= 128 and n >= 256 and k >= 64:
        vendor = gmm_us(A3, rows, n, k, Base(128, 256, 64), dtype, cores)
        assert gmm_us(A3, rows, n, k, base, dtype, cores) <= vendor + 1e-6


def test_large_gmm_gets_the_vendors_tile() -> None:
    assert choose_gmm_tile(A3, 4096, 4096, 7168, "bf16", 24) == Base(128, 256, 64)


def test_few_rows_get_a_low_tile_that_keeps_the_cores_busy() -> None:
    base = choose_gmm_tile(A3, 9, 4096, 7168, "bf16", 24)
    assert base.m == 16
    assert -(-4096 // base.n) >= 24


def test_remainder_of_tiles_over_cores_counts() -> None:
    """One row of 25 tiles of 256 columns would take two rounds on 24 cores."""
    base = choose_gmm_tile(A3, 128, 25 * 256, 4096, "bf16", 24)
    rounds = -(-(25 * 256 // base.n) // 24)
    assert rounds * base.n < 2 * 256 or base.m < 128


def test_no_tile_for_a_machine_without_room() -> None:
    with pytest.raises(ValueError, match="no base tile"):
        choose_gmm_tile(replace(A3, l0c_bytes=512), 64, 64, 64, "bf16", 24)
