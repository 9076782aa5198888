"""A part of the mutation suite, and what must hold for the oracle to mean something."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpc.schedule.check import CHECKS, check_schedule
from hpc.schedule.policy import POLICIES
from tests.safety.bases import BASES, RANDOM, twin
from tests.safety.mutate import CLASSES, ONE_RANK
from tests.safety.oracle import REASONS
from tests.safety.suite import Tally, describe, limits_of, run_suite

COUNT = 1050
RARE = ("late", "relaunch", "other")


@pytest.fixture(scope="module")
def tally() -> Tally:
    return run_suite(COUNT, seed=7)


def test_no_unsafe_mutant_is_accepted(tally: Tally) -> None:
    found = [describe(j) for j in tally.disagreements if j.false_accept]
    assert not found, "\n".join(found)


def test_hardly_any_safe_mutant_is_rejected(tally: Tally) -> None:
    found = [describe(j) for j in tally.disagreements if j.false_reject]
    # The suite's own bound is 1 %; two or three cases in so few are chance.
    assert len(found) * 100 <= 2 * tally.total()["safe"], "\n".join(found)


def test_every_class_has_mutants_and_both_verdicts_occur(tally: Tally) -> None:
    assert set(tally.by_class) == {*CLASSES, ONE_RANK}
    assert tally.total()["mutants"] == COUNT
    assert all(row["mutants"] >= COUNT // 60 for row in tally.by_class.values())
    assert tally.total()["safe"] >= COUNT // 10
    common = [kind for kind in REASONS if kind not in RARE]
    assert all(tally.reasons[kind] >= 10 for kind in common), tally.reasons


@pytest.mark.parametrize("name", [*sorted(BASES), *RANDOM])
def test_the_bases_are_accepted(name: str) -> None:
    """The oracle has judged them when `twin` made it: see `Oracle.__init__`."""
    known = twin(name)
    limits = limits_of(known.oracle.machine)
    report = check_schedule(known.schedule, limits, known.oracle.counts)
    assert report.ok, report.violations
    assert report.unchecked == {}


def test_the_bases_cover_what_the_suite_promises() -> None:
    schedules = [twin(name).schedule for name in BASES]
    assert len(schedules) >= 20
    assert {s.policy for s in schedules} == set(POLICIES)
    assert {s.machine for s in schedules} >= {"ascend_a3", "ascend_a2"}
    assert {len(s.groups) for s in schedules if s.layer.ep == 3} == {1, 2, 3}
    assert any(s.layer.experts % s.layer.ep for s in schedules)
    assert {s.layer.weights_at for s in schedules} == {"input", "output"}
    assert {s.mode for s in schedules} == {"forward", "backward", "train"}


def test_no_unsafe_mutant_is_accepted_when_signals_may_overtake_data() -> None:
    """The relaxed mode of oracle and checker, and that it is stricter."""
    relaxed, strict = run_suite(240, 5, relaxed=True), run_suite(240, 5)
    found = [describe(j) for j in relaxed.disagreements if j.false_accept]
    assert not found, "\n".join(found)
    assert relaxed.total()["safe"] < strict.total()["safe"]


def test_the_suite_is_the_same_every_time() -> None:
    assert run_suite(60, seed=3).table() == run_suite(60, seed=3).table()


@pytest.mark.parametrize("name", ["structure", "deadlock", "coverage", "races"])
def test_a_checker_without_one_of_its_checks_is_found_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite itself can fail: each of these checks is missed at once."""
    left = tuple(
        replace(check, run=lambda subject: []) if check.name == name else check
        for check in CHECKS
    )
    monkeypatch.setattr("hpc.schedule.check.CHECKS", left)
    found = run_suite(150, seed=5)
    assert any(judged.false_accept for judged in found.disagreements)
