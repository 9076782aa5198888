"""`hpc compare`: the scheduling policies of one layer side by side."""

from __future__ import annotations

import argparse
import sys

from hpc.commands.check import refuse
from hpc.commands.errors import UsageError
from hpc.commands.inputs import is_schedule
from hpc.commands.measure import (
    Checked,
    Measured,
    Simulation,
    check_all,
    measure_all,
    report_on,
    verdict,
)
from hpc.commands.outputs import show, show_json
from hpc.commands.partial import show_partial
from hpc.commands.progress import Progress
from hpc.schedule.policy import POLICIES


def run(args: argparse.Namespace) -> int:
    """Compile, check and simulate with every policy; status 1 if a check fails."""
    from hpc.report.summary import compare_json
    from hpc.report.text import compare_text

    if is_schedule(args.file):
        raise UsageError(f"'{args.file}' is compiled already; compare a .moe file")
    checked: list[Checked] = []
    measured: list[Measured] = []
    try:
        with Progress() as progress:
            checked = check_all(args.file, POLICIES, None, progress)
            if checked[-1].ok:
                how = Simulation(dispatch=args.dispatch)
                for one in measure_all(checked, {}, progress, how):
                    measured.append(one)
    except KeyboardInterrupt as interrupt:
        return show_partial(args, checked, measured, interrupt)
    if not checked[-1].ok:
        return refuse(checked[-1], as_json=args.json)
    report = report_on(args.file, measured, args.dispatch)
    if args.json:
        show_json(compare_json(report))
    else:
        show(compare_text(report, color=sys.stdout.isatty()))
    return verdict(report)
