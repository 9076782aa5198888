"""Faults that people met in public projects, as schedules, with the required outcome.

Each test names the thread that it follows. "Refused" is the checker's word; where the
oracle can judge the same schedule it has to agree.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpc.interp.engine import SimulationDeadlock, simulate
from hpc.interp.inject import DeadRank, DropSignal
from hpc.machine.record import load_machine
from hpc.schedule.check import check_schedule
from hpc.schedule.model import Barrier, Put, Region, Schedule, Set, Task, Team, Wait
from tests.builders import (
    dropped,
    edited,
    inserted,
    moved,
    serial_schedule,
    small_layer,
    standard_schedule,
    with_buffer,
    with_event,
    with_team,
)
from tests.safety.bases import compiled, twin
from tests.safety.edits import at, map_events, places
from tests.safety.oracle import Verdict
from tests.safety.suite import limits_of

MACHINE = load_machine("ascend_a3")
COUNTS = np.full((2, 4), 8)


def codes(s: Schedule, **options: object) -> set[str]:
    """Codes of all violations."""
    counts = np.full((s.layer.ep, s.layer.experts), 0)
    for rank, tokens in enumerate(s.layer.tokens):
        rows = tokens * s.layer.top_k
        for i in range(rows):
            counts[rank, i % s.layer.experts] += 1
    report = check_schedule(s, limits_of(MACHINE), counts, **options)  # type: ignore[arg-type]
    return {violation.code for violation in report.violations}


def judged(name: str, s: Schedule) -> Verdict:
    """The oracle's verdict on a variant of a compiled base."""
    return twin(name).oracle.judge([s] * s.layer.ep)


def standard(**changes: object) -> Schedule:
    return standard_schedule(small_layer(**changes), ((0,), (1,)))


def first(s: Schedule, kind: type, buffer: str = "") -> tuple[int, int]:
    """Place of the first instruction of a kind, that writes `buffer` if named."""
    for place in places(s, kind):
        instr = at(s, place)
        written = instr.dest if isinstance(instr, Put) else None
        if isinstance(instr, Task):
            written = instr.writes[0]
        if not buffer or (written is not None and written.buffer == buffer):
            return place
    raise AssertionError(f"no {kind.__name__} of {buffer!r}")


# -- C3: capacity, buffers, overflow -------------------------------------------------


def test_receive_bound_is_the_smaller_of_worst_case_and_table() -> None:
    """vllm-ascend#16914: rows bound by tokens x ep x min(top_k, experts on a rank)."""
    s = compiled("list_uneven").schedule
    layer, recv = s.layer, s.buffer("recv")
    worst = layer.max_tokens * layer.ep * min(layer.top_k, layer.local_experts)
    rows = max(len(rows) for rows in twin("list_uneven").oracle.tiles(0).at.routed)
    assert recv.capacity_rows == min(worst, rows)
    assert str(recv.capacity_rows) in recv.formula


def test_more_rows_than_the_buffer_holds_names_rank_and_rows() -> None:
    """vllm-ascend#17202, #2674, #6131: what comes, what fits, before anything runs."""
    s = with_buffer(standard(), "recv", capacity_rows=20)
    counts = np.array([[16, 0, 8, 8], [16, 0, 8, 8]])
    report = check_schedule(s, limits_of(MACHINE), counts)
    found = [v for v in report.violations if v.code == "capacity"]
    assert found
    assert "rank 0" in found[0].render()
    assert "32" in found[0].render()
    assert "20" in found[0].render()


@pytest.mark.parametrize("base", ["list_groups", "serial_uneven", "paper_train"])
@pytest.mark.parametrize("by", [-1, 0])
def test_capacity_is_exact_to_the_row(base: str, by: int) -> None:
    """One row less than the largest receiver is refused by both, the bound is not."""
    s = twin(base).schedule
    smaller = with_buffer(s, "recv", capacity_rows=s.buffer("recv").capacity_rows + by)
    report = check_schedule(smaller, limits_of(MACHINE), twin(base).oracle.counts)
    assert report.ok == (by == 0)
    assert judged(base, smaller).safe == (by == 0)


def test_a_put_into_the_bucket_of_another_peer_is_refused() -> None:
    """marin#4312: overflow that runs into the next peer's rows."""
    s = twin("list_groups").schedule
    place = first(s, Put, "recv")
    put = at(s, place)
    wrong = edited(s, *place, dest=replace(put.dest, part=1 - put.group))
    assert "wrong-part" in codes(wrong)
    assert judged("list_groups", wrong).kind == "illegal"


