"""Hangs are found and explained down to the root cause, within and across ranks."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from hpc.schedule.checks.cycles import cycles
from hpc.schedule.checks.deadlock import check_deadlock
from hpc.schedule.checks.replay import Lost, Replay
from hpc.schedule.model import Barrier, Put, Queue, Wait
from tests.builders import (
    dropped,
    edited,
    inserted,
    moved,
    serial_schedule,
    small_layer,
    standard_schedule,
)

GROUPS = ((0,), (1,))
S = standard_schedule(small_layer(), GROUPS)
SERIAL = serial_schedule(small_layer(), GROUPS)
AIC_Q, COMM_Q, VEC_Q = 0, 1, 2
LOC = "at hand.moe:1:1"


def only(violations):
    (violation,) = violations
    return violation


def event(name):
    return next(each.id for each in S.events if each.name == name)


def dead(s):
    """The program of a rank that does nothing."""
    return replace(s, queues=tuple(Queue(queue.team, ()) for queue in s.queues))


@pytest.mark.parametrize("s", [S, SERIAL], ids=["standard", "serial"])
def test_safe_schedules_end_on_one_rank_and_on_all(s):
    assert check_deadlock(s) == []
    assert check_deadlock(s, [s] * s.layer.ep) == []


def test_a_dropped_signal_is_traced_to_the_wait_that_starves():
    """Queue 2 starves at once; queues 0 and 1 only wait behind it."""
    violation = only(check_deadlock(dropped(S, AIC_Q, 2)))
    assert violation.code == "deadlock-signal"
    assert (violation.queue, violation.index, violation.rank) == (VEC_Q, 0, None)
    assert violation.loc == "hand.moe:1:1"
    assert violation.message == (
        "queue 2 of every rank waits for ever: up_done[0,0] needs 24, has 0, "
        "and at most 0 can arrive"
    )
    assert violation.witness == (
        f"every rank queue 2 aiv[24:48] instruction 0 {LOC}: "
        "wait up_done[0,0] >= 24, has 0",
        "  nothing brings the other 24",
        f"blocked behind it: every rank queue 0 aic[0:24] instruction 11 {LOC}: "
        "wait act_done[0,0] >= 24, has 0",
        f"blocked behind it: every rank queue 1 aiv[0:24] instruction 4 {LOC}: "
        "wait down_done[0,0] >= 24, has 0",
    )


def test_a_threshold_too_high_names_who_did_signal():
    violation = only(check_deadlock(edited(S, AIC_Q, 0, need=2)))
    assert violation.witness[:3] == (
        f"every rank queue 0 aic[0:24] instruction 0 {LOC}: "
        "wait arrived[0,0] >= 2, has 1",
        f"  1 came from every rank queue 1 aiv[0:24] instruction 0 {LOC}: "
        "put dispatch [0,0] x -> recv[0,0] chunks 1 signal arrived[0,0] (of rank me)",
        "  nothing brings the other 1",
    )


def test_a_swapped_order_is_shown_as_the_cycle():
    """The first dispatch moved behind a wait that depends on it."""
    violation = only(check_deadlock(moved(S, COMM_Q, 0, 9)))
    assert violation.code == "deadlock-cycle"
    assert violation.message == (
        "2 queues wait in a cycle, first queue 0 of every rank"
    )
    assert violation.witness[:5] == (
        f"every rank queue 0 aic[0:24] instruction 0 {LOC}: "
        "wait arrived[0,0] >= 1, has 0",
        f"  needs every rank queue 1 aiv[0:24] instruction 9 {LOC}: put dispatch "
        "[0,0] x -> recv[0,0] chunks 1 signal arrived[0,0] (of rank me), "
        "which is not reached",
        f"every rank queue 1 aiv[0:24] instruction 3 {LOC}: "
        "wait down_done[0,0] >= 24, has 0",
        f"  needs every rank queue 0 aic[0:24] instruction 14 {LOC}: "
        "set down_done[0,0], which is not reached",
        "which closes the cycle: queue 0 of every rank (aic[0:24])",
    )


def waits_for_the_other_rank():
    """Each rank sends to the other only after it has received from it."""
    return inserted(S, COMM_Q, 1, Wait(event("arrived[0,1]"), 1))


def test_a_cycle_across_ranks_in_one_program():
    violation = only(check_deadlock(waits_for_the_other_rank()))
    assert violation.message == "a queue waits in a cycle, first queue 1 of every rank"
    assert "(of rank me-1), which is not reached" in violation.witness[1]


def test_a_cycle_across_ranks_names_the_ranks():
    s = waits_for_the_other_rank()
    violation = only(check_deadlock(s, [s, s]))
    assert violation.message == "2 queues wait in a cycle, first queue 1 of rank 0"
    lines = violation.witness
    assert lines[0].startswith("rank 0 queue 1 aiv[0:24] instruction 1 ")
    assert lines[1].startswith("  needs rank 1 queue 1 aiv[0:24] instruction 2 ")
    assert lines[2].startswith("rank 1 queue 1 aiv[0:24] instruction 1 ")
    assert lines[3].startswith("  needs rank 0 queue 1 aiv[0:24] instruction 2 ")
    assert lines[4] == "which closes the cycle: queue 1 of rank 0 (aiv[0:24])"


def test_one_rank_with_another_order_is_named():
    violation = only(check_deadlock(S, [S, moved(S, COMM_Q, 0, 9)]))
    assert violation.rank == 1
    assert violation.code == "deadlock-cycle"
    assert any("rank 0 queue 2" in line for line in violation.witness)


def test_a_lost_signal_of_a_put_starves_its_destination():
    """Rank 0's second dispatch goes to rank 1 (k = 1), so rank 1 hangs first."""
    lost = Lost(rank=0, queue=COMM_Q, index=1, k=1)
    violation = only(check_deadlock(S, lost=frozenset([lost])))
    assert violation.rank == 1
    assert violation.message.startswith(
        "queue 0 of rank 1 waits for ever: arrived[0,1]"
    )
    assert any(
        line.startswith("  lost: rank 0 queue 1 aiv[0:24] instruction 1 ")
        and line.endswith(", k = 1")
        for line in violation.witness
    )


