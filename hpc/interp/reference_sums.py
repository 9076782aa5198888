"""Values with what is known of their error, and sums of products of them.

Why errors add up like this is said in `reference`.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from hpc.interp.reference_ops import F64, product
from hpc.schedule.layer import Layer, experts_of

SAFETY = 8.0
"""Standard deviations that an element may be off."""

UNIT_ROUNDOFF = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 2.0**-24}
"""Largest relative error of one rounding: half a unit in the last place."""

LEAST_NORMAL = {"bf16": 2.0**-126, "fp16": 2.0**-14, "fp32": 2.0**-126}
"""Below it, units do not get smaller: roundings are those of a number of this size."""

F32_ROUNDOFF = 2.0**-24


class Known(NamedTuple):
    """Values [rows, cols], their natural scale, and the square of the relative error
    that an execution may have made so far, as one standard deviation."""

    value: F64
    scale: F64
    error2: float


def stored(dtype: str, value: F64, scale: F64, error2: float) -> Known:
    """What is known of a result once it is rounded to `dtype`. Where there is nothing,
    the scale stays zero, and no error is allowed."""
    scale = np.maximum(scale, np.abs(value))
    np.maximum(scale, LEAST_NORMAL[dtype], out=scale, where=scale > 0)
    return Known(value, scale, error2 + UNIT_ROUNDOFF[dtype] ** 2 / 3)


class Sums:
    """The gradient of a matrix at each expert: sums over ranks, their squared scales,
    how many rows, and the squared error of the operands."""

    def __init__(self) -> None:
        self.values: dict[int, F64] = {}
        self.squares: dict[int, F64] = {}
        self.rows: Counter[int] = Counter()
        self.error2 = 0.0
        self.shape = (0, 0)

    def add(self, expert: int, one: Known, two: Known) -> None:
        """Adds one transposed times two, rows of one rank at `expert`."""
        self.shape = one.value.shape[1], two.value.shape[1]
        self.error2 = max(self.error2, one.error2 + two.error2)
        if not len(one.value):
            return
        self.rows[expert] += len(one.value)
        for sums, left, right in (
            (self.values, one.value, two.value),
            (self.squares, np.square(one.scale), np.square(two.scale)),
        ):
            part = product(left.T, right)
            sums[expert] = sums[expert] + part if expert in sums else part

    def of_rank(self, layer: Layer, rank: int) -> Known:
        """The matrices of all local experts of a rank, below each other."""
        total = np.zeros((layer.local_experts, *self.shape))
        squares = np.zeros_like(total)
        for local, expert in enumerate(experts_of(rank, layer.experts, layer.ep)):
            if expert in self.values:
                total[local] = self.values[expert]
                squares[local] = self.squares[expert]
        most = max(self.rows.values(), default=0)
        error2 = self.error2 + F32_ROUNDOFF**2 * most / 6
        total, scale = total.reshape(-1, self.shape[1]), np.sqrt(squares, out=squares)
        return stored(layer.dtype, total, scale.reshape(total.shape), error2)
