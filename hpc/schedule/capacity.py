"""How many rows a rank can receive, and how many bytes a layer's buffers take.

Every number comes with the formula that gave it, with the figures filled in, so that
errors and reports can show the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpc.schedule.layer import Layer, experts_of

SYMMETRIC = ("recv", "back")
"""Buffers of the standard flow that remote ranks write."""

ROUTER_BYTES = 4
"""A router weight is one fp32 number per (token, slot), whatever the dtype."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Most rows one rank can receive: the smaller of the two ways to know it.

    `worst_rows` holds for every routing; `exact_rows` for one table of counts, None
    without a table. `formula` is the arithmetic behind `rows`.
    """

    rows: int
    formula: str
    worst_rows: int
    exact_rows: int | None


class Term(NamedTuple):
    """Bytes of one buffer on one rank, and the arithmetic."""

    term: str
    bytes: int
    formula: str


class Shape(NamedTuple):
    """A buffer to be counted: `space` and `cols` as in `hpc.schedule.model`.

    `rows` counts the rows of one expert's matrix and matters to weights only;
    `element_bytes` 0 means the layer's dtype.
    """

    name: str
    space: str
    cols: int
    rows: int = 0
    element_bytes: int = 0


def received_rows(layer: Layer, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows every rank receives, int64 [ranks], from counts [source rank, expert]."""
    stops = [experts_of(r, layer.experts, layer.ep).stop for r in range(layer.ep)]
    until = np.cumsum(np.asarray(counts, dtype=np.int64).sum(axis=0))
    return np.diff(until[np.array(stops) - 1], prepend=0)


def pair_rows(layer: Layer, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Most rows that any rank sends to local expert e of the rank k further on, int64
    [local experts, ranks], from counts [source rank, expert]."""
    sources = np.arange(layer.ep)
    most = np.zeros((layer.local_experts, layer.ep), dtype=np.int64)
    for rank in range(layer.ep):
        mine = experts_of(rank, layer.experts, layer.ep)
        k = (rank - sources) % layer.ep
        sent = counts[:, mine.start : mine.stop].T
        most[: len(mine), k] = np.maximum(most[: len(mine), k], sent)
    return most


def receive_bound(layer: Layer, counts: NDArray[np.int64] | None = None) -> Bound:
    """The receive bound from the worst case and, if given, from a routing table.

    Worst case: every rank's tokens choose as many of one rank's experts as they can,
    max_tokens * ep * min(top_k, local_experts); with `repeats`, all top_k.
    """
    most, why = layer.top_k, f"top_k {layer.top_k}"
    if not layer.repeats:
        most = min(layer.top_k, layer.local_experts)
        why = f"min(top_k {layer.top_k}, local experts {layer.local_experts})"
    worst = layer.max_tokens * layer.ep * most
    formula = f"max tokens {layer.max_tokens} * ep {layer.ep} * {why} = {worst}"
    if counts is None:
        return Bound(worst, formula, worst, None)
    per_rank = received_rows(layer, counts)
    rank = int(per_rank.argmax())
    exact = int(per_rank[rank])
    if exact < worst:
        formula = f"largest receiver of the routing table, rank {rank} = {exact}"
    return Bound(min(worst, exact), formula, worst, exact)


def standard_shapes(layer: Layer) -> tuple[Shape, ...]:
    """The buffers of the standard flow."""
    return (
        Shape("x", "token", layer.hidden),
        Shape("router", "slot", 1, element_bytes=ROUTER_BYTES),
        Shape("w_up", "weight", layer.up_width, layer.hidden),
        Shape("w_down", "weight", layer.hidden, layer.intermediate),
        Shape("recv", "routed", layer.hidden),
        Shape("h", "routed", layer.up_width),
        Shape("a", "routed", layer.intermediate),
        Shape("y", "routed", layer.hidden),
        Shape("back", "slot", layer.hidden),
        Shape("out", "token", layer.hidden),
    )


def layer_bytes(layer: Layer, bound: Bound) -> tuple[Term, ...]:
    """(term, bytes, formula) of every buffer of the standard flow, per rank."""
    return shape_bytes(layer, bound, standard_shapes(layer))


def shape_bytes(
    layer: Layer, bound: Bound, shapes: Iterable[Shape]
) -> tuple[Term, ...]:
    """(term, bytes, formula) of the given buffers, per rank, none shared."""
    return tuple(_term(layer, bound, shape) for shape in shapes)


def _term(layer: Layer, bound: Bound, shape: Shape) -> Term:
    rows, why = _rows(layer, bound, shape)
    size = shape.element_bytes or layer.element_bytes
    total = rows * shape.cols * size
    formula = f"{why} x {shape.cols} columns x {size} bytes = {total:,} bytes"
    return Term(shape.name, total, formula)


def _rows(layer: Layer, bound: Bound, shape: Shape) -> tuple[int, str]:
    """Rows of the buffer and how they are counted."""
    if shape.space == "token":
        return layer.max_tokens, f"{layer.max_tokens} tokens"
    if shape.space == "slot":
        slots = layer.max_tokens * layer.top_k
        return slots, f"{layer.max_tokens} tokens x top_k {layer.top_k}"
    if shape.space == "weight":
        experts = layer.local_experts
        return experts * shape.rows, f"{experts} experts x {shape.rows} rows"
    return bound.rows, f"{bound.rows} received rows"
