"""The engine against timelines worked out by hand (numbers of `tiny.ROUND`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpc.interp.engine import SimulationDeadlock, simulate
from hpc.machine.cost import vector_share_us
from hpc.schedule.model import Barrier, Set, Wait
from tests.builders import small_layer, standard_schedule
from tests.timing.tiny import CUBE, ONE, ROUND, layer_of, program, send, to, work

RELU_US = vector_share_us(ROUND, "relu", 8 << 16, 8 << 16, "bf16")
SMALL_US = vector_share_us(ROUND, "relu", 8 << 12, 8 << 12, "bf16")
NOTHING = np.zeros((1, 1), dtype=int)
BOTH = pytest.mark.parametrize("hbm", ["shared", "fifo"])


@BOTH
def test_one_task(hbm: str) -> None:
    """launch 1000, fetch 1, the task."""
    timing = simulate(program(layer_of(), (ONE, [work()])), NOTHING, ROUND, hbm=hbm)
    assert timing.latency_us == pytest.approx(1001 + RELU_US)
    assert timing.layer_us == timing.latency_us
    assert timing.busy_us["aiv"][0] == pytest.approx(RELU_US)
    assert timing.tasks == 1


@BOTH
def test_task_bound_by_memory(hbm: str) -> None:
    """2 x 8 x 65,536 x 2 bytes at 1,000 bytes/us."""
    slow = replace(ROUND, hbm_gbps=1.0, hbm_core_gbps=1.0, hbm_write_gbps=1.0)
    timing = simulate(program(layer_of(), (ONE, [work()])), NOTHING, slow, hbm=hbm)
    assert timing.latency_us == pytest.approx(1001 + 2097.152)
    assert timing.hbm_bytes[0] == 2 * 8 * 65536 * 2


def test_two_cores_share_memory() -> None:
    """The first moves 2,097,152 bytes; the second finds its operand in L2 and only
    writes 1,048,576. Each gets half of 1,000 bytes/us until the second is done."""
    slow = replace(ROUND, hbm_gbps=1.0, hbm_core_gbps=1.0, hbm_write_gbps=1.0)
    two = (ONE, [work()]), (replace(ONE, first=1), [work()])
    timing = simulate(program(layer_of(), *two), NOTHING, slow)
    assert timing.latency_us == pytest.approx(1001 + 3 * 1048.576)


def test_signal_between_cores() -> None:
    """Producer: 1001 + task, set 2. Consumer: fetched at 1001; open 10 after the set;
    poll 3; its own task. Waiting is what is left of its time: task + 2 + 10."""
    schedule = program(
        layer_of(),
        (ONE, [work(), Set(0)]),
        (replace(ONE, first=1), [Wait(0, 1), work()]),
        events={0: 1},
    )
    timing = simulate(schedule, NOTHING, ROUND)
    assert timing.latency_us == pytest.approx(1001 + RELU_US + 2 + 10 + 3 + RELU_US)
    assert timing.wait_us["aiv"]["e0"][0] == pytest.approx(RELU_US + 12)
    # Fetch twice, one poll, one set.
    assert timing.wait_us["aiv"]["overhead"][0] == pytest.approx(1 + 1 + 3 + 2)


def test_open_gate_costs_no_poll() -> None:
    """The consumer comes late: its task, then fetch 1; no poll and no waiting."""
    schedule = program(
        layer_of(),
        (ONE, [Set(0)]),
        (replace(ONE, first=1), [work(), Wait(0, 1), work()]),
        events={0: 1},
    )
    timing = simulate(schedule, NOTHING, ROUND)
    assert timing.latency_us == pytest.approx(1001 + RELU_US + 1 + RELU_US)
    assert timing.wait_us["aiv"]["e0"][0] == 0
    # Fetches of three steps, one set.
    assert timing.wait_us["aiv"]["overhead"][0] == pytest.approx(3 + 2)


@BOTH
def test_the_latest_signal_opens_a_gate(hbm: str) -> None:
    """The long task's end is known before the short one's, and comes after it."""
    schedule = program(
        layer_of(),
        (ONE, [work(), Set(0)]),
        (replace(ONE, first=1), [work(small=True), work(small=True), Set(0)]),
        (CUBE, [Wait(0, 2)]),
        events={0: 2},
    )
    timing = simulate(schedule, NOTHING, ROUND, hbm=hbm)
    assert 2 * SMALL_US + 1 < RELU_US
    assert timing.layer_us == pytest.approx(1001 + RELU_US + 2 + 10 + 3)


def test_waiters_of_a_gate_start_in_core_order() -> None:
    """Cores 0 and 1 go on at the same time; core 1 came first, core 0 is served first
    by a memory that serves in turn: 65,536 bytes at 1,000 bytes/us, as the operand is
    in L2."""
    slow = replace(ROUND, hbm_gbps=1.0, hbm_core_gbps=1.0, hbm_write_gbps=1.0)
    code = [Wait(0, 1), work(small=True)]
    schedule = program(
        layer_of(),
        (ONE, [Wait(1, 1), *code]),
        (replace(ONE, first=1), code),
        (CUBE, [Set(1)]),
        (replace(CUBE, first=1), [work(), Set(2)]),
        (replace(CUBE, first=2), [Wait(2, 1), Set(0)]),
        events={0: 1, 1: 1, 2: 1},
    )
    trace = simulate(schedule, NOTHING, slow, hbm="fifo", record=True).trace
    assert trace is not None
    ends = [
        trace.end_us[(trace.unit == 1) & (trace.core == core) & (trace.kind == 0)]
        for core in (0, 1)
    ]
    assert ends[1] - ends[0] == pytest.approx(65.536)


@BOTH
def test_one_core_drives_a_put_at_its_own_rate(hbm: str) -> None:
    """16 bytes at 0.5 bytes/us although the link takes 1."""
    slow = replace(ROUND, put_core_gbps=0.0005)
    schedule = program(layer_of(ep=2), (ONE, [send(group=1)]), groups=((0,), (1,)))
    timing = simulate(schedule, to(2, {(0, 1): 8}), slow, hbm=hbm)
    assert timing.rank_layer_us[1] == pytest.approx(1001 + 32 + 100 + 5 + 10)


@BOTH
def test_remote_put(hbm: str) -> None:
    """Rank 0 sends 8 rows of 2 bytes to rank 1: start 1001, 16 us on the link, 100 hop,
    5 issue, 10 until visible, 3 poll."""
    layer = layer_of(ep=2)
    schedule = program(
        layer,
        (ONE, [send(group=1)]),
        (CUBE, [Wait(0, 1)]),
        events={0: 1},
        groups=((0,), (1,)),
    )
    timing = simulate(schedule, to(2, {(0, 1): 8}), ROUND, hbm=hbm)
    # The memory legs (16 bytes at 1e6 bytes/us) never bind.
    assert timing.rank_layer_us[1] == pytest.approx(1001 + 16 + 100 + 5 + 10 + 3)
    # Rank 1 has nothing to send to rank 0, but its signal comes all the same.
    assert timing.rank_layer_us[0] == pytest.approx(1001 + 100 + 5 + 10 + 3)
    assert timing.egress_bytes.tolist() == [16, 0]
    assert timing.ingress_bytes.tolist() == [0, 16]


@BOTH
def test_put_to_another_node(hbm: str) -> None:
    """As above, but 200 hop and 7 issue; the sender, too, pays that before it ends."""
    apart = replace(ROUND, dies_per_node=1, across_hop_us=200.0, across_gbps=0.001)
    schedule = program(
        layer_of(ep=2),
        (ONE, [send(group=1)]),
        (CUBE, [Wait(0, 1)]),
        events={0: 1},
        groups=((0,), (1,)),
    )
    timing = simulate(schedule, to(2, {(0, 1): 8}), apart, hbm=hbm)
    assert timing.rank_layer_us[1] == pytest.approx(1001 + 16 + 200 + 7 + 10 + 3)
    assert timing.busy_us["aiv"][0] == pytest.approx(16 + 7)


@BOTH
def test_own_rows_need_no_link(hbm: str) -> None:
    slow = replace(ROUND, hbm_gbps=0.001, hbm_core_gbps=0.001, hbm_write_gbps=0.001)
    schedule = program(layer_of(), (ONE, [send()]), (CUBE, [Wait(0, 1)]), events={0: 1})
    timing = simulate(schedule, to(1, {(0, 0): 8}), slow, hbm=hbm)
    # Read and written: 32 bytes at 1 byte/us.
    assert timing.layer_us == pytest.approx(1001 + 32 + 5 + 10 + 3)
    assert timing.egress_bytes.tolist() == [0]
    assert timing.comm_hidden == 1


def test_tiles_of_one_core_follow_each_other() -> None:
    """Two chunks of 4 rows: 8 us each, the second after the issue of the first."""
    schedule = program(
        layer_of(ep=2),
        (ONE, [send(group=1, chunks=2)]),
        (CUBE, [Wait(0, 2)]),
        events={0: 2},
        groups=((0,), (1,)),
    )
    timing = simulate(schedule, to(2, {(0, 1): 8}), ROUND)
    assert timing.rank_layer_us[1] == pytest.approx(1001 + 8 + 5 + 8 + 100 + 5 + 10 + 3)
    assert timing.tasks == 4


def test_put_without_signal_holds_its_core_until_delivery() -> None:
    """Rows are there when the barrier opens: 16 link, 100 hop, 5, fetch 1, then sync 50
    and one hop between ranks."""
    schedule = program(
        layer_of(ep=2),
        (ONE, [send(group=1, event=None), Barrier("world")]),
        (CUBE, [Barrier("world")]),
        groups=((0,), (1,)),
    )
    timing = simulate(schedule, to(2, {(0, 1): 8}), ROUND)
    assert timing.layer_us == pytest.approx(1001 + 16 + 100 + 5 + 1 + 50 + 100)


def test_collective_has_its_own_rate() -> None:
    """16 bytes at 0.5 bytes/us."""
    schedule = program(
        layer_of(ep=2),
        (ONE, [send(group=1, event=None, transport="collective")]),
        groups=((0,), (1,)),
    )
    timing = simulate(schedule, to(2, {(0, 1): 8}), ROUND)
    assert timing.rank_layer_us[1] == pytest.approx(1001 + 32 + 100 + 5 + 10)


def test_barriers_and_launches() -> None:
    """Rank barrier: the slower core arrives after task and fetch; 50 us. With a launch
    another 200. Ranks do not wait for each other."""
    code = [work(), Barrier("rank"), Barrier("rank", launch=True)]
    schedule = program(layer_of(), (ONE, code), (CUBE, code[1:]))
    timing = simulate(schedule, NOTHING, ROUND)
    assert timing.layer_us == pytest.approx(1001 + RELU_US + 1 + 50 + 1 + 50 + 200)
    assert timing.wait_us["aic"]["barrier"][0] == pytest.approx(RELU_US + 1 + 50 + 50)
    assert timing.wait_us["aic"]["launch"][0] == 1000 + 200


def test_bandwidth_is_booked_at_arrival() -> None:
    """Rank 2's 400 rows to rank 0 begin first, in program order too, but their last
    bytes come 800 us later; rank 1's single row does not wait for them."""
    layer = replace(layer_of(ep=3), tokens=(400,) * 3)
    schedule = program(
        layer,
        (ONE, [send(group=1)]),
        (replace(ONE, first=1), [send(group=2)]),
        (CUBE, [Wait(0, 1)]),
        (replace(CUBE, first=1), [Wait(1, 1)]),
        events={0: 1, 1: 1},
        groups=((0,), (1,), (2,)),
    )
    second = replace(schedule.queues[1].code[0], event=1)
    queues = list(schedule.queues)
    queues[1] = replace(queues[1], code=(second,))
    schedule = replace(schedule, queues=tuple(queues))
    counts = to(3, {(2, 0): 400, (1, 0): 1})
    timing = simulate(schedule, counts, ROUND, hbm="fifo", record=True)
    trace = timing.trace
    assert trace is not None
    small = (trace.put_source == 1) & (trace.put_dest == 0)
    assert trace.put_delivered_us[small] == pytest.approx([1001 + 2 + 100 + 5])


