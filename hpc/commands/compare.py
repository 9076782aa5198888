"""`hpc compare`: the scheduling policies of one layer side by side."""

from __future__ import annotations

import argparse
import sys

from hpc.commands.check import show_checked
from hpc.commands.errors import FAILED, OK, UsageError
from hpc.commands.inputs import is_schedule, open_schedule
from hpc.commands.measure import check, measure
from hpc.commands.outputs import show, show_json
from hpc.commands.progress import Progress
from hpc.schedule.policy import POLICIES


def run(args: argparse.Namespace) -> int:
    """Compile, check and simulate with every policy; status 1 if a check fails."""
    from hpc.report.summary import PolicyReport, RunReport, compare_json

    if is_schedule(args.file):
        raise UsageError(f"'{args.file}' is compiled already; compare a .moe file")
    reports: list[PolicyReport] = []
    with Progress() as progress:
        for policy in POLICIES:
            progress.step(f"compiling {args.file} ({policy})")
            checked = check(open_schedule(args.file, policy=policy))
            if not checked.ok:
                break
            reports.append(measure(checked, progress).report)
    if not checked.ok:
        show_checked(args.file, checked, as_json=args.json)
        return FAILED
    report = RunReport(args.file, tuple(reports))
    if args.json:
        show_json(compare_json(report))
    else:
        from hpc.report.text import compare_text

        show(compare_text(report, color=sys.stdout.isatty()))
    return OK if report.ok else FAILED
