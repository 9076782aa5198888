"""Published points run through the product: compile, simulate, compare."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpc.commands.errors import InputError

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
        self._name = record if record == machine.name else f'"{Path(record).resolve()}"'
        self._timings: dict[tuple[object, ...], Timing] = {}

    def outcome(self, point: Point) -> Outcome:
        """The point's quantity, simulated."""
        if point.versus:
            upper, lower = (
                self._value(point, run) for run in (point.run, point.versus)
            )
            return Outcome(point, upper / lower)
        return Outcome(point, self._value(point, point.run))

    def _value(self, point: Point, run: Run) -> float:
        machine = replace(self.machine, **point.facts)  # pyright: ignore[reportArgumentType]
        key = (*sorted(run.items()), *sorted(point.facts.items()))
        if key not in self._timings:
            self._timings[key] = self._simulate(run, machine)
        timing = self._timings[key]
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

    def _simulate(self, run: Run, machine: Machine) -> Timing:
        from hpc.interp.engine import simulate
        from hpc.interp.routing import routing_counts

        schedule = self._schedule(run, machine)
        counts = routing_counts(schedule.layer, schedule.routing)
        repeated = bool(run.get("repeated", 0))
        dispatch = str(run.get("dispatch", "static"))
        return simulate(schedule, counts, machine, dispatch=dispatch, repeated=repeated)

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
                raise InputError(f"a point's run has the unknown kind '{kind}'")
        return make(machine, **settings)  # pyright: ignore[reportArgumentType]

    def _compiled(self, run: Run) -> Schedule:
        from hpc.driver import CompileError, compile_text
        from hpc.spec.diagnostics import SpecError

        template = self.published.specs[str(run["spec"])]
        text = template.substitute({**run, "machine": self._name})
        try:
            compiled = compile_text(
                text.encode(), f"<{run['spec']}>", policy=str(run["policy"])
            )
        except (SpecError, CompileError) as error:
            raise InputError(error.render().rstrip("\n")) from error
        return compiled.schedule


NOT_FOR_SCHEDULES = ("kind", "payload_bytes", "dispatch", "repeated")
"""Settings of a run that say how to time it, not what to build."""
