"""Shares of cores against a tile-by-tile count, rows against the layout functions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.interp.expand import Expanded, expand
from hpc.interp.task_steps import COMPUTE, PUT, queue_steps
from hpc.machine.cost import (
    GmmCost,
    alignment,
    hbm_read_equivalent,
    vector_share_us,
)
from hpc.machine.record import load_machine
from hpc.schedule import layout
from hpc.schedule.layer import Layer
from hpc.schedule.model import (
    Barrier,
    Base,
    Put,
    Queue,
    Region,
    Schedule,
    Set,
    Task,
    Wait,
)
from tests.builders import (
    AIC,
    backward_schedule,
    small_layer,
    standard_schedule,
    train_schedule,
)

A3 = load_machine("ascend_a3")


def uneven(ep: int, experts: int, seed: int) -> tuple[Layer, np.ndarray]:
    layer = small_layer(
        ep=ep, experts=experts, tokens=(600,) * ep, hidden=300, intermediate=144
    )
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 400, (ep, experts))
    counts[:, rng.integers(0, experts)] = 0
    return layer, counts


@settings(max_examples=25, deadline=None, derandomize=True)
@given(ep=st.integers(1, 5), extra=st.integers(0, 7), seed=st.integers(0, 999))
def test_rows_of_all_ranks_agree_with_the_layout(
    ep: int, extra: int, seed: int
) -> None:
    layer, counts = uneven(ep, ep + extra, seed)
    groups = ((0,), tuple(range(1, ep))) if ep > 1 else ((0,),)
    rows = expand(standard_schedule(layer, groups), counts, A3).rows
    for rank in range(ep):
        sent = layout.send_rows(layer, counts, rank)
        assert (rows.sent[rank] == sent).all()
        received = layout.receive_rows(layer, counts, rank)
        assert (rows.received[rank] == received).all()
        parts = layout.part_rows(layer, groups, counts, rank)
        for e in range(layer.local_experts):
            for g, ks in enumerate(groups):
                assert rows.rows(Region("h", e, g))[rank] == parts[e, g]
                slots = sent[e, list(ks)].sum()
                assert rows.rows(Region("back", e, g))[rank] == slots
        assert rows.rows(Region("h"))[rank] == parts.sum()
        assert rows.rows(Region("h", None, 0))[rank] == parts[:, 0].sum()


def tile_by_tile(
    schedule: Schedule, work: Expanded, q: int, rank: int
) -> tuple[np.ndarray, np.ndarray]:
    """(tiles, time) per core and step by walking over all tiles one by one."""
    queue, steps = schedule.queues[q], work.queues[q].steps
    team = queue.team.size
    tiles = np.zeros((team, len(steps)), dtype=int)
    time = np.zeros((team, len(steps)))
    offset = 0
    for s, step in enumerate(steps):
        if step.kind not in (COMPUTE, PUT):
            continue
        instr = queue.code[step.work]
        if isinstance(instr, Put):
            total = len(schedule.groups[instr.group]) * instr.chunks
            np.add.at(tiles[:, s], (offset + np.arange(total)) % team, 1)
            offset += total
            continue
        assert isinstance(instr, Task)
        offset += _task_tiles(schedule, work, instr, rank, offset, tiles, time, s)
    return tiles, time


def product_size(schedule, work, task, rank) -> tuple[int, int, int]:
    """(rows, columns, depth) of a matrix product, by the meaning of its operator."""
    rows = int(work.rows.rows(task.reads[0])[rank])
    weight = schedule.buffer(task.reads[1].buffer)
    if task.op == "gmm":
        return rows, weight.cols, weight.rows
    if task.op == "gmm_nt":
        return rows, weight.rows, weight.cols
    gradient = schedule.buffer(task.writes[0].buffer)
    return gradient.rows, gradient.cols, rows


def row_elements(schedule, task, regions) -> int:
    """Elements of `regions` for each row of the first result."""
    buffers = [schedule.buffer(region.buffer) for region in regions]
    tokens = schedule.buffer(task.writes[0].buffer).space == "token"
    k = schedule.layer.top_k if tokens else 1
    return sum(b.cols * (k if b.space == "slot" else 1) for b in buffers)


def _task_tiles(schedule, work, task, rank, offset, tiles, time, s) -> int:
    team, base = len(tiles), task.base
    if not task.op.startswith("gmm"):
        rows = int(work.rows.rows(task.writes[0])[rank])
        high = -(-rows // base.m)
        mine = np.zeros(team, dtype=int)
        for i in range(high):
            core = (offset + i) % team
            tiles[core, s] += 1
            mine[core] += min(base.m, rows - i * base.m)
        read = row_elements(schedule, task, task.reads)
        made = row_elements(schedule, task, task.writes)
        aligned = alignment(A3, 2 * schedule.buffer(task.reads[0].buffer).cols)
        time[:, s] = [
            vector_share_us(A3, task.op, n * read, n * made, "bf16", held, aligned)
            for n, held in zip(mine, tiles[:, s], strict=True)
        ]
        return high
    rows, cols, depth = product_size(schedule, work, task, rank)
    high = -(-rows // base.m)
    lines = {"gmm": (depth, cols), "gmm_nt": (depth, depth), "gmm_tn": (rows, cols)}
    factors = (alignment(A3, 2 * length) for length in lines[task.op])
    cost = GmmCost(A3, base, depth, "bf16", *factors)
    wide = -(-cols // base.n)
    for t in range(high * wide):
        j, i = divmod(t, high)
        core = (offset + t) % team
        m, n = min(base.m, rows - i * base.m), min(base.n, cols - j * base.n)
        if not tiles[core, s]:
            top, side = min(base.m, rows), min(base.n, cols)
            time[core, s] += cost.fill_us(top, side) + cost.tile_us(top, side)[1]
        tiles[core, s] += 1
        time[core, s] += cost.tile_us(m, n)[0]
    return high * wide


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    ep=st.integers(1, 3),
    extra=st.integers(0, 4),
    seed=st.integers(0, 999),
    base=st.sampled_from([Base(128, 256, 64), Base(64, 64, 32), Base(16, 48, 16)]),
    m=st.sampled_from([16, 100, 128]),
    chunks=st.integers(1, 3),
    make=st.sampled_from([standard_schedule, backward_schedule, train_schedule]),
    at=st.sampled_from(["output", "input"]),
)
def test_shares_agree_with_a_walk_over_all_tiles(
    ep: int, extra: int, seed: int, base: Base, m: int, chunks: int, make, at: str
) -> None:
    layer, counts = uneven(ep, ep + extra, seed)
    layer = replace(layer, weights_at=at)
    groups = ((0,), tuple(range(1, ep))) if ep > 1 else ((0,),)
    schedule = make(layer, groups, chunks, m=m, base=base)
    work = expand(schedule, counts, A3)
    for q, shares in enumerate(work.queues):
        for rank in range(ep):
            tiles, time = tile_by_tile(schedule, work, q, rank)
            assert (shares.tiles[rank] == tiles).all()
            assert shares.work_us[rank] == pytest.approx(time, rel=1e-9)


def test_put_tiles_cover_the_rows_of_their_destinations() -> None:
    layer, counts = uneven(3, 5, seed=4)
    schedule = standard_schedule(layer, ((0, 2), (1,)), chunks=3)
    puts = expand(schedule, counts, A3).puts
    row = layer.hidden * 2
    for rank in range(3):
        sent = layout.send_rows(layer, counts, rank)
        back = layout.receive_rows(layer, counts, rank)
        for k in range(3):
            out = puts.bytes[rank, (puts.shift == k) & ~puts.combine].sum()
            assert out == sent[:, k].sum() * row
            # A combine for source k goes k ranks back; own rows have shift 0.
            home = puts.bytes[rank, (puts.shift == -k) & puts.combine].sum()
            assert home == back[:, k].sum() * row


def test_weights_are_read_once_while_they_stay_cached() -> None:
    """Two groups of one expert in a row: the second GMM finds the weights in L2."""
    layer = small_layer(hidden=512, intermediate=256, tokens=(64, 64))
    counts = np.full((2, 4), 32)
    work = expand(standard_schedule(layer, ((0,), (1,))), counts, A3)
    first, second = work.queues[0].hbm_bytes[0].sum(axis=0)[:2]
    # Rows that were just received are in L2 as well; results are written back.
    assert second == pytest.approx(32 * 512 * 2 * hbm_read_equivalent(A3))
    assert first == pytest.approx(second + 512 * 512 * 2)


def test_hbm_bytes_of_an_operator_do_not_depend_on_the_team() -> None:
    layer, counts = uneven(2, 3, seed=1)
    work = expand(standard_schedule(layer), counts, A3)
    rows = layout.part_rows(layer, ((0, 1),), counts, 0)[0, 0]
    activation = work.queues[2].hbm_bytes[0].sum(axis=0)[0]
    # What the first product wrote is still in L2.
    assert activation == pytest.approx(rows * 144 * 2 * hbm_read_equivalent(A3))


def test_steps_hold_one_wait_one_work_and_its_signals() -> None:
    task = Task("relu", (Region("h"),), (Region("a"),), Base(128))
    code = (
        Wait(0, 1),
        Wait(1, 1),
        task,
        Set(2),
        Set(3),
        Set(4),
        task,
        Barrier("rank"),
        Wait(5, 1),
        Barrier("rank"),
        Wait(6, 1),
        Set(7),
    )
    steps = queue_steps(Queue(AIC, code))
    assert [(s.wait, s.work, s.sets) for s in steps] == [
        (0, -1, []), (1, 2, [3, 4, 5]), (-1, 6, []), (-1, 7, []),
        (8, -1, []), (-1, 9, []), (10, -1, [11]),
    ]  # fmt: skip