def test_incast_is_slower_than_spread() -> None:
    """Four ranks send to one, or each to its neighbour: the receiving link binds."""
    layer = replace(layer_of(ep=4), tokens=(64,) * 4)
    schedule = program(layer, (ONE, [send()]))
    alone = np.roll(np.eye(4, dtype=int), 1, axis=1) * 64
    crowd = to(4, {(1, 0): 64, (2, 0): 64, (3, 0): 64})
    for hbm in ("shared", "fifo"):
        spread_us = simulate(schedule, alone, ROUND, hbm=hbm).layer_us
        crowd_us = simulate(schedule, crowd, ROUND, hbm=hbm).layer_us
        assert crowd_us - spread_us == pytest.approx(2 * 128, rel=0.1)


def test_deadlock_names_who_waits_for_what() -> None:
    """The event needs two signals, one comes."""
    schedule = program(
        layer_of(), (ONE, [Set(0)]), (CUBE, [work(), Wait(0, 2)]), events={0: 2}
    )
    with pytest.raises(SimulationDeadlock) as error:
        simulate(schedule, NOTHING, ROUND)
    assert str(error.value).splitlines() == [
        "deadlock: 1 core waits for ever",
        "rank 0 queue 1 aic[0:1] instruction 1 (hand.moe:7:3): "
        "1 core waiting for e0[0], have 1, need 2",
        "root cause: e0[0] of rank 0 needs 2 signals, the program sends 1",
    ]


