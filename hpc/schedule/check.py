"""All checks of a schedule, and the verdict of each.

Nothing here runs the compiler; a file from anywhere can be checked. Every check
collects all violations, whatever the size of the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy.typing as npt

from hpc.schedule.checks import (
    coverage,
    deadlock,
    events,
    fit,
    header,
    joins,
    params,
    races,
    ranks,
    references,
    relaunch,
    traffic,
    uses,
)
from hpc.schedule.checks.clocks import Clocks
from hpc.schedule.checks.index import Index, Limits
from hpc.schedule.checks.report import CheckReport, Violation
from hpc.schedule.checks.router import Router
from hpc.schedule.checks.traffic import check_bytes
from hpc.schedule.model import Schedule

__all__ = [
    "CHECKS",
    "RULES",
    "CheckReport",
    "Limits",
    "Violation",
    "check_bytes",
    "check_schedule",
]


@dataclass(frozen=True)
class Subject:
    """One program, on a machine, for a routing. `relaxed`: signals of puts may
    overtake the data of earlier puts."""

    s: Schedule
    index: Index
    dangling: list[Violation]
    limits: Limits
    counts: npt.ArrayLike | None
    relaxed: bool = False

    @classmethod
    def of(
        cls,
        s: Schedule,
        limits: Limits,
        counts: npt.ArrayLike | None = None,
        relaxed: bool = False,
    ) -> Subject:
        """The routing is `counts`, or a table that the schedule brings itself."""
        if counts is None and s.routing.kind == "counts":
            counts = s.routing.counts
        index = Index(s)
        dangling = references.check_references(index)
        return cls(s, index, dangling, limits, counts, relaxed)

    @cached_property
    def clocks(self) -> Clocks:
        return Clocks(self.index)


@dataclass(frozen=True, slots=True)
class Check:
    """A check by name. `needs_counts`: it is about one routing table; `needs_end`: it
    says nothing about a schedule that hangs."""

    name: str
    run: Callable[[Subject], list[Violation]]
    doc: str
    needs_counts: bool = False
    needs_end: bool = False


def _structure(subject: Subject) -> list[Violation]:
    """References come first: the rest cannot be looked up without them."""
    found = list(subject.dangling)
    if not found:
        router = Router(subject.index)
        found += fit.check_fit(subject.index, subject.limits, router)
        found += header.check_header(subject.index, router)
        found += params.check_params(subject.index)
        found += joins.check_joins(subject.index, subject.limits)
    return found


def _coverage(subject: Subject) -> list[Violation]:
    return coverage.check_coverage(subject.index) + uses.check_uses(subject.index)


def _bytes(subject: Subject) -> list[Violation]:
    assert subject.counts is not None
    return check_bytes(subject.s, subject.counts)


CHECKS: tuple[Check, ...] = (
    Check("structure", _structure, "references, operands, teams, thresholds, barriers"),
    Check(
        "deadlock",
        lambda subject: deadlock.check_deadlock(subject.s),
        "every queue of every rank reaches its end",
    ),
    Check(
        "coverage",
        _coverage,
        "every part that matters is written exactly once, and read",
    ),
    Check(
        "bytes",
        _bytes,
        "bytes sent are bytes received, and fit; for one routing table",
        needs_counts=True,
    ),
    Check(
        "events",
        lambda subject: events.check_events(subject.index, subject.limits),
        "counters fit the machine and have one purpose each",
    ),
    Check(
        "races",
        lambda subject: races.check_races(
            subject.index, subject.clocks, subject.relaxed
        ),
        "conflicting accesses are ordered, across ranks",
        needs_end=True,
    ),
    Check(
        "relaunch",
        lambda subject: relaunch.check_relaunch(
            subject.index, subject.clocks, subject.relaxed
        ),
        "a launch may begin on a rank while others are in the last",
        needs_end=True,
    ),
)
"""In the order in which reports show them."""

RULES: dict[str, str] = {
    **references.RULES,
    **fit.RULES,
    **header.RULES,
    **params.RULES,
    **joins.RULES,
    **ranks.RULES,
    **deadlock.RULES,
    **coverage.RULES,
    **uses.RULES,
    **traffic.RULES,
    **events.RULES,
    **races.RULES,
    **relaunch.RULES,
}
"""The rule that each violation code stands for, in words."""


def check_schedule(
    s: Schedule,
    limits: Limits,
    counts: npt.ArrayLike | None = None,
    programs: Sequence[Schedule] | None = None,
    *,
    relaxed: bool = False,
) -> CheckReport:
    """Runs every check that can run.

    `counts` [ranks, experts] is the routing table for the check of bytes; without it a
    routing of kind "counts" brings its own. `programs` has the program of each rank if
    they may differ, `s` being what all should run: each is checked, the deadlock check
    replays them together. `relaxed` assumes less of the network: only a put's own
    signal or a world barrier tells that its data is there. ValueError if `counts` has
    another shape.
    """
    report = _check_one(Subject.of(s, limits, counts, relaxed))
    if programs is None:
        return report
    others = {id(program): program for program in programs if program != s}
    reports = {
        key: _check_one(Subject.of(program, limits, counts, relaxed))
        for key, program in others.items()
    }
    return ranks.merged(s, report, programs, reports)


def _check_one(subject: Subject) -> CheckReport:
    verdicts: dict[str, bool] = {}
    unchecked: dict[str, str] = {}
    violations: list[Violation] = []
    for check in CHECKS:
        reason = _obstacle(check, subject)
        if reason:
            unchecked[check.name] = reason
            continue
        found = check.run(subject)
        verdicts[check.name] = not found
        violations += found
    return CheckReport(verdicts, tuple(violations), unchecked)


def _obstacle(check: Check, subject: Subject) -> str:
    """Why a check cannot run, or nothing."""
    if subject.dangling and check.name != "structure":
        return "not checked: the structure has dangling references"
    if check.needs_counts and subject.counts is None:
        return "not checked: no routing table was given"
    if check.needs_end and subject.clocks.stuck:
        return "not checked: the schedule hangs"
    return ""
