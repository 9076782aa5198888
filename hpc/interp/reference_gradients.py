"""Gradients of the activations in f64, with their natural scale (see `reference`).

Written as derivatives of the formulas in `reference_ops`, apart from those that
schedules execute. A gradient is a product of uncertain factors: the gradient from
above, and slopes and values at an uncertain operand.

Where a slope jumps (relu at zero, clamps at their limit), an operand that is off by
less than its distance from the jump keeps its slope, and another may get either one.
`reach` is how far off, relative to its scale, an operand may be. Inside, the scale is
what makes the bound on this element the whole gradient: its scale over the reach.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from hpc.interp.reference_ops import F64, logistic, normal_cdf, normal_density

Params = Mapping[str, float]
Mask = npt.NDArray[np.bool_]
Scaled = tuple[F64, F64]
"""(values, natural scale)."""

_SILU, _GELU = 1.10, 1.13
"""Above the steepest slopes of silu (1.0998) and gelu (1.1289)."""

_SILU_BEND, _GELU_BEND = 0.5, 0.8
"""Above the steepest slopes of silu' (0.5, at zero) and of gelu' (0.798, at zero)."""


def times(*factors: Scaled) -> Scaled:
    """The product of uncertain factors: one's scale times the others' values, for each
    of them, and a little of all scales where several values are near zero."""
    value, least, squares = np.ones(()), np.full((), 1 / 64), np.zeros(())
    for index, (own, scale) in enumerate(factors):
        value = value * own
        least = least * np.square(scale)
        term = np.square(scale)
        for other, _ in (*factors[:index], *factors[index + 1 :]):
            term = term * np.square(other)
        squares = squares + term
    return value, np.sqrt(squares + least)


def _jump(at: F64, scale: F64, reach: float, on: Mask, full: Scaled) -> Scaled:
    """`full` where `on`, else zero; either if `at`, distances from the jump, is less
    than the reach."""
    value, size = np.where(on, full[0], 0.0), np.where(on, full[1], 0.0)
    near = np.abs(at) < reach * scale
    if near.any():
        size = np.where(near, np.maximum(full[1], np.abs(full[0])) / reach, size)
    return value, size


def _silu_slope(z: F64) -> F64:
    share = logistic(z)
    return share + z * share * (1.0 - share)


def _gelu_slope(z: F64) -> F64:
    return normal_cdf(z) + z * normal_density(z)


def _pair(gate: Scaled, up: Scaled) -> Scaled:
    return np.hstack([gate[0], up[0]]), np.hstack([gate[1], up[1]])


def _swiglu(h: Scaled, above: Scaled, reach: float, params: Params) -> Scaled:
    gate, up, gate_scale, up_scale = _halves(h)
    slope = (_silu_slope(gate), _SILU_BEND * gate_scale)
    value = (gate * logistic(gate), _SILU * gate_scale)
    return _pair(times(above, (up, up_scale), slope), times(above, value))


def _geglu(h: Scaled, above: Scaled, reach: float, params: Params) -> Scaled:
    gate, up, gate_scale, up_scale = _halves(h)
    slope = (_gelu_slope(gate), _GELU_BEND * gate_scale)
    value = (gate * normal_cdf(gate), _GELU * gate_scale)
    return _pair(times(above, (up, up_scale), slope), times(above, value))


def _swiglu_oai(h: Scaled, above: Scaled, reach: float, params: Params) -> Scaled:
    gate, up, gate_scale, up_scale = _halves(h)
    alpha, limit = params["alpha"], params["limit"]
    held, straight = np.minimum(gate, limit), np.clip(up, -limit, limit) + 1.0
    slope = (_silu_slope(alpha * held), alpha * _SILU_BEND * gate_scale)
    value = (held * logistic(alpha * held), _SILU * gate_scale)
    bent = times(above, (straight, up_scale), slope)
    on = gate <= limit
    bent = _jump(gate - limit, gate_scale, reach, on, bent)
    inside = np.abs(up) <= limit
    plain = _jump(np.abs(up) - limit, up_scale, reach, inside, times(above, value))
    return _pair(bent, plain)


def _relu(h: Scaled, above: Scaled, reach: float, params: Params) -> Scaled:
    return _jump(h[0], h[1], reach, h[0] > 0, above)


def _relu2(h: Scaled, above: Scaled, reach: float, params: Params) -> Scaled:
    return times(above, (2.0 * np.maximum(h[0], 0.0), 2.0 * h[1]))


def _gelu(h: Scaled, above: Scaled, reach: float, params: Params) -> Scaled:
    return times(above, (_gelu_slope(h[0]), _GELU_BEND * h[1]))


def _halves(h: Scaled) -> tuple[F64, F64, F64, F64]:
    (gate, up), (gate_scale, up_scale) = np.hsplit(h[0], 2), np.hsplit(h[1], 2)
    return gate, up, gate_scale, up_scale


GRADIENTS: dict[str, Callable[[Scaled, Scaled, float, Params], Scaled]] = {
    "swiglu_grad": _swiglu,
    "geglu_grad": _geglu,
    "swiglu_oai_grad": _swiglu_oai,
    "relu_grad": _relu,
    "relu2_grad": _relu2,
    "gelu_grad": _gelu,
}
"""(operand, gradient of the result, reach, parameters) -> gradient, by name."""
