"""The flow block: canonical names, shapes, and faults at the right column."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpc.schedule.layer import ACTIVATIONS
from hpc.spec.model import FlowOp, Loc, Spec
from hpc.spec.operators import OPERATORS
from tests.spec.texts import findings, messages, only, parse, pointed, text

NOWHERE = Loc("", 0, 0)
TOKENS_ONLY = {
    "intermediate": None,
    "experts": None,
    "top_k": None,
    "activation": None,
    "ep": None,
}


def flow_of(spec: Spec) -> list[FlowOp]:
    """The flow without its places."""
    return [replace(op, loc=NOWHERE) for op in spec.flow]


def shown(spec: Spec) -> list[str]:
    return [
        f"{op.result} = {op.op}({', '.join(op.args)}) : {op.space} x {op.cols}"
        for op in spec.flow
    ]


def test_the_standard_flow() -> None:
    assert shown(parse(text())) == [
        "recv = dispatch(x) : routed x 64",
        "h = gmm(recv, w_up) : routed x 64",
        "a = swiglu(h) : routed x 32",
        "y = gmm(a, w_down) : routed x 64",
        "back = combine(y) : slot x 64",
        "out = reduce(back) : token x 64",
    ]


@pytest.mark.parametrize(
    "flow",
    [
        "flow { q = dispatch(x) w = gmm(q, w_up) e = swiglu(w) r = gmm(e, w_down)"
        " t = combine(r) z = reduce(t) }",
        "flow { o = reduce(combine(gmm(act(gmm(dispatch(x), w_up)), w_down))) }",
        "flow { out = dispatch(x) recv = gmm(out, w_up) y = act(recv)"
        " h = gmm(y, w_down) a = combine(h) back = reduce(a) }",
    ],
)
def test_the_standard_flow_written_out_is_the_default(flow: str) -> None:
    """Whatever names the text uses and however it nests."""
    written, default = parse(text(flow)), parse(text())
    assert flow_of(written) == flow_of(default)
    assert [replace(v, loc=NOWHERE) for v in written.inputs] == [
        replace(v, loc=NOWHERE) for v in default.inputs
    ]


def test_operators_carry_the_place_of_their_name() -> None:
    spec = parse(text("flow {\n  y = gmm(dispatch(x), w_up)\n}\n"))
    assert [str(op.loc) for op in spec.flow] == ["t.moe:11:11", "t.moe:11:7"]


def test_a_flow_without_experts_needs_tokens_and_hidden_only() -> None:
    rest = "flow {\n  input r : tokens x hidden\n  o = swiglu(add(x, r))\n}\n"
    spec = parse(text(rest, **TOKENS_ONLY))
    assert shown(spec) == [
        "sum = add(x, r) : token x 64",
        "out = swiglu(sum) : token x 32",
    ]
    layer = spec.layer
    assert (layer.experts, layer.top_k, layer.ep) == (1, 1, 1)
    assert (layer.intermediate, layer.activation.name) == (64, "swiglu")
    assert [(v.name, v.cols) for v in spec.inputs] == [("x", 64), ("r", 64)]


def test_the_layer_activation_is_needed_only_for_act() -> None:
    rest = "flow { o = act(x) }"
    assert messages(text(rest, **TOKENS_ONLY)) == ["the layer has no 'activation'"]
    assert messages(text("flow { o = dispatch(x) }", **TOKENS_ONLY)) == [
        f"the layer has no '{name}'"
        for name in ("intermediate", "experts", "top_k", "activation")
    ]


@pytest.mark.parametrize(
    ("cols", "expected"),
    [("48", 48), ("hidden", 64), ("intermediate", 32), ("3 * hidden", 192)],
)
def test_columns_of_an_input(cols: str, expected: int) -> None:
    rest = f"flow {{ input r : tokens x {cols}\n o = relu(r) }}"
    fields = {**TOKENS_ONLY, "intermediate": 32}
    spec = parse(text(rest, **fields))
    assert [(v.name, v.cols) for v in spec.inputs] == [("r", expected)]


def test_second_results_of_a_kind_are_numbered() -> None:
    rest = (
        "flow { o = add(reduce(combine(dispatch(x))), reduce(combine(dispatch(x)))) }"
    )
    assert [op.result for op in parse(text(rest)).flow] == [
        "recv", "back", "out2", "recv2", "back2", "out3", "out",
    ]  # fmt: skip


def test_results_never_take_the_name_of_an_input() -> None:
    rest = "flow { input sum : tokens x hidden\n a = add(x, sum) o = relu(a) }"
    spec = parse(text(rest, **TOKENS_ONLY))
    assert [(op.result, op.args) for op in spec.flow] == [
        ("sum2", ("x", "sum")),
        ("out", ("sum2",)),
    ]


def test_numbers_of_an_activation_default_to_those_of_the_layer() -> None:
    source = text("flow { o = act(dispatch(x)) }", activation="swiglu_oai(2, 3)")
    assert parse(source).flow[-1].params == (("alpha", 2.0), ("limit", 3.0))
    rest = "flow { o = swiglu_oai(x, limit = 9) }"
    assert parse(text(rest, **TOKENS_ONLY)).flow[-1].params == (
        ("alpha", 1.702),
        ("limit", 9.0),
    )


@pytest.mark.parametrize(
    ("statement", "place", "message"),
    [
        (
            "o = gmm(x, w_up)",
            "x,",
            "'gmm' needs routed rows here, got [token rows x 64]",
        ),
        ("o = gmm(dispatch(x), x)", "x) ", "'gmm' needs a weight here"),
        ("o = relu(w_up)", "w_up)", "'relu' needs rows here, got a weight [64 x 64]"),
        (
            "o = gmm(dispatch(x), w_down)",
            "w_down)",
            "[routed rows x 64] by a weight [32 x 64]: 64 columns against 32 rows",
        ),
        (
            "input r : tokens x 5\n o = gmm(dispatch(r), w_up)",
            "w_up)",
            "5 columns against 64 rows",
        ),
        ("o = add(dispatch(x), x)", "x) ", "[routed rows x 64] and [token rows x 64]"),
        ("o = add(x)", "add(x)", "'add' takes 2 operands, got 1"),
        ("o = dispatch(x, x)", "dispatch", "'dispatch' takes 1 operand, got 2"),
        ("o = dispatch()", "dispatch", "'dispatch' takes 1 operand, got 0"),
        ("o = reduce(x)", "x) ", "'reduce' needs slot rows here"),
        ("o = combine(combine(dispatch(x)))", "combine(d", "needs routed rows here"),
        ("o = dispatch(dispatch(x))", "dispatch(x)", "needs token rows here"),
        (
            "s = combine(dispatch(x)) o = reduce(add(s, s))",
            "s))",
            "add takes token or routed rows, got [slot rows x 64]",
        ),
        (
            "o = reduce(relu2(combine(dispatch(x))))",
            "combine(d",
            "an activation takes token or routed rows, got [slot rows x 64]",
        ),
        (
            "o = reduce(geglu(combine(dispatch(x))))",
            "combine(d",
            "an activation takes token or routed rows, got [slot rows x 64]",
        ),
        ("o = dispach(x)", "dispach", "unknown operator 'dispach'"),
        ("o = relu(xx)", "xx", "unknown value 'xx'"),
        ("o = relu(o)", "o) ", "unknown value 'o'"),
        ("o = relu(3)", "3", "expected a value's name, got '3'"),
        ("o = x", "x ", "expected an operator"),
        ("x = relu(x)", "x =", "'x' is built in"),
        ("o = relu(x) o = relu(o)", "o = relu(o)", "'o' is already defined at 11:3"),
        ("o = relu(x) p = relu(x)", "o =", "the result 'o' is never used"),
        ("o = relu(x, alpha = 1)", "alpha", "argument 'alpha' of 'relu' is unknown"),
        ("o = swiglu_oai(x, limit = 0)", "0", "expected a number above 0"),
        ("input r : tokens x 5\n o = swiglu(r)", "r) ", "even number of columns"),
        ("input r : tokens x 5\n o = add(x, r)", "r) ", "x 64] and [token rows x 5]"),
        ("input r : tokens x 5\n o = relu(x)", "r :", "the input 'r' is never used"),
        ("input r : rows x 5\n o = relu(r)", "rows", "an input has 'tokens' rows"),
        ("input r : tokens y 5\n o = relu(r)", "y", "expected 'x', got the name 'y'"),
        ("inpt r : tokens x 5\n o = relu(r)", "inpt", "expected 'input'"),
        ("input r : tokens x wide\n o = relu(r)", "wide", "expected a column count"),
        ("input r : tokens x 0\n o = relu(r)", "0", "a column count from 1"),
        (
            "input r : tokens x 99999 * hidden\n o = relu(r)",
            "99999",
            "99999 * 64 = 6399936 columns exceed 1048576",
        ),
        ("input w_up : tokens x 4\n o = relu(x)", "w_up", "'w_up' is built in"),
    ],
)
def test_a_fault_is_reported_where_it_stands(
    statement: str, place: str, message: str
) -> None:
    """Operators on token rows may be any activation, so the layer's is swiglu here."""
    found = only(text(f"flow {{\n  {statement} \n}}\n"))
    assert message in found.message
    assert pointed(found, len(place)) == place


