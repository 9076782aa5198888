"""Time and bytes of what only a backward program has, by hand where possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from hpc.interp.bound import lower_bound
from hpc.interp.engine import execute, simulate
from hpc.interp.expand import expand
from hpc.interp.flow import epilogue, flow_nodes
from hpc.interp.program import build_program
from hpc.interp.timing import Run, measure
from hpc.machine.cost import (
    OP_COSTS,
    GmmCost,
    gmm_us,
    hbm_read_equivalent,
    vector_compute_us,
    vector_share_us,
)
from hpc.machine.record import Machine, load_machine
from hpc.schedule.layer import ACTIVATIONS, GATED_ACTIVATIONS
from hpc.schedule.model import Base, Put, Schedule, Task
from tests.builders import (
    backward_schedule,
    edited,
    small_layer,
    standard_schedule,
    train_schedule,
)
from tests.timing.policies import balanced, deepseek
from tests.timing.test_bound import cases

A3 = load_machine("ascend_a3")
LAYER = small_layer(tokens=(64, 64), hidden=320, intermediate=160)
COUNTS = np.array([[32, 0, 32, 64], [32, 0, 32, 64]])
AIC_Q, COMM_Q = 0, 1
QUICK = replace(
    A3,
    link_gbps=1e9,
    package_gbps=1e9,
    across_gbps=1e9,
    hbm_gbps=1e9,
    hbm_write_gbps=1e9,
)
"""Links and memory that take no time, so that cores do not wait for each other."""


def run_of(schedule: Schedule, counts: np.ndarray, machine: Machine = A3) -> Run:
    work = expand(schedule, counts, machine)
    return execute(schedule, work, build_program(schedule, work, machine), machine)


def last_combine_us(run: Run) -> float:
    combine = np.tile(run.work.puts.combine, run.ranks)
    seen = run.put_delivered[combine] + run.machine.event_visible_us
    return float(seen.max())


def step_of(run: Run, op: str, expert: int) -> tuple[int, int]:
    """(queue, step) of the task of an operator for an expert."""
    for q, queue in enumerate(run.schedule.queues):
        for s, step in enumerate(run.work.queues[q].steps):
            task = queue.code[step.work] if step.work >= 0 else None
            if not isinstance(task, Task) or task.op != op:
                continue
            if task.reads[0].expert == expert:
                return q, s
    raise AssertionError(f"no {op} of expert {expert}")


# -- latency ---------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True)
@given(case=cases())
def test_forward_latency_is_the_last_combine_put(
    case: tuple[Schedule, np.ndarray],
) -> None:
    """Whatever else ran, in a forward program nothing but the reduce comes later."""
    schedule, counts = case
    if schedule.mode != "forward":
        return
    run = run_of(schedule, counts)
    assert measure(run, record=False).latency_us == last_combine_us(run)


def test_gradients_of_weights_count_even_after_the_last_combine() -> None:
    layer = small_layer(tokens=(512, 512), hidden=2048, intermediate=1024)
    run = run_of(backward_schedule(layer, None, 16), np.full((2, 4), 256))
    timing = measure(run, record=False)
    last = float(run.block(run.end, AIC_Q).max())
    assert last > last_combine_us(run)
    assert timing.latency_us == last
    assert timing.rank_latency_us.max() == last


def test_the_reduce_of_the_forward_part_is_no_work_of_the_latency() -> None:
    """In a training step it runs in the middle; a slow one changes the layer only."""
    nodes = flow_nodes(train_schedule(LAYER))
    spaces = {buffer.name: buffer.space for buffer in train_schedule(LAYER).buffers}
    assert [node.write for node in epilogue(nodes, spaces)] == ["out", "dx"]


# -- bytes -----------------------------------------------------------------------------


def test_a_gradient_of_weights_reads_both_operands_and_writes_the_matrix() -> None:
    run = run_of(backward_schedule(LAYER), COUNTS)
    q, s = step_of(run, "gmm_tn", 0)
    moved = run.work.queues[q].hbm_bytes[:, :, s].sum(axis=1)
    # dw_down of expert 0: 64 rows of the saved "a" on each rank; those of "dy" have
    # just arrived and are still in L2.
    expected = 2 * (64 * 160 + 160 * 320 * hbm_read_equivalent(A3))
    assert moved == pytest.approx([expected] * 2)


def test_an_expert_without_rows_writes_zeros_and_nothing_else() -> None:
    run = run_of(backward_schedule(LAYER), COUNTS)
    q, s = step_of(run, "gmm_tn", 1)
    shares = run.work.queues[q]
    written = 2 * 160 * 320 * hbm_read_equivalent(A3)
    assert shares.hbm_bytes[0, :, s].sum() == pytest.approx(written)
    # 2 x 2 tiles of 128 x 256; the drain of each is its only cost.
    drain = A3.fixpipe_bytes_per_cycle * A3.clock_ghz * 1e3
    assert shares.tiles[0, :, s].sum() == 4
    assert shares.work_us[0, :, s].sum() == pytest.approx(2 * 160 * 320 / drain)


def test_gmm_tn_of_no_rows_has_a_price() -> None:
    base = Base(128, 256, 64)
    nothing = GmmCost(A3, base, 0, "bf16")
    assert nothing.fill_us(128, 256) == 0
    none, some = (gmm_us(A3, 256, 256, k, base, "bf16", 24) for k in (0, 16))
    assert some > none > 0


def test_a_dot_product_reads_one_more_row_and_writes_a_number() -> None:
    """By the bytes of the sender's memory, against the same program without it."""
    whole = backward_schedule(LAYER)
    plain = whole
    for i, instr in enumerate(whole.queues[COMM_Q].code):
        if isinstance(instr, Put):
            plain = edited(plain, COMM_Q, i, dot=())
    more = simulate(whole, COUNTS, A3).hbm_bytes - simulate(plain, COUNTS, A3).hbm_bytes
    assert more == pytest.approx([128 * (320 * 2 + 4 * hbm_read_equivalent(A3))] * 2)


