"""`hpc run --inject`: what faults cost, or why the run hangs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hpc.commands.check import refuse
from hpc.commands.errors import FAILED, OK, UsageError
from hpc.commands.measure import Checked, check_all, fetch_of
from hpc.commands.outputs import note, show, show_json
from hpc.commands.progress import Progress
from hpc.commands.run import write_timeline

if TYPE_CHECKING:
    from hpc.interp.inject import Fault
    from hpc.interp.stuck import SimulationDeadlock
    from hpc.interp.timing import Timing
    from hpc.interp.trace_data import TraceData
    from hpc.report.summary import Fetch
    from hpc.report.trace import Span


@dataclass(frozen=True)
class Injected:
    """A schedule simulated without and with faults; `timing` or `hang` is None."""

    checked: Checked
    healthy: Timing
    timing: Timing | None
    hang: SimulationDeadlock | None


def run_injected(args: argparse.Namespace, policies: Sequence[str | None]) -> int:
    """Simulate each policy with the faults; status 1 if one hangs."""
    faults: list[Fault] = args.inject
    if args.trace and len(policies) > 1:
        raise UsageError("--trace with --inject shows one policy; name it")
    found: list[Injected] = []
    with Progress() as progress:
        checked = check_all(args.file, policies, args.pipeline, progress)
        if checked[-1].ok:
            for one in checked:
                progress.step(f"simulating policy {one.schedule.policy} with faults")
                found.append(_simulate(one, faults, args.dispatch, bool(args.trace)))
    if not checked[-1].ok:
        return refuse(checked[-1], as_json=args.json)
    if args.trace:
        _write_trace(args.trace, found[0])
    fetch = fetch_of(checked[0].machine, args.dispatch)
    if args.json:
        show_json(_json(args.file, faults, found, fetch))
    else:
        show(_text(args.file, faults, found, fetch))
    hung = [each.checked.schedule.policy for each in found if each.hang]
    if hung:
        note(f"{args.file}: error: hangs with these faults: policy {', '.join(hung)}")
    return FAILED if hung else OK


def _simulate(
    checked: Checked, faults: Sequence[Fault], dispatch: str, record: bool
) -> Injected:
    from hpc.interp.engine import SimulationDeadlock, simulate
    from hpc.interp.inject import FaultError, check_faults

    schedule, counts, machine = checked.schedule, checked.counts, checked.machine
    try:
        check_faults(faults, schedule)
    except FaultError as error:
        raise UsageError(f"policy {schedule.policy}: --inject {error}") from error
    healthy = simulate(schedule, counts, machine, dispatch=dispatch)
    try:
        timing = simulate(
            schedule, counts, machine, record=record, faults=faults, dispatch=dispatch
        )
    except SimulationDeadlock as hang:
        return Injected(checked, healthy, None, hang)
    return Injected(checked, healthy, timing, None)


def show_hang(checked: Checked, args: argparse.Namespace) -> None:
    """A schedule that the checks proved to hang: where it comes to, when simulated."""
    from hpc.interp.engine import SimulationDeadlock, simulate

    checks = checked.report.checks
    if not checks.get("structure") or checks.get("deadlock") is not False:
        return
    try:
        dispatch: str = args.dispatch
        simulate(checked.schedule, checked.counts, checked.machine, dispatch=dispatch)
    except SimulationDeadlock as hang:
        if not args.json:
            show(f"simulated, nothing moves after {hang.until_us:.3f} us")
            show(f"{_assumed(checked)}\n{hang}")
        if args.trace:
            _write_hang(args.trace, checked, hang)


def _write_trace(path: str, injected: Injected) -> None:
    from hpc.report.recording import spans

    if injected.hang is not None:
        _write_hang(path, injected.checked, injected.hang)
        return
    assert injected.timing is not None
    trace = injected.timing.trace
    assert trace is not None
    write_timeline(path, injected.checked, trace, spans(trace))


def _write_hang(path: str, checked: Checked, hang: SimulationDeadlock) -> None:
    from hpc.interp.trace_data import trace_of

    trace = trace_of(hang.run)
    write_timeline(path, checked, trace, _with_reasons(trace, hang))


def _with_reasons(trace: TraceData, hang: SimulationDeadlock) -> Iterator[Span]:
    """The spans of a hung run; waits that never ended carry the reason."""
    from hpc.report.recording import spans

    places = {(p.rank, p.queue, p.index): p.reason for p in hang.hang.blocked}
    for span in spans(trace):
        reason = places.get((span.rank, span.queue, span.index), "")
        if reason and span.end_us == hang.until_us:
            span = replace(span, blocked=reason)
        yield span


def _assumed(checked: Checked) -> str:
    names = ", ".join(checked.machine.assumed)
    return f"assumed values of the record: {names or 'none'}"


def _text(
    file: str, faults: Sequence[Fault], found: Sequence[Injected], fetch: Fetch
) -> str:
    lines = [f"{file}: {fault}" for fault in faults]
    lines.append(_assumed(found[0].checked))
    if fetch.dispatch != "static":
        lines.append(f"{fetch}")
    for each in found:
        policy = each.checked.schedule.policy
        if each.hang is not None:
            us = each.hang.until_us
            lines.append(f"policy {policy}: nothing moves after {us:.3f} us, simulated")
            lines.append(str(each.hang))
            continue
        assert each.timing is not None
        lines.append(f"policy {policy}, simulated")
        for what, before, after in _spans_of(each):
            more = after - before
            share = 100 * more / before if before else 0.0
            lines.append(
                f"  {what:20} {before:.3f} us, with faults {after:.3f} us "
                f"({more:+.3f} us, {share:+.1f} %)"
            )
    return "\n".join(lines)


def _spans_of(each: Injected) -> list[tuple[str, float, float]]:
    assert each.timing is not None
    old, new = each.healthy, each.timing
    return [
        ("dispatch to combine", old.latency_us, new.latency_us),
        ("whole layer", old.layer_us, new.layer_us),
    ]


def _json(
    file: str, faults: Sequence[Fault], found: Sequence[Injected], fetch: Fetch
) -> dict[str, object]:
    return {
        "source": file,
        "layer": found[0].checked.schedule.layer.name,
        "machine": found[0].checked.schedule.machine,
        **fetch.to_json(),
        "machine_assumed": list(found[0].checked.machine.assumed),
        "faults": [str(fault) for fault in faults],
        "ok": not any(each.hang for each in found),
        "policies": {each.checked.schedule.policy: _one_json(each) for each in found},
    }


def _one_json(each: Injected) -> dict[str, object]:
    report: dict[str, object] = {
        "latency_us": each.healthy.latency_us,
        "layer_us": each.healthy.layer_us,
    }
    if each.hang is not None:
        hang = {"until_us": each.hang.until_us, **each.hang.hang.to_json()}
        return {**report, "hang": hang}
    assert each.timing is not None
    return {
        **report,
        "with_faults": {
            "latency_us": each.timing.latency_us,
            "layer_us": each.timing.layer_us,
        },
        "hang": None,
    }