def test_deadlock_at_a_barrier_that_one_queue_lacks() -> None:
    schedule = program(layer_of(), (ONE, [Barrier("rank")]), (CUBE, [work()]))
    with pytest.raises(SimulationDeadlock, match=r"rank barrier 0, have 1, need 2"):
        simulate(schedule, NOTHING, ROUND)


def test_cycle_of_waits_across_queues() -> None:
    schedule = program(
        layer_of(),
        (ONE, [Wait(0, 1), Set(1)]),
        (CUBE, [Wait(1, 1), Set(0)]),
        events={0: 1, 1: 1},
    )
    with pytest.raises(SimulationDeadlock, match="2 cores wait for ever"):
        simulate(schedule, NOTHING, ROUND)


@BOTH
def test_no_rows_at_all_still_runs_to_the_end(hbm: str) -> None:
    schedule = standard_schedule(small_layer(), ((0,), (1,)), chunks=3)
    timing = simulate(schedule, np.zeros((2, 4), int), ROUND, hbm=hbm)
    assert timing.egress_bytes.sum() == 0
    assert timing.comm_hidden == 1
    # Put tiles (2 x 2 x 3 to dispatch, as many to combine) and the reduce of 16 tokens.
    assert timing.tasks == 2 * (24 + 1)


def test_unknown_sharing_and_wrong_counts_are_refused() -> None:
    schedule = program(layer_of(), (ONE, [work()]))
    with pytest.raises(ValueError, match="'shared' or 'fifo', got 'fair'"):
        simulate(schedule, NOTHING, ROUND, hbm="fair")
    with pytest.raises(ValueError, match="counts must be"):
        simulate(schedule, np.zeros((2, 1), int), ROUND)


