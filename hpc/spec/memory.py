"""Do the buffers of a flow fit the machine's memory?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpc.schedule.capacity import (
    ROUTER_BYTES,
    Bound,
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


def check_memory(
    report: Report,
    loc: Loc,
    machine: Machine,
    layer: Layer,
    routing: Routing,
    inputs: Sequence[Value],
    flow: Sequence[FlowOp],
) -> None:
    """Reports symmetric buffers, or all buffers together, larger than the HBM."""
    remote = {op.result for op in flow if op.op in REMOTE}
    shapes = flow_shapes(layer, inputs, flow)
    terms = shape_bytes(layer, _bound(layer, routing), shapes)
    symmetric = [term for term in terms if term.term in remote]
    for what, group in (("symmetric buffers", symmetric), ("buffers", terms)):
        needed = sum(term.bytes for term in group)
        if needed > machine.hbm_bytes:
            message = (
                f"the {what} of a rank need {needed:,} bytes, "
                f"{machine.name} has {machine.hbm_bytes:,} bytes of HBM"
            )
            report.error(loc, message, _explain(layer, routing, group))
            return


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


def _bound(layer: Layer, routing: Routing) -> Bound:
    """The receive bound; a routing that states its counts may lower it."""
    from hpc.interp.routing import declared_counts

    return receive_bound(layer, declared_counts(layer, routing))


def _explain(layer: Layer, routing: Routing, terms: Sequence[Term]) -> str:
    largest = sorted(terms, key=lambda term: -term.bytes)[:_LARGEST]
    lines = [f"{term.term} = {term.formula}" for term in largest]
    return "; ".join([*lines, f"received rows: {_bound(layer, routing).formula}"])
