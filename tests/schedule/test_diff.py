"""Differences between schedules, and the text of instructions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from hpc.schedule.diff import diff_schedules
from hpc.schedule.model import Barrier, Base, Event, Put, Region, Set, Task, Team, Wait
from hpc.schedule.render import render_instr, render_region, render_team
from tests.builders import (
    dropped,
    edited,
    inserted,
    small_layer,
    standard_schedule,
    with_buffer,
    with_event,
    with_team,
)
from tests.schedule.strategies import schedules

S = standard_schedule(small_layer(), ((0,), (1,)), chunks=4)
RECV, H = Region("recv", 0, 1), Region("h", 0, 1)

TEXTS = [
    (Wait(1, 4), "wait arrived[0,1] >= 4"),
    (Wait(99, 4), "wait event 99 >= 4"),
    (Set(4), "set up_done[0,0]"),
    (
        Put("dispatch", 0, 1, 4, Region("x"), RECV, 1),
        "put dispatch [0,1] x -> recv[0,1] chunks 4 signal arrived[0,1]",
    ),
    (
        Put("dispatch", 0, 1, 1, Region("x"), RECV, None, "collective", True),
        "put dispatch [0,1] x -> recv[0,1] chunks 1 by collective scaled",
    ),
    (
        Task("gmm", (RECV, Region("w_up", 0)), (H,), Base(128, 256, 64)),
        "gmm recv[0,1], w_up[0] -> h[0,1] base 128x256x64",
    ),
    (
        Task("swiglu_oai", (H,), (Region("a", 0, 1),), Base(64), (("limit", 7.0),)),
        "swiglu_oai h[0,1] -> a[0,1] base 64 limit=7",
    ),
    (Barrier("world", launch=True), "barrier world launch"),
    (Barrier("rank"), "barrier rank"),
]


@pytest.mark.parametrize(("instr", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_an_instruction_is_one_line(instr, text):
    assert render_instr(S, instr) == text


def test_regions_and_teams():
    assert render_region(Region("x")) == "x"
    assert render_region(Region("out", None, 0)) == "out[*,0]"
    assert render_team(Team("aiv", 24, 24)) == "aiv[24:48]"


def test_equal_schedules_have_no_difference():
    assert diff_schedules(S, standard_schedule(small_layer(), ((0,), (1,)), 4)) == []


def test_header_and_layer_fields():
    other = replace(S, policy="list", layer=replace(S.layer, hidden=64))
    assert diff_schedules(S, other) == [
        "layer.hidden: 32 -> 64",
        "policy: 'hand' -> 'list'",
    ]


def test_buffers_and_events_by_name():
    other = with_buffer(S, "h", cols=48)
    assert diff_schedules(S, other) == ["buffer h.cols: 32 -> 48"]
    other = with_event(S, "returned", need=3)
    assert diff_schedules(S, other) == ["event returned.need: 16 -> 3"]
    other = replace(S, events=(*S.events, Event(99, "spare", 1)))
    assert diff_schedules(S, other) == ["+ event spare"]
    other = replace(S, buffers=S.buffers[::-1])
    assert diff_schedules(S, other) == [
        "buffers: same ones, in another order or number"
    ]


def test_one_dropped_instruction_is_one_line():
    assert diff_schedules(S, dropped(S, 0, 2)) == ["- queue 0[2] set up_done[0,0]"]


def test_one_inserted_instruction_is_one_line():
    other = inserted(S, 1, 2, Barrier("rank"))
    assert diff_schedules(S, other) == ["+ queue 1[2] barrier rank"]


def test_a_changed_instruction_is_two_lines():
    assert diff_schedules(S, edited(S, 2, 0, need=25)) == [
        "- queue 2[0] wait up_done[0,0] >= 24",
        "+ queue 2[0] wait up_done[0,0] >= 25",
    ]


def test_teams_and_queues():
    other = with_team(S, 0, Team("aic", 0, 20))
    assert diff_schedules(S, other) == ["queue 0 team: aic[0:24] -> aic[0:20]"]
    other = replace(S, queues=S.queues[:2])
    assert diff_schedules(S, other) == ["- queue 2 aiv[24:48] (14 instructions)"]


def test_renumbered_events_are_no_change_of_the_instructions():
    """Instructions are compared by the names of their events."""
    swap = {0: 1, 1: 0}
    other = replace(
        S, events=tuple(replace(e, id=swap.get(e.id, e.id)) for e in S.events)
    )
    for q, queue in enumerate(S.queues):
        for i, instr in enumerate(queue.code):
            if getattr(instr, "event", None) in swap:
                other = edited(other, q, i, event=swap[instr.event])
    assert diff_schedules(S, other) == [
        "event arrived[0,0].id: 0 -> 1",
        "event arrived[0,1].id: 1 -> 0",
    ]


def test_moved_source_locations_are_one_line():
    other = replace(S, locs=("hand.moe:2:1",))
    count = sum(len(queue.code) for queue in S.queues)
    assert diff_schedules(S, other) == [
        f"source locations of {count} instructions, first hand.moe:1:1 -> hand.moe:2:1"
    ]


@settings(max_examples=30)
@given(schedules(), schedules())
def test_no_difference_means_equal(a, b):
    assert diff_schedules(a, a) == []
    assert bool(diff_schedules(a, b)) == (a != b)
