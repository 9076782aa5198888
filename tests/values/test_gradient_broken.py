"""Broken backward schedules do not get through: every missing piece shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from hpc.interp import gradient_ops, ops
from hpc.interp.steps import Step, steps_of
from hpc.interp.values import ExecutionDeadlock, ExecutionError, execute
from hpc.interp.verify import ValueReport, verify_values
from hpc.schedule.model import Put, Region, Schedule, Set, Task, Wait
from tests.builders import (
    backward_schedule,
    small_layer,
    standard_schedule,
    train_schedule,
)
from tests.values.cases import (
    NARROW,
    data_for,
    random_ids,
    run,
    with_code,
    with_teams,
    without,
)

LAYER = small_layer(tokens=(40, 33))
SCALED = small_layer(tokens=(40, 33), weights_at="input")


def whole(make: Callable[..., Schedule] = backward_schedule) -> Schedule:
    return make(LAYER, ((0,), (1,)), 2, m=16, base=NARROW)


def places(kind: type, make: Callable[..., Schedule]) -> Iterator[tuple[int, int]]:
    for queue, each in enumerate(whole(make).queues):
        for index, instr in enumerate(each.code):
            if isinstance(instr, kind):
                yield queue, index


def verify(schedule: Schedule, seeds: int = 2) -> ValueReport:
    return verify_values(schedule, mode="full", seeds=tuple(range(seeds)))


def shows(broken: Schedule, seeds: int) -> bool:
    """Whether poison reaches an output under one of the first interleavings."""
    ids = random_ids(LAYER, 0)
    data = data_for(whole(), ids)
    for seed in range(seeds):
        outputs = execute(broken, ids, seed=seed, data=data).outputs.values()
        if any(np.isnan(a.astype(np.float32)).any() for each in outputs for a in each):
            return True
    return False


def test_the_whole_schedule_is_right() -> None:
    assert verify(whole()).ok
    assert not shows(whole(), 4)


@pytest.mark.parametrize(("queue", "index"), list(places(Wait, backward_schedule)))
def test_a_dropped_wait_shows(queue: int, index: int) -> None:
    """The wait for one group's rows before the sum over all of them, for one."""
    assert shows(without(whole(), queue, index), seeds=8)


@pytest.mark.parametrize(("queue", "index"), list(places(Wait, backward_schedule)))
def test_a_wait_for_one_signal_too_few_shows(queue: int, index: int) -> None:
    schedule = with_teams(whole(), 3)
    code = list(schedule.queues[queue].code)
    code[index] = replace(code[index], need=code[index].need - 1)
    assert shows(with_code(schedule, queue, tuple(code)), seeds=40)


@pytest.mark.parametrize("kind", [Set, Put])
def test_a_dropped_signal_is_a_deadlock(kind: type) -> None:
    ids = random_ids(LAYER, 0)
    for queue, index in places(kind, backward_schedule):
        with pytest.raises(ExecutionDeadlock):
            run(without(whole(), queue, index), ids)


@pytest.mark.parametrize(("queue", "index"), list(places(Task, backward_schedule)))
def test_a_dropped_task_shows(queue: int, index: int) -> None:
    assert not verify(without(whole(), queue, index)).ok


def test_training_must_wait_for_expert_rows_before_their_products() -> None:
    """Between the halves: dispatch reads what came back for the router's gradient."""
    schedule = whole(train_schedule)
    assert verify(schedule).ok
    code = schedule.queues[1].code
    name = {event.id: event.name for event in schedule.events}
    at = next(
        i
        for i, c in enumerate(code)
        if isinstance(c, Wait) and name[c.event] == "returned"
    )
    report = verify(without(schedule, 1, at), seeds=8)
    assert report.max_rel_err is None
    assert not report.ok


def changed(which: str, **changes: object) -> Schedule:
    """The schedule with the first task `op` changed."""
    schedule = whole()
    for queue, each in enumerate(schedule.queues):
        for index, instr in enumerate(each.code):
            if isinstance(instr, Task) and instr.op == which:
                code = list(each.code)
                code[index] = replace(instr, **changes)
                return with_code(schedule, queue, tuple(code))
    raise AssertionError(which)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            changed("gmm_tn", reads=(Region("a", 0, 0), Region("dy", 0))),
            "are not all rows of one",
        ),
        (
            changed("gmm_tn", reads=(Region("a", 1), Region("dy", 0))),
            "are not all rows of one",
        ),
        (
            changed("gmm_tn", reads=(Region("dy", 0), Region("a", 0))),
            "columns 32 and 16 for a matrix of 16 x 32",
        ),
        (
            changed("gmm_nt", reads=(Region("dy", 1, 0), Region("w_down", 0))),
            "reads dy outside",
        ),
        (changed("gmm_nt", op="gmm"), "no matrix of one expert with 32 rows"),
        (changed("swiglu_grad", op="swiglu_back"), "unknown operator 'swiglu_back'"),
        (changed("reduce", writes=(Region("recv"),)), "not to be written"),
    ],
)
def test_wrong_operands_are_told(broken: Schedule, message: str) -> None:
    ids = random_ids(LAYER, 0)
    with pytest.raises(ExecutionError, match=message):
        execute(broken, ids, seed=0, data=data_for(whole(), ids))


