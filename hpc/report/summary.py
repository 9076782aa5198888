"""The numbers of a run, detached from how they were found, and their JSON.

Units are in the names: `_us` microseconds; shares are 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hpc.interp.lifetimes import MemoryUse
from hpc.report.memory import memory_json
from hpc.schedule.model import Schedule

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class CoreUse:
    """What the cores of one kind did, as shares of their time until `layer_us`.

    Counts the cores that the schedule uses. `waiting` is by cause: the name of the
    event's family, "barrier", "launch", or "overhead" (fetch, poll, signal).
    """

    busy: float
    waiting: dict[str, float]
    idle: float


@dataclass(frozen=True, slots=True)
class OutputError:
    """The largest relative error of one output, None if it is not a number."""

    name: str
    max_rel_err: float | None
    allowed: float

    @property
    def ok(self) -> bool:
        return self.max_rel_err is not None and self.max_rel_err <= self.allowed


@dataclass(frozen=True, slots=True)
class Values:
    """The outcome of running the schedule on data.

    Every output has a bound of its own. `max_rel_err` and `allowed` are those of the
    output that comes nearest to its bound, so another output may have a larger error;
    `outputs` has them all. `max_rel_err` is None if an output is not a number; `worst`
    says where it is. `digest` names the exact bits, for comparison between policies;
    it is empty if no values were computed.
    `faults` says what else went wrong. The reference computes the spec's operators, or,
    `against` "file", those of a schedule file that came alone.
    """

    what: str
    seeds: tuple[int, ...]
    max_rel_err: float | None
    allowed: float
    bit_identical: bool
    ok: bool
    digest: str
    worst: str = ""
    faults: tuple[str, ...] = ()
    against: str = "spec"
    outputs: tuple[OutputError, ...] = ()

    @property
    def complaints(self) -> tuple[str, ...]:
        """Why these values are not right; nothing if they are."""
        if self.ok:
            return ()
        if self.faults:
            return self.faults
        error, allowed = self.max_rel_err, self.allowed
        if error is None:
            worst = f"not a number at {self.worst}"
        elif error <= allowed:
            return ("the interleavings differ in bits",)
        else:
            worst = f"relative error {error:.2e} > {allowed:.2e} at {self.worst}"
        named = self.worst.split(",")[0]
        others = [one for one in self.outputs if not one.ok and one.name != named]
        return (worst, *(f"{one.name} is wrong too" for one in others))


@dataclass(frozen=True)
class PolicyReport:
    """All about one policy's schedule, which has passed the checks that exist.

    `unchecked` names those that did not run, with the reason. `comm_hidden` is None
    without communication. `bound_by` is the resource that binds, on `bound_rank`.
    `l2_hits` is the share of bytes read that L2 had, by "operator: result".
    `utilization` is busy time until `latency_us` over all cores
    of the machine, by kind. `ranks_simulated` is 1 if one rank provably stood for all.
    """

    policy: str
    schedule: Schedule
    latency_us: float
    layer_us: float
    bound_us: float
    bound_by: str
    bound_rank: int
    layer_bound_us: float
    comm_hidden: float | None
    utilization: dict[str, float]
    cores: dict[str, CoreUse]
    tasks: int
    ranks_simulated: int
    checks: dict[str, bool]
    unchecked: dict[str, str]
    values: Values | None
    memory: MemoryUse
    l2_hits: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def complaints(self) -> tuple[str, ...]:
        """What is not right with this policy; nothing if all is."""
        failed = [f"check {name} failed" for name, ok in self.checks.items() if not ok]
        wrong = self.values.complaints if self.values else ()
        what = "wrong values" if self.values and self.values.digest else "no values"
        return (*failed, *(f"{what}: {text}" for text in wrong))

    @property
    def ok(self) -> bool:
        """Whether every check that ran passed and the values are right."""
        return not self.complaints

    def to_json(self) -> Json:
        """The keys of one policy, in their fixed order."""
        return {
            "policy": self.policy,
            "latency_us": round(self.latency_us, 3),
            "layer_us": round(self.layer_us, 3),
            "bound_us": round(self.bound_us, 3),
            "bound_by": self.bound_by,
            "bound_rank": self.bound_rank,
            "layer_bound_us": round(self.layer_bound_us, 3),
            "latency_over_bound": _ratio(self.latency_us, self.bound_us),
            "comm_hidden": _rounded(self.comm_hidden),
            "utilization": {u: round(x, 4) for u, x in self.utilization.items()},
            "cores": {unit: _cores_json(cores) for unit, cores in self.cores.items()},
            "tasks": self.tasks,
            "ranks_simulated": self.ranks_simulated,
            "checks": self.checks,
            "not_checked": self.unchecked,
            "l2_hits": {name: round(x, 4) for name, x in self.l2_hits.items()},
            "memory": memory_json(self.memory),
            "values": _values_json(self.values, None),
        }


@dataclass(frozen=True, slots=True)
class Fetch:
    """How cores get tasks: `dispatch` is static or dynamic, `task_us` for each one."""

    dispatch: str
    task_us: float

    def __str__(self) -> str:
        return f"{self.dispatch} dispatch, {self.task_us:g} us a task"

    def to_json(self) -> Json:
        return {"dispatch": self.dispatch, "task_fetch_us": self.task_us}


@dataclass(frozen=True)
class RunReport:
    """One layer under one or more policies, in the order they were asked for.

    `machine_figures` counts the figures of the machine record by how they are known;
    `assumed` names those that are guesses.
    """

    source: str
    policies: tuple[PolicyReport, ...]
    machine_figures: dict[str, int]
    assumed: tuple[str, ...]
    fetch: Fetch

    @property
    def best(self) -> PolicyReport:
        """The fastest policy; the first of equals."""
        return min(self.policies, key=lambda policy: policy.latency_us)

    @property
    def bit_identical(self) -> bool:
        """Whether all policies and seeds gave the same bits."""
        ran = [policy.values for policy in self.policies if policy.values]
        return len({v.digest for v in ran}) <= 1 and all(v.bit_identical for v in ran)

    @property
    def complaints(self) -> tuple[str, ...]:
        """What is not right, a sentence each; nothing if all is."""
        found = [
            f"policy {policy.policy}: {text}"
            for policy in self.policies
            for text in policy.complaints
        ]
        computed = [p.values for p in self.policies if p.values and p.values.digest]
        if computed and not self.bit_identical:
            found.append("the values differ in bits between policies or seeds")
        return tuple(found)

    @property
    def ok(self) -> bool:
        """Whether all is right; decides the exit status."""
        return not self.complaints

    def to_json(self) -> Json:
        """The best policy's numbers on top, all policies below `policies`."""
        best = self.best
        schedule = best.schedule
        return {
            "layer": schedule.layer.name,
            "source": self.source,
            "machine": schedule.machine,
            "mode": schedule.mode,
            "ranks": schedule.layer.ep,
            **self.fetch.to_json(),
            **best.to_json(),
            "values": _values_json(best.values, self.bit_identical),
            "machine_figures": self.machine_figures,
            "machine_assumed": list(self.assumed),
            "numbers": NUMBERS,
            "policies": {policy.policy: policy.to_json() for policy in self.policies},
        }


