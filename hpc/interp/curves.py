"""The functions that activations and their gradients are made of, in f32, elementwise.

No result depends on where an element stands, and NaN goes through all of them.
"""

from __future__ import annotations

import numpy as np

from hpc.interp.numerics import F32

_SQRT_HALF = np.float32(0.7071067811865476)
_NORMAL = np.float32(0.3989422804014327)
_ONE, _HALF = np.float32(1), np.float32(0.5)

# erf in f32, below one unit in the last place: a polynomial in a^2 for small |a|, else
# 1 - exp(|a| * polynomial in |a|), as published by N. Juffa.
_ERF_SPLIT = np.float32(0.927734375)
_ERF_SMALL = (
    -5.96761703e-4, 4.99119423e-3, -2.67681349e-2,
    1.12819925e-1, -3.76125336e-1, 1.28379166e-1,
)  # fmt: skip
_ERF_LARGE = (
    -1.72853470e-5, 3.83197126e-4, -3.88396438e-3, 2.42546219e-2,
    -1.06777877e-1, -6.34846687e-1, -1.128717512,
)  # fmt: skip


def _polynomial(coefficients: tuple[float, ...], at: F32) -> F32:
    """Horner's rule, highest power first."""
    total = np.full_like(at, coefficients[0])
    for coefficient in coefficients[1:]:
        total *= at
        total += np.float32(coefficient)
    return total


def erf(values: F32) -> F32:
    """The error function."""
    size = np.minimum(np.abs(values), np.float32(4))
    small = values + values * _polynomial(_ERF_SMALL, size * size)
    tail = _ONE - np.exp(size * _polynomial(_ERF_LARGE, size))
    return np.where(size > _ERF_SPLIT, np.copysign(tail, values), small)


def sigmoid(values: F32) -> F32:
    """1 / (1 + exp(-z))."""
    return _ONE / (_ONE + np.exp(-values))


def silu(values: F32) -> F32:
    """z * sigmoid(z)."""
    return values / (_ONE + np.exp(-values))


def silu_slope(values: F32) -> F32:
    """The derivative of silu: s + z s (1 - s), s the sigmoid."""
    share = sigmoid(values)
    rest: F32 = _ONE - share
    bend: F32 = _ONE + values * rest
    return share * bend


def gelu(values: F32) -> F32:
    """z * (1 + erf(z / sqrt 2)) / 2."""
    share: F32 = erf(values * _SQRT_HALF) + _ONE
    return _HALF * values * share


def gelu_slope(values: F32) -> F32:
    """The derivative of gelu: the normal distribution plus z times its density."""
    below: F32 = _HALF * (erf(values * _SQRT_HALF) + _ONE)
    exponent: F32 = -_HALF * values * values
    density: F32 = _NORMAL * np.exp(exponent)
    return np.add(below, values * density, dtype=np.float32)


def halves(rows: F32) -> tuple[F32, F32]:
    """(gate, up) of rows `[gate | up]`, each contiguous."""
    middle = rows.shape[1] // 2
    gate, up = rows[:, :middle], rows[:, middle:]
    return np.ascontiguousarray(gate), np.ascontiguousarray(up)
