"""Unions of time intervals: how much communication runs behind computation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hpc.interp.task_steps import COMPUTE

if TYPE_CHECKING:
    from hpc.interp.timing import Run

Floats = npt.NDArray[np.float64]


def union(start: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Disjoint ascending intervals that cover the same time; empty ones are dropped."""
    some = end > start
    start, end = start[some], end[some]
    if not start.size:
        return start, end
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    fresh = np.append(True, start[1:] > reach[:-1])
    last = np.append(np.flatnonzero(fresh)[1:] - 1, len(start) - 1)
    return start[fresh], reach[last]


def covered(start: Floats, end: Floats, times: Floats) -> Floats:
    """How much of (-inf, t] the disjoint ascending intervals cover, for each t."""
    if not start.size:
        return np.zeros_like(times)
    before = np.append(0.0, np.cumsum(end - start))
    at = np.searchsorted(start, times, side="right")
    inside = np.where(at > 0, np.minimum(times, end[at - 1]) - start[at - 1], 0.0)
    return before[np.maximum(at - 1, 0)] + np.maximum(inside, 0.0)


def hidden_share(run: Run) -> float:
    """See `Timing.comm_hidden`."""
    shares: list[float] = []
    for rank in range(run.schedule.layer.ep):
        start, end = union(*_link_intervals(run, rank))
        total = float((end - start).sum())
        if not total:
            continue
        busy = union(*_aic_intervals(run, rank))
        overlap = covered(*busy, end) - covered(*busy, start)
        shares.append(float(overlap.sum()) / total)
    return float(np.mean(shares)) if shares else 1.0


def _link_intervals(run: Run, rank: int) -> tuple[Floats, Floats]:
    some = run.work.puts.bytes.ravel() > 0
    away = (run.put_source != run.put_dest) & some
    out = away & (run.put_source == rank)
    into = away & (run.put_dest == rank)
    hop, issue = run.machine.hop_us, run.machine.put_issue_us
    start = np.concatenate((run.put_begin[out], run.put_begin[into] + hop))
    end = np.concatenate((run.put_sent[out], run.put_delivered[into] - issue))
    return start, end


def _aic_intervals(run: Run, rank: int) -> tuple[Floats, Floats]:
    starts: list[Floats] = [np.zeros(0)]
    ends: list[Floats] = [np.zeros(0)]
    for q, queue in enumerate(run.schedule.queues):
        if queue.team.unit != "aic":
            continue
        steps = run.work.queues[q].steps
        compute = [step.kind == COMPUTE for step in steps]
        starts.append(run.block(run.start, q)[rank][:, compute].ravel())
        ends.append(run.block(run.end, q)[rank][:, compute].ravel())
    return np.concatenate(starts), np.concatenate(ends)
