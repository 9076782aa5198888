"""Ranks that do not all run the same program: what differs, and one report for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpc.schedule.checks.deadlock import check_deadlock
from hpc.schedule.checks.report import CheckReport, Violation
from hpc.schedule.model import Schedule

CHECK = "structure"
RULES = {
    "program-count": "There is one program for each rank.",
    "program-differs": "All ranks run one program, with the same shared fields.",
}


def merged(
    s: Schedule,
    report: CheckReport,
    programs: Sequence[Schedule],
    others: Mapping[int, CheckReport],
) -> CheckReport:
    """The report for ranks that run `programs` where all should run `s`.

    `report` is that of `s`, `others` those of the other programs by `id`. What they
    say of a hang if *all* ranks ran them is dropped for a replay of all together.
    """
    found = [each for each in report.violations if each.check != "deadlock"]
    unchecked = dict(report.unchecked)
    for rank, program in enumerate(programs):
        other = others.get(id(program))
        if other is None:
            continue
        unchecked |= other.unchecked
        found += [
            replace(each, rank=rank if each.rank is None else each.rank)
            for each in other.violations
            if each.check != "deadlock"
        ]
    found += _globals(s, programs)
    if len(programs) != s.layer.ep:
        unchecked["deadlock"] = "not checked: there is no program for each rank"
    if "deadlock" not in unchecked:
        found += check_deadlock(s, programs)
    broken = {each.check for each in found}
    checks = {
        name: name not in broken for name in report.checks if name not in unchecked
    }
    return CheckReport(checks, tuple(found), unchecked)


def _globals(s: Schedule, programs: Sequence[Schedule]) -> list[Violation]:
    """Ranks that run something else than `s`.

    What is proven about ordering across ranks is proven for one program that all run.
    """
    # Most schedules are one program; checking them need not load these.
    from hpc.schedule.diff import diff_schedules
    from hpc.schedule.writer import globals_hash

    found: list[Violation] = []
    if len(programs) != s.layer.ep:
        message = f"{len(programs)} programs for {s.layer.ep} ranks"
        found.append(Violation("program-count", CHECK, message))
    wanted = globals_hash(s)
    for rank, program in enumerate(programs):
        if program is s or program == s:
            continue
        shared = globals_hash(program) == wanted
        if shared and (program.queues, program.buffers) == (s.queues, s.buffers):
            continue
        same_remarks = replace(program, notes=s.notes, pipeline=s.pipeline)
        lines = tuple(diff_schedules(s, same_remarks))
        what = "runs another program" if shared else "has other global fields"
        message = f"rank {rank} {what}: {lines[0]}"
        found.append(
            Violation("program-differs", CHECK, message, rank=rank, witness=lines)
        )
    return found
