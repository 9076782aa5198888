"""What each violation means: a rejected example and its fix, for `check --explain`.

An example is a list of edits of one of two small safe schedules (`flags`, `barriers`).
Nothing about it is written down but the edits and the fix: what changes is the
difference of the two schedules, and what is said about it is what the checker says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpc.schedule.check import RULES, Limits, Violation, check_schedule
from hpc.schedule.diff import diff_schedules
from hpc.schedule.explain.edits import Edit, base
from hpc.schedule.explain.in_order import IN_ORDER
from hpc.schedule.explain.in_shape import IN_SHAPE
from hpc.schedule.layout import Ints
from hpc.schedule.model import Schedule

__all__ = ["EXAMPLES", "Explanation", "explain", "rejected"]

EXAMPLES = {**IN_SHAPE, **IN_ORDER}
"""Violation code to its example; a test holds it against the table of rules."""

_LIMITS = Limits(64, 24, 48, ("bf16", "fp16"))
_FEW_TASKS = Limits(64, 24, 48, ("bf16", "fp16"), max_tasks=6)


@dataclass(frozen=True)
class Explanation:
    """A rule, the edits that break it, as a difference; what is found; and the fix."""

    code: str
    check: str
    rule: str
    safe: str
    edits: tuple[str, ...]
    violation: Violation
    fix: str


def explain(code: str) -> Explanation:
    """The explanation of a violation code; KeyError if there is no such code."""
    example = EXAMPLES[code]
    safe = base(example.base)
    bad, violations = rejected(code)
    found = next(each for each in violations if each.code == code)
    lines = tuple(diff_schedules(safe, bad)) or ("nothing but the machine",)
    return Explanation(
        code, found.check, RULES[code], example.base, lines, found, example.fix
    )


def rejected(code: str) -> tuple[Schedule, tuple[Violation, ...]]:
    """The broken schedule of an example and all that is found in it."""
    example = EXAMPLES[code]
    safe = base(example.base)
    bad = _edited(safe, example.edits)
    programs: list[Schedule] | None = None
    if example.one_rank:
        programs = [safe, bad]
    elif example.missing_rank:
        programs = [safe]
    counts = np.full((safe.layer.ep, safe.layer.experts), 2)
    limits = _FEW_TASKS if example.few_tasks else _LIMITS
    checked = safe if programs else bad
    report = check_schedule(checked, limits, _fitting(checked, counts), programs)
    return bad, report.violations


def _fitting(s: Schedule, counts: Ints) -> Ints | None:
    """Nothing if the layer was edited, which the table then does not fit."""
    return counts if counts.shape == (s.layer.ep, s.layer.experts) else None


def _edited(s: Schedule, edits: tuple[Edit, ...]) -> Schedule:
    for edit in edits:
        s = edit(s)
    return s
