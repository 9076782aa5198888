"""From what the timing engine records to the spans and rates of a trace."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hpc.interp.expand import Expanded
from hpc.interp.trace_data import WORK, TraceData
from hpc.report.trace import Rate, Span
from hpc.schedule.model import Schedule

EGRESS, INGRESS, HBM = "link out", "link in", "HBM"
"""Names of the counter tracks; all in GB/s, averaged over each transfer or task."""

Floats = npt.NDArray[np.float64]


def spans(trace: TraceData) -> Iterator[Span]:
    """What each core did, by rank, queue, core and time."""
    for rank, unit, core, queue, index, start, end in _core_rows(trace):
        yield Span(rank, trace.units[unit], core, queue, index, start, end)


def _core_rows(
    trace: TraceData,
) -> Iterator[tuple[int, int, int, int, int, float, float]]:
    return zip(
        trace.rank.tolist(),
        trace.unit.tolist(),
        trace.core.tolist(),
        trace.queue.tolist(),
        trace.instr.tolist(),
        trace.start_us.tolist(),
        trace.end_us.tolist(),
        strict=True,
    )


def rates(schedule: Schedule, trace: TraceData, work: Expanded) -> Iterator[Rate]:
    """Use of links and HBM: by puts, and of HBM by the tasks of `work`."""
    remote = trace.put_source != trace.put_dest
    sent = (trace.put_begin_us, trace.put_sent_us)
    arrived = (trace.put_arrive_us, trace.put_delivered_us)
    size = trace.put_bytes
    yield from _rates(EGRESS, trace.put_source, *sent, size * remote)
    yield from _rates(INGRESS, trace.put_dest, *arrived, size * remote)
    yield from _rates(HBM, trace.put_source, *sent, work.puts.fetched.ravel())
    yield from _rates(HBM, trace.put_dest, *arrived, work.puts.stored.ravel())
    moved = _task_bytes(schedule, trace, work)
    yield from _rates(HBM, trace.rank, trace.start_us, trace.end_us, moved)


def _task_bytes(schedule: Schedule, trace: TraceData, work: Expanded) -> Floats:
    """HBM bytes of each interval: those of its task; waits move nothing."""
    moved = np.zeros(len(trace.rank))
    for q, shares in enumerate(work.queues):
        step_of = np.zeros(1 + max((s.work for s in shares.steps), default=0), np.intp)
        for step, instr in enumerate(shares.steps):
            if instr.work >= 0:
                step_of[instr.work] = step
        mine = (trace.queue == q) & (trace.kind == WORK)
        core = trace.core[mine] - schedule.queues[q].team.first
        step = step_of[trace.instr[mine]]
        moved[mine] = shares.hbm_bytes[trace.rank[mine], core, step]
    return moved


def _rates(
    resource: str,
    rank: npt.NDArray[np.int32],
    start_us: Floats,
    end_us: Floats,
    moved_bytes: Floats,
) -> Iterator[Rate]:
    """A rate for every interval in which bytes moved; 1 GB/s is 1000 bytes/us."""
    some = (moved_bytes > 0) & (end_us > start_us)
    gbps = moved_bytes[some] / (end_us[some] - start_us[some]) / 1e3
    rows = zip(
        rank[some].tolist(),
        start_us[some].tolist(),
        end_us[some].tolist(),
        gbps.tolist(),
        strict=True,
    )
    for where, start, end, rate in rows:
        yield Rate(where, resource, start, end, rate)
