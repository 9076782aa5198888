"""Intervals of a run as flat arrays, for traces and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpc.interp.program import NO_GATE
from hpc.interp.task_steps import BARRIER

if TYPE_CHECKING:
    from hpc.interp.timing import Run

WORK, WAIT = 0, 1

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TraceData:
    """What every core and every put did, one array entry per interval.

    Cores: `kind` is WORK or WAIT; `unit` indexes `units`; `core` is the core's number
    within its unit; `instr` the index in `schedule.queues[queue].code` (of the task,
    put, or of the wait or barrier); `cause` indexes `causes`, -1 for work. A wait
    includes its poll. Ordered by rank, queue, core, time.

    Puts (one entry per tile): `put_begin` .. `put_sent` on the egress of `put_source`,
    `put_arrive` .. `put_delivered` on the ingress of `put_dest`; source = destination
    for a local copy. `put_queue` and `put_instr` name the instruction.
    """

    units: tuple[str, ...]
    causes: tuple[str, ...]
    rank: Ints
    unit: Ints
    core: Ints
    queue: Ints
    instr: Ints
    kind: Ints
    cause: Ints
    start_us: Floats
    end_us: Floats
    put_source: Ints
    put_dest: Ints
    put_queue: Ints
    put_instr: Ints
    put_bytes: Floats
    put_begin_us: Floats
    put_sent_us: Floats
    put_arrive_us: Floats
    put_delivered_us: Floats


def trace_of(run: Run) -> TraceData:
    """The intervals of a run; empty ones are left out."""
    units = ("aic", "aiv")
    causes = tuple(dict.fromkeys(gate.cause for gate in run.program.gates))
    parts = [
        part
        for q in range(len(run.schedule.queues))
        for part in (_intervals(run, q, WORK, causes), _intervals(run, q, WAIT, causes))
    ]
    rows = np.concatenate(parts, axis=1) if parts else np.zeros((9, 0))
    rank, queue, core, start = rows[0], rows[3], rows[2], rows[7]
    rows = rows[:, np.lexsort((start, core, queue, rank))]
    names = ("rank", "unit", "core", "queue", "instr", "kind", "cause")
    whole = dict(zip(names, rows[:7].astype(np.int32), strict=True))
    return TraceData(
        units, causes, **whole, start_us=rows[7], end_us=rows[8], **_puts(run)
    )


def _intervals(run: Run, q: int, kind: int, causes: tuple[str, ...]) -> Floats:
    """Rows rank, unit, core, queue, instr, kind, cause, start, end."""
    queue, shares = run.schedule.queues[q], run.work.queues[q]
    code, gates = run.program.codes[q], run.program.gates
    arrive, start, end = (run.block(a, q) for a in (run.arrive, run.start, run.end))
    low, high = (start, end) if kind == WORK else (arrive, start)
    instr = np.array([step.work for step in shares.steps])
    cause = np.full(len(instr), -1)
    if kind == WAIT:
        at = [s.work if s.kind == BARRIER else s.wait for s in shares.steps]
        instr = np.array(at)
        known = [causes.index(gates[g].cause) if g >= 0 else -1 for g in code.gates]
        cause = np.array(known)
    some = high > low
    if kind == WAIT:
        some &= np.array(code.gates) != NO_GATE
    rank, core, step = np.nonzero(some)
    fixed = np.ones_like(rank)
    unit = ("aic", "aiv").index(queue.team.unit)
    columns = (
        rank,
        unit * fixed,
        core + queue.team.first,
        q * fixed,
        instr[step],
        kind * fixed,
        cause[step],
        low[some],
        high[some],
    )
    return np.array([np.asarray(column, dtype=np.float64) for column in columns])


def _puts(run: Run) -> dict[str, npt.NDArray[Any]]:
    tiles, ranks = run.work.puts, run.schedule.layer.ep
    queue = np.zeros(len(tiles.shift), dtype=np.int32)
    instr = np.zeros(len(tiles.shift), dtype=np.int32)
    # `first` is in tile order, so a later instruction overwrites the tail of this one.
    for (q, i), first in tiles.first.items():
        queue[first:], instr[first:] = q, i
    hop = np.tile(tiles.hop_us, ranks)
    return {
        "put_source": run.put_source.astype(np.int32),
        "put_dest": run.put_dest.astype(np.int32),
        "put_queue": np.tile(queue, ranks),
        "put_instr": np.tile(instr, ranks),
        "put_bytes": tiles.bytes.ravel(),
        "put_begin_us": run.put_begin,
        "put_sent_us": run.put_sent,
        "put_arrive_us": run.put_begin + hop,
        "put_delivered_us": run.put_delivered,
    }
