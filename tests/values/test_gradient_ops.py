"""Gradients of activations by value, and dot products of rows."""

from __future__ import annotations

import numpy as np
import pytest

from hpc.interp import reference_gradients
from hpc.interp.gradient_ops import GRADIENTS
from hpc.interp.ops import apply, row_dot
from hpc.schedule.layer import ACTIVATIONS
from tests.values.test_ops import GATED, PARAMS, PLAIN, POINTS

STEP = 1e-4
AWAY = [p for p in POINTS if abs(p) > 10 * STEP]
"""Points at which no slope jumps: zero is left out, and no limit is a point."""


def slope(curve, at: float) -> float:
    """Central difference; the third derivatives of all curves are below 3, so that it
    is off by less than 3 * STEP^2 / 6."""
    return (curve(at + STEP) - curve(at - STEP)) / (2 * STEP)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_gradient_by_value(name: str) -> None:
    rows = np.array(AWAY, np.float32)[:, None]
    above = np.linspace(-2, 3, len(AWAY), dtype=np.float32)[:, None]
    got = apply(f"{name}_grad", [rows, above], PARAMS)
    slopes = [[slope(PLAIN[name], h)] for h in AWAY]
    np.testing.assert_allclose(got, slopes * above, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", GATED)
def test_gated_gradient_by_value(name: str) -> None:
    pairs = [(g, u) for g in AWAY for u in AWAY]
    rows = np.array(pairs, np.float32)
    above = np.linspace(-2, 3, len(pairs), dtype=np.float32)[:, None]
    got = apply(f"{name}_grad", [rows, above], PARAMS)
    curve = GATED[name]
    slopes = [
        [slope(lambda z, u=u: curve(z, u), g), slope(lambda z, g=g: curve(g, z), u)]
        for g, u in pairs
    ]
    np.testing.assert_allclose(got, slopes * above, rtol=1e-5, atol=1e-4)


def test_slopes_at_the_jumps() -> None:
    """relu is flat at zero; at its limit, a clamp still lets the gradient through."""
    zero, one = np.zeros((1, 1), np.float32), np.ones((1, 1), np.float32)
    assert apply("relu_grad", [zero, one], PARAMS) == 0
    at_limit = np.array([[7.0, 7.0], [7.001, 7.001], [-8.0, -7.001]], np.float32)
    grads = apply("swiglu_oai_grad", [at_limit, np.ones((3, 1), np.float32)], PARAMS)
    assert grads[0].all()
    assert not grads[1].any()
    assert grads[2, 0] != 0
    assert grads[2, 1] == 0


def test_gradients_far_out_are_numbers() -> None:
    """Where exp overflows the slopes are 0 or 1, not inf times zero."""
    far = np.array([[-1e4, 1.0], [1e4, 1.0], [-200.0, -3.0], [200.0, 3.0]], np.float32)
    for name in GRADIENTS:
        gated = name.removesuffix("_grad") in GATED
        above = np.ones((4, 1 if gated else 2), np.float32)
        assert np.isfinite(apply(name, [far, above], PARAMS)).all(), name


def test_the_reference_has_a_formula_for_every_gradient() -> None:
    wanted = {f"{name}_grad" for name in ACTIVATIONS}
    assert set(GRADIENTS) == set(reference_gradients.GRADIENTS) == wanted


@pytest.mark.parametrize("name", list(GRADIENTS))
def test_the_reference_agrees(name: str) -> None:
    """Two formulas for one derivative, f32 and f64, on the same operands."""
    rng = np.random.default_rng(5)
    gated = name.removesuffix("_grad") in GATED
    h = rng.standard_normal((50, 12)).astype(np.float32) * 4
    above = rng.standard_normal((50, 6 if gated else 12)).astype(np.float32)
    got = apply(name, [h, above], {"alpha": 1.1, "limit": 2.0})
    exact = [(v.astype(float), np.abs(v).astype(float)) for v in (h, above)]
    params = {"alpha": 1.1, "limit": 2.0}
    value, scale = reference_gradients.GRADIENTS[name](*exact, 0.0, params)
    np.testing.assert_allclose(got, value, rtol=1e-5, atol=2e-5)
    assert (scale[value != 0] > 0).all()


def test_a_scale_is_at_least_what_an_error_makes_of_it() -> None:
    """Operands off by a thousandth of their scale give results off by no more than
    three thousandths of theirs, wherever the slopes are continuous."""
    rng = np.random.default_rng(6)
    off = 1e-3
    for name, formula in reference_gradients.GRADIENTS.items():
        gated = name.removesuffix("_grad") in GATED
        h, above = rng.standard_normal((300, 8)), rng.standard_normal((300, 8))
        above = above[:, : 4 if gated else 8]
        scales = [np.maximum(np.abs(v), 0.5) for v in (h, above)]
        reach = off if name in ("relu_grad", "swiglu_oai_grad") else 0.0
        params = {"alpha": 1.702, "limit": 0.8}
        given = list(zip((h, above), scales, strict=True))
        value, scale = formula(*given, reach, params)
        for _ in range(20):
            moved = [(v + off * n * rng.uniform(-1, 1, v.shape), n) for v, n in given]
            error = np.abs(formula(*moved, reach, params)[0] - value)
            assert (error <= 3 * off * np.maximum(scale, np.abs(value))).all(), name


@pytest.mark.parametrize("cols", [1, 3, 63, 64, 65, 128, 300])
def test_row_dot(cols: int) -> None:
    rng = np.random.default_rng(cols)
    one, two = rng.standard_normal((2, 30, cols)).astype(np.float32)
    exact = (one.astype(float) * two).sum(axis=1)
    np.testing.assert_allclose(row_dot(one, two), exact, rtol=1e-5, atol=1e-5)
    whole = row_dot(one, two)
    for row in (0, 11, 29):
        alone = row_dot(one[row : row + 1].copy(), two[row : row + 1].copy())
        assert alone.tobytes() == whole[row : row + 1].tobytes()


def test_row_dot_adds_lane_by_lane_then_halves() -> None:
    """1e8 and -1e8 in one lane cancel before anything is lost; in lanes that meet last
    they do not: 1 disappears beside 1e8."""
    row = np.zeros((1, 128), np.float32)
    row[0, [0, 64]] = 1e8, -1e8
    row[0, 32] = 1
    assert row_dot(row, np.ones_like(row)) == 1
    row = np.zeros((1, 128), np.float32)
    row[0, [0, 1]] = 1e8, -1e8
    row[0, 32] = 1
    assert row_dot(row, np.ones_like(row)) == 0


def test_row_dot_of_poison_is_poison() -> None:
    row = np.ones((2, 70), np.float32)
    row[1, 69] = np.nan
    assert np.isnan(row_dot(row, np.ones_like(row))).tolist() == [False, True]
