"""Pieces dealt to the cores of a team, and the cut that fills it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.schedule.deal import Exchanges
from hpc.schedule.policy import partition


@st.composite
def exchanges(draw: st.DrawFn) -> Exchanges:
    ep = draw(st.integers(1, 9))
    return Exchanges(
        groups=partition(ep, draw(st.integers(1, min(ep, 4)))),
        experts=draw(st.integers(1, 6)),
        rows=draw(st.integers(0, 200)),
        issue_us=tuple(draw(st.floats(0.1, 3.0)) for _ in range(ep)),
        own_us=draw(st.floats(0.01, 0.5)),
        remote_us=draw(st.floats(0.1, 4.0)),
        own=draw(st.integers(1, 4)),
        remote=draw(st.integers(1, 4)),
    )


def dealt_one_by_one(cut: Exchanges, cores: int) -> list[float]:
    """Card by card: own rows of all experts, then the others, expert by expert."""
    order = [(e, 0) for e in range(cut.experts)]
    order += [(e, g) for e in range(cut.experts) for g in range(1, len(cut.groups))]
    busy, card = [0.0] * cores, 0
    arrivals: list[float] = []
    for _, g in order:
        group, last = cut.groups[g], 0.0
        chunks = cut.remote if any(group) else cut.own
        for k in group:
            row_us = cut.remote_us if k else cut.own_us
            for _ in range(chunks):
                busy[card % cores] += cut.issue_us[k] + -(-cut.rows // chunks) * row_us
                last = max(last, busy[card % cores])
                card += 1
        arrivals.append(last)
    return arrivals


@settings(max_examples=100)
@given(exchanges(), st.integers(1, 50))
def test_arrivals_are_those_of_dealing_one_by_one(cut: Exchanges, cores: int) -> None:
    np.testing.assert_allclose(cut.arrivals_us(cores), dealt_one_by_one(cut, cores))


@settings(max_examples=100)
@given(exchanges(), st.integers(1, 50))
def test_a_filled_team_is_never_modelled_slower(cut: Exchanges, cores: int) -> None:
    """Nor cut coarser, nor into more pieces than cores or rows; and it is the same or
    worth it."""
    filled = cut.filled(cores)
    for now, before in ((filled.own, cut.own), (filled.remote, cut.remote)):
        assert before <= now <= max(before, min(cores, cut.rows))
    if filled != cut:
        assert filled.cost_us(cores) < 0.9 * cut.cost_us(cores)


def layer(groups: int, experts: int, rows: int, ep: int, chunks: int) -> Exchanges:
    own, remote, issue = 0.2, 1.2, (1.3,) * ep
    parts = partition(ep, groups)
    return Exchanges(parts, experts, rows, issue, own, remote, chunks, chunks)


def test_a_team_without_enough_pieces_gets_more() -> None:
    cut = layer(groups=1, experts=4, rows=64, ep=4, chunks=1)
    assert cut.cost_us(24) > 1.9 * cut.filled(24).cost_us(24)


def test_pieces_that_fall_to_half_of_the_cores_are_cut_otherwise() -> None:
    """Two ranks, one piece each: own rows for the even cores, others for the odd ones,
    however many experts there are."""
    cut = layer(groups=1, experts=48, rows=64, ep=2, chunks=1)
    filled = cut.filled(24)
    assert (24 % (2 * filled.remote)) != 0
    assert filled.cost_us(24) < 0.7 * cut.cost_us(24)


@pytest.mark.parametrize(("groups", "rows", "chunks"), [(4, 512, 8), (4, 1024, 16)])
def test_a_full_team_is_left_alone(groups: int, rows: int, chunks: int) -> None:
    """DeepSeek-V3 on eight ranks: 448 pieces or more are 18 rounds for 24 cores."""
    cut = layer(groups, experts=8, rows=rows, ep=8, chunks=chunks)
    assert cut.filled(24) is cut


def test_many_experts_are_not_cut_at_all() -> None:
    """No cut is tried that would give every core a long list."""
    cut = layer(groups=1, experts=128, rows=1000, ep=64, chunks=1)
    assert not list(cut.finer("remote", 24))
    assert cut.filled(24) is cut


def test_ranks_without_rows_get_no_more_pieces() -> None:
    cut = layer(groups=2, experts=2, rows=0, ep=4, chunks=1)
    assert cut.filled(24) is cut
