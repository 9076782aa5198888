"""The `moe` dialect: a layer as operators on tensors, before anything is cut.

An operator says how it may be split through one class attribute, `SPLIT`; the pass
`moe-tile` propagates splits with nothing else. A new operator is one class here and
one entry in the cost table (`hpc/machine/cost.py`).
"""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import (
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
    Dialect,
    Region,
    SSAValue,
)
from xdsl.irdl import (
    VarConstraint,
    irdl_op_definition,
    opt_operand_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import HasParent, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from dialects.base import LocatedOp, typed_operand_def
from dialects.moe_types import (
    Access,
    AnyRowsConstr,
    RoutedType,
    SlotsType,
    Space,
    SplitSpec,
    cols_of,
    element_of,
    expect_same,
    space_of,
    with_cols,
)


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
        expect_same("columns of the result", cols_of(self.x.type), cols_of(result))
        expect_same(
            "element of the result", element_of(self.x.type), element_of(result)
        )


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
    SPLIT: ClassVar[SplitSpec] = SplitSpec(
        Space.ROUTED, (Access.ALIGNED, Access.EXPERT), unit="aic"
    )

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
        expect_same("experts of the weight", rows.experts.data, shape[0])
        expect_same("K of the weight", rows.cols.data, shape[1])
        expect_same("columns of the result", shape[2], result.cols.data)
        expect_same("experts of the result", rows.experts.data, result.experts.data)


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
        expect_same(f"input columns ({self.WIDTH} x output columns)", want, got)
        spaces = space_of(self.rows.type), space_of(self.result.type)
        expect_same("space of the result", *spaces)


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
    SPLIT: ClassVar[SplitSpec] = SplitSpec(
        Space.SLOT, (Access.ALIGNED,), exchange="combine"
    )

    rows = typed_operand_def(RoutedType)
    result = result_def(SlotsType)

    traits = traits_def(Pure())

    assembly_format = "$rows attr-dict `:` type($rows) `->` type($result)"

    def __init__(self, rows: SSAValue, result: SlotsType):
        super().__init__(operands=[rows], result_types=[result])

    def verify_(self) -> None:
        cols = cols_of(self.rows.type), cols_of(self.result.type)
        expect_same("columns of the result", *cols)


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
        expect_same("columns of the result", *cols)


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
