"""`hpc run --sensitivity`: what the simulated latencies and their ranking hang on."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from hpc.commands.check import refuse
from hpc.commands.errors import INTERRUPTED, OK, UsageError
from hpc.commands.inputs import is_schedule
from hpc.commands.measure import check_all, fetch_of
from hpc.commands.outputs import show, show_json
from hpc.commands.progress import Progress
from hpc.schedule.policy import POLICIES

if TYPE_CHECKING:
    from hpc.report.summary import Fetch


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
        found = sensitivity(
            schedules,
            first.counts,
            first.machine,
            dispatch=args.dispatch,
            tell=progress.step,
        )
    assumed, fetch = first.machine.assumed, fetch_of(first.machine, args.dispatch)
    if args.json:
        known = {**fetch.to_json(), "machine_assumed": list(assumed)}
        show_json({"source": args.file, **known, **sensitivity_json(found)})
    else:
        _show_about(fetch, [key for key in assumed if key not in found.constants])
        show(sensitivity_text(found, color=sys.stdout.isatty()))
    return OK if found.complete else INTERRUPTED


def _show_about(fetch: Fetch, unchanged: list[str]) -> None:
    """What the table does not say: each assumed value that was changed has a row."""
    if fetch.dispatch != "static":
        show(f"{fetch}")
    if unchanged:
        show(f"assumed and not changed: {', '.join(unchanged)}")
