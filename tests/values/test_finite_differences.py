"""The gradients of the reference against differences of its forward values.

The loss is the sum of dout * out over all ranks. Its derivative with respect to any one
number of x, the matrices or the router weights is (loss(+e) - loss(-e)) / 2e in f64:
off by e^2 / 6 times a third derivative of order one, and by 2^-53 |loss| / e, both
below 1e-8 with e = 1e-5 and a loss of order ten. Nothing here knows a derivative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hpc.interp.data import Data, make_data
from hpc.interp.gradient_steps import with_gradients
from hpc.interp.reference import reference
from hpc.interp.steps import Step, steps_of
from hpc.schedule.layer import ACTIVATIONS, Activation, Layer, experts_of
from tests.builders import small_layer, standard_schedule, train_schedule

STEP = 1e-5
TOLERANCE = 1e-7
LIMIT = 0.6

Arrays = dict[tuple[str, int], np.ndarray]


class Point(Data):
    """Inputs and weights in f64, each of which may be moved."""

    def __init__(self, data: Data, arrays: Arrays) -> None:
        super().__init__(data.layer, data.buffers, data.seed)
        self.arrays = arrays

    def input(self, name: str, rank: int) -> Any:
        return self.arrays[name, rank]

    def router(self, rank: int) -> Any:
        return self.arrays["router", rank]

    def weight(self, name: str, expert: int) -> Any:
        return self.arrays[name, expert]


@dataclass
class Case:
    """A layer at a point, and how its loss changes."""

    layer: Layer
    ids: list[np.ndarray]
    point: Point
    forward: tuple[Step, ...]

    def loss(self) -> float:
        found = reference(self.layer, self.forward, self.ids, self.point, ["out"])
        outs = found.values["out"]
        douts = [self.point.input("dout", rank) for rank in range(self.layer.ep)]
        return sum(float((d * o).sum()) for d, o in zip(douts, outs, strict=True))

    def slopes(self, name: str, index: int) -> Iterator[tuple[int, float]]:
        """(flat position, derivative) of every number of one array."""
        flat = self.point.arrays[name, index].reshape(-1)
        for at in range(flat.size):
            kept = flat[at]
            flat[at] = kept + STEP
            above = self.loss()
            flat[at] = kept - STEP
            below = self.loss()
            flat[at] = kept
            yield at, (above - below) / (2 * STEP)


def case(activation: str, weights_at: str, tokens: tuple[int, ...], ids: Any) -> Case:
    layer = small_layer(
        tokens=tokens,
        ep=len(tokens),
        hidden=5,
        intermediate=3,
        experts=4,
        activation=Activation(activation, limit=LIMIT),
        weights_at=weights_at,
        dtype="fp32",
    )
    data = make_data(layer, train_schedule(layer).buffers)
    arrays: Arrays = {}
    for rank in range(layer.ep):
        for name in ("x", "dout"):
            arrays[name, rank] = data.input(name, rank).astype(float)
        arrays["router", rank] = data.router(rank).astype(float)
    for expert in range(layer.experts):
        for name in ("w_up", "w_down"):
            arrays[name, expert] = data.weight(name, expert).astype(float)
    tables = [np.array(table).reshape(-1, layer.top_k) for table in ids]
    steps = steps_of(standard_schedule(layer))
    return Case(layer, tables, Point(data, arrays), steps)


IDS = [[[0, 1], [1, -1], [1, 2]], [], [[1, 0], [-1, -1]]]
"""Expert 1 has half of all rows, expert 3 none; rank 1 has no tokens; slots that send
nothing."""


def away_from_jumps(found: Case) -> bool:
    """Whether no operand is within a hundred steps of where its slope jumps."""
    h = np.concatenate(
        reference(found.layer, found.forward, found.ids, found.point, ["h"]).values["h"]
    )
    h = h[np.concatenate([t.reshape(-1) for t in found.ids]) >= 0]
    gate, up = np.hsplit(h, 2) if found.layer.activation.gated else (h, h)
    near = {
        "relu": np.abs(h),
        "swiglu_oai": np.minimum(np.abs(gate - LIMIT), np.abs(np.abs(up) - LIMIT)),
    }
    return near.get(found.layer.activation.name, np.ones(1)).min() > 100 * STEP


@pytest.mark.parametrize("weights_at", ["input", "output"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_are_slopes_of_the_loss(activation: str, weights_at: str) -> None:
    found = case(activation, weights_at, (3, 0, 2), IDS)
    assert away_from_jumps(found)
    check(found)


def test_a_token_that_chooses_an_expert_twice_and_a_weight_of_zero() -> None:
    for weights_at in ("input", "output"):
        found = case("gelu", weights_at, (2, 1), [[[1, 1], [3, 3]], [[1, 2]]])
        found.point.router(0)[0, 1] = 0.0
        check(found)


def check(found: Case) -> None:
    """Every number of every gradient is the slope at its place."""
    layer = found.layer
    steps = with_gradients(layer, found.forward)
    names = ["dx", "dw_up", "dw_down", "drouter"]
    values = reference(layer, steps, found.ids, found.point, names).values
    for rank in range(layer.ep):
        for name in ("x", "router"):
            got = values[f"d{name}"][rank].reshape(-1)
            compare(found, name, rank, got)
        owned = experts_of(rank, layer.experts, layer.ep)
        for name in ("w_up", "w_down"):
            matrices = np.split(values[f"d{name}"][rank], layer.local_experts)
            for local, expert in enumerate(owned):
                compare(found, name, expert, matrices[local].reshape(-1))


def compare(found: Case, name: str, index: int, got: np.ndarray) -> None:
    sent = np.concatenate([t.reshape(-1) for t in found.ids])
    unused = name.startswith("w_") and index not in sent
    slopes = [0.0] * got.size
    if not unused:
        for at, slope in found.slopes(name, index):
            slopes[at] = slope
    np.testing.assert_allclose(got, slopes, rtol=TOLERANCE, atol=TOLERANCE)
