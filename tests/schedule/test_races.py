"""What orders two accesses and what does not: one case for each kind of edge."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from hpc.schedule.check import Limits, check_schedule
from hpc.schedule.checks.clocks import Clocks
from hpc.schedule.checks.index import Index
from hpc.schedule.checks.races import check_races
from hpc.schedule.checks.relaunch import check_relaunch
from hpc.schedule.checks.shares import same_cores
from hpc.schedule.explain.edits import (
    AIC,
    AIV,
    COMM,
    VEC,
    base,
    buffer,
    change,
    declare,
    drop,
    insert,
    move,
    team,
)
from hpc.schedule.model import (
    Base,
    Buffer,
    Event,
    Queue,
    Region,
    Set,
    Task,
    Team,
    Wait,
)
from tests.builders import serial_schedule, small_layer, standard_schedule
from tests.schedule.racy import one_way, with_last_barrier

FLAGS, BARRIERS = base("flags"), base("barriers")


def edited(s, *edits):
    for edit in edits:
        s = edit(s)
    return s


def races(s, relaxed=False):
    """(code, queue, index) of every violation of order, in this launch and the next."""
    index = Index(s)
    clocks = Clocks(index)
    assert not clocks.stuck
    found = check_races(index, clocks, relaxed) + check_relaunch(index, clocks, relaxed)
    return {(each.code, each.queue, each.index) for each in found}


LAYERS = [
    small_layer(),
    small_layer(ep=1, tokens=(16,), experts=2),
    small_layer(ep=3, experts=7, tokens=(4, 0, 9)),
    small_layer(weights_at="input"),
]


@pytest.mark.parametrize("relaxed", [False, True])
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: f"ep{layer.ep}")
def test_schedules_that_are_right_are_accepted(layer, relaxed):
    one = (tuple(range(layer.ep)),)
    each = tuple((k,) for k in range(layer.ep))
    assert races(standard_schedule(layer, one, chunks=3), relaxed) == set()
    assert races(with_last_barrier(standard_schedule(layer, each)), relaxed) == set()
    assert races(serial_schedule(layer, each), relaxed) == set()


def waits(s):
    return [
        (q, i)
        for q, queue in enumerate(s.queues)
        for i, instr in enumerate(queue.code)
        if isinstance(instr, Wait)
    ]


@pytest.mark.parametrize("place", waits(FLAGS), ids=str)
def test_no_wait_of_a_schedule_without_spare_ones_may_come_late(place):
    """Behind its user, a wait orders nothing; the user itself is named."""
    q, i = place
    found = races(edited(FLAGS, move(q, i, i + 1)))
    assert (q, i) in {(queue, index) for _, queue, index in found}


def test_a_chain_of_waits_is_as_good_as_one():
    """The vector team waits for the second GMM only: its team did the first before."""
    s = edited(FLAGS, drop(VEC, 0), drop(AIC, 2), move(VEC, 2, 0))
    assert races(s) == set()


def test_a_set_in_front_of_its_data_tells_nothing_about_it():
    assert races(edited(FLAGS, move(AIC, 2, 1))) == {("race-read-write", VEC, 1)}


def test_the_order_of_a_list_orders_nothing_between_the_cores_of_a_team():
    """One team computes twice in a row; with one core it may, with two it may not."""
    out, more = Region("h", 0, 0), Buffer("more", "routed", 32, "bf16", "workspace", 8)
    again = Task(
        "gmm", (out, Region("w_up", 0)), (Region("more", 0, 0),), Base(2, 16, 8)
    )
    s = edited(FLAGS, declare(more), insert(AIC, 2, again))
    assert ("race-read-write", AIC, 2) in races(s)
    one = edited(s, team(AIC, Team("aic", 0, 1)))
    assert ("race-read-write", AIC, 2) not in races(one)


def test_a_barrier_of_the_rank_joins_queues_but_says_nothing_about_puts():
    s = edited(BARRIERS, change(AIC, 3, scope="rank"), change(AIV, 3, scope="rank"))
    assert races(s) == set()
    s = edited(BARRIERS, change(AIC, 0, scope="rank"), change(AIV, 2, scope="rank"))
    assert {code for code, _, _ in races(s)} == {"put-unfenced"}


def test_what_a_sender_did_before_its_put_is_known_with_the_signal():
    """The destination hears nothing of other cores of the sender's team, unless every
    core of it sends something there."""
    layer = small_layer(ep=2)
    for chunks, safe in ((1, False), (24, True)):
        s = standard_schedule(layer, ((0, 1),), chunks=chunks)
        index = Index(s)
        clocks = Clocks(index)
        last = len(s.queues[COMM].code) - 1
        known = clocks.end.done[COMM]
        far = [mask for count, mask in known if count >= last and mask >> 1 & 1]
        assert bool(far) == safe


def test_signals_of_a_dispatch_come_from_ranks_before_those_of_a_combine_from_behind():
    """With three ranks the two directions differ: me - 1 is me + 2."""
    layer = small_layer(ep=3, experts=3, tokens=(4, 4, 4), top_k=1)
    s = standard_schedule(layer, ((0,), (1,), (2,)))
    clocks = Clocks(Index(s))
    dispatch, combine = s.queues[COMM].code[1], s.queues[COMM].code[6]
    assert (dispatch.kind, dispatch.group) == ("dispatch", 1)
    assert (combine.kind, combine.group) == ("combine", 1)
    assert clocks.senders(dispatch) == 0b100
    assert clocks.senders(combine) == 0b010
    behind_own, behind_first = (AIC, 1), (AIC, 4)
    assert clocks.before(behind_own).started == 0b001
    assert clocks.before(behind_first).started == 0b101
    assert clocks.end.started == 0b111


def test_a_flag_of_this_rank_tells_of_its_own_puts_and_not_of_others():
    """Rows of a group come from two ranks; the flag is set on one of them."""
    s = standard_schedule(small_layer(), ((0, 1),))
    first = s.queues[AIC].code[0]
    s = edited(
        s,
        declare(Event(60, "put_done", 24)),
        insert(COMM, 1, Set(60)),
        drop(AIC, 0),
        insert(AIC, 0, Wait(60, 24)),
        insert(AIC, len(s.queues[AIC].code), first),
    )
    assert ("race-put-read", AIC, 1) in races(s)


def test_one_missing_order_is_one_violation_whatever_the_number_of_parts():
    layer = small_layer(experts=16, ep=2)
    s = standard_schedule(layer, ((0,), (1,)))
    *code, last_wait, reduce = s.queues[VEC].code
    code = [i for i in code if not isinstance(i, Wait)] + [last_wait, reduce]
    queues = (*s.queues[:2], Queue(s.queues[2].team, tuple(code)))
    index = Index(replace(s, queues=queues))
    found = check_races(index, Clocks(index))
    assert [each.code for each in found] == ["race-read-write"]
    assert "and 15 more such pairs" in found[0].message
    text = found[0].render()
    assert "missing: wait up_done[0,0] >= 24 in front of queue 2 instruction 0" in text
    assert "hand.moe:1:1" in text


def test_without_a_way_back_the_next_launch_needs_a_barrier():
    assert {code for code, _, _ in races(one_way())} == {
        "relaunch-race",
        "relaunch-signal",
    }
    assert races(with_last_barrier(one_way())) == set()


def test_own_rows_need_no_answer():
    """Group 0 is the rank itself, which has ended its own launch."""
    found = {(q, i) for _, q, i in races(one_way())}
    assert (COMM, 0) not in found
    assert (COMM, 1) in found


def test_relaxed_a_later_signal_tells_nothing_about_an_earlier_put():
    """A core puts to its own rank, then sets a flag; strictly that flag is enough."""
    s = edited(
        FLAGS,
        declare(Event(20, "put_done", 2)),
        insert(COMM, 1, Set(20)),
        insert(AIC, 0, Wait(20, 2)),
        move(AIC, 1, 12),
    )
    assert races(s) == set()
    assert races(s, relaxed=True) == {
        ("race-put-read", AIC, 1),
        ("relaunch-race", COMM, 2),
    }


def rows_on(tokens, size):
    """add into `sum`, relu of `sum` into `out`, on one team, with no flag between."""
    layer = small_layer(ep=1, tokens=(tokens,), experts=1, top_k=1)
    x, total, out = Region("x"), Region("sum"), Region("out")
    code = (
        Task("add", (x, x), (total,), Base(2)),
        Task("relu", (total,), (out,), Base(2)),
    )
    return replace(
        FLAGS,
        layer=layer,
        groups=((0,),),
        events=(),
        buffers=(
            Buffer("x", "token", 32, "bf16", "input", tokens),
            Buffer("sum", "token", 32, "bf16", "workspace", tokens),
            Buffer("out", "token", 32, "bf16", "output", tokens),
        ),
        queues=(Queue(Team("aiv", 0, size), code),),
    )


@pytest.mark.parametrize(
    ("tokens", "size", "same"),
    [(16, 4, True), (16, 8, True), (15, 4, True), (16, 3, False), (10, 4, False)],
)
def test_rows_may_stay_on_their_core_where_tiles_are_a_multiple_of_the_team(
    tokens, size, same
):
    s = rows_on(tokens, size)
    assert same_cores(Index(s), (0, 0), (0, 1)) == same
    assert (races(s) == set()) == same


def test_rows_move_to_other_cores_with_another_tile_height():
    s = rows_on(16, 4)
    assert races(edited(s, change(0, 1, base=Base(4)))) != set()


def test_a_task_may_overwrite_the_rows_that_it_reads_but_no_product_may():
    relu = Task("relu", (Region("y", 0, 0),), (Region("y", 0, 0),), Base(2))
    flag = declare(Event(20, "y_final[0,0]", 2))
    s = edited(
        FLAGS,
        flag,
        insert(VEC, 6, Wait(6, 2)),
        insert(VEC, 7, relu),
        insert(VEC, 8, Set(20)),
        change(COMM, 2, event=20),
    )
    assert races(s) == set()


def sent_twice(at):
    """x is computed, sent, and computed again at position `at` of the vector queue."""
    relu = Task("relu", (Region("z"),), (Region("x"),), Base(2))
    return edited(
        FLAGS,
        declare(Buffer("z", "token", 32, "bf16", "input", 4), Event(20, "x_ready", 2)),
        buffer("x", role="workspace"),
        insert(VEC, 0, relu),
        insert(VEC, 1, Set(20)),
        insert(COMM, 0, Wait(20, 2)),
        insert(VEC, at, relu),
    )


def test_rows_may_be_overwritten_when_all_who_got_them_have_answered():
    """Rows come back by way of queues that waited for what was sent."""
    reduce = len(FLAGS.queues[VEC].code) + 1
    assert races(sent_twice(reduce)) == set()
    assert races(sent_twice(reduce), relaxed=True) == set()
    assert {code for code, _, _ in races(sent_twice(reduce - 1))} == {"race-read-write"}


def many(experts, groups, ranks):
    layer = small_layer(ep=ranks, experts=experts * ranks, tokens=(4,) * ranks, top_k=1)
    bounds = [1 + (ranks - 1) * i // groups for i in range(groups + 1)]
    parts = [
        (0,),
        *(tuple(range(a, b)) for a, b in pairwise(bounds)),
    ]
    return with_last_barrier(standard_schedule(layer, tuple(parts)))


def seconds(s):
    limits = Limits(1 << 20, 24, 48, ("bf16",))
    started = time.process_time()
    report = check_schedule(s, limits)
    assert report.ok, report.violations[:2]
    return time.process_time() - started


def test_cost_is_linear_in_instructions_and_flat_in_ranks():
    small, large = many(8, 3, 8), many(64, 3, 8)
    wide = many(8, 3, 256)
    base_s = min(seconds(small) for _ in range(3))
    assert min(seconds(large) for _ in range(2)) < 8 * base_s * 3
    assert min(seconds(wide) for _ in range(2)) < base_s * 6


def test_a_million_task_instances_take_seconds():
    s = many(96, 8, 256)
    count = sum(isinstance(i, Task) for queue in s.queues for i in queue.code)
    puts = sum(len(queue.code) for queue in s.queues) - count
    assert (count + puts) * 256 > 1_000_000
    assert seconds(s) < 10


def test_counts_never_enter_the_proof():
    """The checks of order are not given any."""
    for counts in (np.zeros((2, 4), int), np.full((2, 4), 8)):
        s = standard_schedule(small_layer())
        report = check_schedule(s, Limits(64, 24, 48, ("bf16",)), counts)
        assert report.checks["races"]
        assert report.checks["relaunch"]
