"""The flow of a spec: names, shapes and uses checked against the operator table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from hpc.schedule.layer import ACTIVATIONS, Activation
from hpc.spec.diagnostics import Report, did_you_mean
from hpc.spec.layer_block import ACTIVATION_PARAMS, MAX_COLS, LayerParts
from hpc.spec.model import FlowOp, Loc, Value
from hpc.spec.nodes import (
    Block,
    Call,
    Input,
    Keyword,
    Node,
    Number,
    Product,
    Setting,
    Word,
)
from hpc.spec.operators import (
    ACT,
    OPERATORS,
    STANDARD,
    WEIGHT_RESULTS,
    Operator,
    Shape,
)
from hpc.spec.values import finish_params, read_integer

RESERVED = ("x", "router", *WEIGHT_RESULTS)


@dataclass(slots=True)
class _Known:
    """A name in scope. `canonical` is filled for results at the end."""

    shape: Shape | None
    loc: Loc
    read: bool = False


@dataclass(slots=True)
class _Op:
    op: str
    result: str
    args: tuple[str, ...]
    params: tuple[tuple[str, float], ...]
    shape: Shape
    loc: Loc


@dataclass
class _Checker:
    """Walks the statements in order, with the names defined so far."""

    report: Report
    parts: LayerParts
    known: dict[str, _Known]
    ops: list[_Op] = field(default_factory=list[_Op])
    inputs: list[str] = field(default_factory=lambda: ["x"])
    temporaries: int = 0

    def statement(self, item: Setting | Input) -> None:
        if isinstance(item, Input):
            self.declare(item)
            return
        if not isinstance(item.value, Call):
            message = f"expected an operator such as add(x, x), got {item.value}"
            self.report.error(item.value.loc, message)
            self.define(item.name, None)
            return
        shape = self.call(item.value, item.name.text)
        self.define(item.name, shape)

    def declare(self, item: Input) -> None:
        """`input NAME : tokens x COLS`."""
        for word, wanted in ((item.keyword, "input"), (item.by, "x")):
            if word.text != wanted:
                message = f"expected '{wanted}', got {word}"
                self.report.error(word.loc, message, "input NAME : tokens x COLS")
        if item.space.text != "tokens":
            message = f"an input has 'tokens' rows, got {item.space}"
            self.report.error(item.space.loc, message)
        self.inputs.append(item.name.text)
        self.define(item.name, Shape("token", self.cols(item.cols)))

    def cols(self, node: Node) -> int | None:
        """COLS: an integer, hidden, intermediate, or an integer times one of them."""
        named = {"hidden": self.parts.hidden, "intermediate": self.parts.intermediate}
        factor = 1
        if isinstance(node, Number):
            return read_integer(self.report, node, 1, MAX_COLS, "a column count")
        if isinstance(node, Product):
            factor = read_integer(self.report, node.factor, 1, MAX_COLS, "a factor")
            word: Node = node.word
        else:
            word = node
        if not isinstance(word, Word) or word.text not in named:
            message = f"expected a column count, got {word}"
            self.report.error(word.loc, message, "an integer, hidden or intermediate")
            return None
        base = named[word.text]
        if factor is None or base is None:
            return None
        if factor * base > MAX_COLS:
            message = f"{factor} * {base} = {factor * base} columns exceed {MAX_COLS}"
            self.report.error(node.loc, message)
            return None
        return factor * base

    def define(self, name: Word, shape: Shape | None) -> None:
        text = name.text
        if text in RESERVED:
            self.report.error(name.loc, f"'{text}' is built in and cannot be redefined")
        elif text in self.known:
            first = self.known[text].loc
            message = f"'{text}' is already defined at {first.line}:{first.col}"
            self.report.error(name.loc, message)
        else:
            self.known[text] = _Known(shape, name.loc)

    def call(self, call: Call, result: str) -> Shape | None:
        """Shape of an operator's result; None after an error."""
        name = call.name.text
        operator = self.operator(call.name)
        plain = [a for a in call.args if not isinstance(a, Keyword)]
        args = [self.operand(arg) for arg in plain]
        if operator is None:
            return None
        op, rule = operator
        params = self.params(call, op)
        if len(plain) != len(rule.spaces):
            message = f"'{name}' takes {_count(len(rule.spaces))}, got {len(plain)}"
            self.report.error(call.loc, message)
            return None
        shapes = [shape for _, shape in args]
        fits = [
            self.space_fits(name, node, shape, want)
            for node, shape, want in zip(plain, shapes, rule.spaces, strict=True)
        ]
        if not all(fits) or params is None:
            return None
        found = rule.result(tuple(s for s in shapes if s is not None))
        if isinstance(found, str):
            self.report.error(plain[-1].loc, found)
            return None
        self.own_activation(call, op, found)
        names = tuple(n for n, _ in args)
        self.ops.append(_Op(op, result, names, params, found, call.loc))
        return found

    def operator(self, name: Word) -> tuple[str, Operator] | None:
        """The operator called `name`, with `act` resolved."""
        if name.text in OPERATORS:
            return name.text, OPERATORS[name.text]
        if name.text == ACT:
            own = self.parts.activation
            return None if own is None else (own.name, OPERATORS[own.name])
        message = f"unknown operator '{name.text[:40]}'"
        self.report.error(name.loc, message, did_you_mean(name.text, (*OPERATORS, ACT)))
        return None

    def operand(self, node: Node) -> tuple[str, Shape | None]:
        """Name and shape of an operand; a nested call gets a name of its own."""
        if isinstance(node, Call):
            self.temporaries += 1
            name = f"%{self.temporaries}"
            shape = self.call(node, name)
            self.known[name] = _Known(shape, node.loc, read=True)
            return name, shape
        if not isinstance(node, Word):
            self.report.error(node.loc, f"expected a value's name, got {node}")
            return "", None
        known = self.known.get(node.text)
        if known is None:
            message = f"unknown value '{node.text[:40]}'"
            names = [n for n in self.known if not n.startswith("%")]
            self.report.error(node.loc, message, did_you_mean(node.text, names))
            return "", None
        known.read = True
        return node.text, known.shape

    def space_fits(self, op: str, node: Node, shape: Shape | None, want: str) -> bool:
        """Is this operand known, and of the wanted space ("" for any rows)?"""
        if shape is None:
            return False
        if shape.space == want or (not want and shape.space != "weight"):
            return True
        wanted = {"": "rows", "weight": "a weight"}.get(want, f"{want} rows")
        message = f"'{op}' needs {wanted} here, got {shape}"
        hints = {
            "weight": "the weights are w_up and w_down",
            "routed": "rows are routed by dispatch(...)",
            "slot": "slot rows come from combine(...)",
            "token": "token rows are x, inputs and results of reduce(...)",
        }
        self.report.error(node.loc, message, hints.get(want, ""))
        return False

    def params(self, call: Call, op: str) -> tuple[tuple[str, float], ...] | None:
        """Named numbers of an activation; the layer's own are the defaults."""
        params = ACTIVATION_PARAMS.get(op, ())
        own = self.parts.activation
        if own is not None and own.name == op:
            values = {"alpha": own.alpha, "limit": own.limit}
            params = tuple(replace(p, default=values[p.name]) for p in params)
        readers = {p.name: p.read for p in params}
        found: dict[str, float | None] = {}
        for arg in call.args:
            if not isinstance(arg, Keyword):
                continue
            name = arg.name.text
            if name not in readers or name in found:
                fault = "is given twice" if name in found else "is unknown"
                message = f"argument '{name[:40]}' of '{op}' {fault}"
                self.report.error(arg.loc, message, did_you_mean(name, readers))
                found[""] = None
            else:
                found[name] = readers[name](self.report, arg.value)
        return finish_params(self.report, call.loc, params, found, f"'{op}'")

    def own_activation(self, call: Call, op: str, shape: Shape) -> None:
        """On routed rows there is one activation: that of the layer."""
        own = self.parts.activation
        if op in ACTIVATIONS and shape.space == "routed" and own and own.name != op:
            message = f"the layer's activation is {own.name}, the flow uses {op}"
            help = "write act(...) or change the layer's activation"
            self.report.error(call.loc, message, help)

    def finish(self, block: Block) -> None:
        """Everything but the last result must be read by something."""
        results = [item.name.text for item in block.body if isinstance(item, Setting)]
        if not results:
            self.report.error(block.kind.loc, "the flow has no operator")
            return
        for name, known in self.known.items():
            wrong = known.shape is None or name in RESERVED
            if known.read or wrong or name == results[-1]:
                continue
            what = "input" if name in self.inputs else "result"
            self.report.error(known.loc, f"the {what} '{name}' is never used")


