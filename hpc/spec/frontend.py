"""`.moe` text to the `moe` dialect; found by `xdsl-opt` through `hpc.universe`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import (
    BFloat16Type,
    FileLineColLoc,
    Float16Type,
    Float32Type,
    IntAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    bf16,
    f16,
    f32,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.utils.exceptions import ParseError
from xdsl.utils.frontend import Frontend
from xdsl.utils.lexer import Input, Span

from dialects import moe
from dialects.moe_rowwise import ACTIVATION_OPS, AddOp, SwigluOaiOp
from dialects.moe_types import RoutedType, SlotsType
from hpc.schedule.layer import Layer
from hpc.spec.attr import PlanPins, spec_attr
from hpc.spec.diagnostics import SpecError
from hpc.spec.model import FlowOp, Loc, Spec
from hpc.spec.parser import parse_spec

ELEMENTS: dict[str, BFloat16Type | Float16Type | Float32Type] = {
    "bf16": bf16,
    "fp16": f16,
    "fp32": f32,
}

ACTIVATIONS = {op.name.removeprefix("moe."): op for op in ACTIVATION_OPS}


@dataclass(frozen=True)
class MoeFrontend(Frontend):
    """Reads `.moe` files; all semantic errors of a file are in the ParseError."""

    name = "moe"

    def parse(self, ctx: Context, input: IO[bytes], input_name: str) -> ModuleOp:
        data = input.read()
        try:
            return build_module(parse_spec(data, input_name))
        except SpecError as error:
            text = Input(data.decode(errors="replace"), input_name)
            first, *others = error.diagnostics
            message = "\n".join(
                [first.message, first.help, *(d.render() for d in others)]
            )
            raise ParseError(_span(first.loc, text), message) from error


def _span(loc: Loc, text: Input[str]) -> Span[str]:
    """The place of `loc`, as near as a text with odd line ends allows."""
    lines = text.content.split("\n")
    start = sum(len(line) + 1 for line in lines[: loc.line - 1]) + loc.col - 1
    start = min(start, len(text.content))
    return Span(start, start, text)


def build_module(spec: Spec) -> ModuleOp:
    """The `moe.layer` of a checked spec, every operator at its `.moe` location."""
    return ModuleOp([_LayerBuilder(spec).build()])


def location(loc: Loc) -> FileLineColLoc:
    """The MLIR location of a place in a `.moe` file."""
    return FileLineColLoc(StringAttr(loc.file), IntAttr(loc.line), IntAttr(loc.col))


class _LayerBuilder:
    def __init__(self, spec: Spec):
        self.spec = spec
        self.layer: Layer = spec.layer
        self.element = ELEMENTS[spec.layer.dtype]
        self.block = Block()
        self.values: dict[str, SSAValue] = {}

    def build(self) -> moe.LayerOp:
        for name, type_ in self.inputs():
            self.add_input(name, type_)
        for step in self.spec.flow:
            self.add_op(step)
        last = self.spec.flow[-1]
        self.append(moe.ReturnOp(self.values[last.result]), last.loc)
        spec = self.spec
        attr = spec_attr(self.layer, spec.routing, self.pins())
        name, body = self.layer.name, Region(self.block)
        op = moe.LayerOp(name, spec.machine, spec.mode, attr, body)
        op.location = location(spec.loc)
        return op

    def pins(self) -> PlanPins:
        pins = self.spec.pins
        return PlanPins(
            policy=pins.policy,
            groups=pins.groups,
            row_chunks=pins.row_chunks,
            base_tile=pins.base_tile,
            aic=pins.aic,
            comm_aiv=pins.comm_aiv,
            vector_aiv=pins.vector_aiv,
        )

    def inputs(self) -> Iterator[tuple[str, Attribute]]:
        """Declared inputs, then the built-in ones that the flow uses."""
        layer, used = self.layer, {a for op in self.spec.flow for a in op.args}
        for value in self.spec.inputs:
            shape = [layer.max_tokens, value.cols]
            yield value.name, TensorType(ELEMENTS[value.dtype], shape)
        if self.router_user() is not None:
            yield "router", self.slots(1, f32)
        experts = layer.local_experts
        up = [experts, layer.hidden, layer.up_width]
        down = [experts, layer.intermediate, layer.hidden]
        for name, shape in (("w_up", up), ("w_down", down)):
            if name in used:
                yield name, TensorType(self.element, shape)

    def router_user(self) -> str | None:
        """The operator that multiplies by the router weights, if the flow has it."""
        op = "reduce" if self.layer.weights_at == "output" else "dispatch"
        return op if any(step.op == op for step in self.spec.flow) else None

    def slots(self, cols: int, element: Attribute) -> SlotsType:
        layer = self.layer
        sizes = (layer.max_tokens, layer.top_k, cols)
        return SlotsType.new([*(IntAttr(s) for s in sizes), element])

    def add_input(self, name: str, type_: Attribute) -> None:
        loc = next((v.loc for v in self.spec.inputs if v.name == name), self.spec.loc)
        arg = self.block.insert_arg(type_, len(self.block.args), location(loc))
        arg.name_hint = name
        self.values[name] = arg

    def append(self, op: Operation, loc: Loc) -> None:
        op.location = location(loc)
        self.block.add_op(op)

    def add_op(self, step: FlowOp) -> None:
        op = self.make(step, [self.values[name] for name in step.args])
        self.append(op, step.loc)
        op.results[0].name_hint = step.result
        self.values[step.result] = op.results[0]

    def make(self, step: FlowOp, args: list[SSAValue]) -> Operation:
        router = self.values.get("router")
        uses_router = step.op == self.router_user()
        match step.op:
            case "dispatch":
                sizes = IntAttr(self.layer.local_experts), IntAttr(step.cols)
                result = RoutedType.new([*sizes, self.element])
                return moe.DispatchOp(args[0], result, router if uses_router else None)
            case "gmm":
                return moe.GmmOp(*args)
            case "combine":
                return moe.CombineOp(args[0], self.slots(step.cols, self.element))
            case "reduce":
                return moe.ReduceOp(args[0], router if uses_router else None)
            case "add":
                return AddOp(*args)
            case "swiglu_oai":
                params = dict(step.params)
                return SwigluOaiOp(args[0], params["alpha"], params["limit"])
            case name:
                return ACTIVATIONS[name](args[0])
