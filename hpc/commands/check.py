"""`hpc check`: every check of a schedule, every violation with its witness."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from hpc.commands.errors import FAILED, OK
from hpc.commands.inputs import open_schedule
from hpc.commands.measure import Checked, check
from hpc.commands.outputs import show, show_json, show_table
from hpc.commands.progress import Progress


def run(args: argparse.Namespace) -> int:
    """Print a verdict per check; status 1 if there is a violation."""
    with Progress() as progress:
        progress.step(f"checking {args.file}")
        opened = open_schedule(args.file, policy=args.policy, pipeline=args.pipeline)
        checked = check(opened)
    show_checked(args.file, checked, as_json=args.json)
    return OK if checked.ok else FAILED


def show_checked(file: str, checked: Checked, *, as_json: bool) -> None:
    """The verdicts, then the violations in full."""
    if as_json:
        show_json(checked_json(file, checked))
        return
    from hpc.schedule.check import CHECKS

    show(describe_checked(file, checked))
    rows = [[c.name, _verdict(checked, c.name), c.doc] for c in CHECKS]
    show_table(["check", "verdict", "means"], rows)
    violations = checked.report.violations
    for violation in violations:
        show(violation.render())
    count = len(violations)
    show(f"{file}: {count} violation{'' if count == 1 else 's'}")


def describe_checked(file: str, checked: Checked) -> str:
    """What was checked, in a line."""
    s = checked.schedule
    return f"{file}: layer {s.layer.name}, policy {s.policy}, {s.layer.ep} ranks"


def _verdict(checked: Checked, name: str) -> str:
    verdict = checked.verdicts[name]
    if verdict is None:
        return checked.report.unchecked[name]
    return "ok" if verdict else "FAILED"


def checked_json(file: str, checked: Checked) -> dict[str, object]:
    """The verdicts and violations of one schedule."""
    schedule = checked.schedule
    return {
        "layer": schedule.layer.name,
        "source": file,
        "machine": schedule.machine,
        "mode": schedule.mode,
        "policy": schedule.policy,
        "ranks": schedule.layer.ep,
        "ok": checked.ok,
        "checks": checked.report.checks,
        "not_checked": checked.report.unchecked,
        "violations": [asdict(violation) for violation in checked.report.violations],
    }