def operators_used(block: Block | None) -> frozenset[str]:
    """Names of all operators called in a flow block, however deep."""
    if block is None:
        return frozenset(name for name, _, _ in STANDARD)
    values = [s.value for s in block.body if isinstance(s, Setting)]
    return frozenset(name for value in values for name in _called(value))


def fields_needed(block: Block | None) -> frozenset[str]:
    """Layer fields that this flow needs beyond those that every layer has."""
    used = operators_used(block)
    if any(name in OPERATORS and OPERATORS[name].routed for name in used):
        return frozenset({"intermediate", "experts", "top_k", "activation"})
    return frozenset({"activation"} if ACT in used else ())


def read_flow(
    report: Report, block: Block | None, parts: LayerParts
) -> tuple[tuple[Value, ...], tuple[FlowOp, ...]]:
    """Inputs and operators of a flow block, or those of the standard flow."""
    up = _up_width(parts.activation, parts.intermediate)
    known = {
        "x": _Known(Shape("token", parts.hidden), parts.loc),
        "w_up": _Known(Shape("weight", up, parts.hidden), parts.loc),
        "w_down": _Known(Shape("weight", parts.hidden, parts.intermediate), parts.loc),
    }
    checker = _Checker(report, parts, known)
    if block is None:
        for op, args, result in STANDARD:
            words = tuple(Word(a, parts.loc) for a in args)
            statement = Call(Word(op, parts.loc), words, 1)
            checker.statement(Setting(Word(result, parts.loc), statement))
    else:
        for item in block.body:
            checker.statement(item)
        checker.finish(block)
    return ((), ()) if report.failed else _canonical(checker, parts.dtype or "")


