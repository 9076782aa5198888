"""`hpc run`: compile, check, simulate, run on data, and report it all."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from hpc.commands.check import refuse
from hpc.commands.errors import UsageError
from hpc.commands.measure import (
    Checked,
    Measured,
    Simulation,
    check_all,
    measure_all,
    report_on,
    usable_engine,
    verdict,
    verify,
)
from hpc.commands.outputs import note, replacing, show, show_json
from hpc.commands.partial import show_partial
from hpc.commands.progress import Progress
from hpc.schedule.policy import POLICIES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpc.interp.trace_data import TraceData
    from hpc.report.summary import RunReport
    from hpc.report.trace import Span


def run(args: argparse.Namespace) -> int:
    """Report on the policies asked for; status 1 if a check or a value is wrong."""
    if args.inject and args.sensitivity:
        raise UsageError("--inject and --sensitivity exclude each other")
    if args.inject:
        from hpc.commands.inject import run_injected

        return run_injected(args, requested_policies(args.policy))
    if args.sensitivity:
        from hpc.commands.sensitivity import run_sensitivity

        return run_sensitivity(args, requested_policies(args.policy))
    checked: list[Checked] = []
    measured: list[Measured] = []
    engine = usable_engine(args.engine)
    how = Simulation(bool(args.trace), not args.no_fold, engine, args.dispatch)
    try:
        with Progress() as progress:
            policies = requested_policies(args.policy)
            checked = check_all(args.file, policies, args.pipeline, progress)
            if checked[-1].ok:
                progress.step("running on data")
                values = verify(checked, args.values, (args.seed, args.seed + 1))
                for one in measure_all(checked, values, progress, how):
                    measured.append(one)
    except KeyboardInterrupt as interrupt:
        return show_partial(args, checked, measured, interrupt)
    if not checked[-1].ok:
        return _refuse(checked[-1], args)
    report = report_on(args.file, measured, args.dispatch)
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


def _refuse(checked: Checked, args: argparse.Namespace) -> int:
    """An unsafe schedule is not run; one that hangs is shown where it comes to."""
    status = refuse(checked, as_json=args.json)
    from hpc.commands.inject import show_hang

    show_hang(checked, args)
    return status


def _write_trace(path: str, measured: Measured) -> None:
    from hpc.report.recording import spans

    trace = measured.timing.trace
    assert trace is not None
    write_timeline(path, measured.checked, trace, spans(trace))


def write_timeline(
    path: str, checked: Checked, trace: TraceData, shown: Iterable[Span]
) -> None:
    """Write the spans `shown` of a recorded run, and its rates, for Perfetto."""
    from hpc.interp.expand import expand
    from hpc.report.recording import rates
    from hpc.report.trace import write_trace

    schedule = checked.schedule
    work = expand(schedule, checked.counts, checked.machine)
    with replacing(path) as stream:
        write_trace(stream, schedule, shown, rates(schedule, trace, work))
    note(f"{path}: timeline of policy {schedule.policy}; opens in ui.perfetto.dev")
