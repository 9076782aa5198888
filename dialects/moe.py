"""The `moe` dialect: a layer as operators on tensors, before anything is cut.

An operator says how it may be split through one class attribute, `SPLIT`; the pass
`moe-tile` propagates splits with nothing else. A new operator is one class here and
one entry in the cost table (`hpc/machine/cost.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    DictionaryAttr,
    Float64Type,
    FloatAttr,
    IntAttr,
    StringAttr,
    SymbolNameConstraint,
    TensorType,
)
from xdsl.ir import (
    Attribute,
    Dialect,
    ParametrizedAttribute,
    Region,
    SSAValue,
    TypeAttribute,
)
from xdsl.irdl import (
    AnyOf,
    VarConstraint,
    base,
    irdl_attr_definition,
    irdl_op_definition,
    opt_operand_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import HasParent, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from dialects.base import LocatedOp, typed_operand_def


class Space(StrEnum):
    """How the rows of a value are cut; see `hpc/schedule/model.py`."""

    TOKEN = "token"
    ROUTED = "routed"
    SLOT = "slot"
    WEIGHT = "weight"


class Access(StrEnum):
    """Which part of an operand a tile of the result needs."""

    ALIGNED = "aligned"  # the same part as the tile
    EXPERT = "expert"  # everything of the tile's expert
    WHOLE = "whole"  # all parts


@dataclass(frozen=True)
class SplitSpec:
    """How an operator may be split (the paper's SplitSpec).

    The parts of the result, in space `space`, are independent tiles; `operands[i]`
    says what a tile reads of operand i. `unit` is where it runs: "aic" or "aiv".
    `exchange` marks an all-to-all between the ranks: "dispatch" or "combine".
    """

    space: Space
    operands: tuple[Access, ...]
    unit: str = "aiv"
    exchange: str | None = None


def _print_shape(printer: Printer, dims: Sequence[int], element: Attribute) -> None:
    with printer.in_angle_brackets():
        text = "x".join("?" if d == DYNAMIC_INDEX else str(d) for d in dims)
        printer.print_string(f"{text}x")
        printer.print_attribute(element)


def _parse_shape(parser: AttrParser, rank: int) -> tuple[list[int], Attribute]:
    with parser.in_angle_brackets():
        position = parser.pos
        dims, element = parser.parse_ranked_shape()
    if len(dims) != rank:
        parser.raise_error(f"expected {rank} dimensions, got {len(dims)}", position)
    return dims, element


@irdl_attr_definition
class RoutedType(ParametrizedAttribute, TypeAttribute):
    """Rows received by a rank, by local expert; their number is known at run time.

    `!moe.routed<8x?x7168xbf16>`: 8 local experts, rows of 7168 elements.
    """

    name = "moe.routed"

    experts: IntAttr
    cols: IntAttr
    element: AnyFloat

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        dims, element = _parse_shape(parser, 3)
        if dims[1] != DYNAMIC_INDEX:
            parser.raise_error("the rows of a routed type are always '?'")
        return IntAttr(dims[0]), IntAttr(dims[2]), element

    def print_parameters(self, printer: Printer) -> None:
        dims = (self.experts.data, DYNAMIC_INDEX, self.cols.data)
        _print_shape(printer, dims, self.element)


@irdl_attr_definition
class SlotsType(ParametrizedAttribute, TypeAttribute):
    """One row for every (token, slot) of a rank: `!moe.slots<4096x8x7168xbf16>`."""

    name = "moe.slots"

    tokens: IntAttr
    top_k: IntAttr
    cols: IntAttr
    element: AnyFloat

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        dims, element = _parse_shape(parser, 3)
        return *(IntAttr(d) for d in dims), element

    def print_parameters(self, printer: Printer) -> None:
        dims = (self.tokens.data, self.top_k.data, self.cols.data)
        _print_shape(printer, dims, self.element)


AnyRowsConstr = AnyOf([base(TensorType[AnyFloat]), base(RoutedType)])
"""Rows that row-wise operators take: of tokens, or routed."""


def cols_of(type_: Attribute) -> int:
    """Elements of a row of any of the row types."""
    if isinstance(type_, RoutedType | SlotsType):
        return type_.cols.data
    assert isinstance(type_, TensorType)
    return type_.get_shape()[-1]


def element_of(type_: Attribute) -> Attribute:
    """Element type of any of the row types."""
    if isinstance(type_, RoutedType | SlotsType):
        return type_.element
    assert isinstance(type_, TensorType)
    return type_.element_type


def space_of(type_: Attribute) -> Space:
    """The space a value's rows live in."""
    if isinstance(type_, RoutedType):
        return Space.ROUTED
    if isinstance(type_, SlotsType):
        return Space.SLOT
    assert isinstance(type_, TensorType)
    return Space.WEIGHT if len(type_.get_shape()) == 3 else Space.TOKEN


def _expect(name: str, expected: object, got: object) -> None:
    if expected != got:
        raise VerifyException(f"{name} must be {expected}, got {got}")


class MoeOp(LocatedOp):
    """An operator of a layer. Subclasses set `SPLIT`; `STEM` names its result."""

    SPLIT: ClassVar[SplitSpec]
    STEM: ClassVar[str] = "v"

    def split_spec(self) -> SplitSpec:
        """How this operator may be split; depends on its operand types at most."""
        return self.SPLIT

    def params(self) -> tuple[tuple[str, float], ...]:
        """Numbers the operator's formula needs, by name."""
        return ()


@irdl_op_definition
class LayerOp(LocatedOp):
    """
    A layer on one rank: inputs are block arguments, operators in order.

    ```mlir
    moe.layer @micro on "ascend_a3" mode "forward" {tokens = array<i64: 8>} {
    ^bb0(%x : tensor<8x64xbf16>):
      %a = moe.swiglu %x : tensor<8x64xbf16> -> tensor<8x32xbf16>
      moe.return %a : tensor<8x32xbf16>
    }
    ```
    """

    name = "moe.layer"

    sym_name = prop_def(SymbolNameConstraint())
    machine = prop_def(StringAttr)
    mode = prop_def(StringAttr)
    spec = prop_def(DictionaryAttr)
    body = region_def("single_block")

    traits = traits_def()

    assembly_format = "$sym_name `on` $machine `mode` $mode $spec $body attr-dict"

    def __init__(
        self, name: str, machine: str, mode: str, spec: DictionaryAttr, body: Region
    ):
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "machine": StringAttr(machine),
                "mode": StringAttr(mode),
                "spec": spec,
            },
            regions=[body],
        )

    def verify_(self) -> None:
        if not isinstance(self.body.block.last_op, ReturnOp):
            raise VerifyException("a layer must end in moe.return")


