"""What a layer should compute: a dense f64 reference, and how far off is allowed.

Written apart from the execution: it knows tokens, slots and experts, but no ranks'
buffers, groups, tiles or events, and has its own formulas. For every token and slot,
its own row goes through the chosen expert; stored intermediates are not rounded.

The natural scale. With every value the reference carries its natural scale n: |x| for
an input, and through a dot product the root of the sum of squares,
n_y[j]^2 = sum_k n_x[k]^2 w[k, j]^2: the size that the dot product has when its terms
have random signs. An activation passes on n by its slopes. An error made early, and
relative to the scale there, stays relative to the scale later.

The bound. With u the unit roundoff of the dtype (half a unit in the last place of 1)
and v = 2^-24 that of f32, an operator adds to the relative error, as independent
random errors add:

- each result that is stored: u^2 / 3, the variance of an error that is uniform within
  half a unit in the last place;
- a dot product of K terms in f32: v^2 K / 6, since the k-th of K partial sums has the
  size sqrt(k / K) of the whole and is rounded once, and sum_k k / K = K / 2; this is
  the sqrt(K) growth of the error itself;
- an activation in f32: (8 v)^2, for exp, division and a few products;
- reduce over k slots: v^2 (k / 2 + 1) / 3.

The bound is 8 times the root of the sum: no element of 10^8 is off by 8 standard
deviations unless something is wrong, while a swapped row or a lost slot is off by
about the scale itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpc.interp.data import Data
from hpc.interp.steps import Step
from hpc.schedule.layer import Layer

F64 = npt.NDArray[np.float64]
Ids = Sequence[npt.NDArray[Any]]

SAFETY = 8.0
"""Standard deviations that an element may be off."""

UNIT_ROUNDOFF = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 2.0**-24}
"""Largest relative error of one rounding: half a unit in the last place."""

_F32 = 2.0**-24
_TINY = 2.0**-52
"""Bound of an output that no operator rounds."""

_ROWS, _INNER, _COLS = 32, 128, 64
_SLOPE = 1.13
"""Above the steepest slope of silu (1.0998) and of gelu (1.1289)."""


class Known(NamedTuple):
    """Values [rows, cols], their natural scale, and the square of the relative error
    that an execution may have made so far, as one standard deviation.

    `routed` values have a row per slot that was sent, in the order of `_Tokens.order`.
    """

    value: F64
    scale: F64
    error2: float
    routed: bool = False


@dataclass(frozen=True)
class Reference:
    """Expected outputs, per rank f64 [tokens, cols] or [tokens * top_k, cols], with
    their scales; `bound` is what an error relative to the scale must not exceed."""

    values: dict[str, list[F64]]
    scales: dict[str, list[F64]]
    bound: dict[str, float]


def reference(
    layer: Layer, steps: Sequence[Step], ids: Ids, data: Data, outputs: Sequence[str]
) -> Reference:
    """Runs `steps` on every rank's tokens. KeyError if an output is no step's result.

    `ids[rank]` is int [tokens, top_k]; -1 means that the slot sends nothing. Routed
    and slot outputs are given by (token, slot), zero where nothing was sent.
    """
    found = Reference({n: [] for n in outputs}, {n: [] for n in outputs}, {})
    for rank in range(layer.ep):
        known = _Tokens(layer, ids[rank], data, rank).run(steps, outputs)
        for name in outputs:
            value, scale, error2, _ = known[name]
            found.values[name].append(value)
            found.scales[name].append(scale)
            found.bound[name] = SAFETY * math.sqrt(error2)
    return found


class _Tokens:
    """The tokens of one rank, alone with all experts: what becomes of every slot,
    wherever it is computed.

    `order` lists the slots (token * top_k + slot) that are sent, expert by expert;
    `spans` has every chosen expert's part of it.
    """

    def __init__(
        self, layer: Layer, ids: npt.NDArray[Any], data: Data, rank: int
    ) -> None:
        self.layer = layer
        self.data = data
        self.rank = rank
        choice = np.asarray(ids).reshape(-1)
        chosen, rows = np.unique(choice[choice >= 0], return_counts=True)
        self.order = np.lexsort((np.arange(len(choice)), choice))
        self.order = self.order[len(choice) - int(rows.sum()) :]
        stops = np.cumsum(rows).tolist()
        self.spans = [
            (expert, slice(stop - count, stop))
            for expert, count, stop in zip(
                chosen.tolist(), rows.tolist(), stops, strict=True
            )
        ]
        self.known: dict[str, Known] = {}
        self.round2 = UNIT_ROUNDOFF[layer.dtype] ** 2 / 3

    def run(self, steps: Sequence[Step], outputs: Sequence[str]) -> dict[str, Known]:
        """The outputs by name, routed ones by slot."""
        for step in steps:
            match step.op:
                case "dispatch":
                    result = self.dispatch(step.args[0])
                case "gmm":
                    result = self.gmm(*step.args)
                case "combine":
                    result = self.by_slot(self.get(step.args[0]))
                case "reduce":
                    result = self.reduce(step.args[0])
                case _:
                    result = self.row_op(step)
            self.known[step.result] = result
        return {name: self.by_slot(self.known[name]) for name in outputs}

    def get(self, name: str) -> Known:
        """A result, or an input of this rank."""
        if name not in self.known:
            value = self.data.input(name, self.rank).astype(np.float64)
            self.known[name] = Known(value, np.abs(value), 0.0)
        return self.known[name]

    def by_slot(self, known: Known) -> Known:
        """Routed values as [tokens * top_k, cols], zero where nothing was sent."""
        if not known.routed:
            return known
        slots = self.layer.tokens[self.rank] * self.layer.top_k
        value = np.zeros((slots, known.value.shape[1]))
        scale = np.zeros_like(value)
        value[self.order] = known.value
        scale[self.order] = known.scale
        return Known(value, scale, known.error2)

    def weights(self) -> F64:
        """Router weights by slot, f64 [tokens * top_k, 1]."""
        return self.data.router(self.rank).astype(np.float64).reshape(-1, 1)

    def dispatch(self, name: str) -> Known:
        value, scale, error2, _ = self.get(name)
        token = self.order // self.layer.top_k
        value, scale = value[token], scale[token]
        if self.layer.weights_at == "input":
            weights = self.weights()[self.order]
            value *= weights
            scale *= weights
            error2 += self.round2 + _F32**2 / 3
        return Known(value, scale, error2, True)

    def gmm(self, rows: str, weight: str) -> Known:
        value, scale, error2, routed = self.get(rows)
        cols = self.data.buffers[weight].cols
        product = np.zeros((len(value), cols))
        squares = np.zeros_like(product)
        for expert, mine in self.spans:
            matrix = self.data.weight(weight, expert).astype(np.float64)
            product[mine] = _dot(value[mine], matrix)
            squares[mine] = _dot(np.square(scale[mine]), np.square(matrix))
        error2 += _F32**2 * value.shape[1] / 6 + self.round2
        scale = np.maximum(np.sqrt(squares), np.abs(product))
        return Known(product, scale, error2, routed)

    def reduce(self, name: str) -> Known:
        value, scale, error2, _ = self.get(name)
        k = self.layer.top_k
        shape = (-1, k, value.shape[1])
        weights = np.ones((value.shape[0] // k, k))
        if self.layer.weights_at == "output":
            weights = self.weights().reshape(-1, k)
        total = np.einsum("tkc,tk->tc", value.reshape(shape), weights)
        scaled = scale.reshape(shape) * weights[:, :, None]
        squares = np.einsum("tkc,tkc->tc", scaled, scaled)
        error2 += _F32**2 * (k / 2 + 1) / 3 + self.round2
        return Known(total, np.maximum(np.sqrt(squares), np.abs(total)), error2)

    def row_op(self, step: Step) -> Known:
        args = [self.get(name) for name in step.args]
        error2 = max(known.error2 for known in args) + self.round2
        if step.op == "add":
            one, two = args
            scale = np.hypot(one.scale, two.scale)
            total = one.value + two.value
            return Known(total, scale, error2 + _F32**2 / 3, one.routed)
        params = {
            "alpha": self.layer.activation.alpha,
            "limit": self.layer.activation.limit,
            **dict(step.params),
        }
        with np.errstate(over="ignore"):
            value, scale = _ACTIVATIONS[step.op](*args[0][:2], params)
        scale = np.maximum(scale, np.abs(value))
        return Known(value, scale, error2 + (8 * _F32) ** 2, args[0].routed)


def _dot(rows: F64, matrix: F64) -> F64:
    """`rows` @ `matrix` in blocks too small for BLAS to start threads."""
    count, k = rows.shape
    stack = np.zeros((-(-count // _ROWS), _ROWS, k))
    stack.reshape(-1, k)[:count] = rows
    product = np.zeros((*stack.shape[:2], matrix.shape[1]))
    for start in range(0, k, _INNER):
        inner = slice(start, start + _INNER)
        for left in range(0, matrix.shape[1], _COLS):
            cols = slice(left, left + _COLS)
            product[..., cols] += stack[..., inner] @ matrix[inner, cols]
    return product.reshape(-1, matrix.shape[1])[:count]


def _logistic(values: F64) -> F64:
    return 0.5 * (1.0 + np.tanh(0.5 * values))


def _normal_cdf(values: F64) -> F64:
    """Probability that a standard normal variable is below; erfc of the C library."""
    flat = (values * -math.sqrt(0.5)).ravel().tolist()
    return 0.5 * np.array(list(map(math.erfc, flat))).reshape(values.shape)


def _product(gate: F64, gate_scale: F64, up: F64, up_scale: F64) -> tuple[F64, F64]:
    """(gate * up, its scale) from a bent gate and a straight up, with scales.

    The last term keeps the product of two small errors below the scale when gate and
    up are both near zero.
    """
    terms = (gate_scale * up, gate * up_scale, gate_scale * up_scale / 8)
    return gate * up, np.sqrt(sum(np.square(term) for term in terms))


Bend = Callable[[F64, F64, Mapping[str, float]], tuple[F64, F64]]


def _swiglu(h: F64, scale: F64, params: Mapping[str, float]) -> tuple[F64, F64]:
    (gate, up), (gate_scale, up_scale) = np.hsplit(h, 2), np.hsplit(scale, 2)
    return _product(gate * _logistic(gate), _SLOPE * gate_scale, up, up_scale)


def _geglu(h: F64, scale: F64, params: Mapping[str, float]) -> tuple[F64, F64]:
    (gate, up), (gate_scale, up_scale) = np.hsplit(h, 2), np.hsplit(scale, 2)
    return _product(gate * _normal_cdf(gate), _SLOPE * gate_scale, up, up_scale)


def _swiglu_oai(h: F64, scale: F64, params: Mapping[str, float]) -> tuple[F64, F64]:
    (gate, up), (gate_scale, up_scale) = np.hsplit(h, 2), np.hsplit(scale, 2)
    limit = params["limit"]
    gate = np.where(gate > limit, limit, gate)
    up = np.where(up > limit, limit, np.where(up < -limit, -limit, up))
    bent = gate * _logistic(params["alpha"] * gate)
    return _product(bent, _SLOPE * gate_scale, up + 1.0, up_scale)


def _relu(h: F64, scale: F64, params: Mapping[str, float]) -> tuple[F64, F64]:
    return np.where(h > 0, h, 0.0), scale


def _relu2(h: F64, scale: F64, params: Mapping[str, float]) -> tuple[F64, F64]:
    return np.where(h > 0, h * h, 0.0), 2 * np.maximum(h, scale / 2) * scale


def _gelu(h: F64, scale: F64, params: Mapping[str, float]) -> tuple[F64, F64]:
    return h * _normal_cdf(h), _SLOPE * scale


_ACTIVATIONS: dict[str, Bend] = {
    "swiglu": _swiglu,
    "geglu": _geglu,
    "swiglu_oai": _swiglu_oai,
    "relu": _relu,
    "relu2": _relu2,
    "gelu": _gelu,
}


@dataclass(frozen=True)
class Verdict:
    """The worst error of outputs against a reference, relative to the natural scale.

    `max_rel_err` is infinite if an output is not a number (or not zero where it must
    be). `worst` says where: (output, rank, row, column).
    """

    max_rel_err: float
    bound: float
    worst: tuple[str, int, int, int] | None

    @property
    def ok(self) -> bool:
        return self.max_rel_err <= self.bound

    @property
    def is_nan(self) -> bool:
        """Whether there is no error to tell, only a wrong kind of value."""
        return math.isinf(self.max_rel_err)

    @property
    def severity(self) -> float:
        """Error in units of the bound."""
        return self.max_rel_err / self.bound if self.max_rel_err else 0.0


def compare(
    outputs: Mapping[str, Sequence[npt.NDArray[Any]]], expected: Reference
) -> Verdict:
    """The verdict on `outputs[name][rank]`: of several outputs, on the worst one."""
    verdict = Verdict(0.0, max(expected.bound.values(), default=0.0), None)
    for name, values in expected.values.items():
        bound = max(expected.bound[name], _TINY)
        for rank, value in enumerate(values):
            got = outputs[name][rank].astype(np.float64)
            error = _relative(got, value, expected.scales[name][rank])
            if not error.size:
                continue
            row, col = divmod(int(error.argmax()), error.shape[1])
            worst = Verdict(float(error[row, col]), bound, (name, rank, row, col))
            if verdict.worst is None or worst.severity > verdict.severity:
                verdict = worst
    return verdict


def _relative(got: F64, value: F64, scale: F64) -> F64:
    """|got - value| / scale; infinite for NaN, and for any error at scale zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.abs(got - value) / scale
    error[got == value] = 0.0
    error[np.isnan(error)] = np.inf
    return error
