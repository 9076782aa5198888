"""The operators of the language: one table of operand and result rules.

A new operator is one entry of `OPERATORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hpc.schedule.layer import ACTIVATIONS, GATED_ACTIVATIONS

ACT = "act"
"""In a flow, `act(h)` is the layer's own activation."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows of a space x columns; cols None when an earlier error hides the number.

    Space "weight" is a matrix per expert of `rows` x `cols`.
    """

    space: str
    cols: int | None
    rows: int | None = None

    def __str__(self) -> str:
        if self.space == "weight":
            return f"a weight [{self.rows or '?'} x {self.cols or '?'}]"
        return f"[{self.space} rows x {self.cols or '?'}]"


@dataclass(frozen=True, slots=True)
class Operator:
    """What an operator takes and gives.

    `spaces` has the wanted space of each operand, "" for any. `result` computes the
    shape, or returns a text that says what does not fit. `base` is the canonical name
    of results. `routed` operators need the fields of `ROUTED_ONLY` in the layer.
    """

    spaces: tuple[str, ...]
    result: Callable[[tuple[Shape, ...]], Shape | str]
    base: str
    routed: bool = False


def _moved(space: str) -> Callable[[tuple[Shape, ...]], Shape | str]:
    return lambda args: Shape(space, args[0].cols)


def _gmm(args: tuple[Shape, ...]) -> Shape | str:
    rows, weight = args
    if None not in (rows.cols, weight.rows) and rows.cols != weight.rows:
        return (
            f"gmm multiplies {rows} by {weight}: {rows.cols} columns "
            f"against {weight.rows} rows"
        )
    return Shape(rows.space, weight.cols)


def _add(args: tuple[Shape, ...]) -> Shape | str:
    left, right = args
    if left.space == right.space == "slot":
        return f"add takes token or routed rows, got {left}: reduce(...) them first"
    unknown = None in (left.cols, right.cols)
    if left.space != right.space or (left.cols != right.cols and not unknown):
        return f"add needs two operands of one shape, got {left} and {right}"
    return left if right.cols is None else right


def _activation(args: tuple[Shape, ...]) -> Shape | str:
    (rows,) = args
    if rows.space == "slot":
        return f"an activation takes token or routed rows, got {rows}"
    return rows


def _gated(args: tuple[Shape, ...]) -> Shape | str:
    rows = _activation(args)
    if isinstance(rows, str):
        return rows
    if rows.cols is not None and rows.cols % 2:
        return f"a gated activation needs an even number of columns, got {rows}"
    return replace(rows, cols=rows.cols and rows.cols // 2)


OPERATORS: Mapping[str, Operator] = {
    "dispatch": Operator(("token",), _moved("routed"), "recv", routed=True),
    "gmm": Operator(("routed", "weight"), _gmm, "h", routed=True),
    "combine": Operator(("routed",), _moved("slot"), "back", routed=True),
    "reduce": Operator(("slot",), _moved("token"), "out", routed=True),
    "add": Operator(("", ""), _add, "sum"),
    **{
        name: Operator(("",), _gated if name in GATED_ACTIVATIONS else _activation, "a")
        for name in ACTIVATIONS
    },
}

WEIGHT_RESULTS = {"w_up": "h", "w_down": "y"}
"""Canonical name of a gmm's result by its weight."""

STANDARD = (
    ("dispatch", ("x",), "recv"),
    ("gmm", ("recv", "w_up"), "h"),
    (ACT, ("h",), "a"),
    ("gmm", ("a", "w_down"), "y"),
    ("combine", ("y",), "back"),
    ("reduce", ("back",), "out"),
)
"""The flow of a layer without a flow block."""
