"""Gradients of the activations, by name: f32 in, f32 out, row by row.

Each takes the activation's operand and the gradient of its result, and gives the
gradient of the operand. A slope that is zero is multiplied, not selected: the rows of
poison in either operand then show in every result.
"""

from __future__ import annotations

import numpy as np

from hpc.interp.curves import gelu as gelu_curve
from hpc.interp.curves import gelu_slope, halves, sigmoid, silu, silu_slope
from hpc.interp.numerics import F32
from hpc.interp.row_op import Params, RowOp

_ZERO, _ONE, _TWO = np.float32(0), np.float32(1), np.float32(2)


def swiglu_grad(operands: list[F32], params: Params) -> F32:
    """d * up * silu'(gate) and d * silu(gate)."""
    (gate, up), grad = halves(operands[0]), operands[1]
    return np.hstack([grad * up * silu_slope(gate), grad * silu(gate)])


def geglu_grad(operands: list[F32], params: Params) -> F32:
    """d * up * gelu'(gate) and d * gelu(gate)."""
    (gate, up), grad = halves(operands[0]), operands[1]
    return np.hstack([grad * up * gelu_slope(gate), grad * gelu_curve(gate)])


def swiglu_oai_grad(operands: list[F32], params: Params) -> F32:
    """As swiglu_grad, with the sigmoid of alpha * gate, up + 1 for up, and zero for a
    gate or an up beyond its clamp."""
    (gate, up), grad = halves(operands[0]), operands[1]
    alpha, limit = np.float32(params["alpha"]), np.float32(params["limit"])
    clamped = np.minimum(gate, limit)
    share = sigmoid(alpha * clamped)
    slope = share * (_ONE + alpha * clamped * (_ONE - share))
    slope = np.where(gate > limit, _ZERO, slope)
    inside = np.where(np.abs(up) > limit, _ZERO, _ONE)
    straight = np.clip(up, -limit, limit) + _ONE
    return np.hstack([grad * straight * slope, grad * (clamped * share) * inside])


def relu_grad(operands: list[F32], params: Params) -> F32:
    """d where h > 0, else zero."""
    return operands[1] * np.heaviside(operands[0], _ZERO)


def relu2_grad(operands: list[F32], params: Params) -> F32:
    """d * 2 max(h, 0)."""
    return operands[1] * (_TWO * np.maximum(operands[0], _ZERO))


def gelu_grad(operands: list[F32], params: Params) -> F32:
    """d * gelu'(h)."""
    return operands[1] * gelu_slope(operands[0])


GRADIENTS: dict[str, RowOp] = {
    op.__name__: op
    for op in (
        swiglu_grad,
        geglu_grad,
        swiglu_oai_grad,
        relu_grad,
        relu2_grad,
        gelu_grad,
    )
}
"""The gradient of activation `name` is `name + "_grad"`."""
