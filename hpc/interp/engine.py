"""Front door of the timing engine: `simulate`. Its loop is in `hpc.interp.events`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from hpc.interp.events import launch, run_events
from hpc.interp.expand import Expanded, expand
from hpc.interp.inject import Fault
from hpc.interp.program import Program, build_program
from hpc.interp.state import State
from hpc.interp.stuck import SimulationDeadlock, deadlock
from hpc.interp.timing import Run, Timing, measure
from hpc.machine.record import Machine
from hpc.schedule.model import Schedule

__all__ = ["SimulationDeadlock", "Timing", "simulate"]

HBM = ("shared", "fifo")
SLICE = 1 << 16
"""Events between two looks at progress."""


def simulate(
    schedule: Schedule,
    counts: npt.ArrayLike,
    machine: Machine,
    *,
    record: bool = False,
    hbm: str = "shared",
    faults: Sequence[Fault] = (),
) -> Timing:
    """Simulated time of one launch with routing `counts[source rank][expert]`.

    `record` keeps the intervals of all cores and puts for traces. `hbm` is "shared"
    or "fifo". `faults` are injected (see `hpc.interp.inject`). Raises
    SimulationDeadlock, and ValueError for counts of another shape.
    """
    if hbm not in HBM:
        raise ValueError(f"hbm must be 'shared' or 'fifo', got {hbm!r}")
    work = expand(schedule, counts, machine)
    program = build_program(schedule, work, machine)
    run = execute(schedule, work, program, machine, hbm == "shared", faults)
    return measure(run, record=record)


def execute(
    schedule: Schedule,
    work: Expanded,
    program: Program,
    machine: Machine,
    shared: bool = True,
    faults: Sequence[Fault] = (),
) -> Run:
    """Runs the event loop to the end; SimulationDeadlock if cores cannot finish."""
    state = State(schedule, work, program, machine, shared=shared)
    if faults:
        from hpc.interp.faulty import run_with_faults

        run_with_faults(state, schedule, program, work, faults)
    else:
        launch(state)
        while run_events(state, SLICE) == SLICE:
            pass
    run = state.result(schedule, work, program, machine)
    if state.stuck():
        raise deadlock(run, state.steps(), state.left, faults)
    return run