def test_another_weight_of_the_same_size_shows() -> None:
    """w_up instead of w_down, where both have as many columns: values differ."""
    broken = changed("gmm_nt", reads=(Region("dy", 0, 0), Region("w_up", 0)))
    assert not verify(broken).ok


def test_a_dot_product_of_other_rows_is_refused() -> None:
    schedule = whole()
    code = list(schedule.queues[1].code)
    dot = (Region("back", 1, 0), Region("dweights", 0, 0))
    code[0] = replace(code[0], dot=dot)
    with pytest.raises(ExecutionError, match="dot product"):
        run(with_code(schedule, 1, tuple(code)), random_ids(LAYER, 0))


def test_a_forgotten_dot_product_shows() -> None:
    """The gradient of the router weights of one part is never written."""
    schedule = whole()
    code = list(schedule.queues[1].code)
    code[0] = replace(code[0], dot=())
    report = verify(with_code(schedule, 1, tuple(code)))
    assert not report.ok
    assert report.worst is not None
    assert report.worst[0] == "dweights"
    assert any("dweights on rank 0" in fault for fault in report.faults)


def forward() -> tuple[Step, ...]:
    return steps_of(standard_schedule(LAYER))


def test_a_gradient_that_is_not_scaled_shows() -> None:
    """By its own account the schedule is right; by the chain rule it is not."""
    schedule = whole()
    code = [
        replace(c, scale=False) if isinstance(c, Put) and c.kind == "dispatch" else c
        for c in schedule.queues[1].code
    ]
    broken = with_code(schedule, 1, tuple(code))
    assert verify_values(broken, mode="full").ok
    report = verify_values(broken, mode="full", steps=forward())
    assert not report.ok
    assert report.max_rel_err is not None


@pytest.mark.parametrize(
    ("first", "second"), [("w_up", "recv"), ("w_down", "a")], ids=["up", "down"]
)
def test_swapped_experts_show(first: str, second: str) -> None:
    """Rows of expert 1 in the gradient of expert 0, and the other way round."""
    schedule = whole()
    code = list(schedule.queues[0].code)
    tasks = [i for i, c in enumerate(code) if isinstance(c, Task) and c.op == "gmm_tn"]
    one, two = [i for i in tasks if code[i].reads[0].buffer == second]
    code[one], code[two] = (
        replace(code[one], reads=code[two].reads, writes=code[one].writes),
        replace(code[two], reads=code[one].reads, writes=code[two].writes),
    )
    report = verify(with_code(schedule, 0, tuple(code)))
    assert not report.ok


def wrong_silu(operands: list[np.ndarray], params: object) -> np.ndarray:
    """swiglu_grad as if silu' were sigmoid."""
    (gate, up), grad = np.hsplit(operands[0], 2), operands[1]
    share = 1 / (1 + np.exp(-gate))
    return np.hstack([grad * up * share, grad * gate * share]).astype(np.float32)


def test_a_wrong_formula_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ops.OPS, "swiglu_grad", wrong_silu)
    report = verify(whole())
    assert not report.ok
    assert report.max_rel_err is not None
    assert report.max_rel_err > 3 * report.bound
    assert gradient_ops.GRADIENTS["swiglu_grad"] is not wrong_silu


def test_weights_at_the_input_need_their_own_sum() -> None:
    """reduce instead of reduce_dot: dx without weights, dweights missing."""
    schedule = backward_schedule(SCALED)
    code = list(schedule.queues[2].code)
    last = code[-1]
    code[-1] = replace(last, op="reduce", reads=last.reads[:1], writes=last.writes[:1])
    report = verify_values(
        with_code(schedule, 2, tuple(code)), mode="full", steps=forward()
    )
    assert not report.ok
    assert any("dweights" in fault for fault in report.faults)
