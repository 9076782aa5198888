"""Schedules checked, run on data, simulated and bounded, as plain numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from hpc.commands.errors import FAILED, OK, InputError
from hpc.commands.inputs import Opened, load_machine_of, open_schedule
from hpc.commands.outputs import note
from hpc.commands.progress import Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hpc.interp.steps import Step
    from hpc.interp.timing import Timing
    from hpc.interp.verify import ValueReport
    from hpc.machine.record import Machine
    from hpc.report.summary import CoreUse, Fetch, PolicyReport, RunReport, Values
    from hpc.schedule.check import CheckReport
    from hpc.schedule.model import Schedule
    from hpc.spec.model import Spec


class Contradiction(Exception):
    """Two parts of hpc disagree; an internal error, never the user's."""


@dataclass(frozen=True)
class Checked:
    """A schedule and what the checks say; `counts` is its routing table."""

    opened: Opened
    machine: Machine
    counts: NDArray[np.int64]
    report: CheckReport

    @property
    def schedule(self) -> Schedule:
        return self.opened.schedule

    @property
    def ok(self) -> bool:
        """Whether no check found a violation."""
        return self.report.ok


def check(opened: Opened, *, relaxed: bool = False) -> Checked:
    """Run every check on a schedule, with the rows that its own routing gives.

    `relaxed`: signals may overtake the data of earlier puts.
    """
    from hpc.interp.routing import RoutingError, routing_counts
    from hpc.schedule.check import Limits, check_schedule

    schedule = opened.schedule
    machine = load_machine_of(opened)
    try:
        counts = routing_counts(schedule.layer, schedule.routing)
    except RoutingError as error:
        raise InputError(f"{opened.file}: error: {error}") from error
    limits = Limits.of(machine)
    report = check_schedule(schedule, limits, counts, relaxed=relaxed)
    return Checked(opened, machine, counts, report)


def verify(
    checked: list[Checked], what: str, seeds: tuple[int, ...]
) -> dict[str, Values]:
    """Run the schedules of one layer on the same data, by policy; {} if `what` is off.

    The reference follows the spec where there is one, else what the schedule does.
    """
    if what == "off":
        return {}
    from hpc.interp.verify import verify_policies

    spec = checked[0].opened.spec
    steps = None if spec is None else spec_steps(spec)
    schedules = {c.schedule.policy: c.schedule for c in checked}
    found = verify_policies(schedules, mode=what, seeds=seeds, steps=steps)
    against = "file" if spec is None else "spec"
    return {policy: _values(report, against) for policy, report in found.items()}


def spec_steps(spec: Spec) -> tuple[Step, ...]:
    """The flow of a spec as the reference reads it."""
    from hpc.interp.steps import Step

    return tuple(Step(op.op, op.result, op.args, op.params) for op in spec.flow)


def _values(report: ValueReport, against: str) -> Values:
    from hpc.report.summary import OutputError, Values

    return Values(
        what=report.what,
        seeds=report.seeds,
        max_rel_err=report.max_rel_err,
        allowed=report.bound,
        bit_identical=report.bit_identical,
        ok=report.ok,
        digest=report.digest,
        worst=_worst(report.worst),
        faults=report.faults,
        against=against,
        outputs=tuple(
            OutputError(name, error if isfinite(error) else None, allowed)
            for name, error, allowed in report.outputs
        ),
    )


def _worst(place: tuple[str, int, int, int] | None) -> str:
    if place is None:
        return ""
    return "{}, rank {}, row {}, column {}".format(*place)


@dataclass(frozen=True)
class Simulation:
    """How schedules are simulated; see `hpc.interp.engine.simulate`."""

    record: bool = False
    fold: bool = True
    engine: str = "auto"
    dispatch: str = "static"


@dataclass(frozen=True)
class Measured:
    """A policy's report, and the run it comes from."""

    checked: Checked
    report: PolicyReport
    timing: Timing


def check_all(
    file: str,
    policies: Iterable[str | None],
    pipeline: str | None,
    progress: Progress,
) -> list[Checked]:
    """Open and check the file under each policy; ends with the first unsafe one."""
    found: list[Checked] = []
    for policy in policies:
        progress.step(f"compiling and checking {file}, policy {policy or 'default'}")
        found.append(check(open_schedule(file, policy=policy, pipeline=pipeline)))
        if not found[-1].ok:
            break
    return found


