"""The reference against plain Python, and the error bound against known errors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hpc.interp.data import Data, make_data
from hpc.interp.launch_steps import launch_steps
from hpc.interp.reference import Reference, reference
from hpc.interp.reference_sums import SAFETY, UNIT_ROUNDOFF, stored
from hpc.interp.saved import launch_data
from hpc.interp.steps import Step, StepsError, steps_of
from hpc.interp.verdict import compare
from hpc.schedule.layer import ACTIVATIONS, Activation, Layer
from tests.builders import backward_schedule, small_layer, standard_schedule
from tests.values.cases import add_then_swiglu, random_ids
from tests.values.test_ops import GATED, PLAIN, clamped

F32 = 2.0**-24


def standard(layer: Layer) -> tuple[Step, ...]:
    return steps_of(standard_schedule(layer))


def data_of(layer: Layer) -> Data:
    return make_data(layer, standard_schedule(layer).buffers)


def by_hand(layer: Layer, data: Data, rank: int, token: int, experts: list[int]):
    """One token through its slots, one number at a time."""
    x = [float(v) for v in data.input("x", rank)[token]]
    total = [0.0] * layer.hidden
    for slot, expert in enumerate(experts):
        if expert < 0:
            continue
        weight = float(data.router(rank)[token, slot])
        row = [v * weight for v in x] if layer.weights_at == "input" else x
        h = times(row, data.weight("w_up", expert))
        y = times(bend(layer.activation.name, h), data.weight("w_down", expert))
        scale = weight if layer.weights_at == "output" else 1.0
        total = [t + scale * v for t, v in zip(total, y, strict=True)]
    return total


def times(row: list[float], matrix: np.ndarray) -> list[float]:
    columns = np.asarray(matrix, float).T.tolist()
    return [math.fsum(a * b for a, b in zip(row, c, strict=True)) for c in columns]


def bend(name: str, h: list[float]) -> list[float]:
    half = len(h) // 2
    if name in GATED:
        return [GATED[name](*pair) for pair in zip(h[:half], h[half:], strict=True)]
    return [PLAIN[name](v) for v in h]


@pytest.mark.parametrize("weights_at", ["input", "output"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_equals_plain_python(activation: str, weights_at: str) -> None:
    layer = small_layer(
        tokens=(4, 3), activation=Activation(activation), weights_at=weights_at
    )
    ids = random_ids(layer, 1, unsent=0.3)
    data = data_of(layer)
    expected = reference(layer, standard(layer), ids, data, ["out"])
    for rank in range(layer.ep):
        for token, experts in enumerate(ids[rank].tolist()):
            wanted = by_hand(layer, data, rank, token, experts)
            np.testing.assert_allclose(expected.values["out"][rank][token], wanted)


def test_clamps_that_bite() -> None:
    """With a small limit most values are clamped, on every side."""
    layer = small_layer(activation=Activation("swiglu_oai", alpha=0.7, limit=0.4))
    data = data_of(layer)
    ids = random_ids(layer, 4)
    found = reference(layer, standard(layer), ids, data, ["h", "a"])
    h, a = found.values["h"][0], found.values["a"][0]
    half = layer.intermediate
    wanted = [
        [clamped(*pair, 0.7, 0.4) for pair in zip(row[:half], row[half:], strict=True)]
        for row in h.tolist()
    ]
    np.testing.assert_allclose(a, wanted)
    assert (h < -0.4).any()
    assert (h > 0.4).any()


def test_slot_and_routed_results_are_given_by_slot() -> None:
    layer = small_layer()
    ids = random_ids(layer, 2, unsent=0.5)
    names = ["recv", "y", "back"]
    expected = reference(layer, standard(layer), ids, data_of(layer), names)
    for rank in range(layer.ep):
        sent = ids[rank].ravel() >= 0
        for name in names:
            assert expected.values[name][rank][sent].all(axis=1).all()
            assert not expected.values[name][rank][~sent].any()
        x = data_of(layer).input("x", rank).astype(float).repeat(layer.top_k, axis=0)
        assert (expected.values["recv"][rank][sent] == x[sent]).all()


def bound(dtype: str, hidden: int, intermediate: int = 16) -> float:
    layer = small_layer(dtype=dtype, hidden=hidden, intermediate=intermediate)
    ids = random_ids(layer, 0)
    found = reference(layer, standard(layer), ids, data_of(layer), ["out"])
    return found.bound["out"]


def test_bound_is_the_stated_formula() -> None:
    """h, a, y and out are stored; two dot products, an activation, two slots."""
    u = UNIT_ROUNDOFF["bf16"]
    terms = 4 * u**2 / 3 + F32**2 * (32 / 6 + 16 / 6 + 8**2 + 2 / 3)
    assert bound("bf16", 32) == pytest.approx(SAFETY * math.sqrt(terms))


def gradient_bounds(layer: Layer, ids: list[np.ndarray]) -> dict[str, float]:
    schedule = backward_schedule(layer)
    steps = launch_steps(schedule)
    data = launch_data(schedule, steps, ids)
    names = ["dx", "dw_up", "dw_down", "dweights"]
    return reference(layer, steps, ids, data, names).bound


def test_bounds_of_gradients_are_the_stated_formula() -> None:
    """Per gradient, what is stored on the way, and how long its sums are: dy is scaled
    and rounded; a sum over rows is as long as the busiest expert has rows."""
    layer = small_layer(tokens=(50, 30), hidden=32, intermediate=16)
    ids = random_ids(layer, 0)
    rows = max(np.bincount(np.concatenate(ids).ravel()))
    u2, v2 = UNIT_ROUNDOFF["bf16"] ** 2 / 3, F32**2
    h = u2 + v2 * 32 / 6
    a = h + u2 + v2 * 64
    dy = u2 + v2 / 3
    da = dy + u2 + v2 * 32 / 6
    dh = h + da + u2 + v2 * 64
    wanted = {
        "dweights": a + u2 + v2 * 16 / 6 + v2 * (32 / 6 + 1 / 3),
        "dw_down": a + dy + v2 * rows / 6 + u2,
        "dw_up": dh + v2 * rows / 6 + u2,
        "dx": dh + 2 * u2 + v2 * (32 / 6 + 2 / 3),
    }
    found = gradient_bounds(layer, ids)
    for name, terms in wanted.items():
        assert found[name] == pytest.approx(SAFETY * math.sqrt(terms)), name


def test_bound_of_a_matrix_gradient_grows_with_the_root_of_its_rows() -> None:
    """In fp32, where sums over rows dominate: sixteen times the rows, about four times
    what the sum adds."""
    found: list[float] = []
    for rows in (4096, 65536):
        layer = small_layer(
            tokens=(rows, 0), top_k=1, dtype="fp32", hidden=2, intermediate=2
        )
        ids = [np.zeros((rows, 1), np.int64), np.zeros((0, 1), np.int64)]
        found.append(gradient_bounds(layer, ids)["dw_down"])
    assert 3.6 < found[1] / found[0] < 4


@pytest.mark.parametrize("rows", [16, 256, 4096])
def test_natural_scale_of_a_matrix_gradient(rows: int) -> None:
    """|dw| / scale is of order one for any number of rows."""
    layer = small_layer(tokens=(rows, 0), top_k=1)
    ids = [np.zeros((rows, 1), np.int64), np.zeros((0, 1), np.int64)]
    schedule = backward_schedule(layer)
    steps = launch_steps(schedule)
    data = launch_data(schedule, steps, ids)
    found = reference(layer, steps, ids, data, ["dw_up"])
    value, scale = found.values["dw_up"][0][:32], found.scales["dw_up"][0][:32]
    ratio = np.abs(value) / scale
    assert ratio.max() <= 1
    assert 0.2 < np.sqrt(np.mean(np.square(ratio))) < 1


def test_bound_grows_with_the_root_of_k() -> None:
    """In fp32 the sums dominate: four times K, twice the bound."""
    ratio = bound("fp32", 32768) / bound("fp32", 8192)
    assert 1.9 < ratio < 2.0


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("k", [16, 256, 4096, 14336])
def test_natural_scale_is_the_size_of_a_dot_product(dtype: str, k: int) -> None:
    """|y| / scale is of order one at any K, so the bound needs no tuning per K."""
    layer = small_layer(dtype=dtype, hidden=k)
    ids = random_ids(layer, 0)
    found = reference(layer, standard(layer), ids, data_of(layer), ["h"])
    ratio = np.abs(found.values["h"][0]) / found.scales["h"][0]
    assert ratio.max() <= 1
    assert 0.4 < np.sqrt(np.mean(np.square(ratio))) < 1


@pytest.mark.parametrize("size", [1.0, 2.0**-14, 2.0**-18, 2.0**-23])
def test_small_fp16_numbers_are_off_by_units_that_do_not_shrink(size: float) -> None:
    """Gradients of an expert with few rows are: rounding them is no fault."""
    exact = np.linspace(-size, size, 2001)[:, None]
    known = stored("fp16", exact, np.full_like(exact, size), 0.0)
    off = np.abs(exact.astype(np.float16).astype(np.float64) - exact)
    assert (off <= SAFETY * math.sqrt(known.error2) * known.scale).all()
    assert off.max() > 0.1 * math.sqrt(known.error2) * known.scale.max()


def test_where_nothing_is_no_error_is_allowed() -> None:
    zeros = np.zeros((2, 3))
    assert not stored("fp16", zeros, zeros, 0.0).scale.any()


def outputs_like(expected: Reference) -> dict[str, list[np.ndarray]]:
    return {name: [v.copy() for v in vs] for name, vs in expected.values.items()}


@pytest.fixture
def expected() -> Reference:
    layer = small_layer()
    ids = random_ids(layer, 3)
    return reference(layer, standard(layer), ids, data_of(layer), ["out"])


def test_exact_outputs_have_no_error(expected: Reference) -> None:
    verdict = compare(outputs_like(expected), expected)
    assert verdict.ok
    assert verdict.max_rel_err == 0


@pytest.mark.parametrize(("factor", "ok"), [(0.99, True), (1.01, False)])
def test_one_element_at_the_bound(expected: Reference, factor: float, ok: bool) -> None:
    outputs = outputs_like(expected)
    size = expected.scales["out"][1][5, 7] * expected.bound["out"]
    outputs["out"][1][5, 7] += factor * size
    verdict = compare(outputs, expected)
    assert verdict.ok is ok
    assert verdict.worst == ("out", 1, 5, 7)
    assert verdict.max_rel_err == pytest.approx(factor * verdict.bound)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_never_right(expected: Reference, bad: float) -> None:
    outputs = outputs_like(expected)
    outputs["out"][0][2, 3] = bad
    verdict = compare(outputs, expected)
    assert not verdict.ok
    assert verdict.is_nan
    assert verdict.worst == ("out", 0, 2, 3)


def test_swapped_tokens_are_far_off(expected: Reference) -> None:
    outputs = outputs_like(expected)
    outputs["out"][0][[0, 1]] = outputs["out"][0][[1, 0]]
    assert compare(outputs, expected).severity > 10


def test_expected_zeros_must_be_zero() -> None:
    layer = small_layer()
    ids = random_ids(layer, 0, unsent=1.0)
    found = reference(layer, standard(layer), ids, data_of(layer), ["out"])
    outputs = outputs_like(found)
    assert compare(outputs, found).ok
    outputs["out"][0][0, 0] = 1e-30
    assert not compare(outputs, found).ok


def test_steps_of_a_schedule() -> None:
    layer = small_layer(activation=Activation("relu"))
    assert [(s.op, s.result, s.args) for s in standard(layer)] == [
        ("dispatch", "recv", ("x",)),
        ("gmm", "h", ("recv", "w_up")),
        ("relu", "a", ("h",)),
        ("gmm", "y", ("a", "w_down")),
        ("combine", "back", ("y",)),
        ("reduce", "out", ("back",)),
    ]
    assert [(s.op, s.result, s.args) for s in steps_of(add_then_swiglu(layer))] == [
        ("add", "sum", ("p", "q")),
        ("swiglu", "out", ("sum",)),
    ]


def test_steps_of_a_schedule_that_computes_nothing() -> None:
    schedule = standard_schedule(small_layer())
    no_dispatch = replace(schedule, queues=schedule.queues[:1])
    with pytest.raises(StepsError, match="no order of operators computes h, y"):
        steps_of(no_dispatch)


def test_steps_of_a_buffer_with_two_meanings() -> None:
    """A result must be one operator's: nothing could be compared with it otherwise."""
    schedule = standard_schedule(small_layer())
    code = list(schedule.queues[2].code)
    code[4] = replace(code[4], op="geglu")
    queues = (*schedule.queues[:2], replace(schedule.queues[2], code=tuple(code)))
    with pytest.raises(StepsError, match=r"buffer a holds results .* swiglu .* geglu"):
        steps_of(replace(schedule, queues=queues))