def test_the_weights_shape_follows_the_activation() -> None:
    """Without a gate w_up has half the columns, and the message shows it."""
    found = only(text("flow { o = relu(w_up) }", activation="relu"))
    assert "[64 x 32]" in found.message


def test_routed_rows_have_one_activation() -> None:
    found = only(text("flow { o = geglu(dispatch(x)) }"))
    assert found.message == "the layer's activation is swiglu, the flow uses geglu"


def test_an_empty_flow() -> None:
    assert messages(text("flow { }")) == ["the flow has no operator"]


def test_a_wrong_layer_does_not_hide_faults_of_the_flow() -> None:
    """Unknown widths fit everything; unknown names are still found."""
    found = findings(text("flow { o = gmm(dispatch(x), w_dwn) }", hidden=0))
    assert [d.help for d in found if "w_dwn" in d.message] == ["did you mean 'w_down'?"]
    assert len(found) == 2


def test_every_operator_of_the_table_can_be_written() -> None:
    made = {
        "token": "x",
        "routed": "dispatch(x)",
        "slot": "combine(dispatch(x))",
        "weight": "w_up",
        "": "x",
    }
    for name, operator in OPERATORS.items():
        args = ", ".join(made[space] for space in operator.spaces)
        activation = name if name in ACTIVATIONS else "swiglu"
        spec = parse(text(f"flow {{ o = {name}({args}) }}", activation=activation))
        assert spec.flow[-1].op == name
