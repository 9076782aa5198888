"""`hpc check`: every check of a schedule, every violation with its witness."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from hpc.commands.errors import FAILED, OK, UsageError, suggestion
from hpc.commands.inputs import open_schedule
from hpc.commands.measure import Checked, check
from hpc.commands.outputs import note, show, show_json, show_table
from hpc.commands.progress import Progress

if TYPE_CHECKING:
    from hpc.schedule.certificate import Certificate


def run(args: argparse.Namespace) -> int:
    """Print a verdict per check; status 1 if there is a violation.

    With `--explain`, what a code means instead.
    """
    if args.explain is not None:
        return _explain(args)
    if args.file is None:
        raise UsageError("check needs a FILE, or --explain CODE")
    with Progress() as progress:
        progress.step(f"checking {args.file}")
        opened = open_schedule(args.file, policy=args.policy, pipeline=args.pipeline)
        checked = check(opened, relaxed=args.relaxed)
        other = None if args.against is None else _other_sums(checked, args.against)
    if other is not None and args.json:
        show_json({**checked_json(checked), "against": asdict(other)})
    else:
        show_checked(checked, as_json=args.json)
    if other is not None and not args.json:
        show(f"{args.file}: {other.text}")
    same = other is None or other.difference is None
    return OK if checked.ok and same else FAILED


@dataclass(frozen=True)
class _OtherSums:
    """Another schedule, and the first sum that it makes otherwise, if any."""

    source: str
    difference: str | None

    @property
    def text(self) -> str:
        if self.difference is None:
            return f"sums as {self.source} does"
        return f"error: does not sum as {self.source} does: {self.difference}"


def _other_sums(checked: Checked, file: str) -> _OtherSums:
    """Compares the order of sums with that of `file`; names must not dangle."""
    from hpc.schedule.certificate import first_difference

    mine, other = _certificate(checked), check(open_schedule(file))
    theirs = _certificate(other)
    if mine is None or theirs is None:
        broken = checked.opened.file if mine is None else file
        return _OtherSums(file, f"{broken} names what it does not declare")
    return _OtherSums(file, first_difference(mine, theirs))


def _explain(args: argparse.Namespace) -> int:
    if args.file is not None:
        raise UsageError("--explain takes no FILE")
    if args.against is not None:
        raise UsageError("--explain and --against exclude each other")
    from hpc.schedule.explain import EXAMPLES, explain

    if args.explain not in EXAMPLES:
        hint = suggestion(args.explain, list(EXAMPLES))
        known = ", ".join(EXAMPLES)
        raise UsageError(
            f"unknown violation code '{args.explain}'{hint or f'; there are {known}'}"
        )
    explanation = explain(args.explain)
    if args.json:
        show_json(asdict(explanation))
        return OK
    show(f"{explanation.code} (check: {explanation.check})")
    show(f"rule: {explanation.rule}")
    show(f'rejected: the safe schedule "{explanation.safe}" with these edits')
    for line in explanation.edits:
        show(f"    {line}")
    show("because")
    for line in explanation.violation.render().splitlines():
        show(f"    {line}")
    show(f"fix: {explanation.fix}")
    return OK


def refuse(checked: Checked, *, as_json: bool) -> int:
    """For commands that go on after the checks: an unsafe schedule is not run."""
    show_checked(checked, as_json=as_json)
    where = f"{checked.opened.file}: error: policy {checked.schedule.policy}"
    note(f"{where}: not run, because a check failed")
    return FAILED


def show_checked(checked: Checked, *, as_json: bool) -> None:
    """The verdicts, then the violations in full."""
    if as_json:
        show_json(checked_json(checked))
        return
    from hpc.schedule.check import CHECKS

    s, file = checked.schedule, checked.opened.file
    show(f"{file}: layer {s.layer.name}, policy {s.policy}, {s.layer.ep} ranks")
    rows = [[c.name, _verdict(checked, c.name), c.doc] for c in CHECKS]
    show_table(["check", "verdict", "means"], rows)
    for line in _facts(checked):
        show(line)
    violations = checked.report.violations
    for violation in violations:
        show(violation.render())
    count = len(violations)
    show(f"{file}: {count} violation{'' if count == 1 else 's'}")


def _facts(checked: Checked) -> list[str]:
    """What else is proven: the order of sums, and for which routings there is room."""
    certificate = _certificate(checked)
    if certificate is None:
        return []
    from hpc.schedule.overflow import room

    order = f"reduction order: {certificate.digest}"
    return [order, *(f"room: {line}" for line in room(checked.schedule))]


def _certificate(checked: Checked) -> Certificate | None:
    """None if names dangle, as `coverage` then does not run either."""
    if "coverage" not in checked.report.checks:
        return None
    from hpc.schedule.certificate import certify

    return certify(checked.schedule)


def _verdict(checked: Checked, name: str) -> str:
    if name in checked.report.unchecked:
        return checked.report.unchecked[name]
    return "ok" if checked.report.checks[name] else "FAILED"


def checked_json(checked: Checked) -> dict[str, object]:
    """The verdicts and violations of one schedule."""
    from hpc.schedule.overflow import room

    schedule = checked.schedule
    certificate = _certificate(checked)
    return {
        "layer": schedule.layer.name,
        "source": checked.opened.file,
        "machine": schedule.machine,
        "mode": schedule.mode,
        "policy": schedule.policy,
        "ranks": schedule.layer.ep,
        "ok": checked.ok,
        "checks": checked.report.checks,
        "not_checked": checked.report.unchecked,
        "reduction_order": None if certificate is None else certificate.digest,
        "sums": [] if certificate is None else list(certificate.lines),
        "room": [] if certificate is None else room(schedule),
        "violations": [asdict(violation) for violation in checked.report.violations],
    }
