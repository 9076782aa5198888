"""Do the buffers of a flow fit the machine's memory?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpc.schedule.capacity import (
    ROUTER_BYTES,
    Shape,
    Term,
    receive_bound,
    shape_bytes,
)
from hpc.schedule.layer import Layer, Routing
from hpc.spec.diagnostics import Report
from hpc.spec.model import FlowOp, Loc, Value

if TYPE_CHECKING:
    from hpc.machine.record import Machine

REMOTE = ("dispatch", "combine")
"""Operators whose results remote ranks write: their buffers are symmetric."""

_LARGEST = 3
"""Terms named in an error."""


@dataclass(frozen=True)
class Buffers:
    """The buffers of a program, by what is said about them: `saved` lives from the
    forward to the backward part, `symmetric` is written by other ranks."""

    shapes: tuple[Shape, ...]
    symmetric: frozenset[str]
    saved: frozenset[str]

    def groups(self, terms: Sequence[Term]) -> Iterator[tuple[str, list[Term]]]:
        """What is compared with the memory, each with its name."""
        yield "symmetric buffers", [t for t in terms if t.term in self.symmetric]
        yield "saved tensors", [t for t in terms if t.term in self.saved]
        yield "buffers", list(terms)


def check_memory(
    report: Report,
    loc: Loc,
    machine: Machine,
    layer: Layer,
    routing: Routing,
    inputs: Sequence[Value],
    flow: Sequence[FlowOp],
    mode: str = "forward",
) -> None:
    """Reports symmetric buffers, saved tensors, or all buffers together, larger than
    the HBM.

    The worst case is tried first: only where it does not fit is the routing worked out,
    whose exact row count may still fit.
    """
    buffers = program_buffers(layer, inputs, flow, mode)
    bound = receive_bound(layer)
    if _too_large(machine, shape_bytes(layer, bound, buffers.shapes), buffers) is None:
        return
    from hpc.interp.routing import routing_counts

    bound = receive_bound(layer, routing_counts(layer, routing))
    every = shape_bytes(layer, bound, buffers.shapes)
    found = _too_large(machine, every, buffers)
    if found is None:
        return
    what, terms = found
    message = (
        f"the {what} of a rank need {_total(terms):,} bytes, "
        f"{machine.name} has {machine.hbm_bytes:,} bytes of HBM"
    )
    largest = sorted(terms, key=lambda term: -term.bytes)[:_LARGEST]
    lines = [f"{term.term} = {term.formula}" for term in largest]
    lines += _recompute(machine, every, buffers, flow)
    help = "; ".join([*lines, f"received rows: {bound.formula}"])
    report.error(loc, message, help)


def _too_large(
    machine: Machine, terms: Sequence[Term], buffers: Buffers
) -> tuple[str, list[Term]] | None:
    """The first group of buffers that exceeds the memory, with its name."""
    for what, group in buffers.groups(terms):
        if _total(group) > machine.hbm_bytes:
            return what, group
    return None


def _recompute(
    machine: Machine, terms: Sequence[Term], buffers: Buffers, flow: Sequence[FlowOp]
) -> Iterator[str]:
    """What it would save to compute the largest saved tensor again."""
    saved = [term for term in terms if term.term in buffers.saved]
    if not saved:
        return
    largest = max(saved, key=lambda term: term.bytes)
    op = next(op for op in flow if op.result == largest.term)
    left = _total(terms) - largest.bytes
    fits = "would fit" if left <= machine.hbm_bytes else "would still not fit"
    yield (
        f"the largest saved tensor is {largest.term}: computing it again in backward, "
        f"{op.op}({', '.join(op.args)}), would save {largest.bytes:,} bytes, and the "
        f"other {left:,} bytes {fits}"
    )


def _total(terms: Sequence[Term]) -> int:
    return sum(term.bytes for term in terms)


def program_buffers(
    layer: Layer, inputs: Sequence[Value], flow: Sequence[FlowOp], mode: str
) -> Buffers:
    """The buffers that a flow needs in a mode.

    Backward keeps of the forward part what gradients read; a training step has all of
    both.
    """
    shapes = flow_shapes(layer, inputs, flow)
    remote = frozenset(op.result for op in flow if op.op in REMOTE)
    if mode == "forward":
        return Buffers(shapes, remote, frozenset())
    from hpc.spec.gradient_shapes import backward_of

    back = backward_of(layer, inputs, flow)
    results = {op.result for op in flow}
    symmetric = frozenset(back.symmetric)
    if mode == "train":
        symmetric |= remote
    else:
        gone = (results | {value.name for value in inputs}) - back.reads
        shapes = tuple(shape for shape in shapes if shape.name not in gone)
    saved = frozenset(back.reads & results)
    return Buffers((*shapes, *back.shapes), symmetric, saved)


def flow_shapes(
    layer: Layer, inputs: Sequence[Value], flow: Sequence[FlowOp]
) -> tuple[Shape, ...]:
    """The buffers that a flow needs, router weights and expert weights included."""
    read = {arg for op in flow for arg in op.args}
    weights = (
        Shape("w_up", "weight", layer.up_width, layer.hidden),
        Shape("w_down", "weight", layer.hidden, layer.intermediate),
    )
    routed = any(op.op == "reduce" for op in flow)
    router = Shape("router", "slot", 1, element_bytes=ROUTER_BYTES)
    return (
        *(Shape(value.name, value.space, value.cols) for value in inputs),
        *((router,) if routed else ()),
        *(weight for weight in weights if weight.name in read),
        *(Shape(op.result, op.space, op.cols) for op in flow),
    )
