"""How far outputs are from the reference, and whether that is allowed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpc.interp.reference import Reference
from hpc.interp.reference_ops import F64

_TINY = 2.0**-52
"""Bound of an output that no operator rounds."""


@dataclass(frozen=True)
class Verdict:
    """The worst error of outputs against a reference, relative to the natural scale.

    `max_rel_err` is infinite if an output is not a number (or not zero where it must
    be). Of several outputs it is that of the one nearest to its `bound`: another one,
    with a wider bound, may have a larger error. `worst` says where: (output, rank, row,
    column). `outputs` has the worst error and the bound of every output that has
    elements.
    """

    max_rel_err: float
    bound: float
    worst: tuple[str, int, int, int] | None
    outputs: Mapping[str, tuple[float, float]]

    @property
    def ok(self) -> bool:
        return self.max_rel_err <= self.bound

    @property
    def is_nan(self) -> bool:
        """Whether there is no error to tell, only a wrong kind of value."""
        return math.isinf(self.max_rel_err)

    @property
    def severity(self) -> float:
        """Error in units of the bound."""
        return self.max_rel_err / self.bound if self.max_rel_err else 0.0


def compare(
    outputs: Mapping[str, Sequence[npt.NDArray[Any]]], expected: Reference
) -> Verdict:
    """The verdict on `outputs[name][rank]`: of several outputs, on the worst one."""
    found: dict[str, tuple[float, float]] = {}
    verdict = Verdict(0.0, max(expected.bound.values(), default=0.0), None, found)
    for name, values in expected.values.items():
        bound = max(expected.bound[name], _TINY)
        for rank, value in enumerate(values):
            got = outputs[name][rank].astype(np.float64)
            error = _relative(got, value, expected.scales[name][rank])
            if not error.size:
                continue
            row, col = divmod(int(error.argmax()), error.shape[1])
            most, place = float(error[row, col]), (name, rank, row, col)
            found[name] = max(most, found.get(name, (0.0, 0.0))[0]), bound
            worst = Verdict(most, bound, place, found)
            if verdict.worst is None or worst.severity > verdict.severity:
                verdict = worst
    return verdict


def _relative(got: F64, value: F64, scale: F64) -> F64:
    """|got - value| / scale; infinite for NaN, and for any error at scale zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.abs(got - value) / scale
    error[got == value] = 0.0
    error[np.isnan(error)] = np.inf
    return error