def test_padding_takes_no_capacity() -> None:
    """Megatron-LM#5542: tokens that choose no expert send and receive nothing."""
    s = with_buffer(standard(), "recv", capacity_rows=8)
    for name in ("h", "a", "y"):
        s = with_buffer(s, name, capacity_rows=8)
    few = np.array([[1, 1, 1, 1], [2, 2, 2, 2]])
    assert check_schedule(s, limits_of(MACHINE), few).ok


# -- C4: hangs, races, lost signals ----------------------------------------------------


def test_one_counter_for_two_rounds_without_a_credit_is_refused() -> None:
    """tilelang-ascend#1809: a flag used again before its first use was seen."""
    s = twin("list_groups").schedule
    names = {event.name: event.id for event in s.events}
    old, new = names["h_ready[0,1]"], names["h_ready[0,0]"]
    queues = tuple(
        replace(
            queue,
            code=tuple(
                replace(i, event=new)
                if isinstance(i, Wait | Set | Put) and i.event == old
                else i
                for i in queue.code
            ),
        )
        for queue in s.queues
    )
    lost = replace(s, queues=queues)
    assert {"event-need", "event-unused"} <= codes(lost)
    assert not judged("list_groups", lost).safe


def test_teams_that_wait_for_each_other_are_shown_as_a_cycle() -> None:
    """simpler#767: two halves of a core, each blocked by the other."""
    s = twin("list_plain").schedule
    names = {event.id: event.name for event in s.events}
    waits = [p for p in places(s, Wait) if names[at(s, p).event].startswith("a_ready")]
    blocked = moved(s, *waits[-1], 0)
    report = check_schedule(
        blocked, limits_of(MACHINE), twin("list_plain").oracle.counts
    )
    cycle = [v for v in report.violations if v.code == "deadlock-cycle"]
    assert cycle
    assert "queue 0" in cycle[0].render()
    assert "queue 2" in cycle[0].render()
    assert judged("list_plain", blocked).kind == "hang"
    with pytest.raises(SimulationDeadlock, match="a cycle of waits"):
        simulate(blocked, twin("list_plain").oracle.counts, MACHINE)


def test_a_counter_that_passes_its_threshold_does_not_hang() -> None:
    """tt-metal#54590: waits are for at least n; but n has to be all that come."""
    s = standard()
    place = first(s, Set)
    more = inserted(s, *place, at(s, place))
    assert simulate(more, COUNTS, MACHINE).latency_us > 0
    assert codes(more) >= {"event-need"}
    assert not any(code.startswith("deadlock") for code in codes(more))


def test_a_rank_with_another_bound_is_named() -> None:
    """DeepEP#208: ranks that disagree on a global number hang."""
    s = standard()
    other = with_buffer(s, "recv", capacity_rows=1 << 12)
    report = check_schedule(s, limits_of(MACHINE), COUNTS, [s, other])
    found = [v for v in report.violations if v.code == "program-differs"]
    assert found
    assert "rank 1" in found[0].message


def test_the_next_launch_must_not_meet_this_one() -> None:
    """DeepEP#513, #382: a buffer is filled again while a slow rank still reads it."""
    base = "list_train"
    s = twin(base).schedule
    for q, queue in enumerate(s.queues):
        assert isinstance(queue.code[-1], Barrier)
        s = dropped(s, q, len(queue.code) - 1)
    verdict = judged(base, s)
    assert verdict.kind == "relaunch", verdict
    report = check_schedule(s, limits_of(MACHINE), twin(base).oracle.counts)
    assert {v.code for v in report.violations} <= {"relaunch-race", "relaunch-signal"}
    assert not report.ok


def test_a_signal_that_may_overtake_data_of_another_put() -> None:
    """DeepEP#661: with relaxed ordering, only a put's own signal covers its data."""
    s = twin("list_plain").schedule
    assert codes(s, relaxed=True) == set()
    silent = serial_schedule(small_layer())
    assert codes(silent, relaxed=True) == set()
    place = first(s, Put, "recv")
    event = at(s, place).event
    put, q = at(s, place), place[0]
    late = edited(s, *place, event=None)
    late = inserted(late, q, place[1] + 1, Set(event))
    assert codes(late, relaxed=True) - codes(s)
    assert put.event == event


