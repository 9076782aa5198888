"""Every operator by value, and what it must do with poison."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpc.interp.curves import erf
from hpc.interp.ops import OPS, apply, reduce_slots
from hpc.schedule.layer import ACTIVATIONS, GATED_ACTIVATIONS

PARAMS = {"alpha": 1.702, "limit": 7.0}
POINTS = [-30.0, -8.0, -3.0, -1.0, -0.5, -0.0, 0.0, 0.25, 1.0, 2.0, 6.5, 9.0, 30.0]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def gauss(x: float) -> float:
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


def clamped(gate: float, up: float, alpha: float = 1.702, limit: float = 7.0) -> float:
    gate, up = min(gate, limit), max(-limit, min(up, limit))
    return (up + 1) * gate * sigmoid(alpha * gate)


GATED = {
    "swiglu": lambda g, u: g * sigmoid(g) * u,
    "geglu": lambda g, u: gauss(g) * u,
    "swiglu_oai": clamped,
}
PLAIN = {"relu": lambda h: max(h, 0), "relu2": lambda h: max(h, 0) ** 2, "gelu": gauss}


@pytest.mark.parametrize("name", GATED)
def test_gated_activation_by_value(name: str) -> None:
    pairs = [(g, u) for g in POINTS for u in POINTS]
    rows = np.array([[g, u] for g, u in pairs], np.float32)
    wanted = np.array([[GATED[name](g, u)] for g, u in pairs])
    got = apply(name, [rows], PARAMS)
    np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_activation_by_value(name: str) -> None:
    wanted = np.array([[PLAIN[name](h)] for h in POINTS])
    got = apply(name, [np.array(POINTS, np.float32)[:, None]], PARAMS)
    np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6)


def test_oai_clamps_the_gate_above_only_and_up_on_both_sides() -> None:
    """Each of four (gate, up) is beyond one of the limits."""
    rows = np.array([[100.0, 1.0], [-100.0, 1.0], [1.0, 100.0], [1.0, -100.0]])
    got = apply("swiglu_oai", [rows.astype(np.float32)], PARAMS)[:, 0]
    at_limit = 2 * 7 * sigmoid(1.702 * 7)
    one = sigmoid(1.702)
    np.testing.assert_allclose(got, [at_limit, 0, 8 * one, -6 * one], rtol=1e-5)


def test_oai_takes_its_numbers_from_the_parameters() -> None:
    row = np.array([[3.0, 3.0]], np.float32)
    got = apply("swiglu_oai", [row], {"alpha": 1.0, "limit": 2.0})
    assert got[0, 0] == pytest.approx(3 * 2 * sigmoid(2.0))


def test_gate_comes_first() -> None:
    assert apply("swiglu", [np.array([[0, 5]], np.float32)], PARAMS) == 0
    assert apply("swiglu", [np.array([[5, 0]], np.float32)], PARAMS) == 0
    assert apply("swiglu", [np.array([[-30, 1]], np.float32)], PARAMS) > -1e-6
    assert apply("swiglu", [np.array([[1, -30]], np.float32)], PARAMS) < -20


def test_erf_to_the_last_places() -> None:
    points = np.linspace(-6, 6, 20001, dtype=np.float32)
    exact = np.array([math.erf(x) for x in points.tolist()])
    assert np.abs(erf(points) - exact).max() < 2**-23


def test_every_activation_of_the_language_has_a_value_and_a_gradient() -> None:
    assert {n for a in ACTIVATIONS for n in (a, f"{a}_grad")} <= set(OPS)
    assert set(GATED) == set(GATED_ACTIVATIONS)


def operands(name: str, rows: np.ndarray) -> list[np.ndarray]:
    """As many operands as an operator takes, of the widths that it takes, out of
    `rows` of an even number of columns."""
    gated = name.removesuffix("_grad") in GATED_ACTIVATIONS
    half = np.ascontiguousarray(rows[::-1, : rows.shape[1] // 2])
    if name.endswith("_grad"):
        return [rows, half if gated else rows[::-1].copy()]
    return [rows, rows[::-1].copy()] if name == "add" else [rows]


@pytest.mark.parametrize("name", OPS)
def test_poison_goes_through(name: str) -> None:
    """In any one column of any one operand."""
    good = np.ones((1, 4), np.float32)
    for index, each in enumerate(operands(name, good)):
        for col in range(each.shape[1]):
            bad = [rows.copy() for rows in operands(name, good)]
            bad[index][0, col] = np.nan
            assert np.isnan(apply(name, bad, PARAMS)).any()


@pytest.mark.parametrize("name", list(OPS))
def test_a_row_does_not_depend_on_its_place(name: str) -> None:
    rng = np.random.default_rng(3)
    given = operands(name, rng.standard_normal((101, 18), dtype=np.float32))
    whole = apply(name, given, PARAMS)
    for row in (0, 7, 50, 100):
        alone = apply(name, [rows[row : row + 1] for rows in given], PARAMS)
        assert alone.tobytes() == whole[row : row + 1].tobytes()


def test_reduce_adds_in_ascending_slot_order() -> None:
    """1e8 + 1 - 1e8 is 0 in f32 from the left; any other order gives 1."""
    rows = np.array([[[1e8], [1.0], [-1e8]]], np.float32)
    sent = np.ones((1, 3), bool)
    assert reduce_slots(rows, sent, None) == 0
    assert reduce_slots(rows[:, [0, 2, 1]], sent, None) == 1


def test_reduce_never_touches_slots_that_were_not_sent() -> None:
    rows = np.array([[[np.nan], [2.0]], [[3.0], [np.nan]], [[np.nan], [np.nan]]])
    sent = np.array([[False, True], [True, False], [False, False]])
    weights = np.array([[0.0, 0.5], [1.0, 0.0], [0.0, 0.0]], np.float32)
    got = reduce_slots(rows.astype(np.float32), sent, weights)
    assert got.tolist() == [[1.0], [3.0], [0.0]]