def test_a_lost_set_starves_its_own_rank():
    violation = only(check_deadlock(S, lost=frozenset([Lost(1, AIC_Q, 2)])))
    assert (violation.rank, violation.queue, violation.index) == (1, VEC_Q, 0)


def test_a_signal_to_a_destination_that_is_none_changes_nothing():
    """The second dispatch has only k = 1, so its signal to k = 0 does not exist."""
    assert check_deadlock(S, lost=frozenset([Lost(0, COMM_Q, 1, k=0)])) == []


def test_a_dead_rank_is_seen_by_what_it_does_not_send():
    found = check_deadlock(S, [S, dead(S)])
    assert {violation.code for violation in found} == {"deadlock-signal"}
    assert {violation.rank for violation in found} == {0}
    starved = {violation.message.split(":")[1].split()[0] for violation in found}
    assert "arrived[0,1]" in starved


def test_a_dead_rank_holds_a_world_barrier():
    found = check_deadlock(SERIAL, [SERIAL, dead(SERIAL)])
    assert {violation.code for violation in found} == {"deadlock-barrier"}
    assert any(
        line == "  never comes: queue 0 of rank 1 (aic[0:24]), which has ended"
        for line in found[0].witness
    )


def test_a_barrier_that_one_queue_lacks():
    violation = only(check_deadlock(inserted(S, VEC_Q, 0, Barrier("rank"))))
    assert violation.code == "deadlock-barrier"
    assert violation.witness[1] == (
        "  never comes: queue 0 of every rank (aic[0:24]), which has none after "
        "instruction 12"
    )


def test_a_barrier_behind_a_wait_that_needs_it_is_a_cycle():
    """Queue 2 stands at the barrier, queue 0 waits for queue 2 in front of its own."""
    s = S
    for queue, index in ((AIC_Q, len(S.queues[AIC_Q].code)), (COMM_Q, 0), (VEC_Q, 0)):
        s = inserted(s, queue, index, Barrier("rank"))
    violation = only(check_deadlock(s))
    assert violation.code == "deadlock-cycle"
    assert any("at the barrier" in line for line in violation.witness)


def test_independent_causes_are_all_reported():
    """Rank 0 lacks one signal, rank 1 another."""
    lost = frozenset([Lost(0, AIC_Q, 2), Lost(1, AIC_Q, 5)])
    found = check_deadlock(S, lost=lost)
    assert {(each.rank, each.index) for each in found} >= {(0, 0), (1, 3)}


def test_a_witness_counts_what_it_does_not_list():
    layer = small_layer(ep=8, tokens=(4,) * 8, experts=8)
    s = standard_schedule(layer)
    (violation,) = check_deadlock(s, lost=frozenset([Lost(0, COMM_Q, 0, k=3)]))
    assert violation.rank == 3
    assert violation.witness[-1] == "and 1 more"


def test_replay_is_linear_in_the_instructions():
    """Four times the instructions take about four times as long."""

    def seconds(experts):
        layer = small_layer(experts=experts * 2)
        s = standard_schedule(layer, GROUPS)
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            replay = Replay([s])
            replay.run()
            best = min(best, time.perf_counter() - start)
            assert replay.blocked == []
        return best

    assert seconds(1200) < 12 * seconds(300) + 0.01


def test_cycles_of_a_graph():
    assert cycles({1: [2], 2: [3], 3: []}) == []
    assert cycles({1: [1, 2], 2: []}) == [[1]]
    assert cycles({1: [2], 2: [3, 1], 3: [1], 4: [5], 5: [4]}) == [[1, 2], [4, 5]]


def test_cycles_do_not_recurse():
    """A ring longer than the interpreter's recursion limit."""
    ring = {i: [(i + 1) % 5000] for i in range(5000)}
    assert cycles(ring) == [list(range(5000))]


@pytest.mark.parametrize(("k", "starved"), [(0, 0), (1, 2), (2, 1)])
def test_rows_go_back_the_way_they_came(k, starved):
    """A combine of k on rank 0 answers rank 0 - k, not rank 0 + k."""
    layer = small_layer(ep=3, experts=3, tokens=(4, 4, 4))
    s = standard_schedule(layer, ((0,), (1,), (2,)))
    combines = [
        i
        for i, instr in enumerate(s.queues[COMM_Q].code)
        if isinstance(instr, Put) and instr.kind == "combine"
    ]
    lost = Lost(0, COMM_Q, combines[k])
    violation = only(check_deadlock(s, lost=frozenset([lost])))
    assert violation.rank == starved
    assert violation.message == (
        f"queue 2 of rank {starved} waits for ever: returned needs 3, has 2, "
        "and at most 2 can arrive"
    )
