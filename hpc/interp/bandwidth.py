"""A bandwidth of the event loop, that is a memory or a link: its fields and weights."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

RATE, CAP, SERVED, CLOCK, WEIGHT, LAST, TOKEN, NEXT = range(8)
"""Bytes per us of all and of one transfer of weight 1; bytes asked for; virtual bytes
that each has moved; sum of weights; time of the last change; time of the one wake-up
that is not stale; smallest finish mark. First come, first served ones use CLOCK for the
time at which they are free."""


def dyadic(ratio: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Weights, a number or an array, as positive multiples of 2^-10: sums of such are
    exact (see `sharing.join`)."""
    steps = np.rint(np.asarray(ratio, dtype=np.float64) * 1024.0)
    return np.maximum(1.0, steps) / 1024.0


def bandwidth(rate: float, cap: float) -> list[float]:
    """An idle bandwidth."""
    infinity = float("inf")
    return [rate, cap, 0.0, 0.0, 0.0, 0.0, infinity, infinity]
