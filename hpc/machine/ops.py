"""What each operator costs in vector instructions: one table, no machine numbers.

A vector core computes in fp32. 16-bit operands are converted on the way in and the
result on the way out, so the table lists only the arithmetic; `per_read` is issued for
every element read, `per_write` for every element written and `per_pair` for every two
elements written: the gradient of a gated activation writes one for the gate and one
for what it gates. A `scalar` operator reads its elements one by one, without them.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

Instrs = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class OpCost:
    """An operator's unit ("aic", "aiv") and its vector instructions by kind."""

    unit: str
    per_read: Instrs = ()
    per_write: Instrs = ()
    per_pair: Instrs = ()
    scalar: bool = False
    doc: str = ""


_SIGMOID: Instrs = (("vmuls", 2), ("vexp", 1), ("vdiv", 1))
"""x / (1 + exp(-x)): negate, exponential, add 1, divide."""

_ERF_GELU: Instrs = (("vmax", 2), ("vmul", 13), ("vmuls", 14), ("vdiv", 1))
"""Clipped rational approximation of erf, then 0.5 x (1 + erf(x / sqrt 2))."""

_NORMAL: Instrs = (("vmul", 2), ("vmuls", 2), ("vexp", 1), ("vadd", 1))
"""What gelu's derivative has beyond gelu: x phi(x), and the sum with Phi(x)."""


def _plus(base: Instrs, *more: tuple[str, int]) -> Instrs:
    return (*base, *more)


OP_COSTS: dict[str, OpCost] = {
    "gmm": OpCost("aic", doc="grouped matrix multiply; priced by hpc.machine.cost"),
    "swiglu": OpCost("aiv", per_write=_plus(_SIGMOID, ("vmul", 1))),
    "geglu": OpCost("aiv", per_write=_plus(_ERF_GELU, ("vmul", 1))),
    "swiglu_oai": OpCost(
        "aiv", per_write=_plus(_SIGMOID, ("vmax", 3), ("vmuls", 1), ("vmul", 1))
    ),
    "relu": OpCost("aiv", per_write=(("vmax", 1),)),
    "relu2": OpCost("aiv", per_write=(("vmax", 1), ("vmul", 1))),
    "gelu": OpCost("aiv", per_write=_ERF_GELU),
    "gmm_nt": OpCost("aic", doc="gmm with the matrix transposed"),
    "gmm_tn": OpCost("aic", doc="gradient of a matrix: the depth is the expert's rows"),
    # s = sigmoid(g); du = da g s; dg = da u (s + g s (1 - s)).
    "swiglu_grad": OpCost(
        "aiv", per_pair=_plus(_SIGMOID, ("vmuls", 2), ("vmul", 5), ("vadd", 1))
    ),
    # du = da gelu(g); dg = da u gelu'(g).
    "geglu_grad": OpCost("aiv", per_pair=(*_ERF_GELU, *_NORMAL, ("vmul", 3))),
    # As swiglu on clipped values; a mask (compare, select) for each clip.
    "swiglu_oai_grad": OpCost(
        "aiv", per_pair=_plus(_SIGMOID, ("vmax", 7), ("vmuls", 6), ("vmul", 6))
    ),
    "relu_grad": OpCost("aiv", per_write=(("vmax", 2),), doc="compare and select"),
    "relu2_grad": OpCost("aiv", per_write=(("vmax", 1), ("vmuls", 1), ("vmul", 1))),
    "gelu_grad": OpCost("aiv", per_write=(*_ERF_GELU, *_NORMAL, ("vmul", 1))),
    "add": OpCost("aiv", per_write=(("vadd", 1),)),
    "copy": OpCost("aiv"),
    "load": OpCost("aiv", doc="rows into UB and no further: what a copy test times"),
    "offsets": OpCost(
        "aiv",
        scalar=True,
        doc="where each rank's rows of each expert begin: sums over a table of counts",
    ),
    "reduce": OpCost("aiv", per_read=(("vmuls", 1), ("vadd", 1))),
    "reduce_dot": OpCost(
        "aiv",
        per_read=(("vmuls", 1), ("vadd", 2), ("vmul", 1)),
        doc="reduce, and the product of every row with its token's",
    ),
    "dispatch": OpCost("aiv", doc="rows to their experts; bytes only"),
    "combine": OpCost("aiv", doc="rows back to their tokens; bytes only"),
    "scale": OpCost(
        "aiv", per_write=(("vmuls", 1),), doc="router weight applied by a dispatch"
    ),
    "dot": OpCost(
        "aiv",
        per_read=(("vmul", 1), ("vadd", 1)),
        doc="product of a dispatched row with another one; reads the other one",
    ),
}


def op_cost(op: str) -> OpCost:
    """The table's entry; KeyError naming the nearest known operator."""
    found = OP_COSTS.get(op)
    if found is not None:
        return found
    close = difflib.get_close_matches(op, OP_COSTS, n=1)
    guess = f"; did you mean '{close[0]}'?" if close else ""
    known = ", ".join(OP_COSTS)
    raise KeyError(f"no cost for operator '{op}'{guess} (known: {known})")
