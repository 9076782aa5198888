"""Headers, tiles and numbers of compiled schedules, edited so that they contradict."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hpc.driver import compile_file
from hpc.interp.steps import StepsError, steps_of
from hpc.machine.record import load_machine
from hpc.machine.tiles import check_gmm_tile
from hpc.schedule.check import Limits, check_schedule
from hpc.schedule.layer import Activation
from hpc.schedule.model import Base, Schedule, Task
from hpc.schedule.policy import POLICIES
from hpc.schedule.reader import load_schedule
from hpc.schedule.writer import dump_schedule
from tests.builders import edited, small_layer, standard_schedule, train_schedule

MACHINE = load_machine("ascend_a3")
LIMITS = Limits.of(MACHINE)
MODES = ("forward", "backward", "train")

ODD = """\
layer odd {{
  tokens = [5, 0, 3]  hidden = {hidden}  intermediate = {intermediate}
  experts = 4  top_k = 2  activation = {activation}
  dtype = {dtype}  weights_at = {weights_at}
}}
parallel {{ ep = 3 }}
machine = ascend_a3
routing = balanced
mode = {mode}
"""

LAYERS = {
    "plain": {},
    "padded": {"hidden": 40, "intermediate": 24, "activation": "relu"},
    "one_column": {"hidden": 1, "intermediate": 1, "weights_at": "input"},
    "oai": {"activation": "swiglu_oai(alpha = 1.5, limit = 3)", "dtype": "fp16"},
}

SUMS = """\
layer sums {{ tokens = 8  hidden = 32  dtype = bf16 }}
machine = ascend_a3
mode = {mode}
flow {{
  input r : tokens x hidden
  out = add(x, r)
}}
"""


@cache
def compiled(mode: str, policy: str, name: str = "plain") -> Schedule:
    fields = {
        "hidden": 64, "intermediate": 32, "activation": "swiglu", "dtype": "bf16",
        "weights_at": "output", "mode": mode, **LAYERS.get(name, {}),
    }  # fmt: skip
    text = SUMS if name == "sums" else ODD
    with TemporaryDirectory() as folder:
        path = Path(folder) / "odd.moe"
        path.write_text(text.format(**fields))
        return compile_file(path, policy=policy).schedule


EVERY = list(product(MODES, POLICIES))


def said(s: Schedule, code: str) -> list[str]:
    return [v.message for v in check_schedule(s, LIMITS).violations if v.code == code]


def layer(s: Schedule, **changes: object) -> Schedule:
    return replace(s, layer=replace(s.layer, **changes))


@pytest.mark.parametrize(("mode", "policy"), EVERY)
@pytest.mark.parametrize("name", [*LAYERS, "sums"])
def test_what_the_compiler_writes_agrees_with_its_header(mode, policy, name):
    report = check_schedule(compiled(mode, policy, name), LIMITS)
    assert report.violations == ()


@pytest.mark.parametrize(("mode", "policy"), EVERY)
@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"hidden": 32}, "wrong-size", '"w_up" has 64 rows, not 32'),
        ({"hidden": 63}, "wrong-size", "hidden is 63, but "),
        ({"intermediate": 64}, "wrong-size", '"w_down" has 32 rows, not 64'),
        ({"intermediate": 64}, "wrong-size", '"w_up" has 64 columns, not 128'),
        ({"hidden": 96}, "wrong-padding", "hidden is 64, expected 96 for hidden 96"),
        ({"intermediate": 16}, "wrong-padding", "up_width is 64, expected 32"),
        ({"dtype": "fp16"}, "wrong-dtype", "the layer is fp16, but "),
        ({"dtype": "fp32"}, "wrong-dtype", "are bf16"),
    ],
)
def test_a_layer_that_the_buffers_deny(mode, policy, changes, code, message):
    found = said(layer(compiled(mode, policy), **changes), code)
    assert any(message in text for text in found), found


@pytest.mark.parametrize(("mode", "policy"), EVERY)
def test_padded_sizes_that_the_layer_denies(mode, policy):
    s = compiled(mode, policy)
    assert dict(s.padded) == {"hidden": 64, "intermediate": 32, "up_width": 64}
    for name, size in s.padded:
        for wrong in (size - 16, size + 1, size + 16):
            bad = tuple((n, wrong if n == name else old) for n, old in s.padded)
            assert len(said(replace(s, padded=bad), "wrong-padding")) == 1
    # Who writes a schedule by hand may leave them out.
    for kept in ((), s.padded[:1], s.padded[::-1]):
        assert check_schedule(replace(s, padded=kept), LIMITS).ok


@pytest.mark.parametrize("name", ["plain", "one_column"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("mode", "wrong", "message"),
    [
        ("forward", "backward", "nothing computes the gradient of this "),
        ("forward", "train", "nothing computes the gradient of this "),
        ("backward", "forward", "has role saved, which only mode backward has"),
        ("backward", "forward", "the mode is forward, but .* computes gradients"),
        ("backward", "train", "has role saved, .*; the mode is train"),
        ("backward", "train", "every output is a gradient, as in backward"),
        ("train", "forward", "the mode is forward, but .* computes gradients"),
        ("train", "backward", 'output "out" is no gradient, as in train'),
    ],
)
def test_a_mode_that_the_operators_deny(mode, wrong, message, policy, name):
    """Weights at the input have other gradient operators than those at the output."""
    found = said(replace(compiled(mode, policy, name), mode=wrong), "wrong-mode")
    assert any(re.search(message, text) for text in found), found


def test_a_backward_program_may_compute_forward_values_again():
    """As a pass may do that trades time for memory: then nothing need be saved."""
    s = train_schedule(small_layer(), ((0,), (1,)))
    no_result = replace(s.buffer("out"), role="workspace")
    buffers = tuple(no_result if b.name == "out" else b for b in s.buffers)
    assert said(replace(s, buffers=buffers, mode="backward"), "wrong-mode") == []
    assert len(said(replace(s, mode="backward"), "wrong-mode")) == 1


def test_sums_alone_are_the_same_in_every_mode():
    for wrong in MODES:
        assert said(replace(compiled("forward", "list", "sums"), mode=wrong),
                    "wrong-mode") == []  # fmt: skip


TILES = [
    Base(16, 16, 16), Base(128, 256, 64), Base(8, 16, 16), Base(16, 24, 16),
    Base(16, 16, 17), Base(1, 1, 1), Base(512, 16, 64), Base(16, 512, 80),
    Base(256, 256, 16), Base(512, 512, 16), Base(256, 128, 512), Base(16, 16, 4096),
    Base(16, 16, 1024), Base(16, 16, 1040), Base(2**40, 16, 16),
]  # fmt: skip


@pytest.mark.parametrize("base", TILES, ids=lambda b: f"{b.m}x{b.n}x{b.k}")
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_tiles_are_those_that_the_compiler_may_choose(base, dtype):
    s = standard_schedule(small_layer(dtype=dtype), base=base)
    fits = check_gmm_tile(MACHINE, base, dtype) is None
    assert (said(s, "bad-tile") == []) == fits


def test_a_tile_must_fit_l1_where_l0_has_room():
    """No built-in machine has so little L1, but a record may say so."""
    s = standard_schedule(small_layer())
    need = 2 * (128 + 256) * 64 * 2
    assert check_schedule(s, replace(LIMITS, l1_bytes=need)).ok
    found = check_schedule(s, replace(LIMITS, l1_bytes=need - 1)).violations
    message = f"base tile 128x256x64 needs {need} bytes of L1, there are {need - 1}"
    assert {(v.code, v.message) for v in found} == {("bad-tile", message)}


@pytest.mark.parametrize(("mode", "policy"), EVERY)
def test_tiles_of_vector_tasks_have_rows_only(mode, policy):
    s = compiled(mode, policy)
    for q, i, task in tasks(s):
        if task.op.startswith("gmm"):
            continue
        stray = edited(s, q, i, base=replace(task.base, n=16))
        assert said(stray, "bad-tile") == [
            f"base tile n is 16, but {task.op} has rows only"
        ]
        huge = edited(s, q, i, base=Base(2**53 - 1))
        assert len(said(huge, "bad-tile")) == 1


def tasks(s: Schedule) -> list[tuple[int, int, Task]]:
    return [
        (q, i, instr)
        for q, queue in enumerate(s.queues)
        for i, instr in enumerate(queue.code)
        if isinstance(instr, Task)
    ]


@pytest.mark.parametrize(("mode", "policy"), EVERY)
def test_numbers_of_an_activation_are_those_of_its_other_parts(mode, policy):
    """One part at a time: what is found is what a run would refuse too."""
    s = compiled(mode, policy, "oai")
    mine = [(q, i) for q, i, task in tasks(s) if task.op.startswith("swiglu_oai")]
    assert len(mine) > 1
    for q, i in mine:
        for params in ((("alpha", 2.0), ("limit", 3.0)), (("alpha", 1.5),), ()):
            bad = edited(s, q, i, params=params)
            assert said(bad, "wrong-params")
            with pytest.raises(StepsError, match="results of different operators"):
                steps_of(bad)


def test_numbers_of_a_gradient_are_those_of_its_activation():
    """All parts alike, so that a run would compare wrong gradients with wrong ones."""
    s = compiled("train", "list", "oai")
    for q, i, task in tasks(s):
        if task.op == "swiglu_oai_grad":
            s = edited(s, q, i, params=(("alpha", 1.5), ("limit", 4.0)))
    assert set(said(s, "wrong-params")) == {
        "swiglu_oai_grad has alpha 1.5, limit 4, "
        'swiglu_oai of "h" has alpha 1.5, limit 3'
    }


def test_numbers_that_the_layer_has_need_not_stand_in_the_tasks():
    s = standard_schedule(small_layer(activation=Activation("swiglu_oai", 1.5, 3.0)))
    assert check_schedule(s, LIMITS).ok


def test_no_tokens_at_all_are_refused_as_in_a_layer_file(tmp_path):
    """One rank may have none, as the layers above."""
    from hpc.schedule.reader import ScheduleFormatError
    from hpc.spec.diagnostics import SpecError

    s = standard_schedule(small_layer(tokens=(0, 0)))
    assert said(s, "bad-layer") == ["no rank has a token"]
    with pytest.raises(ScheduleFormatError, match=r"\$\.layer\.tokens: .* a token"):
        load_schedule(dump_schedule(s))
    path = tmp_path / "none.moe"
    path.write_text(SUMS.format(mode="forward").replace("= 8", "= [0]"))
    with pytest.raises(SpecError, match="no rank has a token"):
        compile_file(path)
