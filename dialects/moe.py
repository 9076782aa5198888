"""The `moe` dialect: a layer as operators on tensors, before anything is cut.

An operator says how it may be split through one class attribute, `SPLIT`; the pass
`moe-tile` propagates splits with nothing else. A new operator is one class here and
one entry in the cost table (`hpc/machine/ops.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from xdsl.dialects.builtin import (
    AnyFloat,
    DenseArrayBase,
    DictionaryAttr,
    StringAttr,
    SymbolNameConstraint,
    TensorType,
    UnitAttr,
    f32,
    i64,
)
from xdsl.ir import (
    Dialect,
    Region,
    SSAValue,
)
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    opt_operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import HasParent, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from dialects.base import LocatedOp, ints_attr, typed_operand_def
from dialects.moe_gmm import GmmOp
from dialects.moe_grad import GRAD_OPS
from dialects.moe_rowwise import ACTIVATION_OPS, AddOp, MoeOp
from dialects.moe_types import (
    Access,
    AnyValueConstr,
    RoutedType,
    SlotsType,
    Space,
    SplitSpec,
    cols_of,
    element_of,
    expect_matrix,
    expect_same,
    slots_of,
    with_cols,
    with_element,
)


@irdl_op_definition
class LayerOp(LocatedOp):
    """
    A layer on one rank: inputs are block arguments, operators in order. A layer that
    has its gradients is `derived`; `saved` are the arguments, by number, that the
    forward pass left for a backward one.

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
    derived = opt_prop_def(UnitAttr)
    saved = opt_prop_def(DenseArrayBase.constr(i64))
    body = region_def("single_block")

    traits = traits_def()

    assembly_format = (
        "$sym_name `on` $machine `mode` $mode $spec (`derived` $derived^)?"
        " (`saved` $saved^)? $body attr-dict"
    )

    def __init__(
        self,
        name: str,
        machine: str,
        mode: str,
        spec: DictionaryAttr,
        body: Region,
        saved: Sequence[int] = (),
    ):
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "machine": StringAttr(machine),
                "mode": StringAttr(mode),
                "spec": spec,
                "saved": ints_attr(saved) if saved else None,
            },
            regions=[body],
        )

    def verify_(self) -> None:
        if not isinstance(self.body.block.last_op, ReturnOp):
            raise VerifyException("a layer must end in moe.return")
        for op in self.body.block.ops:
            if not isinstance(op, MoeOp | ReturnOp):
                raise VerifyException(
                    f"a layer holds operators of the moe dialect, got {op.name}"
                )
        for arg in self.body.block.args:
            if not AnyValueConstr.verifies(arg.type):
                raise VerifyException(
                    f"inputs of a layer are tensors or rows, got {arg.type}"
                )
            expect_matrix("an input", arg.type, (2, 3))
        saved = self.saved_args()
        if any(not 0 <= i < len(self.body.block.args) for i in saved):
            raise VerifyException(
                f"saved must name arguments of {len(self.body.block.args)}, got {saved}"
            )

    def saved_args(self) -> list[int]:
        """Indices of the arguments that the forward pass left."""
        return [] if self.saved is None else [int(i) for i in self.saved.get_values()]


@irdl_op_definition
class ReturnOp(LocatedOp):
    """
    Ends a layer and names its outputs.

    ```mlir
    moe.layer @empty on "ascend_a3" mode "forward" {} {
    ^bb0(%x : tensor<8x64xbf16>):
      moe.return %x : tensor<8x64xbf16>
    }
    ```
    """

    name = "moe.return"

    values = var_operand_def(AnyValueConstr)

    traits = traits_def(IsTerminator(), HasParent(LayerOp))

    assembly_format = "$values attr-dict `:` type($values)"

    def __init__(self, *values: SSAValue):
        super().__init__(operands=[values])

    def verify_(self) -> None:
        if not self.values:
            raise VerifyException("a layer returns at least one value")


