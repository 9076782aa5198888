"""Faults in a simulated run, and the explanation of hangs, on hand-made programs."""

from __future__ import annotations

import numpy as np
import pytest

from hpc.interp.engine import SimulationDeadlock, simulate
from hpc.interp.inject import (
    DeadRank,
    Delay,
    DropSignal,
    FaultError,
    SlowCore,
    check_faults,
    parse_fault,
)
from hpc.machine.record import load_machine
from hpc.schedule.model import Barrier, Set, Wait
from tests.builders import inserted, serial_schedule, small_layer, standard_schedule
from tests.timing.tiny import CUBE, ONE, ROUND, layer_of, program, work

NOTHING = np.zeros((1, 1), dtype=int)
MACHINE = load_machine("ascend_a3")
COUNTS = np.full((2, 4), 8)
STANDARD = standard_schedule(small_layer(), ((0,), (1,)), chunks=2)


def roots(schedule, counts, machine, *faults) -> tuple[str, ...]:
    """Root causes of the hang that must come."""
    with pytest.raises(SimulationDeadlock) as error:
        simulate(schedule, counts, machine, faults=faults)
    return error.value.hang.roots


@pytest.mark.parametrize("hbm", ["shared", "fifo"])
@pytest.mark.parametrize("us", [0.25, 3.0, 1000.0])
def test_a_delay_adds_exactly_its_length_to_the_only_task(hbm: str, us: float) -> None:
    schedule = program(layer_of(), (ONE, [work()]))
    before = simulate(schedule, NOTHING, ROUND, hbm=hbm)
    after = simulate(schedule, NOTHING, ROUND, hbm=hbm, faults=[Delay(0, 0, us)])
    assert after.layer_us - before.layer_us == pytest.approx(us)
    assert after.busy_us["aiv"][0] - before.busy_us["aiv"][0] == pytest.approx(us)


def test_no_fault_is_the_same_as_an_empty_one() -> None:
    """The disturbed loop and the ordinary one give the same times."""
    plain = simulate(STANDARD, COUNTS, MACHINE)
    faults = [Delay(0, 1, 0.0), SlowCore("aic", 0, 1.0)]
    same = simulate(STANDARD, COUNTS, MACHINE, faults=faults)
    assert (plain.latency_us, plain.layer_us) == (same.latency_us, same.layer_us)
    assert plain.wait_us.keys() == same.wait_us.keys()


def test_a_delay_on_one_rank_is_felt_by_the_other() -> None:
    plain = simulate(STANDARD, COUNTS, MACHINE)
    late = simulate(STANDARD, COUNTS, MACHINE, faults=[Delay(1, 0, 40.0, rank=1)])
    assert late.rank_layer_us[0] > plain.rank_layer_us[0] + 30


def test_a_signal_that_is_dropped_on_every_rank() -> None:
    assert roots(STANDARD, COUNTS, MACHINE, DropSignal("returned")) == (
        "a signal to returned of rank 0 was dropped (injected)",
        "a signal to returned of rank 1 was dropped (injected)",
    )


def test_two_faults_are_two_root_causes() -> None:
    faults = (DeadRank(1), DropSignal("up_done[0,0]", 0))
    assert roots(STANDARD, COUNTS, MACHINE, *faults) == (
        "rank 1 is dead (injected): its cores never start",
        "a signal to up_done[0,0] of rank 0 was dropped (injected)",
    )


def test_a_cycle_is_shown_from_wait_to_wait() -> None:
    schedule = program(
        layer_of(),
        (ONE, [Wait(0, 1), Set(1)]),
        (CUBE, [Wait(1, 1), Set(0)]),
        events={0: 1, 1: 1},
    )
    assert roots(schedule, NOTHING, ROUND) == (
        "a cycle of waits: rank 0 queue 0 instruction 0 (wait e0[0] >= 1) <- "
        "rank 0 queue 1 instruction 0 (wait e1[0] >= 1) <- "
        "rank 0 queue 0 instruction 0 (wait e0[0] >= 1)",
    )


def test_a_queue_that_ends_before_a_barrier() -> None:
    schedule = serial_schedule(small_layer())
    longer = inserted(schedule, 0, len(schedule.queues[0].code), Barrier("world"))
    assert roots(longer, COUNTS, MACHINE) == (
        "rank 0 queue 1 ends without coming to world barrier 6",
        "rank 1 queue 1 ends without coming to world barrier 6",
    )


def test_blocked_waits_last_until_nothing_moves() -> None:
    with pytest.raises(SimulationDeadlock) as error:
        simulate(STANDARD, COUNTS, MACHINE, faults=[DeadRank(1)])
    run, until_us = error.value.run, error.value.until_us
    assert until_us == pytest.approx(float(run.start.max()))
    assert until_us >= float(run.end.max())


@pytest.mark.parametrize(
    "text",
    [
        "drop-signal:arrived[0,1]@1", "drop-signal:returned", "delay:1:0:2.5",
        "delay:1:0:3@0", "slow-core:aiv:47:1.5@1", "dead-rank:0",
    ],
)  # fmt: skip
def test_faults_are_written_as_they_are_read(text: str) -> None:
    fault = parse_fault(text)
    assert str(fault) == text
    check_faults([fault], STANDARD)


def test_an_event_name_with_an_at_sign_keeps_its_rank_apart() -> None:
    assert parse_fault("drop-signal:e@f@1") == DropSignal("e@f", 1)
    with pytest.raises(FaultError, match="no event 'e@f'"):
        check_faults([DropSignal("e@f", 1)], STANDARD)
