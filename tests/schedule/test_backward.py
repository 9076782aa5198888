"""Backward and training programs: sound ones pass every check, broken ones do not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hpc.schedule.check import Limits, check_schedule
from hpc.schedule.checks.index import Index
from hpc.schedule.checks.router import gradient_buffers
from hpc.schedule.checks.traffic import put_rows
from hpc.schedule.layer import ACTIVATIONS, Activation
from hpc.schedule.model import Base, Event, Put, Region, Schedule, Set, Task, Wait
from tests.builders import (
    backward_schedule,
    dropped,
    edited,
    inserted,
    moved,
    small_layer,
    standard_schedule,
    train_schedule,
    with_buffer,
)
from tests.schedule.racy import with_last_barrier

LIMITS = Limits(64, 24, 48, ("bf16", "fp16"))
COUNTS = np.array([[8, 8, 8, 8], [8, 8, 8, 8]])
GROUPS = ((0,), (1,))
MAKERS = (backward_schedule, train_schedule)


def made(maker: Callable[..., Schedule], at: str = "output") -> Schedule:
    """Gradients of weights are not answered by a put, so a barrier ends the launch."""
    return with_last_barrier(maker(small_layer(weights_at=at), GROUPS))


B, TRAIN = made(backward_schedule), made(train_schedule)
B_IN, TRAIN_IN = made(backward_schedule, "input"), made(train_schedule, "input")


def place(s: Schedule, name: str, nth: int = 0) -> tuple[int, int]:
    """Where the nth instruction with operator (or kind of put) `name` is."""
    found = [
        (q, i)
        for q, queue in enumerate(s.queues)
        for i, instr in enumerate(queue.code)
        if name == (getattr(instr, "op", "") or getattr(instr, "kind", ""))
    ]
    return found[nth]


def change(s: Schedule, name: str, nth: int = 0, **changes: object) -> Schedule:
    return edited(s, *place(s, name, nth), **changes)


def reads(s: Schedule, name: str, *regions: Region | None) -> Schedule:
    """The first such task with other operands; None keeps one."""
    q, i = place(s, name)
    task = s.queues[q].code[i]
    assert isinstance(task, Task)
    new = tuple(b or a for a, b in zip(task.reads, regions, strict=True))
    return edited(s, q, i, reads=new)


@pytest.mark.parametrize("at", ["output", "input"])
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_sound_programs_pass_every_check(
    maker: Callable[..., Schedule], at: str, name: str
) -> None:
    for groups in (None, GROUPS):
        layer = small_layer(weights_at=at, activation=Activation(name))
        s = with_last_barrier(maker(layer, groups, 2))
        report = check_schedule(s, LIMITS, COUNTS)
        assert report.violations == ()
        assert report.ok
        assert not report.unchecked


ONE = (0, 0)
FAULTS = {
    "rows of another width than the matrix": (
        with_buffer(B, "dy", cols=48),
        "wrong-cols",
        '"dy" of 48 columns times "w_down" of 32 columns, transposed',
    ),
    "matrix of more rows than the result has columns": (
        with_buffer(B, "da", cols=8),
        "wrong-cols",
        '"w_down" of 16 rows, transposed, into "da" of 8 columns',
    ),
    "weights of another expert": (
        reads(B, "gmm_nt", None, Region("w_down", 1)),
        "wrong-part",
        "weights of expert 1 for rows of expert 0",
    ),
    "gradient of weights from one group": (
        reads(B, "gmm_tn", Region("a", 0, 1), None),
        "wrong-part",
        'reads group 1 of "a", but a gradient of weights adds over all rows',
    ),
    "gradient of weights from rows of another expert": (
        reads(B, "gmm_tn", Region("a", 1), None),
        "wrong-part",
        "rows of expert 1 for the gradient of expert 0",
    ),
    "gradient of all weights at once": (
        change(B, "gmm_tn", writes=(Region("dw_down"),)),
        "wrong-part",
        "rows of expert 0 for the gradient of expert *",
    ),
    "operands of a gradient of weights in the other order": (
        reads(B, "gmm_tn", Region("dy", 0), Region("a", 0)),
        "wrong-cols",
        '"dy" of 32 columns into "dw_down" of 16 rows',
    ),
    "gradient of weights into rows": (
        change(B, "gmm_tn", writes=(Region("da", 0),)),
        "wrong-space",
        'result "da" is in space routed, expected weight',
    ),
    "depth of a tile is missing": (
        change(B, "gmm_tn", base=Base(16, 16, 0)),
        "bad-tile",
        "base tile k is 0",
    ),
    "gradient of an activation of the wrong width": (
        change(B, "swiglu_grad", op="relu_grad"),
        "wrong-cols",
        'with the gradient "da" of 16 columns: not the same width',
    ),
    "operands of an activation's gradient in the other order": (
        reads(B, "swiglu_grad", Region("da", *ONE), Region("h", *ONE)),
        "wrong-cols",
        "not twice the width",
    ),
    "gradient of an activation of another part": (
        reads(B, "swiglu_grad", Region("h", 0, 1), None),
        "wrong-part",
        "reads part [0,1] and writes part [0,0]",
    ),
    "gradient of an activation without the forward rows": (
        change(B, "swiglu_grad", reads=(Region("da", *ONE),)),
        "wrong-arity",
        "swiglu_grad reads 2 and writes 1 region, here 1 and 1",
    ),
    "dot product without a result": (
        change(B, "dispatch", dot=(Region("back", *ONE),)),
        "bad-value",
        "dot has 1 regions, must be two or none",
    ),
    "dot product with rows of the expert": (
        change(B, "dispatch", dot=(Region("recv", *ONE), Region("dweights", *ONE))),
        "wrong-space",
        'dot with "recv" in space routed, expected slot',
    ),
    "dot product into rows": (
        change(B, "dispatch", dot=(Region("back", *ONE), Region("dback", *ONE))),
        "wrong-cols",
        'dot products in "dback" of 32 columns, not 1',
    ),
    "dot product of another part": (
        change(B, "dispatch", dot=(Region("back", 0, 1), Region("dweights", *ONE))),
        "wrong-part",
        'a put of [0, 0] has a dot product in part [0, 1] of "back"',
    ),
    "dot product of a combine": (
        change(B, "combine", dot=(Region("back", *ONE), Region("dweights", *ONE))),
        "put-direction",
        "a combine has no dot product",
    ),
    "dot product with a shorter row": (
        with_buffer(B, "back", cols=16),
        "wrong-cols",
        'dot of "dout" of 32 columns with "back" of 16 columns',
    ),
    "dot product in 16 bits": (
        with_buffer(B, "dweights", dtype="bf16"),
        "wrong-dtype",
        "dot products must be fp32",
    ),
    "dot product at a layer that scales its input": (
        change(B_IN, "dispatch", dot=(Region("dback", *ONE), Region("dweights", *ONE))),
        "router-weight",
        "weights are at the input: their gradient is that of a reduce_dot",
    ),
    "gradients that are not scaled": (
        change(B, "dispatch", scale=False),
        "router-weight",
        "dispatch of gradients does not scale rows, weights are at the output",
    ),
    "gradients that are scaled twice": (
        change(B_IN, "dispatch", scale=True),
        "router-weight",
        "dispatch of gradients scales rows, weights are at the input",
    ),
    "gradients that are weighted in the reduce": (
        change(B, "reduce", reads=(Region("dback"), Region("router"))),
        "router-weight",
        "reduce of gradients reads router weights, they are at the output",
    ),
    "gradients that are summed without weights": (
        change(
            B_IN,
            "reduce_dot",
            op="reduce",
            reads=(Region("dback"),),
            writes=(Region("dx", None, 0),),
        ),
        "router-weight",
        "reduce of gradients does not read router weights, they are at the input",
    ),
    "forward rows of a training step that are scaled": (
        change(TRAIN, "dispatch", scale=True),
        "router-weight",
        "dispatch scales rows, weights are at the output",
    ),
    "backward rows of a training step that are not": (
        change(TRAIN, "dispatch", 4, scale=False),
        "router-weight",
        "dispatch of gradients does not scale rows, weights are at the output",
    ),
    "forward reduce of a training step without weights": (
        change(TRAIN, "reduce", reads=(Region("back"),)),
        "router-weight",
        "reduce does not read router weights, they are at the output",
    ),
    "a part of the slots of the tokens": (
        reads(B_IN, "reduce_dot", Region("dback", 0), None, None),
        "wrong-part",
        'takes a part of "dback"',
    ),
    "one chunk of the tokens for all slots": (
        replace(B_IN, row_chunks=2),
        "wrong-part",
        'chunk 0 of "dx", but every slot of the rank gets a result',
    ),
    "gradients of router weights in 16 bits": (
        with_buffer(B_IN, "dweights", dtype="bf16"),
        "wrong-dtype",
        "router gradients must be fp32",
    ),
    "tokens of another dtype": (
        with_buffer(B_IN, "x", dtype="fp16"),
        "wrong-dtype",
        "operands mix bf16 and fp16",
    ),
    "a saved tensor that is written": (
        change(B, "gmm_nt", writes=(Region("a", *ONE),)),
        "input-written",
        "writes a[0,0], which is saved",
    ),
    "an expert without a gradient": (
        dropped(B, *place(B, "gmm_tn")),
        "written-never",
        "output dw_down[0,0] is never written",
    ),
    "an expert with two": (
        change(B, "gmm_tn", 2, reads=(Region("a", 0), Region("dy", 0))),
        "wrong-part",
        "rows of expert 0 for the gradient of expert 1",
    ),
    "a gradient of weights that is written twice": (
        inserted(B, *place(B, "gmm_tn"), B.queues[0].code[place(B, "gmm_tn")[1]]),
        "written-twice",
        "dw_down[0,0] is written 2 times",
    ),
    "slots without a gradient of their weight": (
        change(B, "dispatch", 1, dot=()),
        "written-never",
        "output dweights[0,1] is never written",
    ),
    "a dot product before its rows are back": (
        dropped(TRAIN, 1, place(TRAIN, "dispatch", 4)[1] - 1),
        "race-put-read",
        "may still be putting there",
    ),
    "a gradient of weights before its rows are there": (
        moved(B, *place(B, "gmm_tn"), 0),
        "race-put-read",
        "dy[0,0]",
    ),
    "gradients that are not put": (
        dropped(TRAIN, *place(TRAIN, "dispatch", 4)),
        "bytes-pair",
        'dispatch into "dy"',
    ),
    "gradients that do not come back": (
        dropped(TRAIN, *place(TRAIN, "combine", 4)),
        "bytes-pair",
        'combine into "dback"',
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_program_is_found_and_told(fault: str) -> None:
    s, code, message = FAULTS[fault]
    found = check_schedule(s, LIMITS, COUNTS).violations
    said = [violation.message for violation in found if violation.code == code]
    assert any(message in text for text in said), [v.render() for v in found]


def test_gradients_are_told_by_what_is_done_with_them() -> None:
    """Names and mode do not matter; a forward program has none."""
    assert gradient_buffers(Index(standard_schedule(small_layer()))) == frozenset()
    rows = {"dout", "dy", "da", "dh", "dx_rows", "dback", "dx"}
    for s in (B, B_IN, TRAIN, TRAIN_IN):
        assert gradient_buffers(Index(s)) == rows
        assert gradient_buffers(Index(replace(s, mode="forward"))) == rows


def test_a_flow_without_operators_has_gradients_by_their_dot_product() -> None:
    """Rows that only go there and back: nothing but the router weight tells."""
    code = [i for i in B.queues[1].code if isinstance(i, Put)]
    queues = (replace(B.queues[1], code=tuple(code[:4])),)
    assert gradient_buffers(Index(replace(B, queues=queues))) == {"dout", "dy"}


def test_both_exchanges_of_a_training_step_are_counted() -> None:
    """Skewed rows, so that the directions differ."""
    counts = np.array([[20, 4, 4, 4], [0, 0, 0, 32]])
    there = np.array([[24, 8], [0, 32]])
    for name, rows in (("recv", there), ("dy", there), ("back", there.T)):
        assert put_rows(TRAIN, counts, name).tolist() == rows.tolist()
    assert put_rows(TRAIN, counts, "dback").tolist() == there.T.tolist()


def test_gradients_of_weights_may_outlive_the_launch_of_a_rank() -> None:
    """Nobody answers them: without a last barrier the next launch may overwrite rows
    that they still read."""
    report = check_schedule(backward_schedule(small_layer(), GROUPS), LIMITS, COUNTS)
    assert {violation.code for violation in report.violations} == {"relaunch-race"}
    assert all("overwrite dy" in violation.message for violation in report.violations)


def test_saved_rows_expect_no_puts_though_puts_once_brought_them() -> None:
    s = with_buffer(with_buffer(B, "recv", symmetric=True), "back", symmetric=True)
    assert check_schedule(s, LIMITS, COUNTS).violations == ()


def test_a_dot_product_is_there_when_its_own_rank_says_so() -> None:
    """Other ranks have no part in it: a flag of the cores that put is enough to read
    it, and without the flag it is a race."""
    comm, vec = 1, 2
    copy = Task("copy", (Region("dweights"),), (Region("result"),), Base(16))
    event = Event(60, "dots_done", B.queues[comm].team.size)
    s = with_buffer(B, "dweights", role="workspace")
    result = replace(B.buffer("dweights"), name="result")
    s = replace(s, buffers=(*s.buffers, result), events=(*s.events, event))
    s = inserted(s, comm, 4, Set(60))
    s = inserted(inserted(s, vec, 0, Wait(60, event.need)), vec, 1, copy)
    assert check_schedule(s, LIMITS, COUNTS).violations == ()
    found = check_schedule(moved(s, vec, 0, 1), LIMITS, COUNTS).violations
    assert {violation.code for violation in found} == {"race-read-write"}


def test_a_put_with_a_dot_product_renders() -> None:
    q, i = place(B, "dispatch")
    text = Index(B).text((q, i))
    assert re.search(r"dout -> dy\[0,0\] .* dot back\[0,0\] -> dweights\[0,0\]", text)
