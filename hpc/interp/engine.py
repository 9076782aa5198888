"""Front door of the timing engine: `simulate`. Its loop is in `hpc.interp.events`."""

from __future__ import annotations

import numpy.typing as npt

from hpc.interp.events import SharedEngine
from hpc.interp.expand import expand
from hpc.interp.fifo import FifoEngine
from hpc.interp.program import build_program
from hpc.interp.stuck import SimulationDeadlock
from hpc.interp.timing import Timing, measure
from hpc.machine.record import Machine
from hpc.schedule.model import Schedule

__all__ = ["SimulationDeadlock", "Timing", "simulate"]

ENGINES: dict[str, type[SharedEngine]] = {"shared": SharedEngine, "fifo": FifoEngine}


def simulate(
    schedule: Schedule,
    counts: npt.ArrayLike,
    machine: Machine,
    *,
    record: bool = False,
    hbm: str = "shared",
) -> Timing:
    """Simulated time of one launch with routing `counts[source rank][expert]`.

    `record` keeps the intervals of all cores and puts for traces. `hbm` is "shared"
    or "fifo". Raises SimulationDeadlock, and ValueError for counts of another shape.
    """
    if hbm not in ENGINES:
        raise ValueError(f"hbm must be 'shared' or 'fifo', got {hbm!r}")
    work = expand(schedule, counts, machine)
    program = build_program(schedule, work, machine)
    engine = ENGINES[hbm](schedule, work, program, machine)
    engine.run()
    return measure(engine.result(), record=record)