NUMBERS = {
    "latency_us": "simulated",
    "layer_us": "simulated",
    "bound_us": "bound",
    "layer_bound_us": "bound",
    "comm_hidden": "simulated",
    "utilization": "simulated",
    "cores": "simulated",
    "l2_hits": "simulated",
    "memory": "allocated bytes; simulated times and peaks",
    "checks": "checked",
    "values": "computed",
}
"""What kind of number each key holds; no latency was measured on hardware."""


def compare_json(report: RunReport) -> Json:
    """The JSON of `hpc compare`; speed-up is over serial."""
    serial = next(p for p in report.policies if p.policy == "serial")
    schedule = serial.schedule
    return {
        "layer": schedule.layer.name,
        "source": report.source,
        "machine": schedule.machine,
        "mode": schedule.mode,
        "ranks": schedule.layer.ep,
        **report.fetch.to_json(),
        "machine_assumed": list(report.assumed),
        "numbers": {"latency_us": "simulated", "bound_us": "bound"},
        "policies": {
            p.policy: {
                "latency_us": round(p.latency_us, 3),
                "layer_us": round(p.layer_us, 3),
                "bound_us": round(p.bound_us, 3),
                "bound_by": p.bound_by,
                "comm_hidden": _rounded(p.comm_hidden),
                "speedup_vs_serial": _ratio(serial.latency_us, p.latency_us),
                "ok": p.ok,
            }
            for p in report.policies
        },
    }


def _values_json(values: Values | None, identical: bool | None) -> Json | None:
    """`identical` is the verdict over all policies, if that is what is reported."""
    if values is None:
        return None
    return {
        "what": values.what,
        "against": values.against,
        "seeds": list(values.seeds),
        "max_rel_err": values.max_rel_err,
        "allowed": values.allowed,
        "worst": values.worst or None,
        "outputs": {
            one.name: {
                "max_rel_err": one.max_rel_err,
                "allowed": one.allowed,
                "ok": one.ok,
            }
            for one in values.outputs
        },
        "bit_identical": values.bit_identical if identical is None else identical,
        "ok": values.ok,
        "complaints": list(values.complaints),
    }


def _cores_json(cores: CoreUse) -> Json:
    return {
        "busy": round(cores.busy, 4),
        "idle": round(cores.idle, 4),
        "waiting": {cause: round(share, 4) for cause, share in cores.waiting.items()},
    }


def _ratio(a: float, b: float) -> float | None:
    return round(a / b, 4) if b > 0 else None


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)
