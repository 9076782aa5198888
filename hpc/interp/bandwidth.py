"""Fields of a bandwidth of the event loop: a memory or a link."""

from __future__ import annotations

RATE, CAP, SERVED, CLOCK, WEIGHT, LAST, TOKEN, NEXT = range(8)
"""Bytes per us of all and of one transfer of weight 1; bytes asked for; virtual bytes
that each has moved; sum of weights; time of the last change; time of the one wake-up
that is not stale; smallest finish mark. First come, first served ones use CLOCK for the
time at which they are free."""


def bandwidth(rate: float, cap: float) -> list[float]:
    """An idle bandwidth."""
    infinity = float("inf")
    return [rate, cap, 0.0, 0.0, 0.0, 0.0, infinity, infinity]
