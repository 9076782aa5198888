"""Broken schedules do not get through: every missing piece shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from hpc.interp.values import ExecutionDeadlock, ExecutionError
from hpc.interp.verify import verify_values
from hpc.schedule.layer import Layer
from hpc.schedule.model import Barrier, Base, Put, Region, Schedule, Set, Task, Wait
from tests.builders import small_layer, standard_schedule
from tests.values.cases import bits, random_ids, run, with_code, with_teams, without

LAYER: Layer = small_layer(tokens=(40, 33), experts=4)


def whole() -> Schedule:
    return standard_schedule(LAYER, ((0,), (1,)), 2, m=16, base=Base(16, 16, 64))


def places(kind: type) -> Iterator[tuple[int, int]]:
    for queue, each in enumerate(whole().queues):
        for index, instr in enumerate(each.code):
            if isinstance(instr, kind):
                yield queue, index


def test_the_whole_schedule_is_right() -> None:
    report = verify_values(whole(), mode="full")
    assert report.ok
    assert report.bit_identical
    assert report.faults == ()


@pytest.mark.parametrize(("queue", "index"), list(places(Wait)))
def test_a_dropped_wait_shows(queue: int, index: int) -> None:
    """Under one of a few interleavings a row is read before it was written."""
    report = verify_values(without(whole(), queue, index), seeds=tuple(range(6)))
    assert not report.ok
    assert report.max_rel_err is None


@pytest.mark.parametrize(("queue", "index"), list(places(Wait)))
def test_a_wait_for_one_signal_too_few_shows(queue: int, index: int) -> None:
    """All cores but one being done is a state that execution goes through."""
    schedule = with_teams(whole(), 3)
    code = list(schedule.queues[queue].code)
    wait = code[index]
    code[index] = replace(wait, need=wait.need - 1)
    broken = with_code(schedule, queue, tuple(code))
    assert not verify_values(broken, seeds=tuple(range(30))).ok


@pytest.mark.parametrize(("queue", "index"), list(places(Set)))
def test_a_dropped_set_is_a_deadlock(queue: int, index: int) -> None:
    broken = without(whole(), queue, index)
    with pytest.raises(ExecutionDeadlock):
        run(broken, random_ids(LAYER, 0))
    report = verify_values(broken)
    assert not report.ok
    assert "deadlock" in report.faults[0]


@pytest.mark.parametrize(("queue", "index"), list(places(Put)))
def test_a_dropped_put_is_a_deadlock(queue: int, index: int) -> None:
    with pytest.raises(ExecutionDeadlock):
        run(without(whole(), queue, index), random_ids(LAYER, 0))


@pytest.mark.parametrize(("queue", "index"), list(places(Task)))
def test_a_dropped_task_shows(queue: int, index: int) -> None:
    assert not verify_values(without(whole(), queue, index)).ok


def test_deadlock_says_who_waits_for_what() -> None:
    """Without the signals of the last activation its product waits for ever."""
    schedule = whole()
    sets = [i for i, c in enumerate(schedule.queues[2].code) if isinstance(c, Set)]
    with pytest.raises(ExecutionDeadlock) as caught:
        run(without(schedule, 2, sets[-1]), random_ids(LAYER, 0))
    text = str(caught.value)
    assert "aic[0:24] instruction 21 (hand.moe:1:1)" in text
    assert "waits for act_done[1,1], has 0 of 24" in text
    assert "waits for returned" in text
    assert "rank 1 core" in text


def test_an_output_written_twice_shows() -> None:
    """The second writing is harmless to the values, and still a fault."""
    schedule = whole()
    code = schedule.queues[2].code
    twice = with_code(schedule, 2, (*code, code[-1]))
    report = verify_values(twice, mode="full")
    assert report.max_rel_err is not None
    assert not report.ok
    assert "out on rank 0: 40 rows not written exactly once" in report.faults[0]
    assert "(64 of 32 elements)" in report.faults[0]


def test_an_output_half_written_shows() -> None:
    schedule = replace(whole(), row_chunks=2)
    report = verify_values(schedule, mode="full")
    assert report.max_rel_err is None
    assert "first row 20 (0 of 32 elements)" in report.faults[0]


def test_a_put_to_the_wrong_part_shows() -> None:
    """Rows go where the layout says; the reader of another expert sees poison."""
    schedule = whole()
    code = list(schedule.queues[0].code)
    at = next(i for i, c in enumerate(code) if isinstance(c, Task))
    task = code[at]
    code[at] = replace(task, writes=(Region("h", 1, 0),))
    with pytest.raises(ExecutionError, match="reads recv outside"):
        run(with_code(schedule, 0, tuple(code)), random_ids(LAYER, 0))


def test_a_swapped_expert_shows() -> None:
    """Weights of expert 1 for the rows of expert 0: finite, and far off."""
    schedule = whole()
    code = list(schedule.queues[0].code)
    at = next(i for i, c in enumerate(code) if isinstance(c, Task))
    rows, _ = code[at].reads
    code[at] = replace(code[at], reads=(rows, Region("w_up", 1)))
    report = verify_values(with_code(schedule, 0, tuple(code)), mode="full")
    assert not report.ok
    assert report.max_rel_err is not None
    assert report.max_rel_err > 10 * report.bound


def test_forgotten_router_weights_show() -> None:
    schedule = whole()
    code = list(schedule.queues[2].code)
    code[-1] = replace(code[-1], reads=code[-1].reads[:1])
    assert not verify_values(with_code(schedule, 2, tuple(code)), mode="full").ok


def test_inputs_and_weights_are_not_written() -> None:
    schedule = whole()
    code = list(schedule.queues[2].code)
    code[-1] = replace(code[-1], writes=(Region("x"),))
    with pytest.raises(ExecutionError, match="'x' is not to be written"):
        run(with_code(schedule, 2, tuple(code)), random_ids(LAYER, 0))


def test_unknown_operators_are_named() -> None:
    schedule = whole()
    code = list(schedule.queues[2].code)
    code[1] = replace(code[1], op="swish")
    with pytest.raises(ExecutionError, match="unknown operator 'swish'; known are gmm"):
        run(with_code(schedule, 2, tuple(code)), random_ids(LAYER, 0))


def with_barriers(scope: str) -> Schedule:
    """The serial form: no events, a barrier after every instruction of any queue."""
    schedule = whole()
    stages: list[list[tuple[int, object]]] = [[] for _ in range(6)]
    for queue, each in enumerate(schedule.queues):
        for instr in each.code:
            if isinstance(instr, Put):
                stage = 0 if instr.kind == "dispatch" else 4
                stages[stage].append((queue, replace(instr, event=None)))
            elif isinstance(instr, Task):
                stages[_stage(instr)].append((queue, instr))
    codes: list[list[object]] = [[] for _ in schedule.queues]
    for stage in stages:
        for queue, instr in stage:
            codes[queue].append(instr)
        for code in codes:
            code.append(Barrier(scope))
    for queue, code in enumerate(codes):
        schedule = with_code(schedule, queue, tuple(code))
    return replace(schedule, events=())


def _stage(task: Task) -> int:
    if task.op == "gmm":
        return 1 if task.reads[0].buffer == "recv" else 3
    return 5 if task.op == "reduce" else 2


def test_barriers_order_everything() -> None:
    ids = random_ids(LAYER, 0)
    wanted = bits(run(whole(), ids))
    serial = with_barriers("world")
    assert {bits(run(serial, ids, seed)) for seed in range(6)} == {wanted}


def test_a_barrier_of_one_rank_does_not_hold_another() -> None:
    """Puts without signals need a barrier of the world behind them."""
    assert not verify_values(with_barriers("rank"), seeds=tuple(range(6))).ok


def test_a_missing_barrier_is_a_deadlock() -> None:
    serial = with_barriers("world")
    broken = without(serial, 1, len(serial.queues[1].code) - 1)
    with pytest.raises(ExecutionDeadlock, match="waits at a world barrier"):
        run(broken, random_ids(LAYER, 0))
