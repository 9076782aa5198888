"""The buffers that the backward part of a flow needs, before anything is compiled.

Follows the flow backwards as `moe-derive-backward` does: every operator adds buffers
for the gradients of its operands and names the forward values that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hpc.schedule.capacity import ROUTER_BYTES, Shape
from hpc.schedule.layer import ACTIVATIONS, Layer
from hpc.spec.model import FlowOp, Value


@dataclass
class Backward:
    """What the backward part of a flow needs: names of forward values that it reads,
    inputs included, new buffers (`shapes`), and which of those other ranks write."""

    reads: set[str] = field(default_factory=set[str])
    shapes: list[Shape] = field(default_factory=list[Shape])
    symmetric: set[str] = field(default_factory=set[str])


def backward_of(
    layer: Layer, inputs: Sequence[Value], flow: Sequence[FlowOp]
) -> Backward:
    """The backward part of a flow whose last result is its output."""
    values = {value.name: (value.space, value.cols) for value in inputs}
    values |= {op.result: (op.space, op.cols) for op in flow}
    walk = _Walk(layer, values)
    seed = f"d{flow[-1].result}"
    walk.found.shapes.append(Shape(seed, *values[flow[-1].result]))
    walk.parts[flow[-1].result] = [seed]
    for op in reversed(flow):
        gradient = walk.total(op.result)
        if gradient:
            walk.visit(op, gradient)
    walk.copy_shared([value.name for value in inputs], seed)
    return walk.found


@dataclass
class _Walk:
    layer: Layer
    values: dict[str, tuple[str, int]]
    parts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    found: Backward = field(default_factory=Backward)

    def total(self, name: str) -> str:
        """The buffer with the gradient of a value; sums of parts get their own."""
        parts = self.parts.get(name, [])
        for n in range(1, len(parts)):
            parts[0] = self.add(f"d{name}.{n}", *self.values[name])
        return parts[0] if parts else ""

    def visit(self, op: FlowOp, gradient: str) -> None:
        """Buffers of the gradients of the operands of one operator."""
        first = op.args[0]
        if op.op == "add":
            for arg in op.args:
                self.parts.setdefault(arg, []).append(gradient)
            return
        if op.op == "reduce":
            self.add("drouter", "slot", 1, element_bytes=ROUTER_BYTES)
            if self.layer.weights_at == "output":
                self.found.reads.add(first)
            # Slots are not computed: the next dispatch takes rows from the tokens.
            self.parts.setdefault(first, []).append(gradient)
            return
        if op.op == "gmm":
            self.gradient_of_weights(op.args[1])
        if op.op == "gmm" or op.op in ACTIVATIONS:
            self.found.reads.add(first)
        if op.op == "dispatch":
            slots = self.add("dback", "slot", op.cols)
            self.found.symmetric.add(slots)
            if self.layer.weights_at == "input":
                self.found.reads.add(first)
        name = self.add(f"d{first}", *self.values[first])
        if op.op == "combine":
            self.found.symmetric.add(name)
        self.parts.setdefault(first, []).append(name)

    def gradient_of_weights(self, name: str) -> None:
        layer = self.layer
        if name == "w_up":
            self.add("dw_up", "weight", layer.up_width, rows=layer.hidden)
        else:
            self.add("dw_down", "weight", layer.hidden, rows=layer.intermediate)

    def copy_shared(self, names: Sequence[str], seed: str) -> None:
        """Gradients of inputs are outputs, each in a buffer of its own."""
        used = {seed}
        for name in names:
            buffer = self.total(name)
            if buffer in used:
                buffer = self.add(f"d{name}", *self.values[name])
            used.add(buffer)

    def add(
        self, name: str, space: str, cols: int, rows: int = 0, element_bytes: int = 0
    ) -> str:
        self.found.shapes.append(Shape(name, space, cols, rows, element_bytes))
        return name