def measure_all(
    checked: list[Checked],
    values: Mapping[str, Values],
    progress: Progress,
    how: Simulation,
) -> Iterator[Measured]:
    """Simulate and bound schedules that passed their checks, one after the other."""
    for one in checked:
        progress.step(f"simulating policy {one.schedule.policy}")
        yield _measure(one, values, progress, how)


def usable_engine(asked: str) -> str:
    """The engine to take for `--engine`; says so if it is not the one asked for."""
    if asked != "fast":
        return asked
    from hpc.interp.compiled import INSTALL, available

    if available():
        return asked
    note(f"note: the fast engine needs numba ({INSTALL}); the plain one is used")
    return "plain"


def report_on(file: str, measured: list[Measured], dispatch: str) -> RunReport:
    """The report of all policies, with how well the machine's figures are known."""
    from hpc.report.summary import RunReport

    machine = measured[0].checked.machine
    figures = Counter(fact.confidence for fact in machine.facts)
    reports = tuple(m.report for m in measured)
    fetch = fetch_of(machine, dispatch)
    return RunReport(file, reports, dict(figures), machine.assumed, fetch)


def fetch_of(machine: Machine, dispatch: str) -> Fetch:
    """How tasks are fetched with that dispatch, and what each fetch takes."""
    from hpc.machine.cost import dispatched
    from hpc.report.summary import Fetch

    return Fetch(dispatch, dispatched(machine, dispatch).task_fetch_us)


def verdict(report: RunReport) -> int:
    """The exit status; what is not right goes to stderr, a line each."""
    for complaint in report.complaints:
        note(f"{report.source}: error: {complaint}")
    return OK if report.ok else FAILED


def _measure(
    checked: Checked,
    values: Mapping[str, Values],
    progress: Progress,
    how: Simulation,
) -> Measured:
    from hpc.interp.bound import lower_bound
    from hpc.interp.engine import simulate
    from hpc.interp.lifetimes import memory_use
    from hpc.machine.cost import dispatched
    from hpc.report.summary import PolicyReport

    schedule, counts, machine = checked.schedule, checked.counts, checked.machine

    def watch(share: float, now_us: float) -> None:
        done = f"{100 * share:.0f} % of the steps, {now_us / 1e3:.2f} ms simulated"
        progress.step(f"simulating policy {schedule.policy}: {done}")

    timing = simulate(
        schedule,
        counts,
        machine,
        record=how.record,
        fold=how.fold,
        engine=how.engine,
        watch=watch,
        dispatch=how.dispatch,
    )
    bound = lower_bound(schedule, counts, dispatched(machine, how.dispatch))
    _compare("latency", timing.latency_us, bound.bound_us)
    _compare("layer", timing.layer_us, bound.layer_us)
    report = PolicyReport(
        policy=schedule.policy,
        schedule=schedule,
        latency_us=timing.latency_us,
        layer_us=timing.layer_us,
        bound_us=bound.bound_us,
        bound_by=bound.bound_by,
        bound_rank=bound.bound_rank,
        layer_bound_us=bound.layer_us,
        comm_hidden=timing.comm_hidden if timing.egress_bytes.any() else None,
        utilization=timing.utilization,
        cores={unit: _core_use(timing, unit) for unit in timing.busy_us},
        tasks=timing.tasks,
        ranks_simulated=timing.ranks_simulated,
        checks=checked.report.checks,
        unchecked=checked.report.unchecked,
        values=values.get(schedule.policy),
        memory=memory_use(schedule, timing),
        l2_hits=timing.l2_hits,
    )
    return Measured(checked, report, timing)


def _compare(what: str, simulated_us: float, bound_us: float) -> None:
    if simulated_us < bound_us * (1 - 1e-9):
        raise Contradiction(
            f"simulated {what} {simulated_us} us is below its bound {bound_us} us"
        )


def _core_use(timing: Timing, unit: str) -> CoreUse:
    """Shares of the time of all cores of a kind, over all ranks."""
    from hpc.report.summary import CoreUse

    busy, idle = float(timing.busy_us[unit].sum()), float(timing.idle_us[unit].sum())
    waiting = {c: float(us.sum()) for c, us in timing.wait_us[unit].items()}
    total = busy + idle + sum(waiting.values()) or 1.0
    shares = {cause: us / total for cause, us in sorted(waiting.items()) if us > 0}
    return CoreUse(busy / total, shares, idle / total)
