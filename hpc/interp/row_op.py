"""The type of an operator whose row i depends on row i of each operand alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hpc.interp.numerics import F32

Params = Mapping[str, float]
RowOp = Callable[[list[F32], Params], F32]
"""(operands, parameters) -> result; all f32 [rows, columns]."""
