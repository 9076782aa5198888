"""Unions of time intervals: how much communication runs behind computation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hpc.interp.task_steps import COMPUTE

if TYPE_CHECKING:
    from hpc.interp.timing import Run

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]


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


def hidden_shares(run: Run) -> list[float]:
    """Per rank with traffic, what `Timing.comm_hidden` is the mean of."""
    shares: list[float] = []
    for rank, (start, end) in enumerate(_link_intervals(run)):
        start, end = union(start, end)
        total = float((end - start).sum())
        if not total:
            continue
        busy = union(*_aic_intervals(run, rank))
        overlap = covered(*busy, end) - covered(*busy, start)
        shares.append(float(overlap.sum()) / total)
    return shares


def _link_intervals(run: Run) -> Iterator[tuple[Floats, Floats]]:
    """(starts, ends) of all transfers over the links of each rank."""
    some = run.work.puts.bytes.ravel() > 0
    away = np.flatnonzero(run.put_away & some).astype(np.int32)
    hop, issue = run.work.puts.hop_us, run.work.puts.issue_us
    out = _by_rank(run.put_source, away, run.ranks)
    into = _by_rank(run.put_dest, away, run.ranks)
    for sent, got in zip(out, into, strict=True):
        tile = got % len(hop)
        coming = run.put_begin[got] + hop[tile]
        yield (
            np.concatenate((run.put_begin[sent], coming)),
            np.concatenate((run.put_sent[sent], run.put_delivered[got] - issue[tile])),
        )


def _by_rank(ranks: Ints, puts: Ints, count: int) -> list[Ints]:
    """`puts` sorted into one list per rank, by `ranks[put]`."""
    order = puts[np.argsort(ranks[puts], kind="stable")]
    cuts = np.searchsorted(ranks[order], np.arange(1, count))
    return np.split(order, cuts)


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