@irdl_op_definition
class DispatchOp(MoeOp):
    """
    All-to-all: every token's row goes to the rank of each expert it chose.

    With a router operand the row is multiplied by that router weight on the way. With
    `dot` rows of the slots, the second result is, for every (token, slot), the dot
    product of the token's row, before it is scaled, with the slot's.

    ```mlir
    %x = "test.op"() : () -> tensor<8x64xbf16>
    %recv = moe.dispatch %x : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>
    %router = "test.op"() : () -> !moe.slots<8x2x1xf32>
    %scaled = moe.dispatch %x scale %router : !moe.slots<8x2x1xf32> :
      tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>
    %back = "test.op"() : () -> !moe.slots<8x2x64xbf16>
    %dy, %dr = moe.dispatch %x scale %router : !moe.slots<8x2x1xf32>
      dot %back : !moe.slots<8x2x64xbf16> : tensor<8x64xbf16>
      -> !moe.routed<2x?x64xbf16>, !moe.slots<8x2x1xf32>
    ```
    """

    name = "moe.dispatch"
    STEM: ClassVar[str] = "recv"
    SPLIT: ClassVar[SplitSpec] = SplitSpec(Space.ROUTED, (), exchange="dispatch")

    x = typed_operand_def(TensorType[AnyFloat])
    router = opt_operand_def(SlotsType)
    slots = opt_operand_def(SlotsType)
    result = result_def(RoutedType)
    weights = opt_result_def(SlotsType)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    traits = traits_def(Pure())

    assembly_format = (
        "$x (`scale` $router^ `:` type($router))? (`dot` $slots^ `:` type($slots))?"
        " attr-dict `:` type($x) `->` type($result) (`,` type($weights)^)?"
    )

    def __init__(
        self,
        x: SSAValue,
        result: RoutedType,
        router: SSAValue | None = None,
        slots: SSAValue | None = None,
    ):
        weights = None if slots is None else with_element(with_cols(slots.type, 1), f32)
        super().__init__(operands=[x, router, slots], result_types=[result, weights])

    def split_spec(self) -> SplitSpec:
        whole = (Access.WHOLE,) * (1 if self.router is None else 2)
        if self.slots is None:
            return replace(self.SPLIT, operands=whole)
        both = (Access.ALIGNED, Access.ALIGNED)
        return replace(self.SPLIT, operands=(*whole, Access.ALIGNED), results=both)

    def verify_(self) -> None:
        expect_matrix("x", self.x.type, (2,))
        if self.router is not None:
            expect_same("columns of the router", 1, cols_of(self.router.type))
            tokens = slots_of(self.router.type)[0]
            expect_same("tokens of the router", self.x.type.get_shape()[0], tokens)
        if (self.slots is None) != (self.weights is None):
            raise VerifyException("dot takes slots and gives weights, or neither")
        if self.slots is not None and self.weights is not None:
            slots, weights = self.slots.type, self.weights.type
            expect_same("columns of the slots", cols_of(self.x.type), cols_of(slots))
            expect_same("columns of the weights", 1, cols_of(weights))
            expect_same("slots of the weights", slots_of(slots), slots_of(weights))
        result = self.result.type
        expect_same("columns of the result", cols_of(self.x.type), cols_of(result))
        expect_same(
            "element of the result", element_of(self.x.type), element_of(result)
        )


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
        rows, result = self.rows.type, self.result.type
        expect_same("columns of the result", cols_of(rows), cols_of(result))
        expect_same("element of the result", element_of(rows), element_of(result))


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
        rows, result = self.rows[0].type, self.result.type
        shape = (slots_of(rows)[0], cols_of(rows))
        expect_same("shape of the result", shape, tuple(result.get_shape()))
        expect_same("element of the result", element_of(rows), element_of(result))
        for router in self.rows[1:]:
            expect_same("columns of the router", 1, cols_of(router.type))
            expect_same("slots of the router", slots_of(rows), slots_of(router.type))


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
        *GRAD_OPS,
    ],
    [RoutedType, SlotsType],
)
