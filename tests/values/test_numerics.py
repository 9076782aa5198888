"""Rounding, and products whose bits do not depend on how they are cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc.interp import numerics
from hpc.interp.numerics import (
    k_block,
    kernel,
    multiply,
    numpy_dtype,
    pack,
    position_free,
    product_by_loop,
    round_to,
    widen,
)


def matrices(k: int, rows: int = 150, cols: int = 75) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    left = rng.standard_normal((rows, k), dtype=np.float32)
    return left, rng.standard_normal((k, cols), dtype=np.float32)


@pytest.mark.parametrize(
    ("dtype", "value", "rounded"),
    [
        ("bf16", 1 + 2**-8, 1.0),  # halfway: to even
        ("bf16", 1 + 3 * 2**-8, 1 + 2**-6),  # halfway: to even, upwards
        ("bf16", 1 + 2**-8 + 2**-20, 1 + 2**-7),
        ("bf16", 1e39, np.inf),
        ("fp16", 1 + 2**-11, 1.0),
        ("fp16", 1 + 3 * 2**-11, 1 + 2**-9),
        ("fp16", 65520.0, np.inf),
        ("fp32", 1 + 2**-23, 1 + 2**-23),
    ],
)
def test_one_rounding_to_nearest_even(dtype: str, value: float, rounded: float) -> None:
    with np.errstate(over="ignore"):
        stored = round_to(np.array([value], np.float32), numpy_dtype(dtype))
    assert stored.dtype == numpy_dtype(dtype)
    assert widen(stored)[0] == np.float32(rounded)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_every_dtype_holds_poison(dtype: str) -> None:
    assert np.isnan(np.full(3, np.nan, numpy_dtype(dtype)).astype(np.float32)).all()


@pytest.mark.parametrize("k", [1, 7, 32, 112, 128, 129, 300])
def test_product_is_right(k: int) -> None:
    left, right = matrices(k)
    exact = left.astype(np.float64) @ right.astype(np.float64)
    scale = np.sqrt(np.square(left, dtype=float) @ np.square(right, dtype=float))
    error = np.abs(multiply(left, pack(right)) - exact)
    assert (error <= 8 * np.sqrt(k) * 2**-24 * np.maximum(scale, abs(exact))).all()


@given(k=st.integers(1, 300), data=st.data())
def test_bits_do_not_depend_on_the_cut(k: int, data: st.DataObject) -> None:
    """Any rows and columns, in any order, give the bits that they have in the whole."""
    left, right = matrices(k)
    whole = multiply(left, pack(right))
    rows = data.draw(st.lists(st.integers(0, 149), min_size=1, max_size=140))
    cols = data.draw(st.lists(st.integers(0, 74), min_size=1, max_size=40))
    part = multiply(left[rows], pack(right[:, cols]))
    assert part.tobytes() == whole[np.ix_(rows, cols)].tobytes()


def test_bits_do_not_depend_on_poisoned_neighbours() -> None:
    left, right = matrices(130)
    whole = multiply(left, pack(right))
    left[1::2] = np.nan
    spoiled = multiply(left, pack(right))
    assert np.isnan(spoiled[1::2]).all()
    assert spoiled[::2].tobytes() == whole[::2].tobytes()


def test_no_rows_and_no_inner_dimension() -> None:
    left, right = matrices(16)
    assert multiply(left[:0], pack(right)).shape == (0, 75)
    assert not multiply(np.ones((2, 0), np.float32), pack(np.ones((0, 3)))).any()


def test_probe_refuses_a_product_that_depends_on_position() -> None:
    """A kernel that sums its last row or column the other way round is found out."""

    def edge_row(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        product = product_by_loop(left, right)
        backwards = product_by_loop(left[..., ::-1], right[..., ::-1, :])
        product[..., -1, :] = backwards[..., -1, :]
        return product

    def edge_col(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        product = product_by_loop(left, right)
        backwards = product_by_loop(left[..., ::-1], right[..., ::-1, :])
        product[..., -1] = backwards[..., -1]
        return product

    assert position_free(product_by_loop, 16, 32, 16)
    assert not position_free(edge_row, 16, 32, 16)
    assert not position_free(edge_col, 16, 32, 16)


def test_probe_refuses_neighbours_that_leak() -> None:
    def leak(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return product_by_loop(left, right) + 0 * left.sum()

    assert not position_free(leak, 16, 32, 16)


def test_loop_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics, "position_free", lambda *_: False)
    kernel.cache_clear()
    try:
        left, right = matrices(40)
        assert kernel(k_block(40)).product is product_by_loop
        whole = multiply(left, pack(right))
        part = multiply(left[33:70], pack(right[:, 5:50]))
        assert part.tobytes() == whole[33:70, 5:50].tobytes()
    finally:
        kernel.cache_clear()
