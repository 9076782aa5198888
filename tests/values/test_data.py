"""Inputs are reproducible, and distinct enough for a mistake to show."""

from __future__ import annotations

import numpy as np
import pytest

from hpc.interp.data import make_data
from hpc.interp.numerics import numpy_dtype
from tests.builders import small_layer, standard_schedule


def arrays(seed: int = 0, backwards: bool = False) -> dict[tuple[str, int], bytes]:
    layer = small_layer()
    data = make_data(layer, standard_schedule(layer).buffers, seed)
    wanted = [("x", 0), ("x", 1), ("router", 0), ("w_up", 0), ("w_up", 3)]
    if backwards:
        wanted.reverse()
    return {
        (n, i): (data.weight if n == "w_up" else data.input)(n, i).tobytes()
        for n, i in wanted
    }


def test_same_seed_same_bits_in_any_order() -> None:
    assert arrays() == arrays(backwards=True)


def test_everything_differs() -> None:
    assert len({*arrays(0).values(), *arrays(1).values()}) == 10


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_dtypes_and_sizes(dtype: str) -> None:
    layer = small_layer(dtype=dtype, hidden=4096, tokens=(64, 3))
    data = make_data(layer, standard_schedule(layer).buffers)
    x, w = data.input("x", 1), data.weight("w_up", 3)
    assert (x.dtype, w.dtype) == (numpy_dtype(dtype),) * 2
    assert (x.shape, w.shape) == ((3, 4096), (4096, 32))
    h = data.input("x", 0).astype(float) @ w.astype(float)
    assert 0.5 < h.std() < 2
    assert 0.4 < (h > 0).mean() < 0.6


def test_router_weights_are_positive_and_sum_to_one() -> None:
    layer = small_layer(top_k=4)
    data = make_data(layer, standard_schedule(layer).buffers)
    data.input("router", 1)
    weights = data.router(1)
    assert weights.shape == (16, 4)
    assert (weights > 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)
    assert (data.input("router", 1).reshape(16, 4) == weights).all()


def test_rows_differ_in_size() -> None:
    layer = small_layer(hidden=4096)
    data = make_data(layer, standard_schedule(layer).buffers)
    norms = np.linalg.norm(data.input("x", 0).astype(float), axis=1)
    assert len(set(norms.round(2).tolist())) == 16
    assert norms.max() / norms.min() > 1.5


def test_unknown_names_are_key_errors() -> None:
    layer = small_layer()
    data = make_data(layer, standard_schedule(layer).buffers)
    with pytest.raises(KeyError):
        data.input("recv", 0)
