"""Formulas of the reference, in f64 and apart from those that schedules execute.

An activation takes rows with their natural scale (see `reference`) and gives the result
with its own: the scale is multiplied by the slope, and a product of two uncertain
factors adds one's scale times the other's value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
Params = Mapping[str, float]

_ROWS, _INNER, _COLS = 32, 128, 64
_SLOPE = 1.13
"""Above the steepest slope of silu (1.0998) and of gelu (1.1289)."""


def product(rows: F64, matrix: F64) -> F64:
    """`rows` @ `matrix` in blocks too small for BLAS to start threads."""
    count, k = rows.shape
    stack = np.zeros((-(-count // _ROWS), _ROWS, k))
    stack.reshape(-1, k)[:count] = rows
    total = np.zeros((*stack.shape[:2], matrix.shape[1]))
    for start in range(0, k, _INNER):
        inner = slice(start, start + _INNER)
        for left in range(0, matrix.shape[1], _COLS):
            cols = slice(left, left + _COLS)
            total[..., cols] += stack[..., inner] @ matrix[inner, cols]
    return total.reshape(-1, matrix.shape[1])[:count]


def logistic(values: F64) -> F64:
    """1 / (1 + exp(-z))."""
    return 0.5 * (1.0 + np.tanh(0.5 * values))


def normal_cdf(values: F64) -> F64:
    """Probability that a standard normal variable is below; erfc of the C library."""
    flat = (values * -math.sqrt(0.5)).ravel().tolist()
    return 0.5 * np.array(list(map(math.erfc, flat))).reshape(values.shape)


def normal_density(values: F64) -> F64:
    """Density of the standard normal distribution."""
    return np.exp(-0.5 * np.square(values)) / math.sqrt(2.0 * math.pi)


def _gated(gate: F64, gate_scale: F64, up: F64, up_scale: F64) -> tuple[F64, F64]:
    """(gate * up, its scale) from a bent gate and a straight up, with scales.

    The last term keeps the product of two small errors below the scale when gate and
    up are both near zero.
    """
    terms = (gate_scale * up, gate * up_scale, gate_scale * up_scale / 8)
    return gate * up, np.sqrt(sum(np.square(term) for term in terms))


Bend = Callable[[F64, F64, Params], tuple[F64, F64]]


def _swiglu(h: F64, scale: F64, params: Params) -> tuple[F64, F64]:
    (gate, up), (gate_scale, up_scale) = np.hsplit(h, 2), np.hsplit(scale, 2)
    return _gated(gate * logistic(gate), _SLOPE * gate_scale, up, up_scale)


def _geglu(h: F64, scale: F64, params: Params) -> tuple[F64, F64]:
    (gate, up), (gate_scale, up_scale) = np.hsplit(h, 2), np.hsplit(scale, 2)
    return _gated(gate * normal_cdf(gate), _SLOPE * gate_scale, up, up_scale)


def _swiglu_oai(h: F64, scale: F64, params: Params) -> tuple[F64, F64]:
    (gate, up), (gate_scale, up_scale) = np.hsplit(h, 2), np.hsplit(scale, 2)
    limit = params["limit"]
    gate = np.where(gate > limit, limit, gate)
    up = np.where(up > limit, limit, np.where(up < -limit, -limit, up))
    bent = gate * logistic(params["alpha"] * gate)
    return _gated(bent, _SLOPE * gate_scale, up + 1.0, up_scale)


def _relu(h: F64, scale: F64, params: Params) -> tuple[F64, F64]:
    return np.where(h > 0, h, 0.0), scale


def _relu2(h: F64, scale: F64, params: Params) -> tuple[F64, F64]:
    return np.where(h > 0, h * h, 0.0), 2 * np.maximum(h, scale / 2) * scale


def _gelu(h: F64, scale: F64, params: Params) -> tuple[F64, F64]:
    return h * normal_cdf(h), _SLOPE * scale


ACTIVATIONS: dict[str, Bend] = {
    "swiglu": _swiglu,
    "geglu": _geglu,
    "swiglu_oai": _swiglu_oai,
    "relu": _relu,
    "relu2": _relu2,
    "gelu": _gelu,
}
"""(values, scale, parameters) -> (values, scale), by operator name."""
