"""Gradient rules: operators without one, and the graph of whole layers."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, StringAttr, UnknownLoc, f32
from xdsl.ir import Block
from xdsl.irdl import irdl_op_definition
from xdsl.utils.exceptions import PassFailedException

from dialects.moe_rowwise import ACTIVATION_OPS, MoeOp
from hpc.driver import compile_text, context, default_pipeline
from hpc.schedule.model import Put, Task
from hpc.spec.frontend import build_module
from hpc.spec.parser import parse_spec
from passes.gradients import RULES, Emitter, gradients
from passes.moe_derive_backward import MoeDeriveBackwardPass

LAYER = """layer l {{
  tokens = 8 hidden = 64 intermediate = 32 experts = 4 top_k = 2
  activation = {activation} dtype = bf16 weights_at = {at}
}}
parallel {{ ep = 2 }}
mode = {mode}
"""


def derived(**changes: str):
    values = {"activation": "swiglu", "at": "output", "mode": "backward", **changes}
    module = build_module(parse_spec(LAYER.format(**values).encode(), "l.moe"))
    MoeDeriveBackwardPass().apply(context(), module)
    module.verify()
    return module


def test_an_operator_without_a_rule_is_named_at_its_line() -> None:
    @irdl_op_definition
    class UnknownOp(MoeOp):
        """An operator that nobody wrote a rule for."""

        name = "moe.unknown"

    op = UnknownOp.create()
    op.location = FileLineColLoc(StringAttr("a.moe"), IntAttr(3), IntAttr(5))
    grad = Block(arg_types=[f32]).args[0]
    emit = Emitter({}, UnknownLoc())
    with pytest.raises(PassFailedException) as caught:
        list(gradients(op, grad, emit))
    assert str(caught.value).startswith("a.moe:3:5: error: moe.unknown has no gradient")


def test_every_forward_operator_has_a_rule() -> None:
    from dialects.moe import Moe
    from dialects.moe_grad import GRAD_OPS

    operators = {op for op in Moe.operations if issubclass(op, MoeOp)}
    assert operators - set(GRAD_OPS) == set(RULES)


@pytest.mark.parametrize("op", ACTIVATION_OPS, ids=lambda op: op.name)
def test_activations_use_their_own_gradient(op: type[MoeOp]) -> None:
    name = op.name.removeprefix("moe.")
    activation = "swiglu_oai(1.702, 7.0)" if name == "swiglu_oai" else name
    module = derived(activation=activation)
    found = [o.name for o in module.walk() if o.name.endswith("_grad")]
    assert found == [f"moe.{name}_grad"]


@pytest.mark.parametrize("at", ["output", "input"])
def test_every_input_gets_a_gradient(at: str) -> None:
    module = derived(at=at)
    (end,) = (o for o in module.walk() if o.name == "moe.return")
    names = [value.name_hint for value in end.operands]
    assert names == ["dx", "drouter", "dw_up", "dw_down"]


def test_gradients_keep_the_line_of_their_operator() -> None:
    """The dispatch of gradients belongs to the combine, the combine to the dispatch."""
    flow = (
        "flow {\n  recv = dispatch(x)\n  h = gmm(recv, w_up)\n  a = swiglu(h)\n"
        "  y = gmm(a, w_down)\n  back = combine(y)\n  out = reduce(back)\n}\n"
    )
    text = LAYER.format(activation="swiglu", at="output", mode="backward") + flow
    module = build_module(parse_spec(text.encode(), "l.moe"))
    MoeDeriveBackwardPass().apply(context(), module)
    lines = {
        op.name: op.location.line.data
        for op in module.walk()
        if isinstance(op, MoeOp) and isinstance(op.location, FileLineColLoc)
    }
    assert lines["moe.dispatch"] == 12
    assert lines["moe.swiglu_grad"] == 10
    assert lines["moe.combine"] == 8


@pytest.mark.parametrize("policy", ["serial", "paper", "list"])
@pytest.mark.parametrize("mode", ["backward", "train"])
def test_every_policy_schedules_gradients(mode: str, policy: str) -> None:
    text = LAYER.format(activation="swiglu", at="output", mode=mode)
    schedule = compile_text(text.encode(), "l.moe", policy=policy).schedule
    code = [instr for queue in schedule.queues for instr in queue.code]
    tasks = [instr.op for instr in code if isinstance(instr, Task)]
    puts = [instr for instr in code if isinstance(instr, Put)]
    groups = len(schedule.groups)
    assert tasks.count("gmm_tn") == 2 * 2
    assert tasks.count("gmm_nt") == 2 * 2 * groups
    assert sum(bool(put.dot) for put in puts) == 2 * groups
    assert len(puts) == (8 if mode == "train" else 4) * groups


def test_the_paper_interleaves_the_pair_that_reads_received_rows() -> None:
    """w2_grad runs next to act_grad, expert by expert; w1_grad after all gate_grad."""
    text = LAYER.format(activation="swiglu", at="output", mode="backward")
    schedule = compile_text(text.encode(), "l.moe", policy="paper").schedule
    aic = next(q for q in schedule.queues if q.team.unit == "aic")
    written = [i.writes[0] for i in aic.code if isinstance(i, Task)]
    assert [(r.buffer, r.expert) for r in written] == [
        ("da", 0),
        ("dw_down", 0),
        ("da", 1),
        ("dw_down", 1),
        ("drecv", 0),
        ("drecv", 1),
        ("dw_up", 0),
        ("dw_up", 1),
    ]


def test_interleaving_can_be_turned_off() -> None:
    text = LAYER.format(activation="swiglu", at="output", mode="backward")
    plain = default_pipeline("paper").replace(
        "tile-schedule", "tile-schedule{interleave=false}"
    )
    schedule = compile_text(text.encode(), "l.moe", pipeline=plain).schedule
    aic = next(q for q in schedule.queues if q.team.unit == "aic")
    written = [i.writes[0].buffer for i in aic.code if isinstance(i, Task)]
    assert written[:4] == ["da", "da", "dw_down", "dw_down"]


def test_a_gradient_summed_from_parts_has_the_name() -> None:
    flow = (
        "flow {\n  recv = dispatch(x)\n  back = combine(recv)\n"
        "  out = add(reduce(back), x)\n}\n"
    )
    text = LAYER.format(activation="swiglu", at="output", mode="backward") + flow
    schedule = compile_text(text.encode(), "l.moe").schedule
    outputs = [b.name for b in schedule.buffers if b.role == "output"]
    assert sorted(outputs) == ["drouter", "dx"]
    assert "dx_part" in {b.name for b in schedule.buffers}
