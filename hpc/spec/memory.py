"""Do the buffers of a flow fit the machine's memory?"""

from __future__ import annotations

from collections.abc import Sequence
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


def check_memory(
    report: Report,
    loc: Loc,
    machine: Machine,
    layer: Layer,
    routing: Routing,
    inputs: Sequence[Value],
    flow: Sequence[FlowOp],
) -> None:
    """Reports symmetric buffers, or all buffers together, larger than the HBM.

    The worst case is tried first: only where it does not fit is the routing worked out,
    whose exact row count may still fit.
    """
    shapes = flow_shapes(layer, inputs, flow)
    bound = receive_bound(layer)
    if _too_large(machine, shape_bytes(layer, bound, shapes), flow) is None:
        return
    from hpc.interp.routing import routing_counts

    bound = receive_bound(layer, routing_counts(layer, routing))
    found = _too_large(machine, shape_bytes(layer, bound, shapes), flow)
    if found is None:
        return
    what, terms = found
    message = (
        f"the {what} of a rank need {_total(terms):,} bytes, "
        f"{machine.name} has {machine.hbm_bytes:,} bytes of HBM"
    )
    largest = sorted(terms, key=lambda term: -term.bytes)[:_LARGEST]
    lines = [f"{term.term} = {term.formula}" for term in largest]
    help = "; ".join([*lines, f"received rows: {bound.formula}"])
    report.error(loc, message, help)


def _too_large(
    machine: Machine, terms: Sequence[Term], flow: Sequence[FlowOp]
) -> tuple[str, list[Term]] | None:
    """The first group of buffers that exceeds the memory, with its name."""
    remote = {op.result for op in flow if op.op in REMOTE}
    symmetric = [term for term in terms if term.term in remote]
    for what, group in (("symmetric buffers", symmetric), ("buffers", list(terms))):
        if _total(group) > machine.hbm_bytes:
            return what, group
    return None


def _total(terms: Sequence[Term]) -> int:
    return sum(term.bytes for term in terms)


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
