"""Front door of the timing engine: `simulate`. Its loop is in `hpc.interp.events`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy.typing as npt

from hpc.interp.events import run_events
from hpc.interp.expand import Expanded, expand
from hpc.interp.fold import foldable
from hpc.interp.inject import Fault
from hpc.interp.program import Program, build_program
from hpc.interp.state import State
from hpc.interp.stuck import SimulationDeadlock, deadlock
from hpc.interp.timing import Run, Timing, measure
from hpc.interp.walk import launch
from hpc.machine.cost import dispatched
from hpc.machine.record import Machine
from hpc.schedule.model import Schedule

__all__ = ["ENGINES", "SimulationDeadlock", "Stopped", "Timing", "simulate"]

HBM = ("shared", "fifo")
ENGINES = ("auto", "plain", "fast")
SLICE = 1 << 16
"""Events between two looks at progress."""
FAST_FROM = 1 << 20
"""Task instances from which on "auto" takes the compiled loop: fewer are done before
its code is loaded, and in less time than its very first compilation takes."""

Watch = Callable[[float, float], None]
"""Told the share of steps that are done, and the simulated time in microseconds."""


class Stopped(KeyboardInterrupt):
    """A run was interrupted: how far it had come."""

    def __init__(self, share: float, now_us: float) -> None:
        super().__init__(
            f"stopped at {now_us:.1f} us of simulated time; "
            f"{100 * share:.0f} % of all steps were done"
        )
        self.share, self.now_us = share, now_us


def simulate(
    schedule: Schedule,
    counts: npt.ArrayLike,
    machine: Machine,
    *,
    record: bool = False,
    hbm: str = "shared",
    faults: Sequence[Fault] = (),
    fold: bool = True,
    engine: str = "auto",
    watch: Watch | None = None,
    dispatch: str = "static",
    repeated: bool = False,
) -> Timing:
    """Simulated time of one launch with routing `counts[source rank][expert]`.

    `record` keeps the intervals of all cores and puts for traces. `hbm` is "shared"
    or "fifo". `faults` are injected (see `hpc.interp.inject`). With `fold`, one rank
    stands for all where they provably do the same. `engine` is "plain", "fast" (needs
    numba; ModuleNotFoundError without) or "auto"; the result is the same. `watch`
    hears of progress. `dispatch` is "static" (queues fixed at compile time) or
    "dynamic" (every task is handed out at run time). `repeated`: the launch follows an
    identical one, whose data are still in L2. Raises SimulationDeadlock, Stopped on an
    interrupt, and ValueError for counts of another shape.
    """
    if hbm not in HBM:
        raise ValueError(f"hbm must be 'shared' or 'fifo', got {hbm!r}")
    # Faults and traces name single ranks.
    machine = dispatched(machine, dispatch)
    one = fold and not record and not faults
    one = one and foldable(schedule.layer, counts, machine)
    options = (repeated, hbm == "shared", faults, engine, watch)
    try:
        run = _run(schedule, counts, machine, 1 if one else None, *options)
    except SimulationDeadlock:
        if not one:
            raise
        # Says who waits for whom on all ranks.
        run = _run(schedule, counts, machine, None, *options)
    return measure(run, record=record)


def _run(
    schedule: Schedule,
    counts: npt.ArrayLike,
    machine: Machine,
    ranks: int | None,
    repeated: bool,
    shared: bool,
    faults: Sequence[Fault],
    engine: str,
    watch: Watch | None,
) -> Run:
    work = expand(schedule, counts, machine, ranks, repeated=repeated)
    program = build_program(schedule, work, machine)
    return execute(schedule, work, program, machine, shared, faults, engine, watch)


def execute(
    schedule: Schedule,
    work: Expanded,
    program: Program,
    machine: Machine,
    shared: bool = True,
    faults: Sequence[Fault] = (),
    engine: str = "auto",
    watch: Watch | None = None,
) -> Run:
    """Runs the event loop to the end; SimulationDeadlock if cores cannot finish."""
    state = State(schedule, work, program, machine, shared=shared)
    if faults:
        from hpc.interp.faulty import run_with_faults

        run_with_faults(state, schedule, program, work, faults)
    else:
        launch(state)
        _finish(state, _is_fast(engine, len(state.work_us)), watch)
    run = state.result(schedule, work, program, machine)
    if state.stuck():
        raise deadlock(run, state.steps(), state.left, faults)
    return run


def _is_fast(engine: str, instances: int) -> bool:
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    if engine != "auto":
        return engine == "fast"
    if instances < FAST_FROM:
        return False
    from hpc.interp.compiled import available

    return available()


def _finish(state: State, fast: bool, watch: Watch | None) -> None:
    """Slices of events until none is left."""

    def tell() -> None:
        if watch is not None:
            watch(*_progress(state))

    try:
        if fast:
            from hpc.interp.compiled import run_compiled

            run_compiled(state, SLICE, tell)
            return
        while run_events(state, SLICE) == SLICE:
            tell()
    except KeyboardInterrupt as interrupt:
        raise Stopped(*_progress(state)) from interrupt


def _progress(state: State) -> tuple[float, float]:
    """Share of the steps that are done, simulated time."""
    left = sum(state.stop) - sum(state.pos)
    return 1 - left / max(1, len(state.work_us)), state.clock[0]
