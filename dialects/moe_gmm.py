"""The matrix products of the `moe` dialect: forward, and for the two gradients."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import AnyFloat, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, result_def, traits_def
from xdsl.traits import Pure

from dialects.base import typed_operand_def
from dialects.moe_rowwise import MoeOp
from dialects.moe_types import (
    Access,
    RoutedType,
    Space,
    SplitSpec,
    as_tensor,
    cols_of,
    element_of,
    expect_matrix,
    expect_same,
    with_cols,
)


class WeightedOp(MoeOp):
    """Rows of expert e times matrix e, [K, N] in memory, or its transpose.

    `INNER` and `OUTER` are the dimensions of the weight that the rows' columns and the
    result's columns run along.
    """

    SPLIT: ClassVar[SplitSpec] = SplitSpec(
        Space.ROUTED, (Access.ALIGNED, Access.EXPERT), unit="aic"
    )
    INNER: ClassVar[int] = 1
    OUTER: ClassVar[int] = 2

    rows = typed_operand_def(RoutedType)
    weight = typed_operand_def(TensorType[AnyFloat])
    result = result_def(RoutedType)

    traits = traits_def(Pure())

    assembly_format = (
        "$rows `,` $weight attr-dict `:` type($rows) `,` type($weight)"
        " `->` type($result)"
    )

    def __init__(self, rows: SSAValue, weight: SSAValue):
        cols = as_tensor(weight.type).get_shape()[self.OUTER]
        super().__init__(
            operands=[rows, weight], result_types=[with_cols(rows.type, cols)]
        )

    def verify_(self) -> None:
        expect_matrix("the weight", self.weight.type, (3,))
        shape = self.weight.type.get_shape()
        rows, result = self.rows.type, self.result.type
        inner, outer = "?KN"[self.INNER], shape[self.OUTER]
        expect_same("experts of the weight", rows.experts.data, shape[0])
        expect_same(f"{inner} of the weight", rows.cols.data, shape[self.INNER])
        expect_same("columns of the result", outer, result.cols.data)
        expect_same("experts of the result", rows.experts.data, result.experts.data)
        expect_same("element of the weight", rows.element, element_of(self.weight.type))
        expect_same("element of the result", rows.element, result.element)


@irdl_op_definition
class GmmOp(WeightedOp):
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


@irdl_op_definition
class GmmNtOp(WeightedOp):
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
    INNER: ClassVar[int] = 2
    OUTER: ClassVar[int] = 1


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
