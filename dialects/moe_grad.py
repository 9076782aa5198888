"""The operators of the `moe` dialect that only gradients need.

`moe-derive-backward` makes them; each names the forward operator it belongs to.
"""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import AnyFloat, Float64Type, FloatAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import (
    VarConstraint,
    irdl_op_definition,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from dialects.base import typed_operand_def
from dialects.moe_gmm import GmmNtOp, GmmTnOp
from dialects.moe_rowwise import MoeOp, RowwiseOp
from dialects.moe_types import (
    Access,
    AnyRowsConstr,
    SlotsType,
    Space,
    SplitSpec,
    cols_of,
    expect_same,
    slots_of,
    with_cols,
)


class ActivationGradOp(RowwiseOp):
    """From an activation's input `rows` and the gradient of its result, the gradient
    of its input; `WIDTH` input columns for one result column."""

    STEM: ClassVar[str] = "dh"
    WIDTH: ClassVar[int] = 1

    rows = typed_operand_def(AnyRowsConstr)
    grad = typed_operand_def(AnyRowsConstr)
    result = result_def(AnyRowsConstr)

    traits = traits_def(Pure())

    assembly_format = (
        "$rows `,` $grad attr-dict `:` type($rows) `,` type($grad) `->` type($result)"
    )

    def __init__(self, rows: SSAValue, grad: SSAValue):
        super().__init__(operands=[rows, grad], result_types=[rows.type])

    def verify_(self) -> None:
        rows, grad = self.rows.type, self.grad.type
        wanted = with_cols(rows, cols_of(rows) // self.WIDTH)
        expect_same("the gradient", str(wanted), str(grad))
        expect_same("the result", str(rows), str(self.result.type))


@irdl_op_definition
class SwigluGradOp(ActivationGradOp):
    """
    The gradient of `moe.swiglu`.

    ```mlir
    %h, %d = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, !moe.routed<2x?x32xbf16>)
    %dh = moe.swiglu_grad %h, %d : !moe.routed<2x?x64xbf16>, !moe.routed<2x?x32xbf16>
      -> !moe.routed<2x?x64xbf16>
    ```
    """

    name = "moe.swiglu_grad"
    WIDTH: ClassVar[int] = 2


@irdl_op_definition
class GegluGradOp(ActivationGradOp):
    """
    The gradient of `moe.geglu`.

    ```mlir
    %h, %d = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, !moe.routed<2x?x32xbf16>)
    %dh = moe.geglu_grad %h, %d : !moe.routed<2x?x64xbf16>, !moe.routed<2x?x32xbf16>
      -> !moe.routed<2x?x64xbf16>
    ```
    """

    name = "moe.geglu_grad"
    WIDTH: ClassVar[int] = 2


@irdl_op_definition
class SwigluOaiGradOp(ActivationGradOp):
    """
    The gradient of `moe.swiglu_oai`; zero for gate or up where they are clamped.

    ```mlir
    %h, %d = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, !moe.routed<2x?x32xbf16>)
    %dh = moe.swiglu_oai_grad %h, %d alpha 1.702 limit 7.0
      : !moe.routed<2x?x64xbf16>, !moe.routed<2x?x32xbf16> -> !moe.routed<2x?x64xbf16>
    ```
    """

    name = "moe.swiglu_oai_grad"
    WIDTH: ClassVar[int] = 2

    alpha = prop_def(FloatAttr[Float64Type])
    limit = prop_def(FloatAttr[Float64Type])

    assembly_format = (
        "$rows `,` $grad `alpha` $alpha `limit` $limit attr-dict"
        " `:` type($rows) `,` type($grad) `->` type($result)"
    )

    def __init__(self, rows: SSAValue, grad: SSAValue, alpha: float, limit: float):
        super().__init__(rows, grad)
        self.properties["alpha"] = FloatAttr(alpha, 64)
        self.properties["limit"] = FloatAttr(limit, 64)

    def params(self) -> tuple[tuple[str, float], ...]:
        return ("alpha", self.alpha.value.data), ("limit", self.limit.value.data)


@irdl_op_definition
class ReluGradOp(ActivationGradOp):
    """
    The gradient of `moe.relu`, zero at zero.

    ```mlir
    %h, %d = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, !moe.routed<2x?x64xbf16>)
    %dh = moe.relu_grad %h, %d : !moe.routed<2x?x64xbf16>, !moe.routed<2x?x64xbf16>
      -> !moe.routed<2x?x64xbf16>
    ```
    """

    name = "moe.relu_grad"


@irdl_op_definition
class Relu2GradOp(ActivationGradOp):
    """
    The gradient of `moe.relu2`.

    ```mlir
    %h, %d = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, !moe.routed<2x?x64xbf16>)
    %dh = moe.relu2_grad %h, %d : !moe.routed<2x?x64xbf16>, !moe.routed<2x?x64xbf16>
      -> !moe.routed<2x?x64xbf16>
    ```
    """

    name = "moe.relu2_grad"


@irdl_op_definition
class GeluGradOp(ActivationGradOp):
    """
    The gradient of `moe.gelu`.

    ```mlir
    %h, %d = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, !moe.routed<2x?x64xbf16>)
    %dh = moe.gelu_grad %h, %d : !moe.routed<2x?x64xbf16>, !moe.routed<2x?x64xbf16>
      -> !moe.routed<2x?x64xbf16>
    ```
    """

    name = "moe.gelu_grad"


@irdl_op_definition
class ReduceDotOp(MoeOp):
    """
    The gradient of a scaled dispatch: the weighted sum of a token's slots, and for
    every slot the dot product of its row with the token's row, which is the gradient of
    its router weight. One pass over the slots gives both.

    ```mlir
    %d = "test.op"() : () -> !moe.slots<8x2x64xbf16>
    %router = "test.op"() : () -> !moe.slots<8x2x1xf32>
    %x = "test.op"() : () -> tensor<8x64xbf16>
    %dx, %dr = moe.reduce_dot %d, %router, %x : !moe.slots<8x2x64xbf16>,
      !moe.slots<8x2x1xf32>, tensor<8x64xbf16>
      -> tensor<8x64xbf16>, !moe.slots<8x2x1xf32>
    ```
    """

    name = "moe.reduce_dot"
    STEM: ClassVar[str] = "dx"
    SPLIT: ClassVar[SplitSpec] = SplitSpec(
        Space.TOKEN,
        (Access.WHOLE, Access.WHOLE, Access.ALIGNED),
        results=(Access.ALIGNED, Access.WHOLE),
    )

    rows = typed_operand_def(SlotsType)
    router = typed_operand_def(SlotsType)
    x = typed_operand_def(TensorType[AnyFloat])
    result = result_def(TensorType[AnyFloat])
    weights = result_def(SlotsType)

    traits = traits_def(Pure())

    assembly_format = (
        "$rows `,` $router `,` $x attr-dict `:` type($rows) `,` type($router) `,`"
        " type($x) `->` type($result) `,` type($weights)"
    )

    def __init__(self, rows: SSAValue, router: SSAValue, x: SSAValue):
        super().__init__(operands=[rows, router, x], result_types=[x.type, router.type])

    def verify_(self) -> None:
        rows, router = self.rows.type, self.router.type
        expect_same("columns of the router", 1, cols_of(router))
        expect_same("slots of the router", slots_of(rows), slots_of(router))
        shape = (slots_of(rows)[0], cols_of(rows))
        expect_same("shape of x", shape, tuple(self.x.type.get_shape()))
        expect_same("the result", str(self.x.type), str(self.result.type))
        expect_same("the weights", str(router), str(self.weights.type))


@irdl_op_definition
class CopyOp(RowwiseOp):
    """
    The same rows in a buffer of their own.

    ```mlir
    %p = "test.op"() : () -> tensor<8x64xbf16>
    %q = moe.copy %p : tensor<8x64xbf16>
    ```
    """

    name = "moe.copy"

    T: ClassVar = VarConstraint("T", AnyRowsConstr)

    rows = typed_operand_def(T)
    result = result_def(T)

    traits = traits_def(Pure())

    assembly_format = "$rows attr-dict `:` type($rows)"

    def __init__(self, rows: SSAValue):
        super().__init__(operands=[rows], result_types=[rows.type])


ACTIVATION_GRAD_OPS: tuple[type[ActivationGradOp], ...] = (
    SwigluGradOp,
    GegluGradOp,
    SwigluOaiGradOp,
    ReluGradOp,
    Relu2GradOp,
    GeluGradOp,
)

GRAD_OPS = (GmmNtOp, GmmTnOp, *ACTIVATION_GRAD_OPS, ReduceDotOp, CopyOp)
