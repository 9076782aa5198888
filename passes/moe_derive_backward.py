"""`moe-derive-backward`: the gradient graph of a layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass

from dialects import moe, moe_grad, moe_rowwise
from dialects.base import ints_attr
from dialects.moe_rowwise import MoeOp
from dialects.moe_types import Space, space_of
from passes.gradients import Emitter, Gradient, SlotGradient, gradients
from passes.program import fail, programs

MODES = ("forward", "backward", "train")


@dataclass(frozen=True)
class MoeDeriveBackwardPass(ModulePass):
    """
    In mode `backward`, replace the forward graph by the graph of all gradients: its
    inputs are the gradient of the output, the weights, and the forward values that
    gradients need (`saved`). In mode `train`, the forward graph stays and its values
    are used where they are. In mode `forward`, nothing changes.

    Each operator brings its own rule (`passes/gradients.py`). For the standard layer
    the result is the seven nodes of the paper: dispatch, the pair of GMM gradients of
    the second product, the activation's gradient, the pair of the first product, and
    combine; then the local sum.

    Before:
    ```mlir
    moe.layer @micro on "ascend_a3" mode "backward" {} {
    ^bb0(%p : tensor<8x64xbf16>):
      %a = moe.swiglu %p : tensor<8x64xbf16> -> tensor<8x32xbf16>
      moe.return %a : tensor<8x32xbf16>
    }
    ```
    After:
    ```mlir
    moe.layer @micro on "ascend_a3" mode "backward" {} derived {
    ^bb0(%p : tensor<8x64xbf16>, %da : tensor<8x32xbf16>):
      %dp = moe.swiglu_grad %p, %da : tensor<8x64xbf16>, tensor<8x32xbf16>
        -> tensor<8x64xbf16>
      moe.return %dp : tensor<8x64xbf16>
    }
    ```
    Refuses operators without a gradient, at their line, weights that two operators use,
    layers that do not end in token rows, and a graph that is derived already.
    """

    name = "moe-derive-backward"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for layer in programs(op, moe.LayerOp, self.name):
            if layer.mode.data not in MODES:
                known = ", ".join(MODES)
                raise fail(
                    layer, f"unknown mode '{layer.mode.data}'; there are {known}"
                )
            if layer.mode.data != "forward":
                _Deriver(layer).run()


class _Deriver:
    def __init__(self, layer: moe.LayerOp):
        self.layer = layer
        self.block = layer.body.block
        self.forward = [op for op in self.block.ops if isinstance(op, MoeOp)]
        self.inputs = tuple(self.block.args)
        last = self.block.last_op
        assert isinstance(last, moe.ReturnOp)
        self.end = last
        self.found: dict[SSAValue, list[Gradient]] = {}

    def run(self) -> None:
        self.refuse()
        output = self.end.values[0]
        emit = Emitter(self.value_names(), self.layer.location)
        seed = self.block.insert_arg(
            output.type, len(self.block.args), self.end.location
        )
        seed.name_hint = f"d{emit.names[output]}"
        self.found[output] = [seed]
        for op in reversed(self.forward):
            grad = self.total(op.results[0], emit)
            if grad is None:
                continue
            for operand, part in gradients(op, grad, emit):
                self.found.setdefault(operand, []).append(part)
        results = self.results(emit)
        self.layer.properties["derived"] = UnitAttr()
        self.block.insert_ops_before(emit.ops, self.end)
        if self.layer.mode.data == "train":
            self.finish([output, *results])
        else:
            self.finish(results)
            self.save_forward_values(emit.ops)

    def refuse(self) -> None:
        if self.layer.derived is not None:
            raise fail(self.layer, "the layer has gradients already")
        output = self.end.values[0]
        if len(self.end.values) != 1 or space_of(output.type) != Space.TOKEN:
            raise fail(
                self.end,
                "a layer with gradients ends in one value of token rows,"
                f" got {', '.join(str(v.type) for v in self.end.values)}",
            )

    def value_names(self) -> dict[SSAValue, str]:
        """Names of all forward values: their own, else their operator's stem."""
        names: dict[SSAValue, str] = {}
        for value in (*self.inputs, *(op.results[0] for op in self.forward)):
            owner = value.owner
            stem = owner.STEM if isinstance(owner, MoeOp) else "in"
            names[value] = value.name_hint or stem
        return names

    def total(self, value: SSAValue, emit: Emitter) -> Gradient | None:
        """The sum of the gradients that the users of a value contributed."""
        parts = self.found.get(value, [])
        total = parts[0] if parts else None
        for part in parts[1:]:
            owner = value.owner
            at = owner if isinstance(owner, Operation) else self.layer
            if isinstance(total, SlotGradient) or isinstance(part, SlotGradient):
                raise fail(at, f"{emit.names[value]} is reduced by two operators")
            if space_of(value.type) not in (Space.TOKEN, Space.ROUTED):
                users = [op for op in self.forward if value in op.operands]
                raise fail(
                    users[1],
                    f"{emit.names[value]} is used by two operators,"
                    " and such gradients are not summed",
                )
            assert total is not None
            emit.location = at.location
            total = emit.add(moe_rowwise.AddOp(total, part), value).result
        return total

    def results(self, emit: Emitter) -> list[SSAValue]:
        """The gradient of every input, each in a buffer of its own."""
        results: list[SSAValue] = []
        for value in self.inputs:
            grad = self.total(value, emit)
            if not isinstance(grad, SSAValue):
                raise fail(self.layer, f"{emit.names[value]} gets no gradient")
            emit.location = self.layer.location
            if grad in results or isinstance(grad, BlockArgument):
                grad = emit.add(moe_grad.CopyOp(grad), value).result
            results.append(grad)
        self.name_results(results, emit)
        return results

    def name_results(self, results: list[SSAValue], emit: Emitter) -> None:
        """The gradient of x is dx; what was summed into it is a part of dx."""
        names = {f"d{emit.names[value]}" for value in self.inputs}
        for op in emit.ops:
            for result in op.results:
                if result.name_hint in names:
                    result.name_hint = f"{result.name_hint}_part"
        for value, grad in zip(self.inputs, results, strict=True):
            grad.name_hint = f"d{emit.names[value]}"

    def finish(self, values: Iterable[SSAValue]) -> None:
        new = moe.ReturnOp(*values)
        new.location = self.end.location
        self.block.insert_op_before(new, self.end)
        self.end.detach()
        self.end.erase()

    def save_forward_values(self, backward: list[Operation]) -> None:
        """Forward values that gradients read become inputs; the rest goes away."""
        first = len(self.block.args)
        inside = set(backward)
        for op in self.forward:
            value = op.results[0]
            if any(use.operation in inside for use in value.uses):
                at = len(self.block.args)
                arg = self.block.insert_arg(value.type, at, op.location)
                arg.name_hint = value.name_hint
                value.replace_all_uses_with(arg)
        saved = list(self.block.args)[first:]
        for op in reversed(self.forward):
            op.detach()
            op.erase()
        for arg in self.inputs:
            if not arg.uses:
                self.block.erase_arg(arg)
        if saved:
            self.layer.properties["saved"] = ints_attr([arg.index for arg in saved])
