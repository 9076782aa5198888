"""`hpc run`: compile, check, simulate, run on data, and report it all."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from hpc.commands.check import refuse
from hpc.commands.measure import (
    Measured,
    check_all,
    measure_all,
    report_on,
    verdict,
    verify,
)
from hpc.commands.outputs import note, replacing, show, show_json
from hpc.commands.progress import Progress
from hpc.schedule.policy import POLICIES

if TYPE_CHECKING:
    from hpc.report.summary import RunReport


def run(args: argparse.Namespace) -> int:
    """Report on the policies asked for; status 1 if a check or a value is wrong."""
    measured: list[Measured] = []
    with Progress() as progress:
        policies = requested_policies(args.policy)
        checked = check_all(args.file, policies, args.pipeline, progress)
        if checked[-1].ok:
            progress.step("running on data")
            values = verify(checked, args.values, (args.seed, args.seed + 1))
            measured = measure_all(checked, values, progress, record=bool(args.trace))
    if not checked[-1].ok:
        return refuse(checked[-1], as_json=args.json)
    report = report_on(args.file, measured)
    if args.trace:
        _write_trace(args.trace, next(m for m in measured if m.report is report.best))
    _show(report, as_json=args.json)
    return verdict(report)


def requested_policies(asked: list[str] | None) -> list[str | None]:
    """The policies in the order asked for, each once; None is the spec's own."""
    if not asked:
        return [None]
    if "all" in asked:
        return list(POLICIES)
    return list(dict.fromkeys(asked))


def _show(report: RunReport, *, as_json: bool) -> None:
    if as_json:
        show_json(report.to_json())
        return
    from hpc.report.text import run_text

    show(run_text(report, color=sys.stdout.isatty()))


def _write_trace(path: str, measured: Measured) -> None:
    from hpc.interp.expand import expand
    from hpc.report.recording import rates, spans
    from hpc.report.trace import write_trace

    checked, trace = measured.checked, measured.timing.trace
    assert trace is not None
    schedule = checked.schedule
    work = expand(schedule, checked.counts, checked.machine)
    with replacing(path) as stream:
        write_trace(stream, schedule, spans(trace), rates(schedule, trace, work))
    note(f"{path}: timeline of policy {schedule.policy}; opens in ui.perfetto.dev")