@irdl_op_definition
class ReturnOp(LocatedOp):
    """
    Ends a layer and names its output.

    ```mlir
    moe.layer @empty on "ascend_a3" mode "forward" {} {
    ^bb0(%x : tensor<8x64xbf16>):
      moe.return %x : tensor<8x64xbf16>
    }
    ```
    """

    name = "moe.return"

    value = typed_operand_def(TensorType[AnyFloat])

    traits = traits_def(IsTerminator(), HasParent(LayerOp))

    assembly_format = "$value attr-dict `:` type($value)"

    def __init__(self, value: SSAValue):
        super().__init__(operands=[value])


@irdl_op_definition
class DispatchOp(MoeOp):
    """
    All-to-all: every token's row goes to the rank of each expert it chose.

    With a router operand the row is multiplied by that router weight on the way.

    ```mlir
    %x = "test.op"() : () -> tensor<8x64xbf16>
    %recv = moe.dispatch %x : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>
    %router = "test.op"() : () -> !moe.slots<8x2x1xf32>
    %scaled = moe.dispatch %x scale %router : !moe.slots<8x2x1xf32> :
      tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>
    ```
    """

    name = "moe.dispatch"
    STEM: ClassVar[str] = "recv"
    SPLIT: ClassVar[SplitSpec] = SplitSpec(
        Space.ROUTED, (Access.WHOLE, Access.WHOLE), exchange="dispatch"
    )

    x = typed_operand_def(TensorType[AnyFloat])
    router = opt_operand_def(SlotsType)
    result = result_def(RoutedType)

    traits = traits_def(Pure())

    assembly_format = (
        "$x (`scale` $router^ `:` type($router))? attr-dict"
        " `:` type($x) `->` type($result)"
    )

    def __init__(self, x: SSAValue, result: RoutedType, router: SSAValue | None = None):
        super().__init__(operands=[x, router], result_types=[result])

    def verify_(self) -> None:
        result = self.result.type
        _expect("columns of the result", cols_of(self.x.type), cols_of(result))
        _expect("element of the result", element_of(self.x.type), element_of(result))


