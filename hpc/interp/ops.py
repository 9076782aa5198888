"""What each operator computes, by name: f32 in, f32 out, row by row.

Operands are the stored dtype's values widened to f32; the caller rounds the result
once. All of it is elementwise, so no result depends on where a row stands. NaN goes
through every operator (`np.maximum`, not `np.fmax`): an operand that nobody wrote must
not look like a value.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpc.interp import curves
from hpc.interp.curves import halves, sigmoid, silu
from hpc.interp.gradient_ops import GRADIENTS
from hpc.interp.numerics import F32
from hpc.interp.row_op import Params, RowOp

_LANES = 64


def swiglu(operands: list[F32], params: Params) -> F32:
    """silu(gate) * up."""
    gate, up = halves(operands[0])
    return silu(gate) * up


def geglu(operands: list[F32], params: Params) -> F32:
    """gelu(gate) * up."""
    gate, up = halves(operands[0])
    return curves.gelu(gate) * up


def swiglu_oai(operands: list[F32], params: Params) -> F32:
    """(u + 1) * g * sigmoid(alpha * g), g clamped above only, u on both sides."""
    gate, up = halves(operands[0])
    alpha, limit = np.float32(params["alpha"]), np.float32(params["limit"])
    gate = np.minimum(gate, limit)
    up = np.clip(up, -limit, limit)
    return (up + np.float32(1)) * (gate * sigmoid(alpha * gate))


def relu(operands: list[F32], params: Params) -> F32:
    """max(h, 0)."""
    return np.maximum(operands[0], np.float32(0))


def relu2(operands: list[F32], params: Params) -> F32:
    """max(h, 0)^2."""
    return np.square(relu(operands, params))


def gelu(operands: list[F32], params: Params) -> F32:
    """h * (1 + erf(h / sqrt 2)) / 2."""
    return curves.gelu(operands[0])


def add(operands: list[F32], params: Params) -> F32:
    """Sum of two operands."""
    return operands[0] + operands[1]


def copy(operands: list[F32], params: Params) -> F32:
    """The operand itself."""
    return operands[0]


OPS: dict[str, RowOp] = {
    op.__name__: op for op in (swiglu, geglu, swiglu_oai, relu, relu2, gelu, add, copy)
} | GRADIENTS
"""Operators whose row i depends on row i of each operand. A new one is one entry."""


def apply(name: str, operands: list[F32], params: Params) -> F32:
    """OPS[name] with the floating-point warnings of poison and overflow silenced."""
    with np.errstate(over="ignore", invalid="ignore"):
        return OPS[name](operands, params)


def reduce_slots(
    rows: npt.NDArray[np.float32], sent: npt.NDArray[np.bool_], weights: F32 | None
) -> F32:
    """Sum over the slots in ascending order, f32 [T, cols].

    `rows` is f32 [T, k, cols], `sent` [T, k]; `weights` f32 [T, k], or None for plain
    sums. A slot that was not sent is skipped, never multiplied: nobody wrote its row.
    """
    total = np.zeros((rows.shape[0], rows.shape[2]), np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        for slot in range(rows.shape[1]):
            here = rows[:, slot]
            if weights is not None:
                here = here * weights[:, slot, None]
            if sent[:, slot].all():
                total += here
                continue
            total[sent[:, slot]] += here[sent[:, slot]]
    return total


def row_dot(one: F32, two: F32) -> F32:
    """Dot product of each row of `one` with that of `two`, f32 [rows].

    The order of the sum depends on the number of columns alone: lane by lane, as a
    vector unit does it, and then the lanes in pairs.
    """
    rows, cols = one.shape
    lanes = np.zeros((rows, _LANES), np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, cols, _LANES):
            stop = min(start + _LANES, cols)
            lanes[:, : stop - start] += one[:, start:stop] * two[:, start:stop]
        while lanes.shape[1] > 1:
            middle = lanes.shape[1] // 2
            lanes = lanes[:, :middle] + lanes[:, middle:]
    return lanes[:, 0]
