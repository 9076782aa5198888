"""Shrunk copies keep everything but columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc.interp.shrink import (
    LEAST,
    ShrinkError,
    common_sizes,
    least_size,
    shrink,
)
from hpc.schedule.layer import ACTIVATIONS, Activation
from hpc.schedule.model import Base, Schedule, Task
from tests.builders import (
    backward_schedule,
    small_layer,
    standard_schedule,
    train_schedule,
)
from tests.values.cases import add_then_swiglu


def column_tiles(schedule: Schedule) -> list[int]:
    """Column tiles of every GMM, in program order; of sums over rows, row tiles too."""
    found: list[int] = []
    for task in (c for queue in schedule.queues for c in queue.code):
        if isinstance(task, Task) and task.op.startswith("gmm"):
            result = schedule.buffer(task.writes[0].buffer)
            found.append(-(-result.cols // task.base.n))
            if task.op == "gmm_tn":
                found.append(-(-result.rows // task.base.m))
    return found


@pytest.mark.parametrize(
    ("hidden", "intermediate", "narrow"),
    [
        (7168, 2048, (112, 32)),  # DeepSeek-V3
        (4096, 14336, (64, 224)),  # Mixtral 8x7B
        (2048, 768, (32, 48)),  # Qwen3 30B
        (2880, 2880, (45, 45)),  # gpt-oss 120B
        (768, 3072, (48, 48)),  # Switch base
        (32, 16, (32, 16)),
    ],
)
def test_sizes_of_real_layers(
    hidden: int, intermediate: int, narrow: tuple[int, int]
) -> None:
    layer = small_layer(hidden=hidden, intermediate=intermediate)
    schedule = standard_schedule(layer)
    small = shrink(schedule)
    assert (small.layer.hidden, small.layer.intermediate) == narrow
    assert column_tiles(small) == column_tiles(schedule)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_sizes_keep_fitting_together(activation: str) -> None:
    layer = small_layer(
        hidden=4096, intermediate=2048, activation=Activation(activation)
    )
    small = shrink(standard_schedule(layer))
    gate = 2 if layer.activation.gated else 1
    cols = {b.name: b.cols for b in small.buffers}
    assert cols["x"] == cols["recv"] == cols["y"] == cols["back"] == cols["out"] == 64
    assert cols["h"] == cols["w_up"] == gate * 32
    assert small.buffer("w_down").rows == cols["a"] == 32
    assert small.buffer("w_up").rows == 64
    assert cols["router"] == 1


def test_all_but_columns_stays() -> None:
    layer = small_layer(hidden=1024, intermediate=512, tokens=(70, 3))
    schedule = standard_schedule(layer, ((0,), (1,)), 3)
    schedule = replace(schedule, padded=(("hidden", 1024),))
    small = shrink(schedule)
    assert small.events == schedule.events
    assert small.groups == schedule.groups
    assert small.layer.tokens == layer.tokens
    assert small.padded == (("hidden", 32),)
    for buffer, old in zip(small.buffers, schedule.buffers, strict=True):
        assert buffer.capacity_rows == old.capacity_rows
    for queue, old_queue in zip(small.queues, schedule.queues, strict=True):
        assert queue.team == old_queue.team
        for instr, old_instr in zip(queue.code, old_queue.code, strict=True):
            if isinstance(instr, Task) and instr.op == "gmm":
                assert isinstance(old_instr, Task)
                assert instr.base.m == old_instr.base.m
                instr = replace(instr, base=old_instr.base)
            assert instr == old_instr


def test_declared_inputs_shrink_with_their_results() -> None:
    small = shrink(add_then_swiglu(small_layer(hidden=640)))
    assert [b.cols for b in small.buffers] == [80, 80, 80, 40]


SIZES = st.integers(1, 3000)


@given(
    hidden=SIZES,
    intermediate=SIZES,
    widths=st.tuples(st.integers(1, 600), st.integers(1, 600)),
)
def test_tiles_stay_for_any_sizes(
    hidden: int, intermediate: int, widths: tuple[int, int]
) -> None:
    """With widths that suit no small size, the size grows, at last to what it was."""
    layer = small_layer(hidden=hidden, intermediate=intermediate)
    schedules = [standard_schedule(layer, base=Base(16, n, 16)) for n in widths]
    sizes = common_sizes(schedules)
    small = [shrink(schedule, sizes) for schedule in schedules]
    assert small[0].buffers == small[1].buffers
    assert [column_tiles(s) for s in small] == [column_tiles(s) for s in schedules]


@given(size=st.integers(1, 1 << 20))
def test_nothing_wide_becomes_narrow(size: int) -> None:
    assert min(size, LEAST) <= least_size(size) <= size


def test_sizes_are_the_smallest_that_keep_all_tiles() -> None:
    """Of 7168 columns, 75 tiles of 96 and 28 of 256: twos make 75 out of 149 or 150,
    fours 28 out of 109 to 112, and threes and eights both out of 223."""
    layer = small_layer(hidden=7168, intermediate=2048)
    uneven = standard_schedule(layer, base=Base(128, 96, 64))
    even = standard_schedule(layer, base=Base(128, 256, 64))
    assert common_sizes([even])[7168] == 112
    assert common_sizes([uneven])[7168] == 149
    assert common_sizes([even, uneven])[7168] == 223
    with pytest.raises(ShrinkError, match="h: 64 columns cannot be cut into 43 tiles"):
        shrink(uneven, common_sizes([even]))


@pytest.mark.parametrize("make", [backward_schedule, train_schedule])
@pytest.mark.parametrize("weights_at", ["input", "output"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_shrink_with_their_values(
    activation: str, weights_at: str, make: Callable[..., Schedule]
) -> None:
    """Both sizes of a matrix's gradient are columns elsewhere, and keep their tiles:
    2048 in 22 tiles of 96 becomes 43 in tiles of 2."""
    layer = small_layer(
        hidden=2048,
        intermediate=768,
        activation=Activation(activation),
        weights_at=weights_at,
    )
    schedule = make(layer, base=Base(96, 256, 64))
    small = shrink(schedule)
    gate = 2 if layer.activation.gated else 1
    cols = {b.name: b.cols for b in small.buffers}
    hidden, inner = small.layer.hidden, small.layer.intermediate
    assert (hidden, inner) == (43, 48)
    assert {cols[n] for n in ("dout", "dy", "dx_rows", "dback", "dx")} == {hidden}
    assert cols["h"] == cols["dh"] == cols["dw_up"] == gate * inner
    assert cols["a"] == cols["da"] == small.buffer("dw_down").rows == inner
    assert small.buffer("dw_up").rows == cols["dw_down"] == hidden
    assert cols["dweights"] == cols["router"] == 1
    assert column_tiles(small) == column_tiles(schedule)


@given(
    hidden=SIZES,
    intermediate=SIZES,
    base=st.builds(Base, *[st.integers(1, 600)] * 3),
)
def test_tiles_of_gradients_stay_for_any_sizes(
    hidden: int, intermediate: int, base: Base
) -> None:
    layer = small_layer(hidden=hidden, intermediate=intermediate)
    schedules = [train_schedule(layer, base=base), train_schedule(layer)]
    sizes = common_sizes(schedules)
    small = [shrink(schedule, sizes) for schedule in schedules]
    assert small[0].buffers == small[1].buffers
    assert [column_tiles(s) for s in small] == [column_tiles(s) for s in schedules]


def test_contradicting_sizes_are_refused() -> None:
    schedule = standard_schedule(small_layer())
    buffers = tuple(
        replace(b, cols=33) if b.name == "recv" else b for b in schedule.buffers
    )
    with pytest.raises(ShrinkError, match="recv: 33 columns"):
        shrink(replace(schedule, buffers=buffers))
