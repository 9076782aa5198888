"""The gradient of every `moe` operator: one rule each, in one table.

A rule gets the operator and the gradient of its result, emits operators, and yields the
gradients of its operands. What needs no operator of its own is passed on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from typing_extensions import TypeVar
from xdsl.dialects.builtin import IntAttr, LocationAttr
from xdsl.ir import Operation, SSAValue

from dialects import moe, moe_grad, moe_rowwise
from dialects.moe_rowwise import MoeOp
from dialects.moe_types import RoutedType, SlotsType, element_of
from hpc.spec.attr import layer_of
from passes.program import fail, read_spec


@dataclass(frozen=True)
class SlotGradient:
    """The gradient of slot rows, not computed: in every slot, the row of its token in
    `rows`, times the router weight if there is a router."""

    rows: SSAValue
    router: SSAValue | None


Gradient = SSAValue | SlotGradient
Found = Iterator[tuple[SSAValue, Gradient]]
OpT = TypeVar("OpT", bound=Operation)


@dataclass
class Emitter:
    """Collects the operators of a backward graph, each at its forward operator's line.

    `names` has the name of every forward value; a gradient is called d + that name.
    """

    names: dict[SSAValue, str]
    location: LocationAttr
    ops: list[Operation] = field(default_factory=list[Operation])

    def add(self, op: OpT, *of: SSAValue) -> OpT:
        """Append `op`, whose results are the gradients of the values `of`."""
        op.location = self.location
        for result, value in zip(op.results, of, strict=False):
            result.name_hint = f"d{self.names[value]}"
        self.ops.append(op)
        return op


def gradients(op: MoeOp, grad: Gradient, emit: Emitter) -> Found:
    """The gradients of the operands of `op`; PassFailedException at its line if it has
    none."""
    rule = RULES.get(type(op))
    if rule is None:
        known = ", ".join(sorted(kind.name for kind in RULES))
        raise fail(op, f"{op.name} has no gradient; those with one: {known}")
    emit.location = op.location
    yield from rule(op, grad, emit)


def _plain(op: MoeOp, grad: Gradient) -> SSAValue:
    """The gradient as a value; only a combine knows what to do with another."""
    if isinstance(grad, SlotGradient):
        raise fail(op, f"{op.name} has no gradient where its result is reduced")
    return grad


def _reduce(op: MoeOp, grad: Gradient, emit: Emitter) -> Found:
    assert isinstance(op, moe.ReduceOp)
    router = op.rows[1] if len(op.rows) > 1 else None
    yield op.rows[0], SlotGradient(_plain(op, grad), router)


def _combine(op: MoeOp, grad: Gradient, emit: Emitter) -> Found:
    """A dispatch of the token's gradient rows. Where the router scales them, the same
    put reads the slot's forward row: their dot product is the router's gradient, and
    the data is not passed over again."""
    assert isinstance(op, moe.CombineOp)
    if not isinstance(grad, SlotGradient):
        raise fail(op, "moe.combine has no gradient unless its result is reduced")
    rows = op.rows.type
    assert isinstance(rows, RoutedType)
    slots = None if grad.router is None else op.result
    dispatch = moe.DispatchOp(grad.rows, rows, grad.router, slots)
    of = (op.rows,) if grad.router is None else (op.rows, grad.router)
    emit.add(dispatch, *of)
    yield op.rows, dispatch.result
    if grad.router is not None and dispatch.weights is not None:
        yield grad.router, dispatch.weights


def _dispatch(op: MoeOp, grad: Gradient, emit: Emitter) -> Found:
    """A combine and the sum over the slots; with a router, weighted, and its gradient
    from the same pass."""
    assert isinstance(op, moe.DispatchOp)
    grad = _plain(op, grad)
    tokens, cols = op.x.type.get_shape()
    sizes = (IntAttr(n) for n in (tokens, _top_k(op), cols))
    slots = SlotsType.new([*sizes, element_of(op.x.type)])
    back = emit.add(moe.CombineOp(grad, slots))
    back.result.name_hint = "dback"
    if op.router is None:
        yield op.x, emit.add(moe.ReduceOp(back.result), op.x).result
        return
    both = emit.add(moe_grad.ReduceDotOp(back.result, op.router, op.x), op.x, op.router)
    yield op.x, both.result
    yield op.router, both.weights


def _top_k(op: moe.DispatchOp) -> int:
    """Slots of a token, from the layer's spec."""
    layer = op.parent_op()
    assert isinstance(layer, moe.LayerOp)
    return read_spec(layer, lambda: layer_of(layer.sym_name.data, layer.spec).top_k)


def _gmm(op: MoeOp, grad: Gradient, emit: Emitter) -> Found:
    """Two products that do not need each other: the rows' gradient, which others wait
    for, and the weight's, which nobody does."""
    assert isinstance(op, moe.GmmOp)
    grad = _plain(op, grad)
    yield op.rows, emit.add(moe_grad.GmmNtOp(grad, op.weight), op.rows).result
    yield op.weight, emit.add(moe_grad.GmmTnOp(op.rows, grad), op.weight).result


def _add(op: MoeOp, grad: Gradient, emit: Emitter) -> Found:
    assert isinstance(op, moe_rowwise.AddOp)
    yield op.lhs, grad
    yield op.rhs, grad


def _activation(op: MoeOp, grad: Gradient, emit: Emitter) -> Found:
    assert isinstance(op, moe_rowwise.ActivationOp)
    kind = _ACTIVATION_GRADS[type(op)]
    params = (value for _, value in op.params())
    yield op.rows, emit.add(kind(op.rows, _plain(op, grad), *params), op.rows).result


_ACTIVATION_GRADS = dict(
    zip(moe_rowwise.ACTIVATION_OPS, moe_grad.ACTIVATION_GRAD_OPS, strict=True)
)

RULES: dict[type[MoeOp], Callable[[MoeOp, Gradient, Emitter], Found]] = {
    moe.ReduceOp: _reduce,
    moe.CombineOp: _combine,
    moe.DispatchOp: _dispatch,
    moe.GmmOp: _gmm,
    moe_rowwise.AddOp: _add,
    **dict.fromkeys(moe_rowwise.ACTIVATION_OPS, _activation),
}
