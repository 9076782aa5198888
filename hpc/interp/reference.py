"""What a layer should compute: a dense f64 reference, and how far off is allowed.

Written apart from the execution: it knows tokens, slots and experts, but no ranks'
buffers, groups, tiles or events, and has its own formulas. For every token and slot,
its own row goes through the chosen expert; stored intermediates are not rounded. The
gradient of an expert's matrix adds over the rows of all ranks.

The natural scale. With every value the reference carries its natural scale n: |x| for
an input, and through a dot product the root of the sum of squares,
n_y[j]^2 = sum_k n_x[k]^2 w[k, j]^2: the size that the dot product has when its terms
have random signs. An activation passes on n by its slopes. An error made early, and
relative to the scale there, stays relative to the scale later.

The bound. With u the unit roundoff of the dtype (half a unit in the last place of 1)
and v = 2^-24 that of f32, an operator adds to the relative error, as independent
random errors add:

- each result that is stored: u^2 / 3, the variance of an error that is uniform within
  half a unit in the last place; below the dtype's least normal number (fp16: 6.1e-5)
  units do not get smaller, so the scale of what is stored does not either;
- a dot product of K terms in f32 (of a matrix's gradient, as many as the expert has
  rows): v^2 K / 6, since the k-th of K partial sums has the
  size sqrt(k / K) of the whole and is rounded once, and sum_k k / K = K / 2; this is
  the sqrt(K) growth of the error itself;
- an activation in f32: (8 v)^2, for exp, division and a few products;
- reduce over k slots: v^2 (k / 2 + 1) / 3.

A product of two uncertain operands has the errors of both, and n_x n_y for the scale
of a term. Slopes that jump are dealt with in `reference_gradients`.

The bound is 8 times the root of the sum: no element of 10^8 is off by 8 standard
deviations unless something is wrong, while a swapped row or a lost slot is off by
about the scale itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpc.interp.data import Data
from hpc.interp.reference_gradients import GRADIENTS
from hpc.interp.reference_ops import ACTIVATIONS, F64, product
from hpc.interp.reference_plan import Plan
from hpc.interp.reference_sums import F32_ROUNDOFF, SAFETY, Known, Sums, stored
from hpc.interp.steps import Step
from hpc.schedule.layer import Layer

Ints = npt.NDArray[np.int64]
Ids = Sequence[npt.NDArray[Any]]


@dataclass(frozen=True)
class Reference:
    """Expected outputs, per rank f64 [tokens, cols] or [tokens * top_k, cols], or
    [local experts * rows, cols] for gradients of matrices, with their scales; `bound`
    is what an error relative to the scale must not exceed."""

    values: dict[str, list[F64]]
    scales: dict[str, list[F64]]
    bound: dict[str, float]

    def add(self, name: str, known: Known) -> None:
        """Appends what is known of an output on the next rank."""
        self.values[name].append(known.value)
        self.scales[name].append(known.scale)
        bound = SAFETY * math.sqrt(known.error2)
        self.bound[name] = max(bound, self.bound.get(name, 0.0))


def reference(
    layer: Layer, steps: Sequence[Step], ids: Ids, data: Data, outputs: Sequence[str]
) -> Reference:
    """Runs `steps` on every rank's tokens. KeyError if an output is no step's result.

    `ids[rank]` is int [tokens, top_k]; -1 means that the slot sends nothing. Routed
    and slot outputs are given by (token, slot), zero where nothing was sent.
    """
    found = Reference({n: [] for n in outputs}, {n: [] for n in outputs}, {})
    plan = Plan(steps, data, outputs)
    sums: dict[str, Sums] = {name: Sums() for name in plan.matrices}
    for rank in range(layer.ep):
        tokens = _Tokens(layer, plan, ids[rank], data, rank)
        tokens.add_products(sums)
        for name in outputs:
            if name not in sums:
                found.add(name, tokens.get_by_slot(name))
    for name, total in sums.items():
        for rank in range(layer.ep):
            found.add(name, total.of_rank(layer, rank))
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
        plan: Plan,
        ids: npt.NDArray[Any],
        data: Data,
        rank: int,
    ) -> None:
        self.layer = layer
        self.plan = plan
        self.data = data
        self.rank = rank
        self.weights = data.router(rank).astype(np.float64)
        choice = np.asarray(ids).reshape(-1)
        self.unsent = choice < 0
        order = np.lexsort((np.arange(len(choice)), choice))
        experts, starts = np.unique(choice[order], return_index=True)
        slots = np.split(order, starts[1:]) if len(experts) else []
        found = zip(experts.tolist(), slots, strict=True)
        self.sent = {expert: slots for expert, slots in found if expert >= 0}
        # An expert without rows tells columns and error where nothing is sent at all.
        self.sent = self.sent or {0: np.zeros(0, np.int64)}
        self.known: dict[str, Known] = {}
        self.collected: dict[str, Known] = {}

    def get_by_slot(self, name: str) -> Known:
        """A result; a routed one by slot."""
        return self.collect(name) if self.plan.is_routed(name) else self.get(name)

    def get(self, name: str) -> Known:
        """An input of this rank, or a result by token or slot."""
        if name not in self.known:
            self.known[name] = self.compute(name)
        return self.known[name]

    def compute(self, name: str) -> Known:
        step = self.plan.steps.get(name)
        if step is None:
            return self.given(name)
        if step.op == "combine":
            return self.collect(step.args[0])
        if step.op == "reduce":
            return self.reduce(step, self.get(step.args[0]))
        if step.op == "slot_dot":
            return self.slot_dot(*map(self.get, step.args))
        return self.row_op(step, [self.get(arg) for arg in step.args])

    def given(self, name: str) -> Known:
        """An input, or something saved; slots that were not sent count for nothing."""
        value = self.data.input(name, self.rank).astype(np.float64)
        if self.data.buffers[name].space != "token":
            value[self.unsent] = 0.0
        return Known(value, np.abs(value), 0.0)

    def collect(self, name: str) -> Known:
        """Routed rows as [tokens * top_k, cols], zero where nothing was sent.

        All that are wanted at the same depth are computed together, since they share
        what they are made of.
        """
        if name not in self.collected:
            names = self.plan.collected_at(self.plan.depth(name))
            for expert, slots in self.sent.items():
                cache: dict[str, Known] = {}
                for each in names:
                    part = self.at_expert(each, expert, slots, cache)
                    self.place(each, slots, part)
        return self.collected[name]

    def place(self, name: str, slots: Ints, part: Known) -> None:
        """Puts the rows of some slots where they belong."""
        if name not in self.collected:
            shape = (self.weights.size, part.value.shape[1])
            known = Known(np.zeros(shape), np.zeros(shape), part.error2)
            self.collected[name] = known
        value, scale, _ = self.collected[name]
        value[slots] = part.value
        scale[slots] = part.scale

    def add_products(self, sums: Mapping[str, Sums]) -> None:
        """Adds this rank's share of all gradients of matrices.

        What is to be collected from the same depth is collected on the way.
        """
        if not sums:
            return
        args = [arg for name in sums for arg in self.plan.steps[name].args]
        beside = self.plan.collected_at(max(map(self.plan.depth, args)))
        for expert, slots in self.sent.items():
            cache: dict[str, Known] = {}
            for name, total in sums.items():
                one, two = (
                    self.at_expert(arg, expert, slots, cache)
                    for arg in self.plan.steps[name].args
                )
                total.add(expert, one, two)
            for name in beside:
                self.place(name, slots, self.at_expert(name, expert, slots, cache))

    def at_expert(
        self, name: str, expert: int, slots: Ints, cache: dict[str, Known]
    ) -> Known:
        """The rows of routed `name` that these slots have at `expert`."""
        if name not in cache:
            cache[name] = self.compute_at(name, expert, slots, cache)
        return cache[name]

    def compute_at(
        self, name: str, expert: int, slots: Ints, cache: dict[str, Known]
    ) -> Known:
        step = self.plan.steps.get(name)
        if step is None:
            value, scale, error2 = self.given(name)
            return Known(value[slots], scale[slots], error2)
        if step.op == "dispatch":
            return self.dispatch(step, self.get(step.args[0]), slots)
        if step.op in ("gmm", "gmm_nt"):
            matrix = self.data.weight(step.args[1], expert).astype(np.float64)
            matrix = matrix.T if step.op == "gmm_nt" else matrix
            return self.gmm(self.at_expert(step.args[0], expert, slots, cache), matrix)
        args = [self.at_expert(arg, expert, slots, cache) for arg in step.args]
        return self.row_op(step, args)

    def is_weighted(self, step: Step, where: str) -> bool:
        """Whether a step multiplies by router weights; `where` is its kind's."""
        if step.weighted is None:
            return self.layer.weights_at == where
        return step.weighted

    def dispatch(self, step: Step, known: Known, slots: Ints) -> Known:
        token = slots // self.layer.top_k
        value, scale, error2 = known.value[token], known.scale[token], known.error2
        if not self.is_weighted(step, "input"):
            return Known(value, scale, error2)
        weights = self.weights.reshape(-1, 1)[slots]
        error2 += F32_ROUNDOFF**2 / 3
        return stored(self.layer.dtype, value * weights, scale * weights, error2)

    def gmm(self, known: Known, matrix: F64) -> Known:
        value = product(known.value, matrix)
        squares = product(np.square(known.scale), np.square(matrix))
        error2 = known.error2 + F32_ROUNDOFF**2 * len(matrix) / 6
        return stored(self.layer.dtype, value, np.sqrt(squares), error2)

    def reduce(self, step: Step, known: Known) -> Known:
        k = self.layer.top_k
        weights = self.weights
        if not self.is_weighted(step, "output"):
            weights = np.ones_like(weights)
        shape = (len(weights), k, known.value.shape[1])
        total = np.einsum("tkc,tk->tc", known.value.reshape(shape), weights)
        scale = known.scale.reshape(shape)
        squares = np.einsum("tkc,tkc,tk->tc", scale, scale, np.square(weights))
        error2 = known.error2 + F32_ROUNDOFF**2 * (k / 2 + 1) / 3
        return stored(self.layer.dtype, total, np.sqrt(squares), error2)

    def slot_dot(self, tokens: Known, slots: Known) -> Known:
        """Each slot's row times its token's, [tokens * top_k, 1]; stored in f32."""
        token = np.arange(len(slots.value)) // self.layer.top_k
        total = np.einsum("sc,sc->s", tokens.value[token], slots.value)
        sizes = tokens.scale[token] * slots.scale
        scale = np.maximum(np.sqrt(np.einsum("sc,sc->s", sizes, sizes)), np.abs(total))
        terms = slots.value.shape[1] / 6 + 1 / 3
        error2 = tokens.error2 + slots.error2 + F32_ROUNDOFF**2 * terms
        return Known(total[:, None], scale[:, None], error2)

    def row_op(self, step: Step, args: list[Known]) -> Known:
        if step.op == "copy":
            return args[0]
        if step.op == "add":
            one, two = args
            scale = np.hypot(one.scale, two.scale)
            error2 = max(one.error2, two.error2) + F32_ROUNDOFF**2 / 3
            return stored(self.layer.dtype, one.value + two.value, scale, error2)
        params = {
            "alpha": self.layer.activation.alpha,
            "limit": self.layer.activation.limit,
            **dict(step.params),
        }
        pairs = [known[:2] for known in args]
        error2 = sum(known.error2 for known in args)
        with np.errstate(over="ignore"):
            if step.op in GRADIENTS:
                reach = SAFETY * math.sqrt(args[0].error2)
                value, scale = GRADIENTS[step.op](pairs[0], pairs[1], reach, params)
            else:
                value, scale = ACTIVATIONS[step.op](*pairs[0], params)
        error2 += (8 * F32_ROUNDOFF) ** 2
        return stored(self.layer.dtype, value, scale, error2)