@irdl_op_definition
class GmmOp(MoeOp):
    """
    Grouped matrix multiplication: rows of expert e times weight e.

    ```mlir
    %r = "test.op"() : () -> !moe.routed<2x?x64xbf16>
    %w = "test.op"() : () -> tensor<2x64x32xbf16>
    %h = moe.gmm %r, %w : !moe.routed<2x?x64xbf16>, tensor<2x64x32xbf16>
      -> !moe.routed<2x?x32xbf16>
    ```
    """

    name = "moe.gmm"
    STEM: ClassVar[str] = "h"
    SPLIT: ClassVar[SplitSpec] = SplitSpec(Space.ROUTED, (Access.ALIGNED, Access.EXPERT), unit="aic")

    rows = typed_operand_def(RoutedType)
    weight = typed_operand_def(TensorType[AnyFloat])
    result = result_def(RoutedType)

    traits = traits_def(Pure())

    assembly_format = (
        "$rows `,` $weight attr-dict `:` type($rows) `,` type($weight)"
        " `->` type($result)"
    )

    def __init__(self, rows: SSAValue, weight: SSAValue):
        r, w = rows.type, weight.type
        assert isinstance(r, RoutedType)
        assert isinstance(w, TensorType)
        cols = IntAttr(w.get_shape()[-1])
        result = RoutedType(r.experts, cols, r.element)
        super().__init__(operands=[rows, weight], result_types=[result])

    def verify_(self) -> None:
        shape = tuple(self.weight.type.get_shape())
        if len(shape) != 3:
            raise VerifyException(f"the weight must be experts x K x N, got {shape}")
        rows, result = self.rows.type, self.result.type
        _expect("experts of the weight", rows.experts.data, shape[0])
        _expect("K of the weight", rows.cols.data, shape[1])
        _expect("columns of the result", shape[2], result.cols.data)
        _expect("experts of the result", rows.experts.data, result.experts.data)


class RowwiseOp(MoeOp):
    """An operator that works row by row in the space of its operands."""

    def split_spec(self) -> SplitSpec:
        space = space_of(self.operands[0].type)
        return SplitSpec(space, (Access.ALIGNED,) * len(self.operands))


