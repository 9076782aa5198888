"""Published points run through the product: compile, simulate, compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpc.commands.errors import InputError, suggestion
from hpc.machine.fields import BY_KEY
from hpc.machine.record import misfits
from hpc.machine.runs import machine_faults
from hpc.machine.toml_file import is_path

if TYPE_CHECKING:
    from hpc.interp.timing import Timing
    from hpc.machine.published import Point, Published, Run
    from hpc.machine.record import Machine
    from hpc.schedule.model import Schedule


@dataclass(frozen=True)
class Outcome:
    """A point and what the model says to it, in the point's unit."""

    point: Point
    simulated: float

    @property
    def error(self) -> float:
        """Relative, positive if the simulated value is larger."""
        return self.simulated / self.point.value - 1

    @property
    def ok(self) -> bool | None:
        """Whether the error is within the tolerance; None for a known miss."""
        if self.point.tolerance is None:
            return None
        return abs(self.error) <= self.point.tolerance


class Validator:
    """Runs points against one record; `record` is its name or path."""

    def __init__(self, record: str, machine: Machine, published: Published) -> None:
        self.machine = machine
        self.published = published
        self._record = record
        self._path = str(Path(record).resolve()) if is_path(record) else ""
        self._timings: dict[tuple[object, ...], Timing] = {}

    def faults(self, points: Sequence[Point]) -> list[str]:
        """What keeps points from running on this record, each `file:line:col: ...`."""
        found = [fault for point in points for fault in self._faults(point)]
        return list(dict.fromkeys(found))

    def outcome(self, point: Point) -> Outcome:
        """The point's quantity, simulated; InputError if its run cannot be built."""
        values = [self._value(point, name) for name in point.runs]
        return Outcome(point, values[0] / values[1] if len(values) > 1 else values[0])

    def _faults(self, point: Point) -> Iterator[str]:
        machine = self._machine_of(point)
        values = {key: getattr(machine, key) for key in BY_KEY} if point.facts else {}
        for key, fault in misfits(values):
            yield _fault(point, ("facts", key), f"facts: {fault}")
        for name, run in point.runs.items():
            for key, fault in machine_faults(machine, run):
                yield _fault(point, (name, key), f"{name}: {fault}")
            if run["kind"] == "layer":
                yield from self._layer_faults(point, name, run)

    def _layer_faults(self, point: Point, name: str, run: Run) -> Iterator[str]:
        from hpc.schedule.policy import POLICIES
        from hpc.spec.diagnostics import SpecError, printable
        from hpc.spec.parser import parse_spec

        if self._path and (fault := _unwritable(self._path)):
            yield f"{self._record}: error: a layer cannot name this record: {fault}"
            return
        policy = str(run["policy"])
        if policy not in POLICIES:
            known = f"; policies: {', '.join(POLICIES)}"
            guess = suggestion(policy, list(POLICIES)) or known
            message = f"{name}: unknown policy {policy!r}{guess}"
            yield _fault(point, (name, "policy"), message)
        try:
            parse_spec(self._text(run).encode(), str(run["spec"]))
        except SpecError as error:
            for found in error.diagnostics:
                loc = f"line {found.loc.line}, column {found.loc.col}"
                message = f"spec '{run['spec']}', {loc}: {printable(found.message)}"
                yield _fault(point, (name, "spec"), f"{name}: {message}")

    def _machine_of(self, point: Point) -> Machine:
        return replace(self.machine, **point.facts)  # pyright: ignore[reportArgumentType]

    def _value(self, point: Point, name: str) -> float:
        run = point.runs[name]
        timing = self._timing(point, name)
        time_us = timing.latency_us if run["kind"] == "layer" else timing.layer_us
        match point.unit:
            case "ms":
                return time_us / 1e3
            case "GB/s":
                return float(run["payload_bytes"]) / time_us / 1e3
            case "%":
                return 100 * timing.l2_hit_share
            case _:
                return time_us

    def _timing(self, point: Point, name: str) -> Timing:
        run = point.runs[name]
        key = (*sorted(run.items()), *sorted(point.facts.items()))
        if key not in self._timings:
            machine = self._machine_of(point)
            try:
                schedule = self._schedule(run, machine)
            except (ValueError, _BuildError) as error:
                message = f"{name}: {error}"
                raise InputError(_fault(point, (name,), message)) from error
            self._timings[key] = _simulate(schedule, run, machine)
        return self._timings[key]

    def _schedule(self, run: Run, machine: Machine) -> Schedule:
        from hpc.interp import single

        settings = {k: v for k, v in run.items() if k not in NOT_FOR_SCHEDULES}
        match run["kind"]:
            case "layer":
                return self._compiled(run)
            case "gmm":
                make = single.gmm_schedule
            case "vector":
                make = single.vector_schedule
            case "pair":
                make = single.pair_schedule
            case "exchange":
                make = single.exchange_schedule
            case kind:
                raise AssertionError(f"unknown kind {kind}")
        return make(machine, **settings)  # pyright: ignore[reportArgumentType]

    def _compiled(self, run: Run) -> Schedule:
        from hpc.driver import CompileError, compile_text
        from hpc.spec.diagnostics import SpecError

        text, name = self._text(run).encode(), f"<{run['spec']}>"
        try:
            return compile_text(text, name, policy=str(run["policy"])).schedule
        except (SpecError, CompileError) as error:
            raise _BuildError(f"does not compile:\n{error.render()}") from error

    def _text(self, run: Run) -> str:
        template = self.published.specs[str(run["spec"])]
        name = f'"{self._path}"' if self._path else self._record
        return template.substitute({**run, "machine": name})


def _unwritable(path: str) -> str:
    """Why a `.moe` text cannot hold a path; nothing if it can."""
    if '"' not in path and path.isprintable():
        return ""
    return f"its path {path!r} holds a quotation mark, or what cannot be printed"


class _BuildError(Exception):
    """A run whose layer does not compile."""


def _simulate(schedule: Schedule, run: Run, machine: Machine) -> Timing:
    from hpc.interp.engine import simulate
    from hpc.interp.routing import routing_counts

    counts = routing_counts(schedule.layer, schedule.routing)
    repeated = bool(run.get("repeated", 0))
    dispatch = str(run.get("dispatch", "static"))
    return simulate(schedule, counts, machine, dispatch=dispatch, repeated=repeated)


def _fault(point: Point, keys: tuple[str, ...], message: str) -> str:
    return f"{point.where(*keys)}: error: point {point.id!r}: {message}"


NOT_FOR_SCHEDULES = ("kind", "payload_bytes", "dispatch", "repeated")
"""Settings of a run that say how to time it, not what to build."""
