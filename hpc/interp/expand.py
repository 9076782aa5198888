"""A schedule and its routing become arrays of task instances, one per core and step.

A *step* of a queue is what a worker does in one go: fetch, wait, run, signal. Every
core of a team has the same steps; what differs is its share of the work. Shares follow
`hpc.schedule.model`: tile t of an instruction belongs to core (offset + t) mod team.

Bytes charged to HBM: rows of a GMM once per instruction and its result once; weights of
an expert once per instruction, unless the previous GMM of that queue used the same ones
and they fit L2; both operands and the result of a gradient of weights once; operands
and results of a vector task once. Each core pays in proportion to its tiles: the cores
of a die share through L2. A put with a dot product reads a second row and writes the
product, at its source.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpc.interp.pricing import Pricer
from hpc.interp.rows import Ints, RowTable
from hpc.interp.task_steps import Floats, Shares, queue_steps
from hpc.machine.cost import vector_compute_us
from hpc.machine.record import Machine
from hpc.schedule.layer import DTYPE_BYTES
from hpc.schedule.model import Buffer, Put, Schedule


@dataclass(slots=True)
class PutTiles:
    """All tiles of all puts of one rank's program, in program order by queue.

    `first[q, i]` is the first tile of put instruction i of queue q. Per tile: `shift`
    (destination = rank + shift), `combine`, and as float64 [ranks, tiles]: `bytes` that
    it moves, `extra_bytes` that its source reads and writes beside them, and `work_us`
    of arithmetic (scaling, dot product) on its core, which runs behind the transfer.
    `pull` has one number per put instruction: bytes at the source over bytes moved.
    """

    first: dict[tuple[int, int], int]
    shift: Ints
    combine: npt.NDArray[np.bool_]
    bytes: Floats
    extra_bytes: Floats
    work_us: Floats
    pull: list[float]


@dataclass(slots=True)
class Expanded:
    """Everything the engine needs to know about the work of a run.

    `work_us` and `hbm_bytes` have one entry per task instance, ordered by rank, queue,
    core and step. They are the engine's own arrays: nothing is held twice.
    """

    rows: RowTable
    work_us: array[float]
    hbm_bytes: array[float]
    queues: list[Shares]
    puts: PutTiles


def expand(
    schedule: Schedule,
    counts: npt.ArrayLike,
    machine: Machine,
    ranks: int | None = None,
) -> Expanded:
    """Shares of all cores of all ranks, or of the first `ranks`.

    Raises ValueError if `counts` has another shape.
    """
    rows = RowTable(schedule, counts, ranks)
    ranks = rows.ranks
    steps = [queue_steps(queue) for queue in schedule.queues]
    sizes = [q.team.size * len(s) for q, s in zip(schedule.queues, steps, strict=True)]
    work_us = array("d", [0.0]) * (ranks * sum(sizes))
    hbm_bytes = array("d", [0.0]) * (ranks * sum(sizes))
    work = np.frombuffer(work_us).reshape(ranks, -1)
    moved = np.frombuffer(hbm_bytes).reshape(ranks, -1)
    queues: list[Shares] = []
    first = 0
    for queue, mine, size in zip(schedule.queues, steps, sizes, strict=True):
        shape = (ranks, queue.team.size, len(mine))
        shares = Shares(
            mine,
            work[:, first : first + size].reshape(shape),
            moved[:, first : first + size].reshape(shape),
            np.zeros(shape, dtype=np.int32),
            np.zeros((ranks, len(queue.code) + 1), dtype=np.int64),
        )
        first += size
        queues.append(shares)
    pricer = Pricer(schedule, rows, machine)
    for queue, shares in zip(schedule.queues, queues, strict=True):
        pricer.fill(queue, shares)
    return Expanded(
        rows, work_us, hbm_bytes, queues, _put_tiles(schedule, rows, machine)
    )


def _put_tiles(schedule: Schedule, rows: RowTable, machine: Machine) -> PutTiles:
    """Destination and bytes of every put tile of every rank."""
    first: dict[tuple[int, int], int] = {}
    shifts: list[npt.NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)]
    empty = np.zeros((rows.ranks, 0))
    columns: tuple[list[Floats], ...] = ([empty], [empty], [empty])
    combine: list[bool] = []
    pull: list[float] = []
    buffers = {buffer.name: buffer for buffer in schedule.buffers}
    for q, queue in enumerate(schedule.queues):
        for i, put in enumerate(queue.code):
            if not isinstance(put, Put):
                continue
            first[q, i] = len(combine)
            ks = np.array(schedule.groups[put.group], dtype=np.int64)
            back = put.kind == "combine"
            table = rows.received if back else rows.sent
            n = table[:, put.expert, ks]
            bounds = np.arange(put.chunks + 1) * n[:, :, None] // put.chunks
            tile_rows = np.diff(bounds).reshape(len(n), -1).astype(np.float64)
            row = _put_row(put, buffers, machine)
            for column, one in zip(columns, row, strict=True):
                column.append(tile_rows * one)
            pull.append(1 + row[1] / row[0])
            shifts.append(np.repeat(-ks if back else ks, put.chunks))
            combine += [back] * (len(ks) * put.chunks)
    moved, extra, work_us = (np.concatenate(column, axis=1) for column in columns)
    return PutTiles(
        first,
        np.concatenate(shifts),
        np.array(combine, dtype=np.bool_),
        moved,
        extra,
        work_us,
        pull,
    )


def _put_row(
    put: Put, buffers: dict[str, Buffer], machine: Machine
) -> tuple[int, int, float]:
    """(bytes moved, further bytes at the source, microseconds) of one row of a put."""
    dest = buffers[put.dest.buffer]
    cols, dtype = dest.cols, dest.dtype
    extra, work_us = 0, 0.0
    for region in put.dot:
        buffer = buffers[region.buffer]
        extra += buffer.cols * DTYPE_BYTES[buffer.dtype]
    if put.scale:
        work_us += vector_compute_us(machine, "scale", cols, cols, dtype)
    if put.dot:
        work_us += vector_compute_us(machine, "dot", cols, 0, dtype)
    return cols * DTYPE_BYTES[dtype], extra, work_us