class ActivationOp(RowwiseOp):
    """An activation: `width` input columns for one output column."""

    STEM: ClassVar[str] = "a"
    WIDTH: ClassVar[int] = 1

    rows = typed_operand_def(AnyRowsConstr)
    result = result_def(AnyRowsConstr)

    traits = traits_def(Pure())

    assembly_format = "$rows attr-dict `:` type($rows) `->` type($result)"

    def __init__(self, rows: SSAValue):
        super().__init__(
            operands=[rows],
            result_types=[with_cols(rows.type, cols_of(rows.type) // self.WIDTH)],
        )

    def verify_(self) -> None:
        got, want = cols_of(self.rows.type), cols_of(self.result.type) * self.WIDTH
        _expect(f"input columns ({self.WIDTH} x output columns)", want, got)
        spaces = space_of(self.rows.type), space_of(self.result.type)
        _expect("space of the result", *spaces)


def with_cols(type_: Attribute, cols: int) -> Attribute:
    """The same rows with another number of columns."""
    match type_:
        case RoutedType():
            return RoutedType(type_.experts, IntAttr(cols), type_.element)
        case SlotsType():
            return SlotsType(type_.tokens, type_.top_k, IntAttr(cols), type_.element)
        case _:
            assert isinstance(type_, TensorType)
            return TensorType(type_.element_type, [*type_.get_shape()[:-1], cols])


@irdl_op_definition
class SwigluOp(ActivationOp):
    """
    silu(gate) * up on rows `[gate | up]`.

    ```mlir
    %h = "test.op"() : () -> !moe.routed<2x?x64xbf16>
    %a = moe.swiglu %h : !moe.routed<2x?x64xbf16> -> !moe.routed<2x?x32xbf16>
    ```
    """

    name = "moe.swiglu"
    WIDTH: ClassVar[int] = 2


@irdl_op_definition
class GegluOp(ActivationOp):
    """
    gelu(gate) * up on rows `[gate | up]`, gelu exact.

    ```mlir
    %h = "test.op"() : () -> !moe.routed<2x?x64xbf16>
    %a = moe.geglu %h : !moe.routed<2x?x64xbf16> -> !moe.routed<2x?x32xbf16>
    ```
    """

    name = "moe.geglu"
    WIDTH: ClassVar[int] = 2


@irdl_op_definition
class SwigluOaiOp(ActivationOp):
    """
    Clamped SwiGLU: (u + 1) * g * sigmoid(alpha * g), g = min(gate, limit),
    u = clamp(up, -limit, limit).

    ```mlir
    %h = "test.op"() : () -> !moe.routed<2x?x64xbf16>
    %a = moe.swiglu_oai %h alpha 1.702 limit 7.0
      : !moe.routed<2x?x64xbf16> -> !moe.routed<2x?x32xbf16>
    ```
    """

    name = "moe.swiglu_oai"
    WIDTH: ClassVar[int] = 2

    alpha = prop_def(FloatAttr[Float64Type])
    limit = prop_def(FloatAttr[Float64Type])

    assembly_format = (
        "$rows `alpha` $alpha `limit` $limit attr-dict"
        " `:` type($rows) `->` type($result)"
    )

    def __init__(self, rows: SSAValue, alpha: float, limit: float):
        super().__init__(rows)
        self.properties["alpha"] = FloatAttr(alpha, 64)
        self.properties["limit"] = FloatAttr(limit, 64)

    def params(self) -> tuple[tuple[str, float], ...]:
        return ("alpha", self.alpha.value.data), ("limit", self.limit.value.data)


@irdl_op_definition
class ReluOp(ActivationOp):
    """
    max(h, 0).

    ```mlir
    %h = "test.op"() : () -> !moe.routed<2x?x64xbf16>
    %a = moe.relu %h : !moe.routed<2x?x64xbf16> -> !moe.routed<2x?x64xbf16>
    ```
    """

    name = "moe.relu"


@irdl_op_definition
class Relu2Op(ActivationOp):
    """
    max(h, 0) squared.

    ```mlir
    %h = "test.op"() : () -> !moe.routed<2x?x64xbf16>
    %a = moe.relu2 %h : !moe.routed<2x?x64xbf16> -> !moe.routed<2x?x64xbf16>
    ```
    """

    name = "moe.relu2"


@irdl_op_definition
class GeluOp(ActivationOp):
    """
    gelu(h), exact (erf).

    ```mlir
    %h = "test.op"() : () -> !moe.routed<2x?x64xbf16>
    %a = moe.gelu %h : !moe.routed<2x?x64xbf16> -> !moe.routed<2x?x64xbf16>
    ```
    """

    name = "moe.gelu"


@irdl_op_definition
class AddOp(RowwiseOp):
    """
    Element-wise sum of two values of one shape.

    ```mlir
    %p, %q = "test.op"() : () -> (tensor<8x64xbf16>, tensor<8x64xbf16>)
    %s = moe.add %p, %q : tensor<8x64xbf16>
    ```
    """

    name = "moe.add"
    STEM: ClassVar[str] = "sum"

    T: ClassVar = VarConstraint("T", AnyRowsConstr)

    lhs = typed_operand_def(T)
    rhs = typed_operand_def(T)
    result = result_def(T)

    traits = traits_def(Pure())

    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs)"

    def __init__(self, lhs: SSAValue, rhs: SSAValue):
        super().__init__(operands=[lhs, rhs], result_types=[lhs.type])


@irdl_op_definition
class CombineOp(MoeOp):
    """
    All-to-all back: every row returns to its (token, slot) on the token's rank.

    ```mlir
    %y = "test.op"() : () -> !moe.routed<2x?x64xbf16>
    %back = moe.combine %y : !moe.routed<2x?x64xbf16> -> !moe.slots<8x2x64xbf16>
    ```
    """

    name = "moe.combine"
    STEM: ClassVar[str] = "back"
    SPLIT: ClassVar[SplitSpec] = SplitSpec(Space.SLOT, (Access.ALIGNED,), exchange="combine")

    rows = typed_operand_def(RoutedType)
    result = result_def(SlotsType)

    traits = traits_def(Pure())

    assembly_format = "$rows attr-dict `:` type($rows) `->` type($result)"

    def __init__(self, rows: SSAValue, result: SlotsType):
        super().__init__(operands=[rows], result_types=[result])

    def verify_(self) -> None:
        cols = cols_of(self.rows.type), cols_of(self.result.type)
        _expect("columns of the result", *cols)


@irdl_op_definition
class ReduceOp(MoeOp):
    """
    Sum over the slots of a token, in slot order, weighted by the router if given.

    ```mlir
    %back = "test.op"() : () -> !moe.slots<8x2x64xbf16>
    %router = "test.op"() : () -> !moe.slots<8x2x1xf32>
    %out = moe.reduce %back, %router : !moe.slots<8x2x64xbf16>,
      !moe.slots<8x2x1xf32> -> tensor<8x64xbf16>
    ```
    """

    name = "moe.reduce"
    STEM: ClassVar[str] = "out"

    rows = var_operand_def(SlotsType)
    result = result_def(TensorType[AnyFloat])

    traits = traits_def(Pure())

    assembly_format = "$rows attr-dict `:` type($rows) `->` type($result)"

    def __init__(self, back: SSAValue, router: SSAValue | None = None):
        t = back.type
        assert isinstance(t, SlotsType)
        result = TensorType(t.element, [t.tokens.data, t.cols.data])
        operands = [back] if router is None else [back, router]
        super().__init__(operands=[operands], result_types=[result])

    def split_spec(self) -> SplitSpec:
        return SplitSpec(Space.TOKEN, (Access.WHOLE,) * len(self.operands))

    def verify_(self) -> None:
        if not 1 <= len(self.rows) <= 2:
            raise VerifyException(
                f"expected the rows and at most the router, got {len(self.rows)}"
            )
        cols = cols_of(self.rows[0].type), cols_of(self.result.type)
        _expect("columns of the result", *cols)


ACTIVATION_OPS: tuple[type[ActivationOp], ...] = (
    SwigluOp,
    GegluOp,
    SwigluOaiOp,
    ReluOp,
    Relu2Op,
    GeluOp,
)

Moe = Dialect(
    "moe",
    [
        LayerOp,
        ReturnOp,
        DispatchOp,
        GmmOp,
        *ACTIVATION_OPS,
        AddOp,
        CombineOp,
        ReduceOp,
    ],
    [RoutedType, SlotsType],
)
