"""The published table of whole layers, forward and backward, through the product."""

from __future__ import annotations

from functools import cache

import pytest

from hpc.commands.validation import Outcome, Validator
from hpc.machine.published import load_points
from hpc.machine.record import load_machine

POINTS = {
    point.id: point
    for point in load_points().points
    if point.id.startswith(("forward, ", "backward, "))
}


@cache
def outcome(name: str) -> Outcome:
    machine = load_machine("ascend_a3")
    return Validator("ascend_a3", machine, load_points()).outcome(POINTS[name])


def test_the_table_is_complete() -> None:
    assert set(POINTS) == {
        f"{mode}, {policy}, EP {ep}"
        for mode in ("forward", "backward")
        for policy in ("serial", "paper")
        for ep in (4, 8, 16)
    }


@pytest.mark.parametrize("name", POINTS)
def test_every_latency_is_within_seven_percent(name: str) -> None:
    assert abs(outcome(name).error) <= 0.07


def test_the_mean_error_of_all_twelve_is_at_most_three_percent() -> None:
    errors = [abs(outcome(name).error) for name in POINTS]
    assert sum(errors) / len(errors) <= 0.03


@pytest.mark.parametrize("ep", [4, 8, 16])
def test_the_published_gain_of_backward(ep: int) -> None:
    """1.44, 1.52 and 1.53 times."""
    serial, paper = (
        outcome(f"backward, {policy}, EP {ep}") for policy in ("serial", "paper")
    )
    published = serial.point.value / paper.point.value
    assert serial.simulated / paper.simulated == pytest.approx(published, rel=0.07)
