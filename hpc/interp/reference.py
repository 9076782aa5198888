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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpc.interp.data import Data
from hpc.interp.reference_ops import ACTIVATIONS, F64, product
from hpc.interp.steps import Step
from hpc.schedule.layer import Layer

Ints = npt.NDArray[np.int64]
Ids = Sequence[npt.NDArray[Any]]

SAFETY = 8.0
"""Standard deviations that an element may be off."""

UNIT_ROUNDOFF = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 2.0**-24}
"""Largest relative error of one rounding: half a unit in the last place."""

_F32 = 2.0**-24


class Known(NamedTuple):
    """Values [rows, cols], their natural scale, and the square of the relative error
    that an execution may have made so far, as one standard deviation."""

    value: F64
    scale: F64
    error2: float


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
    by_result = {step.result: step for step in steps}
    for rank in range(layer.ep):
        tokens = _Tokens(layer, by_result, ids[rank], data, rank)
        for name in outputs:
            known = tokens.output(by_result[name])
            found.values[name].append(known.value)
            found.scales[name].append(known.scale)
            found.bound[name] = SAFETY * math.sqrt(known.error2)
    return found


class _Tokens:
    """The tokens of one rank, alone with all experts.

    What becomes of every slot is computed expert by expert, wherever the expert lives,
    and kept by (token, slot). `sent` lists the slots (token * top_k + slot) of every
    expert that is chosen.
    """

    def __init__(
        self,
        layer: Layer,
        steps: Mapping[str, Step],
        ids: npt.NDArray[Any],
        data: Data,
        rank: int,
    ) -> None:
        self.layer = layer
        self.steps = steps
        self.data = data
        self.rank = rank
        self.weights = data.router(rank).astype(np.float64)
        choice = np.asarray(ids).reshape(-1)
        order = np.lexsort((np.arange(len(choice)), choice))
        experts, starts = np.unique(choice[order], return_index=True)
        slots = np.split(order, starts[1:]) if len(experts) else []
        found = zip(experts.tolist(), slots, strict=True)
        self.sent = {expert: slots for expert, slots in found if expert >= 0}
        self.known: dict[str, Known] = {}
        self.round2 = UNIT_ROUNDOFF[layer.dtype] ** 2 / 3

    def output(self, step: Step) -> Known:
        """A result; a routed one by slot."""
        routed = self.is_routed(step.result)
        return self.collect(step.result) if routed else self.get(step.result)

    def is_routed(self, name: str) -> bool:
        """Whether there is a row per slot that was sent, at an expert."""
        step = self.steps.get(name)
        if step is None or step.op in ("combine", "reduce"):
            return False
        return step.op == "dispatch" or self.is_routed(step.args[0])

    def get(self, name: str) -> Known:
        """An input of this rank, or a result by token or slot."""
        if name not in self.known:
            self.known[name] = self.compute(name)
        return self.known[name]

    def compute(self, name: str) -> Known:
        step = self.steps.get(name)
        if step is None:
            value = self.data.input(name, self.rank).astype(np.float64)
            return Known(value, np.abs(value), 0.0)
        if step.op == "combine":
            return self.collect(step.args[0])
        if step.op == "reduce":
            return self.reduce(self.get(step.args[0]))
        return self.row_op(step, [self.get(arg) for arg in step.args])

    def collect(self, name: str) -> Known:
        """Routed rows as [tokens * top_k, cols], zero where nothing was sent."""
        # An expert without rows tells columns and error where nothing is sent at all.
        sent = self.sent or {0: np.zeros(0, np.int64)}
        value = scale = np.zeros((0, 0))
        error2 = 0.0
        for expert, slots in sent.items():
            part = self.at_expert(name, expert, slots)
            if not value.size:
                shape = (self.weights.size, part.value.shape[1])
                value, scale, error2 = np.zeros(shape), np.zeros(shape), part.error2
            value[slots] = part.value
            scale[slots] = part.scale
        return Known(value, scale, error2)

    def at_expert(self, name: str, expert: int, slots: Ints) -> Known:
        """The rows of routed `name` that these slots have at `expert`."""
        step = self.steps[name]
        if step.op == "dispatch":
            return self.dispatch(self.get(step.args[0]), slots)
        if step.op == "gmm":
            matrix = self.data.weight(step.args[1], expert).astype(np.float64)
            return self.gmm(self.at_expert(step.args[0], expert, slots), matrix)
        args = [self.at_expert(arg, expert, slots) for arg in step.args]
        return self.row_op(step, args)

    def dispatch(self, known: Known, slots: Ints) -> Known:
        token = slots // self.layer.top_k
        value, scale, error2 = known.value[token], known.scale[token], known.error2
        if self.layer.weights_at == "output":
            return Known(value, scale, error2)
        weights = self.weights.reshape(-1, 1)[slots]
        error2 += self.round2 + _F32**2 / 3
        return Known(value * weights, scale * weights, error2)

    def gmm(self, known: Known, matrix: F64) -> Known:
        value = product(known.value, matrix)
        squares = product(np.square(known.scale), np.square(matrix))
        error2 = known.error2 + _F32**2 * len(matrix) / 6 + self.round2
        return Known(value, np.maximum(np.sqrt(squares), np.abs(value)), error2)

    def reduce(self, known: Known) -> Known:
        k = self.layer.top_k
        weights = self.weights
        if self.layer.weights_at == "input":
            weights = np.ones_like(weights)
        shape = (len(weights), k, known.value.shape[1])
        total = np.einsum("tkc,tk->tc", known.value.reshape(shape), weights)
        scale = known.scale.reshape(shape)
        squares = np.einsum("tkc,tkc,tk->tc", scale, scale, np.square(weights))
        error2 = known.error2 + _F32**2 * (k / 2 + 1) / 3 + self.round2
        return Known(total, np.maximum(np.sqrt(squares), np.abs(total)), error2)

    def row_op(self, step: Step, args: list[Known]) -> Known:
        error2 = max(known.error2 for known in args) + self.round2
        if step.op == "add":
            one, two = args
            scale = np.hypot(one.scale, two.scale)
            return Known(one.value + two.value, scale, error2 + _F32**2 / 3)
        params = {
            "alpha": self.layer.activation.alpha,
            "limit": self.layer.activation.limit,
            **dict(step.params),
        }
        with np.errstate(over="ignore"):
            value, scale = ACTIVATIONS[step.op](*args[0][:2], params)
        scale = np.maximum(scale, np.abs(value))
        return Known(value, scale, error2 + (8 * _F32) ** 2)
