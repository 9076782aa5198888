"""The check on values: right against the reference, same bits whatever the order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from hpc.interp.data import Data
from hpc.interp.footprint import available_bytes, needed_bytes
from hpc.interp.launch_steps import launch_steps
from hpc.interp.memory import Pool
from hpc.interp.numerics import Array
from hpc.interp.reference import Reference, reference
from hpc.interp.routing import Ids, routing_ids
from hpc.interp.saved import launch_data
from hpc.interp.shrink import ShrinkError, common_sizes, shrink
from hpc.interp.steps import Step, StepsError
from hpc.interp.values import ExecutionError, execute
from hpc.interp.verdict import Verdict, compare
from hpc.schedule.model import Schedule

Outputs = Mapping[str, Sequence[Array]]

SEEDS = (0, 1)
"""Interleavings tried unless the caller says otherwise."""


@dataclass(frozen=True, slots=True)
class ValueReport:
    """What executing one schedule showed.

    `max_rel_err` is relative to the natural scale (see `reference`), None if an output
    is not a number or there is none; `bound` is what it must not exceed. Each output
    has a bound of its own: both are those of the output whose error is the largest part
    of its bound, which need not be the largest error. `worst` names the element
    (output, rank, row, column), `outputs` the worst error and the bound of every
    output, infinite for one that is not a number.

    `bit_identical` compares the seeds; `digest` is that of the output bits; schedules
    verified together have equal ones if they computed the same. `what` is "shrunk" or
    "full", the latter also if the layer is so narrow that nothing was shrunk. `faults`
    says what went wrong otherwise: a deadlock, rows not written exactly once.
    """

    max_rel_err: float | None
    bound: float
    bit_identical: bool
    ok: bool
    digest: str
    seeds: tuple[int, ...]
    what: str
    worst: tuple[str, int, int, int] | None = None
    faults: tuple[str, ...] = ()
    outputs: tuple[tuple[str, float, float], ...] = ()


def verify_values(
    schedule: Schedule,
    *,
    mode: str = "shrunk",
    seeds: tuple[int, ...] = SEEDS,
    steps: tuple[Step, ...] | None = None,
) -> ValueReport:
    """Executes `schedule` under each seed and compares with the reference.

    `mode` is "shrunk" or "full". `steps` are the layer's forward operators, of which
    the gradients are taken here if the schedule computes them; None takes all operators
    from the schedule, which then is checked for what it does, not for what its spec
    says. A schedule that cannot be executed gives a report that is not ok; ValueError
    for an unknown mode or no seed, RoutingError if the routing does not fit the layer.
    """
    return verify_policies({"": schedule}, mode=mode, seeds=seeds, steps=steps)[""]


def verify_policies(
    schedules: Mapping[str, Schedule],
    *,
    mode: str = "shrunk",
    seeds: tuple[int, ...] = SEEDS,
    steps: tuple[Step, ...] | None = None,
) -> dict[str, ValueReport]:
    """`verify_values` for several schedules of one layer, by name.

    All shrink alike, and inputs and reference are made once, so that equal digests
    mean equal bits (`same_bits`).
    """
    if mode not in ("full", "shrunk"):
        raise ValueError(f'mode must be "full" or "shrunk", got {mode!r}')
    if not seeds:
        raise ValueError("at least one seed is needed")
    try:
        sizes = common_sizes(schedules.values()) if mode == "shrunk" else {}
    except ShrinkError as error:
        return {name: _refused(str(error), seeds, "full") for name in schedules}
    bench = _Bench()
    return {
        name: _verify(bench, schedule, sizes, seeds, steps)
        for name, schedule in schedules.items()
    }


def same_bits(reports: Mapping[str, ValueReport]) -> bool:
    """Whether all the schedules gave the same bits, under every seed."""
    identical = all(report.bit_identical for report in reports.values())
    return identical and len({report.digest for report in reports.values()}) <= 1


def _verify(
    bench: _Bench,
    schedule: Schedule,
    sizes: Mapping[int, int],
    seeds: tuple[int, ...],
    steps: tuple[Step, ...] | None,
) -> ValueReport:
    small = shrink(schedule, sizes)
    what = "full" if small is schedule else "shrunk"
    verdict: Verdict | None = None
    digests: list[str] = []
    faults: dict[str, None] = {}
    try:
        ids, data, expected = bench.prepare(small, launch_steps(small, steps))
        for seed in seeds:
            result = execute(small, ids, seed=seed, data=data, pool=bench.pool)
            faults.update(dict.fromkeys(result.faults))
            digest = _digest(result.outputs)
            if digest not in digests:
                found = compare(result.outputs, expected)
                if verdict is None or found.severity > verdict.severity:
                    verdict = found
            digests.append(digest)
    except (ExecutionError, StepsError) as error:
        return _refused(str(error), seeds, what)
    assert verdict is not None
    identical = len(set(digests)) == 1
    return ValueReport(
        max_rel_err=None if verdict.is_nan else verdict.max_rel_err,
        bound=verdict.bound,
        bit_identical=identical,
        ok=verdict.ok and identical and not faults,
        digest=digests[0],
        seeds=seeds,
        what=what,
        worst=verdict.worst,
        faults=tuple(faults),
        outputs=tuple((n, *pair) for n, pair in sorted(verdict.outputs.items())),
    )


def _refused(why: str, seeds: tuple[int, ...], what: str) -> ValueReport:
    return ValueReport(None, 0.0, False, False, "", seeds, what, faults=(why,))


class _Bench:
    """Inputs and references, made once for schedules that start from the same."""

    def __init__(self) -> None:
        self.pool: Pool = {}
        self._made: dict[object, tuple[list[Ids], Data, Reference]] = {}

    def prepare(
        self, schedule: Schedule, steps: tuple[Step, ...]
    ) -> tuple[list[Ids], Data, Reference]:
        """(ids, data, reference) of a schedule."""
        layer, routing = schedule.layer, schedule.routing
        given = tuple(
            replace(b, formula="", symmetric=False)
            for b in schedule.buffers
            if b.role in ("input", "weight", "saved")
        )
        outputs = tuple(b.name for b in schedule.buffers if b.role == "output")
        if missing := set(outputs) - {step.result for step in steps}:
            raise ExecutionError(f"no operator computes {', '.join(sorted(missing))}")
        key = (layer, routing, given, steps, outputs)
        if key not in self._made:
            _require_memory(schedule)
            ids = routing_ids(layer, routing)
            data = launch_data(schedule, steps, ids)
            expected = reference(layer, steps, ids, data, outputs)
            self._made[key] = ids, data, expected
        return self._made[key]


def _require_memory(schedule: Schedule) -> None:
    """ExecutionError if the values do not fit into the memory that is free."""
    needed, available = needed_bytes(schedule), available_bytes()
    if available is not None and needed > available:
        raise ExecutionError(
            f"values need about {needed / 2**30:.1f} GiB of memory, "
            f"{available / 2**30:.1f} GiB are available; "
            "shrunk values need less"
        )


def _digest(outputs: Outputs) -> str:
    """SHA-256 of all output bits, by output and rank."""
    total = sha256()
    for name in sorted(outputs):
        for array in outputs[name]:
            total.update(array.tobytes())
    return total.hexdigest()
