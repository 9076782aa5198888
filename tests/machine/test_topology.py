"""Shifts are means over ranks; against a walk over all pairs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.machine.record import load_machine
from hpc.machine.topology import collective_share, farthest_us, shift_of

A3 = load_machine("ascend_a3")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ep=st.integers(1, 70), package=st.integers(1, 4), nodes=st.integers(1, 4))
def test_shares_are_those_of_all_pairs(ep: int, package: int, nodes: int) -> None:
    node = package * nodes
    machine = replace(A3, dies_per_package=package, dies_per_node=node)
    for k in range(1, ep):
        pairs = [(r, (r + k) % ep) for r in range(ep)]
        near = sum(a // package == b // package for a, b in pairs) / ep
        inside = sum(a // node == b // node for a, b in pairs) / ep
        shift = shift_of(machine, ep, k)
        assert shift.in_package == pytest.approx(near)
        assert shift.in_node == pytest.approx(inside - near)
        away = 1 - inside
        hop = near * 0.22 + (inside - near) * 0.93 + away * 2.5
        assert shift.hop_us == pytest.approx(hop)
        assert shift.issue_us == pytest.approx(inside * 1.3 + away * 2.1)


def test_own_rows_need_no_link() -> None:
    assert shift_of(A3, 8, 0).link_share == 0
    assert shift_of(A3, 8, 8).hop_us == 0


def test_rows_within_a_package_take_their_own_link() -> None:
    """Two dies: all rows go at 189 GB/s. Eight dies: half of the rows to the next
    rank leave the package, at 137 GB/s."""
    assert shift_of(A3, 2, 1).link_share == pytest.approx(137 / 189)
    assert shift_of(A3, 8, 1).link_share == pytest.approx(0.5)
    assert shift_of(A3, 8, 2).link_share == 1


def test_a_step_of_a_collective_is_as_slow_as_its_slowest_pair() -> None:
    assert collective_share(A3, shift_of(A3, 8, 1)) == pytest.approx(137 / 110)
    across = collective_share(A3, shift_of(A3, 32, 16))
    assert across == pytest.approx(137 / 110 * 137 / 135)
    assert collective_share(A3, shift_of(A3, 2, 1)) < collective_share(
        A3, shift_of(A3, 8, 1)
    )


def test_farthest_ranks() -> None:
    assert [farthest_us(A3, ep) for ep in (2, 16, 17)] == [0.22, 0.93, 2.5]
