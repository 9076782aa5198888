"""`hpc run --sensitivity`: what the simulated latencies and their ranking hang on."""

from __future__ import annotations

import argparse
import sys

from hpc.commands.check import refuse
from hpc.commands.errors import INTERRUPTED, OK, UsageError
from hpc.commands.inputs import is_schedule
from hpc.commands.measure import check_all
from hpc.commands.outputs import show, show_json
from hpc.commands.progress import Progress
from hpc.schedule.policy import POLICIES


def run_sensitivity(args: argparse.Namespace, asked: list[str | None]) -> int:
    """Disturb the policies asked for, or all of a layer; status 1 if a check fails."""
    if args.trace:
        raise UsageError("--sensitivity is many runs; --trace shows one")
    from hpc.interp.sensitivity import sensitivity
    from hpc.report.sensitivity import sensitivity_json, sensitivity_text

    policies = asked
    if asked == [None] and not is_schedule(args.file):
        policies = list(POLICIES)
    with Progress() as progress:
        checked = check_all(args.file, policies, args.pipeline, progress)
        if not checked[-1].ok:
            return refuse(checked[-1], as_json=args.json)
        schedules = {one.schedule.policy: one.schedule for one in checked}
        first = checked[0]
        found = sensitivity(schedules, first.counts, first.machine, tell=progress.step)
    if args.json:
        show_json({"source": args.file, **sensitivity_json(found)})
    else:
        show(sensitivity_text(found, color=sys.stdout.isatty()))
    return OK if found.complete else INTERRUPTED
