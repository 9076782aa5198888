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
from dialects.moe_rowwise import MoeOp, RowwiseOp
from dialects.moe_types import (
    Access,
    AnyRowsConstr,
    RoutedType,
    SlotsType,
    Space,
    SplitSpec,
    as_tensor,
    cols_of,
    element_of,
    expect_matrix,
    expect_same,
    slots_of,
    with_cols,
)


@irdl_op_definition
class GmmNtOp(MoeOp):
    """
    Rows of expert e times weight e transposed: the gradient of a GMM for its rows.

    ```mlir
    %d = "test.op"() : () -> !moe.routed<2x?x32xbf16>
    %w = "test.op"() : () -> tensor<2x64x32xbf16>
    %r = moe.gmm_nt %d, %w : !moe.routed<2x?x32xbf16>, tensor<2x64x32xbf16>
      -> !moe.routed<2x?x64xbf16>
    ```
    """

    name = "moe.gmm_nt"
    STEM: ClassVar[str] = "drows"
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
        cols = as_tensor(weight.type).get_shape()[1]
        super().__init__(
            operands=[rows, weight], result_types=[with_cols(rows.type, cols)]
        )

    def verify_(self) -> None:
        expect_matrix("the weight", self.weight.type, (3,))
        experts, k, n = self.weight.type.get_shape()
        rows, result = self.rows.type, self.result.type
        expect_same("experts of the weight", rows.experts.data, experts)
        expect_same("N of the weight", rows.cols.data, n)
        expect_same("columns of the result", k, result.cols.data)
        expect_same("experts of the result", rows.experts.data, result.experts.data)
        expect_same("element of the weight", rows.element, element_of(self.weight.type))
        expect_same("element of the result", rows.element, result.element)


@irdl_op_definition
class GmmTnOp(MoeOp):
    """
    For every expert, p transposed times q over all its rows: a weight's gradient.

    The sum runs over the rows, in f32, sources in order, with one rounding; an expert
    without rows gets zeros.

    ```mlir
    %p, %q = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, !moe.routed<2x?x32xbf16>)
    %dw = moe.gmm_tn %p, %q : !moe.routed<2x?x64xbf16>, !moe.routed<2x?x32xbf16>
      -> tensor<2x64x32xbf16>
    ```
    """

    name = "moe.gmm_tn"
    STEM: ClassVar[str] = "dw"
    SPLIT: ClassVar[SplitSpec] = SplitSpec(
        Space.WEIGHT, (Access.EXPERT, Access.EXPERT), unit="aic"
    )

    p = typed_operand_def(RoutedType)
    q = typed_operand_def(RoutedType)
    result = result_def(TensorType[AnyFloat])

    traits = traits_def(Pure())

    assembly_format = "$p `,` $q attr-dict `:` type($p) `,` type($q) `->` type($result)"

    def __init__(self, p: SSAValue, q: SSAValue):
        p_type = p.type
        assert isinstance(p_type, RoutedType)
        shape = (p_type.experts.data, p_type.cols.data, cols_of(q.type))
        super().__init__(
            operands=[p, q], result_types=[TensorType(p_type.element, shape)]
        )

    def verify_(self) -> None:
        p, q = self.p.type, self.q.type
        expect_same("experts of q", p.experts.data, q.experts.data)
        expect_same("element of q", p.element, q.element)
        shape = (p.experts.data, p.cols.data, q.cols.data)
        expect_same("shape of the result", shape, tuple(self.result.type.get_shape()))
        expect_same("element of the result", p.element, element_of(self.result.type))


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