def _up_width(activation: Activation | None, intermediate: int | None) -> int | None:
    if activation is None or intermediate is None:
        return None
    return intermediate * (2 if activation.gated else 1)


def _canonical(
    checker: _Checker, dtype: str
) -> tuple[tuple[Value, ...], tuple[FlowOp, ...]]:
    """Inputs that are read, and operators with names that do not depend on the text."""
    read = [n for n in checker.inputs if checker.known[n].read]
    inputs = tuple(
        Value(n, "token", s.cols or 0, dtype, checker.known[n].loc)
        for n in read
        if (s := checker.known[n].shape) is not None
    )
    names = {n: n for n in (*read, *WEIGHT_RESULTS)}
    taken = {*read, *RESERVED}
    last = checker.ops[-1]
    if last.shape.space == "token":
        names[last.result] = _unused("out", taken)
    flow: list[FlowOp] = []
    for op in checker.ops:
        result = names.get(op.result) or _unused(_base(op), taken)
        names[op.result] = result
        args = tuple(names[a] for a in op.args)
        cols = op.shape.cols or 0
        flow.append(
            FlowOp(op.op, result, args, op.params, op.shape.space, cols, op.loc)
        )
    return inputs, tuple(flow)


def _base(op: _Op) -> str:
    if op.op == "gmm":
        return WEIGHT_RESULTS[op.args[1]]
    return OPERATORS[op.op].base


def _unused(base: str, taken: set[str]) -> str:
    """`base`, or `base` with the first number from 2 that is free; then taken."""
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}{number}"
    taken.add(name)
    return name


def _called(node: Node | Keyword) -> Iterator[str]:
    if isinstance(node, Keyword):
        node = node.value
    if isinstance(node, Call):
        yield node.name.text
        for arg in node.args:
            yield from _called(arg)


def _count(n: int) -> str:
    return f"{n} operand{'s' * (n != 1)}"
