"""What each operator computes, by name: f32 in, f32 out, row by row.

Operands are the stored dtype's values widened to f32; the caller rounds the result
once. All of it is elementwise, so no result depends on where a row stands. NaN goes
through every operator (`np.maximum`, not `np.fmax`): an operand that nobody wrote must
not look like a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from hpc.interp.numerics import F32

Params = Mapping[str, float]
RowOp = Callable[[list[F32], Params], F32]

_SQRT_HALF = np.float32(0.7071067811865476)

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
    """The error function, elementwise in f32."""
    size = np.minimum(np.abs(values), np.float32(4))
    small = values + values * _polynomial(_ERF_SMALL, size * size)
    tail = np.float32(1) - np.exp(size * _polynomial(_ERF_LARGE, size))
    return np.where(size > _ERF_SPLIT, np.copysign(tail, values), small)


def _sigmoid(values: F32) -> F32:
    return np.float32(1) / (np.float32(1) + np.exp(-values))


def _silu(values: F32) -> F32:
    return values / (np.float32(1) + np.exp(-values))


def _gelu(values: F32) -> F32:
    share: F32 = erf(values * _SQRT_HALF) + np.float32(1)
    return np.float32(0.5) * values * share


def _halves(rows: F32) -> tuple[F32, F32]:
    """(gate, up) of rows `[gate | up]`, each contiguous."""
    middle = rows.shape[1] // 2
    gate, up = rows[:, :middle], rows[:, middle:]
    return np.ascontiguousarray(gate), np.ascontiguousarray(up)


def swiglu(operands: list[F32], params: Params) -> F32:
    """silu(gate) * up."""
    gate, up = _halves(operands[0])
    return _silu(gate) * up


def geglu(operands: list[F32], params: Params) -> F32:
    """gelu(gate) * up."""
    gate, up = _halves(operands[0])
    return _gelu(gate) * up


def swiglu_oai(operands: list[F32], params: Params) -> F32:
    """(u + 1) * g * sigmoid(alpha * g), g clamped above only, u on both sides."""
    gate, up = _halves(operands[0])
    alpha, limit = np.float32(params["alpha"]), np.float32(params["limit"])
    gate = np.minimum(gate, limit)
    up = np.clip(up, -limit, limit)
    return (up + np.float32(1)) * (gate * _sigmoid(alpha * gate))


def relu(operands: list[F32], params: Params) -> F32:
    """max(h, 0)."""
    return np.maximum(operands[0], np.float32(0))


def relu2(operands: list[F32], params: Params) -> F32:
    """max(h, 0)^2."""
    return np.square(relu(operands, params))


def gelu(operands: list[F32], params: Params) -> F32:
    """h * (1 + erf(h / sqrt 2)) / 2."""
    return _gelu(operands[0])


def add(operands: list[F32], params: Params) -> F32:
    """Sum of two operands."""
    return operands[0] + operands[1]


OPS: dict[str, RowOp] = {
    op.__name__: op for op in (swiglu, geglu, swiglu_oai, relu, relu2, gelu, add)
}
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
