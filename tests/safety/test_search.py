"""One execution with vector clocks says what all interleavings together say."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from hpc.schedule.model import Schedule, Wait
from tests.builders import dropped, edited
from tests.safety.execution import Execution, Outcome
from tests.safety.mini import IDS, mini, mini_serial
from tests.safety.mutate import CLASSES, mutate
from tests.safety.oracle import instructions
from tests.safety.rows import Illegal
from tests.safety.search import Found, search
from tests.safety.tiles import Tiles

MINIS = {
    "one core": mini(),
    "two cores": mini(aic=2),
    "two chunks": mini(chunks=2),
    "barriers": mini_serial(),
}


def both(programs: list[Schedule]) -> tuple[Outcome, Found]:
    """The two verdicts; Illegal if there is nothing to execute."""
    tiles = [Tiles(s, IDS) for s in programs]
    return Execution(programs, [tiles]).run(), search(programs, tiles)


def joins_all(programs: list[Schedule], outcome: Outcome) -> bool:
    """Whether every wait is for all signals that arrive."""
    return all(
        instr.need == outcome.arrived[rank].get(instr.event, 0)
        for rank, s in enumerate(programs)
        for instr in instructions(s)
        if isinstance(instr, Wait)
    )


@pytest.mark.parametrize("name", MINIS)
def test_the_small_schedules_are_safe(name: str) -> None:
    outcome, found = both([MINIS[name]] * 2)
    assert not outcome.hang
    assert outcome.races + outcome.wrong + outcome.late == []
    assert (found.hang, found.race) == (False, False)


def test_one_execution_agrees_with_all_interleavings() -> None:
    """On mutants of every class. With thresholds below all signals an execution may
    miss a race, but finds none that is not there."""
    rng = Random(0)
    seen: Counter[str] = Counter()
    for turn in range(600):
        base = MINIS[rng.choice(list(MINIS))]
        cls = rng.choice(list(CLASSES))
        mutant = mutate(base, cls, rng)
        if mutant is None:
            continue
        programs = list(mutant.programs)
        if turn % 4 == 0:
            programs[0] = base
        try:
            outcome, found = both(programs)
        except (Illegal, KeyError, IndexError):
            continue
        assert bool(outcome.hang) == found.hang, (mutant.name, programs)
        if found.hang:
            seen["hang"] += 1
        elif joins_all(programs, outcome):
            assert bool(outcome.races) == found.race, (mutant.name, programs)
            seen["race" if found.race else "safe"] += 1
        else:
            assert found.race or not outcome.races, (mutant.name, programs)
            seen["low race" if found.race else "low safe"] += 1
    assert min(seen[kind] for kind in ("hang", "race", "safe", "low race")) >= 10, seen


def test_a_threshold_below_all_signals_races_in_some_order() -> None:
    """One of two cores has signalled: the reader may come too early, or not."""
    s = mini(aic=2)
    for q, i in [(2, 0)]:
        wait = s.queues[q].code[i]
        assert isinstance(wait, Wait)
        s = edited(s, q, i, need=wait.need - 1)
    _, found = both([s, s])
    assert found.race
    assert not found.hang


def test_a_missing_wait_races_and_a_missing_signal_hangs() -> None:
    s = mini()
    outcome, found = both([dropped(s, 2, 0)] * 2)
    assert outcome.races
    assert found.race
    outcome, found = both([dropped(s, 0, 2)] * 2)
    assert outcome.hang
    assert found.hang
