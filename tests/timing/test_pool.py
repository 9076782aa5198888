"""Processor sharing against arithmetic by hand and a brute-force fluid model."""

from __future__ import annotations

from heapq import heappop

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.interp import sharing, turns
from hpc.interp.bandwidth import SERVED, TOKEN, bandwidth
from hpc.interp.program import NO_GATE
from hpc.interp.walk import INFINITY

Arrival = tuple[float, float, float]
"""(time, size, weight) of a transfer."""


class Bandwidth:
    """As much of a run's state as one shared bandwidth needs. Its transfers are cores
    whose plan ends with them, so that `done_us` is when they finish."""

    def __init__(self, rate: float, cap: float, transfers: int = 64) -> None:
        self.cores = transfers
        self.pools, self.flows = [bandwidth(rate, cap)], [[]]
        self.events: list[tuple[float, int]] = []
        self.pos, self.stop = [*range(transfers)], [*range(1, transfers + 1)]
        self.start, self.end = [0.0] * transfers, [0.0] * transfers
        self.work_us, self.done_us = [0.0] * transfers, [INFINITY] * transfers
        self.base, self.to_plan = [0] * transfers, [-i for i in range(transfers)]
        self.plan_signal, self.signals = [NO_GATE], []
        self.fetch_us = 0.0

    @property
    def token(self) -> float:
        return self.pools[0][TOKEN]

    def join(self, now: float, size: float, weight: float, flow: int) -> None:
        sharing.join(self, 0, now, size, weight, flow)  # type: ignore[arg-type]

    def wake(self, now: float) -> None:
        sharing.wake(self, 0, now)  # type: ignore[arg-type]

    def finished(self) -> dict[int, float]:
        return {flow: t for flow, t in enumerate(self.done_us) if t != INFINITY}


def finish_times(pool: Bandwidth, arrivals: list[Arrival]) -> dict[int, float]:
    """Runs a bandwidth on its own: finish time of every transfer."""
    order = sorted(range(len(arrivals)), key=lambda f: arrivals[f][0])
    while order or pool.events:
        coming = arrivals[order[0]][0] if order else INFINITY
        if pool.events and pool.events[0][0] <= coming:
            pool.wake(heappop(pool.events)[0])
            continue
        flow = order.pop(0)
        pool.join(*arrivals[flow], flow)
    return pool.finished()


def fluid(rate: float, cap: float, arrivals: list[Arrival]) -> dict[int, float]:
    """The same by stepping from change to change over all transfers."""
    left = {}
    done: dict[int, float] = {}
    pending = sorted(range(len(arrivals)), key=lambda f: arrivals[f][0])
    now = 0.0
    while pending or left:
        total = sum(arrivals[f][2] for f in left)
        speeds = {f: min(cap, rate / total) * arrivals[f][2] for f in left}
        ends = {f: now + left[f] / speeds[f] for f in left}
        arrival = arrivals[pending[0]][0] if pending else INFINITY
        step = min([arrival, *ends.values()])
        for f in list(left):
            left[f] -= speeds[f] * (step - now)
            if ends[f] <= step:
                done[f] = step
                del left[f]
        now = step
        while pending and arrivals[pending[0]][0] <= now:
            f = pending.pop(0)
            left[f] = arrivals[f][1]
    return done


def test_two_transfers_share_and_the_first_leaves() -> None:
    """Rate 10. A (100 B) alone until 4: 40 moved. Then 5 each: A's 60 take 12, to 16.
    B has moved 60 of 80 by then; 20 more at full rate: 18."""
    done = finish_times(Bandwidth(10, 10), [(0, 100, 1), (4, 80, 1)])
    assert done == {0: pytest.approx(16), 1: pytest.approx(18)}


def test_cap_binds_a_lone_transfer_only() -> None:
    """Rate 10, cap 4: alone at 4; three of them at 10/3."""
    assert finish_times(Bandwidth(10, 4), [(0, 40, 1)]) == {0: pytest.approx(10)}
    three = finish_times(Bandwidth(10, 4), [(0, 40, 1)] * 3)
    assert three == dict.fromkeys(range(3), pytest.approx(12))


def test_weight_gives_a_larger_share_and_a_larger_cap() -> None:
    """Weights 3 and 1 of rate 8: 6 and 2. A heavy one alone may use 3 x cap."""
    done = finish_times(Bandwidth(8, 100), [(0, 60, 3), (0, 20, 1)])
    assert done == {0: pytest.approx(10), 1: pytest.approx(10)}
    assert finish_times(Bandwidth(100, 2), [(0, 60, 3)]) == {0: pytest.approx(10)}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    rate=st.integers(1, 50),
    cap=st.integers(1, 50),
    arrivals=st.lists(
        st.tuples(
            st.integers(0, 40).map(float),
            st.integers(1, 200).map(float),
            st.sampled_from([0.125, 1.0, 2.0, 1024.0]),
        ),
        min_size=1,
        max_size=12,
    ),
)
def test_agrees_with_a_fluid_model(
    rate: int, cap: int, arrivals: list[Arrival]
) -> None:
    done = finish_times(Bandwidth(rate, cap), arrivals)
    expected = fluid(rate, cap, arrivals)
    assert done.keys() == expected.keys()
    for flow, time in done.items():
        assert time == pytest.approx(expected[flow], rel=1e-9, abs=1e-9)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(sizes=st.lists(st.floats(0.1, 1e9), min_size=1, max_size=30), data=st.data())
def test_result_does_not_depend_on_the_order_of_simultaneous_joins(
    sizes: list[float], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(sizes))))
    straight, shuffled = Bandwidth(1450e3, 57600.0), Bandwidth(1450e3, 57600.0)
    for flow in range(len(sizes)):
        straight.join(1.5, sizes[flow], 1.0, flow)
    for flow in order:
        shuffled.join(1.5, sizes[flow], 1.0, flow)
    while straight.token != INFINITY:
        now = straight.token
        assert shuffled.token == now
        straight.wake(now)
        shuffled.wake(now)
        assert straight.finished() == shuffled.finished()


def test_first_come_first_served() -> None:
    """Rate 10: busy until 5; then 2 more; idle from 7 to 9; 1 more."""
    pool = Bandwidth(10, 10)
    book = [turns.book(pool, 0, now, size) for now, size in ((0, 50), (1, 20), (9, 10))]  # type: ignore[arg-type]
    assert book == [5, 7, 10]
    assert pool.pools[0][SERVED] == 80
