"""What `hpc run` still says when it is interrupted."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from hpc.commands.errors import INTERRUPTED
from hpc.commands.measure import Checked, Measured, report_on
from hpc.commands.outputs import note, show, show_json

if TYPE_CHECKING:
    from hpc.interp.engine import Stopped


def show_partial(
    args: argparse.Namespace,
    checked: list[Checked],
    measured: list[Measured],
    interrupt: KeyboardInterrupt,
) -> int:
    """Report the policies that are finished, and how far the others came."""
    from hpc.interp.engine import Stopped

    stopped = interrupt if isinstance(interrupt, Stopped) else None
    report = report_on(args.file, measured, args.dispatch) if measured else None
    left = [one.schedule.policy for one in checked[len(measured) :]]
    if args.json:
        done = report.to_json() if report else {}
        show_json({**done, "interrupted": _facts(left, stopped)})
    elif report:
        from hpc.report.text import run_text

        show(run_text(report, color=sys.stdout.isatty()))
    note(f"{args.file}: interrupted: {_words(left, stopped)}")
    return INTERRUPTED


def _facts(left: list[str], stopped: Stopped | None) -> dict[str, object]:
    facts: dict[str, object] = {"not_measured": left}
    if stopped is not None:
        facts["simulated_us"] = round(stopped.now_us, 3)
        facts["share_of_steps"] = round(stopped.share, 4)
    return facts


def _words(left: list[str], stopped: Stopped | None) -> str:
    if not left:
        return "nothing is simulated yet"
    text = f"no latency for policy {', '.join(left)}"
    return f"{text}; {left[0]} {stopped}" if stopped else text
