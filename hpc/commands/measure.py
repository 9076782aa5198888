"""One schedule, checked, simulated, bounded and run on data, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hpc.commands.inputs import Opened, load_machine_of
from hpc.commands.progress import Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hpc.interp.timing import Timing
    from hpc.machine.record import Machine
    from hpc.report.summary import CoreUse, PolicyReport, Values
    from hpc.schedule.check import CheckReport
    from hpc.schedule.model import Schedule


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

    @cached_property
    def verdicts(self) -> dict[str, bool | None]:
        """Every check in its order; None where it did not run."""
        from hpc.schedule.check import CHECKS

        return {check.name: self.report.checks.get(check.name) for check in CHECKS}


def check(opened: Opened) -> Checked:
    """Run every check on a schedule, with the rows that its own routing gives."""
    from hpc.interp.routing import routing_counts
    from hpc.schedule.check import Limits, check_schedule

    schedule = opened.schedule
    machine = load_machine_of(schedule)
    counts = routing_counts(schedule.layer, schedule.routing)
    report = check_schedule(schedule, Limits.of(machine), counts)
    return Checked(opened, machine, counts, report)


@dataclass
class Measured:
    pass


def measure(): ...