def test_unknown_operator_is_named() -> None:
    odd = replace(work(), op="fft")
    with pytest.raises(KeyError, match="no cost for operator 'fft'"):
        simulate(program(layer_of(), (ONE, [odd])), NOTHING, ROUND)


def test_hidden_share_by_hand() -> None:
    """Matrix cores are busy from 1001 on, for less than the hop of 100. Rank 0's link
    is busy from 1001 to 1017, all hidden; rank 1's from 1101 to 1117, all exposed."""
    assert 16 < RELU_US < 100
    schedule = program(
        layer_of(ep=2),
        (ONE, [send(group=1)]),
        (CUBE, [work()]),
        groups=((0,), (1,)),
    )
    timing = simulate(schedule, to(2, {(0, 1): 8}), ROUND)
    assert timing.comm_hidden == pytest.approx(0.5)


def test_a_rank_takes_part_in_what_it_sends_and_receives() -> None:
    """All tokens are rank 1's, all experts that they choose rank 0's: rank 0 gets
    nothing back, but its latency lasts until its rows are home."""
    layer = small_layer(hidden=2048, intermediate=512)
    counts = np.array([[0, 0, 0, 0], [16, 16, 0, 0]])
    timing = simulate(standard_schedule(layer), counts, ROUND)
    assert timing.rank_latency_us[0] == timing.rank_latency_us[1] == timing.latency_us