def test_bytes_of_the_links_are_those_of_forward() -> None:
    """Backward exchanges the same rows as forward, a training step both."""
    forward, back, both = (
        simulate(make(LAYER), COUNTS, A3)
        for make in (standard_schedule, backward_schedule, train_schedule)
    )
    assert forward.egress_bytes.tolist() == back.egress_bytes.tolist()
    assert both.egress_bytes.tolist() == (2 * forward.egress_bytes).tolist()


# -- puts that compute -----------------------------------------------------------------


def test_arithmetic_of_a_put_runs_behind_its_transfer() -> None:
    """It costs nothing while the link is slower, and its time where it is not."""
    schedule = backward_schedule(LAYER)
    run = run_of(schedule, COUNTS)
    took = run.put_sent - run.put_begin
    assert (run.work.puts.work_us.ravel() < took).sum() == (took > 0).sum()
    slow = replace(A3, vmul=(10.0, 2000.0, 15.0))
    run = run_of(schedule, COUNTS, slow)
    work = run.work.puts.work_us.ravel()
    assert (run.put_sent - run.put_begin)[work > 0] == pytest.approx(work[work > 0])


def test_work_of_a_put_is_scaling_and_the_product() -> None:
    puts = expand(backward_schedule(LAYER), COUNTS, A3).puts
    row = vector_compute_us(A3, "scale", 320, 320, "bf16")
    row += vector_compute_us(A3, "dot", 320, 0, "bf16")
    rows = puts.bytes / 640
    assert puts.work_us == pytest.approx(rows * row * ~puts.combine)
    assert puts.work_us.any()
    at_input = replace(LAYER, weights_at="input")
    assert not expand(backward_schedule(at_input), COUNTS, A3).puts.work_us.any()


