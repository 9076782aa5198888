"""`hpc run`: compile, check, simulate, run on data, and report it all."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from hpc.commands.check import show_checked
from hpc.commands.errors import FAILED, OK
from hpc.commands.inputs import open_schedule
from hpc.commands.measure import Checked, Measured, check, measure
from hpc.commands.outputs import note, replacing, show, show_json
from hpc.commands.progress import Progress
from hpc.schedule.policy import POLICIES

if TYPE_CHECKING:
    from hpc.report.summary import RunReport


def run(args: argparse.Namespace) -> int:
    """Report on the policies asked for; status 1 if a check or a value is wrong."""
    from hpc.report.summary import RunReport

    measured: list[Measured] = []
    with Progress() as progress:
        for policy in requested_policies(args.policy):
            progress.step(f"compiling {args.file}" + (f" ({policy})" if policy else ""))
            opened = open_schedule(args.file, policy=policy, pipeline=args.pipeline)
            checked = check(opened)
            if not checked.ok:
                break
            measured.append(_measure(checked, args, progress))
    if not checked.ok:
        return _refuse(args, checked)
    report = RunReport(args.file, tuple(m.report for m in measured))
    if args.trace:
        _write_trace(args.trace, next(m for m in measured if m.report is report.best))
    _show(report, as_json=args.json)
    return OK if report.ok else FAILED


def _measure(
    checked: Checked, args: argparse.Namespace, progress: Progress
) -> Measured:
    return measure(
        checked,
        progress,
        values=args.values,
        seeds=(args.seed, args.seed + 1),
        record=bool(args.trace),
    )


def requested_policies(asked: list[str] | None) -> list[str | None]:
    """The policies in the order asked for, each once; None is the spec's own."""
    if not asked:
        return [None]
    if "all" in asked:
        return list(POLICIES)
    return list(dict.fromkeys(asked))


def _refuse(args: argparse.Namespace, checked: Checked) -> int:
    """A schedule that is not safe is neither simulated nor run on data."""
    show_checked(args.file, checked, as_json=args.json)
    note(f"{args.file}: error: policy {checked.schedule.policy}: not run: unsafe")
    return FAILED


def _show(report: RunReport, *, as_json: bool) -> None:
    if as_json:
        show_json(report.to_json())
        return
    from hpc.report.text import run_text

    show(run_text(report, color=sys.stdout.isatty()))


def _write_trace(path: str, measured: Measured) -> None:
    from hpc.report.recording import rates, spans
    from hpc.report.trace import write_trace

    schedule, timing = measured.report.schedule, measured.timing
    with replacing(path) as stream:
        write_trace(stream, schedule, spans(schedule, timing), rates(timing))
    note(f"{path}: timeline of policy {schedule.policy}; opens in ui.perfetto.dev")