def test_a_barrier_that_one_busy_team_never_reaches() -> None:
    """sglang#30592, mirage#357: a grid barrier needs every core."""
    s = serial_schedule(small_layer())
    barriers = [i for q, i in places(s, Barrier) if q == 0]
    missing = dropped(s, 0, barriers[-1])
    assert "deadlock-barrier" in codes(missing)
    with pytest.raises(SimulationDeadlock, match="ends without coming to"):
        simulate(missing, COUNTS, MACHINE)


def test_a_barrier_across_a_core_that_waits_for_a_later_task() -> None:
    """mirage#413: the barrier stands between a signal and its waiter."""
    s = standard()
    place = next(p for p in places(s, Set) if p[0] == 0)
    s = inserted(s, *place, Barrier("rank"))
    s = inserted(s, 1, 0, Barrier("rank"))
    waits = [i for q, i in places(s, Wait) if q == 2]
    s = inserted(s, 2, waits[0] + 1, Barrier("rank"))
    assert codes(s) & {"deadlock-cycle", "deadlock-barrier"}
    with pytest.raises(SimulationDeadlock):
        simulate(s, COUNTS, MACHINE)


def test_more_cores_than_the_machine_has() -> None:
    """sglang#30592: a barrier over cores that do not exist."""
    s = with_team(standard(), 0, Team("aic", 0, 25))
    assert "team-range" in codes(s)


@pytest.mark.parametrize("dead", [0, 1])
def test_a_dead_rank_is_reported_with_who_waits_for_it(dead: int) -> None:
    """TensorRT-LLM#13404: the others would spin for ever and say nothing."""
    with pytest.raises(SimulationDeadlock) as error:
        simulate(standard(), COUNTS, MACHINE, faults=[DeadRank(dead)])
    hang = error.value.hang
    assert hang.roots == (f"rank {dead} is dead (injected): its cores never start",)
    blocked = [place for place in hang.blocked if place.rank != dead]
    assert any("which is dead" in text for place in blocked for text in place.missing)


def test_a_lost_signal_is_found_behind_all_that_it_blocks() -> None:
    """TensorRT-LLM#15524: one signal is lost; everything behind it stands still."""
    fault = DropSignal("arrived[1,0]", 0)
    with pytest.raises(SimulationDeadlock) as error:
        simulate(standard(), COUNTS, MACHINE, faults=[fault])
    assert error.value.hang.roots == (
        "a signal to arrived[1,0] of rank 0 was dropped (injected)",
    )


def test_rows_read_before_they_arrive() -> None:
    """SuperNPUBench#95: a read in front of the barrier that it needs."""
    s = serial_schedule(small_layer())
    place = next(p for p in places(s, Task) if p[0] == 0)
    early = moved(s, *place, 0)
    assert codes(early) & {"race-put-read", "read-too-early", "put-unfenced"}


def test_counters_keep_within_the_lines_of_the_machine() -> None:
    """SuperNPUBench#74: every counter has a line of its own, and there are so many."""
    s = standard()
    number = MACHINE.max_events
    far = with_event(s, "arrived[0,0]", id=number)
    far = map_events(far, s.events[0].id, number)
    assert "event-id-range" in codes(far)
    shared = s.events[1].id
    twice = with_event(s, "arrived[0,0]", id=shared)
    assert "event-id-twice" in codes(map_events(twice, s.events[0].id, shared))


def test_operands_of_the_next_expert() -> None:
    """flashinfer#5438: a tile that uses what belongs to the next expert."""
    s = twin("list_plain").schedule
    place = first(s, Task, "h")
    rows, weight = at(s, place).reads
    wrong = edited(s, *place, reads=(rows, Region(weight.buffer, 1)))
    assert "wrong-part" in codes(wrong)
    assert not judged("list_plain", wrong).safe


# -- C5, where a schedule can say it ---------------------------------------------------


def test_an_output_row_written_twice_is_refused() -> None:
    """vllm-ascend#6710: a second reduction doubles the result."""
    s = standard()
    place = first(s, Task, "out")
    assert "written-twice" in codes(inserted(s, *place, at(s, place)))


def test_padding_is_never_read() -> None:
    """vllm#41249: NaN in rows that nobody sent must not reach a result.

    The oracle starts all rows as poison; tables with tokens that choose no expert are
    among those of every base, and their outputs hold none.
    """
    known = twin("list_uneven")
    assert any(-1 in slots for t in known.oracle.tables for r in t for slots in r)
    assert known.oracle.outputs is not None
    assert 0 not in {v for t in known.oracle.outputs for rank in t for v in rank}
