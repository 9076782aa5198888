"""Bytes sent, bytes received and room for them, for any routing table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from hpc.schedule.check import check_bytes
from hpc.schedule.checks.traffic import put_rows
from hpc.schedule.layer import owner_of
from hpc.schedule.model import Put
from tests.builders import (
    dropped,
    edited,
    inserted,
    small_layer,
    standard_schedule,
    with_buffer,
)
from tests.schedule.test_layout import layouts


def big_enough(s, counts):
    rows = int(np.asarray(counts).sum())
    for buffer in s.buffers:
        if buffer.space == "routed":
            s = with_buffer(s, buffer.name, capacity_rows=rows)
    return s


@settings(max_examples=60)
@given(layouts())
def test_every_table_is_conserved(case):
    layer, groups, counts = case
    for chunks in (1, 3):
        s = standard_schedule(layer, groups, chunks)
        assert check_bytes(big_enough(s, counts), counts) == []


@settings(max_examples=60)
@given(layouts())
def test_rows_go_to_the_owner_and_back(case):
    """Against a count by hand, one expert at a time."""
    layer, groups, counts = case
    s = standard_schedule(layer, groups)
    there = np.zeros((layer.ep, layer.ep), dtype=int)
    for source in range(layer.ep):
        for expert in range(layer.experts):
            rank, _ = owner_of(expert, layer.experts, layer.ep)
            there[source, rank] += counts[source, expert]
    assert (put_rows(s, counts, "recv") == there).all()
    assert (put_rows(s, counts, "back") == there.T).all()


@settings(max_examples=40)
@given(layouts())
def test_a_put_left_out_or_doubled_shows_iff_it_has_rows(case):
    layer, groups, counts = case
    s = big_enough(standard_schedule(layer, groups), counts)
    for index, instr in enumerate(s.queues[1].code):
        if not isinstance(instr, Put):
            continue
        alone = dropped(s, 1, index)
        lost = (
            put_rows(s, counts, instr.dest.buffer).sum()
            - put_rows(alone, counts, instr.dest.buffer).sum()
        )
        assert bool(check_bytes(alone, counts)) == bool(lost)
        assert bool(check_bytes(inserted(s, 1, 0, instr), counts)) == bool(lost)


def test_rows_of_one_group_put_twice_and_of_another_never():
    """Totals agree by accident; the pairs of ranks and the ranges do not."""
    s = standard_schedule(small_layer(), ((0,), (1,)))
    counts = np.full((2, 4), 8)
    first = s.queues[1].code[0]
    bad = edited(s, 1, 1, group=0, dest=first.dest)
    found = {violation.code for violation in check_bytes(bad, counts)}
    assert found == {"bytes-pair", "range-overlap", "range-gap"}


def test_a_rank_that_receives_too_much_is_named_with_both_numbers():
    """6144 rows of room, 7011 arrive at rank 3."""
    layer = small_layer(ep=4, experts=4, tokens=(4096,) * 4, top_k=1)
    s = standard_schedule(layer)
    counts = np.zeros((4, 4), dtype=int)
    counts[:, 3] = (2000, 2000, 2000, 1011)
    small = with_buffer(s, "recv", capacity_rows=6144)
    (violation,) = check_bytes(small, counts)
    assert violation.message == 'rank 3 receives 7011 > 6144 rows of "recv"'
    assert violation.rank == 3
    assert check_bytes(with_buffer(s, "recv", capacity_rows=7011), counts) == []


def test_no_tokens_at_all_are_no_violation():
    s = standard_schedule(small_layer(tokens=(0, 0)))
    assert check_bytes(s, np.zeros((2, 4), dtype=int)) == []


def test_a_table_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"\[2, 4\], got \[4, 2\]"):
        check_bytes(standard_schedule(small_layer()), np.zeros((4, 2), dtype=int))
