"""The operators of the `moe` dialect that work row by row: activations and sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from xdsl.dialects.builtin import Float64Type, FloatAttr
from xdsl.ir import SSAValue
from xdsl.irdl import (
    VarConstraint,
    irdl_op_definition,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from dialects.base import LocatedOp, typed_operand_def
from dialects.moe_types import (
    Access,
    AnyRowsConstr,
    SplitSpec,
    cols_of,
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
        expect_same("rows of the result", *_without_cols(self.rows, self.result))


def _without_cols(*values: SSAValue) -> Iterator[str]:
    """The types, all with one column, so that only rows and elements differ."""
    return (str(with_cols(value.type, 1)) for value in values)


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


ACTIVATION_OPS: tuple[type[ActivationOp], ...] = (
    SwigluOp,
    GegluOp,
    SwigluOaiOp,
    ReluOp,
    Relu2Op,
    GeluOp,
)
