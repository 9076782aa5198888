"""Operators behind a launch: read off gradients, taken by the chain rule, renamed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpc.interp.gradient_steps import with_gradients
from hpc.interp.launch_steps import launch_steps
from hpc.interp.reference import reference
from hpc.interp.saved import launch_data
from hpc.interp.steps import Step, StepsError, steps_of
from hpc.interp.values import execute
from hpc.interp.verdict import compare
from hpc.interp.verify import verify_values
from hpc.schedule.layer import Activation, Layer
from hpc.schedule.model import Base, Put, Queue, Region, Schedule, Task
from tests.builders import (
    AIC,
    backward_schedule,
    small_layer,
    standard_schedule,
    train_schedule,
)
from tests.values.cases import add_then_swiglu, random_ids

LAYER: Layer = small_layer(tokens=(20, 9))
SCALED: Layer = small_layer(tokens=(20, 9), weights_at="input")


def standard(layer: Layer) -> tuple[Step, ...]:
    return steps_of(standard_schedule(layer))


def listed(steps: tuple[Step, ...]) -> list[tuple]:
    return [(s.op, s.result, s.args) for s in steps]


def test_steps_of_a_backward_schedule() -> None:
    steps = {s.result: s for s in steps_of(backward_schedule(LAYER))}
    assert set(listed(tuple(steps.values()))) == {
        ("dispatch", "dy", ("dout",)),
        ("slot_dot", "dweights", ("dout", "back")),
        ("gmm_nt", "da", ("dy", "w_down")),
        ("gmm_tn", "dw_down", ("a", "dy")),
        ("swiglu_grad", "dh", ("h", "da")),
        ("gmm_nt", "dx_rows", ("dh", "w_up")),
        ("gmm_tn", "dw_up", ("recv", "dh")),
        ("combine", "dback", ("dx_rows",)),
        ("reduce", "dx", ("dback",)),
    }
    assert steps["dy"].weighted is True
    assert steps["dx"].weighted is False


def test_steps_of_a_schedule_that_scales_the_input() -> None:
    steps = {s.result: s for s in steps_of(train_schedule(SCALED))}
    assert (steps["recv"].weighted, steps["out"].weighted) == (True, False)
    assert (steps["dy"].weighted, steps["dx"].weighted) == (False, True)
    assert steps["dweights"] == Step("slot_dot", "dweights", ("x", "dback"))


@pytest.mark.parametrize("layer", [LAYER, SCALED], ids=["output", "input"])
def test_forward_operators_are_read_off_their_gradients(layer: Layer) -> None:
    """All that saved values come from, and no more: `y` is only needed for `back`."""
    schedule = backward_schedule(layer)
    steps = launch_steps(schedule)
    found = set(listed(steps)) - set(listed(steps_of(schedule)))
    wanted = set(listed(standard(layer)))
    if layer is SCALED:
        assert found == {s for s in wanted if s[1] in ("recv", "h", "a")}
        return
    renamed = {"y": "dy.value"}
    assert found == {
        (op, renamed.get(result, result), tuple(renamed.get(a, a) for a in args))
        for op, result, args in wanted
        if op != "reduce"
    }


def test_names_do_not_matter_to_what_is_read_off() -> None:
    """But for the input, whose name a backward program does not have: without `x` in
    the schedule it is called that."""
    schedule = backward_schedule(LAYER)
    plain = verify_values(schedule, mode="full")
    names = {b.name: f"buffer_{i}" for i, b in enumerate(schedule.buffers)}
    kept = {n: n for n in ("router", "w_up", "w_down", "dout")}
    names = {**names, **kept}
    report = verify_values(renamed(schedule, names), mode="full")
    assert report.ok
    found = {(error, bound) for _, error, bound in report.outputs}
    assert found == {(error, bound) for _, error, bound in plain.outputs}


def renamed(schedule: Schedule, names: dict[str, str]) -> Schedule:
    def region(r: Region) -> Region:
        return replace(r, buffer=names[r.buffer])

    def instr(c: object) -> object:
        if isinstance(c, Put):
            dot = tuple(region(r) for r in c.dot)
            return replace(c, source=region(c.source), dest=region(c.dest), dot=dot)
        if isinstance(c, Task):
            reads = tuple(region(r) for r in c.reads)
            return replace(c, reads=reads, writes=tuple(region(r) for r in c.writes))
        return c

    buffers = tuple(replace(b, name=names[b.name]) for b in schedule.buffers)
    queues = tuple(
        replace(q, code=tuple(instr(c) for c in q.code)) for q in schedule.queues
    )
    return replace(schedule, buffers=buffers, queues=queues)


def test_gradients_under_names_with_a_number() -> None:
    """A flow may use names that gradients have; theirs then have a number behind."""
    for make in (backward_schedule, train_schedule):
        schedule = make(LAYER)
        names = {b.name: b.name for b in schedule.buffers}
        changed = {"dx": "dx2", "dw_up": "dw_up3", "dout": "dout2", "dy": "dx"}
        schedule = renamed(schedule, {**names, **changed})
        report = verify_values(schedule, mode="full", steps=standard(LAYER))
        assert report.ok, report.faults


def test_saved_values_under_names_with_a_number() -> None:
    schedule = backward_schedule(LAYER)
    names = {b.name: b.name for b in schedule.buffers}
    schedule = renamed(schedule, {**names, "a": "a2", "back": "back2"})
    report = verify_values(schedule, mode="full", steps=standard(LAYER))
    assert report.ok, report.faults


def test_a_missing_gradient_is_named() -> None:
    schedule = backward_schedule(LAYER)
    names = {b.name: b.name for b in schedule.buffers}
    report = verify_values(
        renamed(schedule, {**names, "dx": "slope"}), steps=standard(LAYER)
    )
    assert report.faults == ("no operator computes slope",)


def test_a_value_with_two_users_gets_the_sum() -> None:
    """out = add(reduce(...), x): x is dispatched, and added."""
    flow = (*standard(LAYER), Step("add", "total", ("out", "x")))
    steps = {s.result: s for s in with_gradients(LAYER, flow)}
    assert steps["dx"].op == "copy"
    (total,) = steps["dx"].args
    assert steps[total].op == "add"
    assert "dtotal" in steps[total].args


def test_an_operand_used_twice_counts_twice() -> None:
    flow = (Step("add", "s", ("p", "p")), Step("gelu", "out", ("s",)))
    steps = with_gradients(LAYER, flow)
    assert [s.op for s in steps] == ["add", "gelu", "gelu_grad", "add", "copy"]


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        ((Step("softmax", "out", ("x",)),), "softmax has no gradient"),
        (
            (
                Step("dispatch", "r", ("x",)),
                Step("gmm", "h", ("r", "w_up")),
                Step("gmm", "g", ("h", "w_up")),
                Step("combine", "b", ("g",)),
                Step("reduce", "out", ("b",)),
            ),
            "weight w_up has two users",
        ),
        (
            (Step("dispatch", "r", ("x",)), Step("combine", "out", ("r",))),
            "out has no gradient unless it is reduced",
        ),
        (
            (
                Step("dispatch", "r", ("x",)),
                Step("combine", "b", ("r",)),
                Step("reduce", "one", ("b",)),
                Step("reduce", "two", ("b",)),
                Step("add", "out", ("one", "two")),
            ),
            "b is not only reduced",
        ),
    ],
)
def test_what_has_no_gradient_is_told(flow: tuple[Step, ...], message: str) -> None:
    with pytest.raises(StepsError, match=message):
        with_gradients(LAYER, flow)


def no_communication(mode: str) -> Schedule:
    """s = add(p, q); out = swiglu(s) with gradients: dp is ds, and dq a copy of it."""
    forward = add_then_swiglu(LAYER, row_chunks=1)
    wide, narrow = forward.buffer("p"), forward.buffer("out")
    whole = {n: Region(n, None, 0) for n in ("p", "q", "sum", "dout", "dp", "dq")}
    code = [
        Task("swiglu_grad", (whole["sum"], whole["dout"]), (whole["dp"],), Base(16)),
        Task("copy", (whole["dp"],), (whole["dq"],), Base(16)),
    ]
    buffers = [
        replace(narrow, name="dout", role="input"),
        replace(wide, name="dp", role="output"),
        replace(wide, name="dq", role="output"),
    ]
    if mode == "train":
        add = forward.queues[0].code[0]
        code = [
            add,
            Task("swiglu", (whole["sum"],), (Region("out", None, 0),), Base(16)),
            *code,
        ]
        buffers = [*forward.buffers, *buffers]
    else:
        buffers += [replace(forward.buffer("sum"), role="saved")]
    return replace(
        forward,
        mode=mode,
        buffers=tuple(buffers),
        events=(),
        queues=(Queue(replace(AIC, unit="aiv"), tuple(code)),),
    )


FLOW = (Step("add", "sum", ("p", "q")), Step("swiglu", "out", ("sum",)))


@pytest.mark.parametrize("mode", ["backward", "train"])
@pytest.mark.parametrize("steps", [None, FLOW], ids=["schedule", "spec"])
def test_a_flow_without_communication(
    mode: str, steps: tuple[Step, ...] | None
) -> None:
    """Nothing in the backward schedule tells where `sum` comes from: then it is data
    like any other."""
    schedule = one_core(no_communication(mode))
    report = verify_values(schedule, mode="full", steps=steps)
    assert report.ok, report.faults
    names = {name for name, _, _ in report.outputs}
    assert names == {"dp", "dq"} | ({"out"} if mode == "train" else set())


def one_core(schedule: Schedule) -> Schedule:
    """A copy may not start before what it copies, which one core makes sure of."""
    queues = tuple(replace(q, team=replace(q.team, size=1)) for q in schedule.queues)
    return replace(schedule, queues=queues)


def test_saved_rows_that_nothing_tells_of_are_random() -> None:
    """Routed ones by slot, so that they are the same for all groups."""
    layer = small_layer(activation=Activation("relu"), tokens=(12, 5))
    schedule = backward_schedule(layer)
    rows = schedule.buffer("recv")
    lonely = replace(rows, name="other")
    schedule = replace(schedule, buffers=(*schedule.buffers, lonely))
    ids = random_ids(layer, 0)
    data = launch_data(schedule, launch_steps(schedule), ids)
    values = data.input("other", 1).astype(float)
    assert values.shape == (5 * layer.top_k, layer.hidden)
    assert np.abs(values).min(axis=1).all()


@pytest.mark.parametrize("layer", [LAYER, SCALED], ids=["output", "input"])
def test_gradients_of_any_saved_values(layer: Layer) -> None:
    """Even if nothing saved is what a forward pass leaves, with slots not sent."""
    schedule = backward_schedule(layer, ((0,), (1,)))
    ids = random_ids(layer, 1, unsent=0.3)
    steps = steps_of(schedule)
    data = launch_data(schedule, steps, ids)
    result = execute(schedule, ids, seed=0, data=data)
    names = list(result.outputs)
    expected = reference(layer, steps, ids, data, names)
    assert compare(result.outputs, expected).ok


def test_saved_slots_that_were_not_sent_are_poison() -> None:
    """The forward pass left nothing there; a read of it shows."""
    schedule = backward_schedule(LAYER)
    ids = random_ids(LAYER, 1, unsent=0.3)
    data = launch_data(schedule, launch_steps(schedule), ids)
    for rank in range(LAYER.ep):
        sent = np.asarray(ids[rank]).reshape(-1) >= 0
        poison = np.isnan(data.input("back", rank).astype(float))
        assert poison[~sent].all()
        assert not poison[sent].any()


def test_a_weight_that_is_not_there_is_told() -> None:
    flow = tuple(
        replace(s, args=("recv", "w_gate")) if s.result == "h" else s
        for s in standard(LAYER)
    )
    report = verify_values(backward_schedule(LAYER), steps=flow)
    assert not report.ok
    assert "no operator computes dw_up" in report.faults
    with pytest.raises(StepsError, match="no buffer w_gate to compute h with"):
        launch_data(backward_schedule(LAYER), flow, random_ids(LAYER, 0))