def test_a_collective_computes_in_a_pass_of_its_own() -> None:
    """Two rows are read and one is written, by all vector cores at once; what is not
    scaled is sent as it lies."""
    schedule = backward_schedule(LAYER)
    whole = collective(schedule)
    puts = expand(whole, COUNTS, A3).puts
    moved = 640 + 644 + 640 * A3.hbm_gbps / A3.hbm_write_gbps
    row = moved / (A3.hbm_gbps * 1e3 / A3.aiv_cores)
    assert puts.work_us == pytest.approx(puts.bytes / 640 * row * ~puts.combine)
    plain = collective(schedule, scale=False, dot=())
    more, less = (run_of(s, COUNTS, QUICK) for s in (whole, plain))
    took = (more.put_sent - more.put_begin) - (less.put_sent - less.put_begin)
    work, away = more.work.puts.work_us.ravel(), more.put_away
    assert work[away].any()
    assert took[away] == pytest.approx(work[away], rel=1e-6, abs=1e-9)


def collective(schedule: Schedule, **changes: object) -> Schedule:
    """The same with a collective in place of every put; dispatches also changed."""
    for i, instr in enumerate(schedule.queues[COMM_Q].code):
        if isinstance(instr, Put):
            new = changes if instr.kind == "dispatch" else {}
            schedule = edited(schedule, COMM_Q, i, transport="collective", **new)
    return schedule


def test_a_second_row_does_not_slow_a_put_down() -> None:
    """Memory feeds a core faster than a link: the product only loads it more."""
    whole = backward_schedule(LAYER)
    plain = edited(whole, COMM_Q, 0, dot=())
    first = [run_of(s, COUNTS) for s in (whole, plain)]
    took = [(run.put_sent - run.put_begin)[1] for run in first]
    assert first[0].work.puts.shift[1] == 1
    assert took[0] == pytest.approx(took[1], rel=5e-3)


# -- operators -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_gradient_costs_more_than_its_activation(name: str) -> None:
    factor = 2 if name in GATED_ACTIVATIONS else 1
    forward = vector_share_us(A3, name, factor * 4096, 4096, "bf16")
    back = vector_share_us(
        A3, f"{name}_grad", (factor + 1) * 4096, factor * 4096, "bf16"
    )
    assert back > forward


def test_instructions_of_a_pair_are_issued_once_for_two_elements() -> None:
    """swiglu_grad: 4 scalar, 1 exp, 1 div, 5 mul, 1 add per gate; 3 reads, 2 writes."""
    cycles = 4 * 1 + 2 + 4 + 5 * 2 + 2 + (3 + 2) * 2
    expected = 64 * cycles / 64 / 1800
    found = vector_compute_us(A3, "swiglu_grad", 3 * 64, 2 * 64, "bf16")
    assert found == pytest.approx(expected)
    assert {"gmm_nt", "gmm_tn", "reduce_dot", "copy", "dot"} < set(OP_COSTS)


# -- the bound -------------------------------------------------------------------------


def test_matrix_work_of_backward_is_twice_that_of_forward() -> None:
    layer = deepseek(4)
    counts = balanced(layer)
    forward, back, both = (
        lower_bound(make(layer), counts, A3).terms["aic"][0]
        for make in (standard_schedule, backward_schedule, train_schedule)
    )
    assert back == pytest.approx(2 * forward, rel=2e-3)
    assert both == pytest.approx(3 * forward, rel=2e-3)


def test_compulsory_bytes_of_backward() -> None:
    """Weights and saved tensors come in, gradients go out, each once."""
    schedule = backward_schedule(LAYER)
    bound = lower_bound(schedule, COUNTS, A3)
    received = [64, 192]
    for rank in range(2):
        read = received[rank] * (320 + 320 + 160) + 128 * 320  # recv, h, a; back
        read += 64 * 320  # dout
        used = 1 if rank == 0 else 2
        weights = used * (320 * 320 + 160 * 320)
        written = 64 * 320 + 2 * (320 * 320 + 160 * 320)
        stored = (2 * written + 4 * 128) * hbm_read_equivalent(A3)
        total = 2 * (read + weights) + stored
        expected = total / (A3.hbm_gbps * 1e3) + A3.kernel_launch_us + A3.task_fetch_us
        assert bound.layer_terms["hbm"][rank] == pytest.approx(expected)
