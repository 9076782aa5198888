"""What of every step's bytes is found in L2: reuse by distance, in simulated order.

The unit is a *slice*: a part [expert, part] of a buffer, cut into pieces of at most
1/32 of the cache. Steps touch the slices of their operands and results one after the
other while they run (`rough` says when), so what runs side by side shares the cache.
The least recently touched bytes leave first; a write allocates. Reads that hit cost no
HBM; every byte written is written back once, and charged to its writer.

`repeated`: the launch follows an identical one, as in the loop of a benchmark: what
that one left is still there, and what is overwritten there is never written back.

Ranks with the same sizes and the same order share one replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil

import numpy as np
import numpy.typing as npt

from hpc.interp.pricing import MATRIX_OPS
from hpc.interp.rough import Times
from hpc.interp.rows import Ints, RowTable
from hpc.interp.task_steps import COMPUTE, PUT, Floats, Step
from hpc.machine.record import Machine
from hpc.schedule.layer import DTYPE_BYTES
from hpc.schedule.model import Put, Region, Schedule, Task

PIECES = 32
"""A slice is at most this fraction of the cache."""

Atom = tuple[str, int | None, int | None]


@dataclass(frozen=True, slots=True)
class Access:
    """A step's use of one region: its slices, and the share of them that it uses
    (float64 [ranks]). `local`: a write of a put at its source."""

    slices: Ints
    share: Floats
    write: bool
    local: bool = False


@dataclass(slots=True)
class Traffic:
    """Bytes of the steps of one queue, float64 [ranks, steps].

    `local` are those of `written` that a put writes at its source.
    """

    read: Floats
    hit: Floats
    written: Floats
    absorbed: Floats
    local: Floats

    @property
    def missed(self) -> Floats:
        return self.read - self.hit

    @property
    def stored(self) -> Floats:
        """Bytes that are written back."""
        return self.written - self.absorbed


def in_order(values: Floats) -> Floats:
    """Sums along the first axis, one after the other: to the same bits for one column
    as for many, which numpy's sum does not promise."""
    return np.add.accumulate(values, axis=0)[-1]


class Footprint:
    """Every access of every step, and the slices they name."""

    def __init__(
        self,
        schedule: Schedule,
        rows: RowTable,
        machine: Machine,
        steps: list[list[Step]],
    ) -> None:
        self.schedule, self.rows = schedule, rows
        self.piece_bytes = machine.l2_bytes / PIECES
        self.capacity = float(machine.l2_bytes)
        self.buffers = {buffer.name: buffer for buffer in schedule.buffers}
        self.row_bytes = {
            b.name: b.cols * DTYPE_BYTES[b.dtype] for b in schedule.buffers
        }
        self._atoms: dict[Atom, Ints] = {}
        self._sizes: list[Floats] = []
        self.steps = steps
        self._regions: dict[Region, Ints] = {}
        self._totals: dict[Region, Floats] = {}
        self._every: Floats = np.ones(rows.ranks)
        self.accesses = [
            [self._of_step(q, step) for step in queue] for q, queue in enumerate(steps)
        ]
        self.sizes: Floats = (
            np.array(self._sizes).T
            if self._sizes
            else np.zeros((rows.ranks, 0), dtype=np.float64)
        )

    def bytes_of(self, access: Access) -> Floats:
        """Bytes that the access touches, float64 [ranks]."""
        slices = access.slices
        if len(slices) == 1:
            return self.sizes[:, slices[0]] * access.share
        return in_order(self.sizes[:, slices].T) * access.share

    def traffic(self) -> list[Traffic]:
        """Bytes of every step as if nothing was in the cache."""
        found: list[Traffic] = []
        for q, queue in enumerate(self.steps):
            shape = (self.rows.ranks, len(queue))
            mine = Traffic(*(np.zeros(shape) for _ in range(5)))
            for s, accesses in enumerate(self.accesses[q]):
                for access in accesses:
                    moved = self.bytes_of(access)
                    kind = mine.written if access.write else mine.read
                    kind[:, s] += moved
                    if access.local:
                        mine.local[:, s] += moved
            found.append(mine)
        return found

    def _of_step(self, q: int, step: Step) -> list[Access]:
        if step.kind not in (COMPUTE, PUT):
            return []
        instr = self.schedule.queues[q].code[step.work]
        if isinstance(instr, Put):
            return self._of_put(instr)
        assert isinstance(instr, Task)
        return self._of_task(instr)

    def _of_task(self, task: Task) -> list[Access]:
        if task.op in MATRIX_OPS:
            some = (self.rows.rows(task.reads[0]) > 0).astype(np.float64)
            reads = [self._access(region, some) for region in task.reads]
            return reads + [self._written(region) for region in task.writes]
        to_token = self.buffers[task.writes[0].buffer].space == "token"
        rows = self.rows.rows(task.writes[0]).astype(np.float64)
        found: list[Access] = []
        for region in task.reads:
            # A token's row comes from all its slots; every other from one row.
            slots = to_token and self.buffers[region.buffer].space == "slot"
            times = self.schedule.layer.top_k if slots else 1
            wanted = rows * times * self.row_bytes[region.buffer]
            found.append(self._used(region, wanted))
        return found + [self._written(region) for region in task.writes]

    def _of_put(self, put: Put) -> list[Access]:
        """Reads of what this rank sends; writes of what it receives meanwhile, as all
        ranks run the same program; and what a dot product reads and writes here."""
        ks = list(self.schedule.groups[put.group])
        back = put.kind == "combine"
        table = self.rows.received if back else self.rows.sent
        sent = table[:, put.expert, ks].sum(axis=1).astype(np.float64)
        found = [
            self._used(put.source, sent * self.row_bytes[put.source.buffer]),
            self._written(put.dest),
        ]
        if put.dot:
            rows, result = put.dot
            found.append(self._used(rows, sent * self.row_bytes[rows.buffer]))
            found.append(self._written(result, local=True))
        return found

    def _used(self, region: Region, wanted: Floats) -> Access:
        """A read of `wanted` bytes, spread over the region."""
        slices = self._slices(region)
        total = self._totals.get(region)
        if total is None:
            every: list[int] = slices.tolist()
            total = in_order(np.array([self._sizes[i] for i in every]))
            self._totals[region] = total
        share = np.minimum(1.0, wanted / np.maximum(total, 1.0))
        return Access(slices, share, write=False)

    def _access(self, region: Region, share: Floats) -> Access:
        return Access(self._slices(region), share, write=False)

    def _written(self, region: Region, *, local: bool = False) -> Access:
        return Access(self._slices(region), self._every, write=True, local=local)

    def _slices(self, region: Region) -> Ints:
        found = self._regions.get(region)
        if found is None:
            parts = [self._atom(atom) for atom in self._parts(region)]
            found = self._regions[region] = np.concatenate(parts)
        return found

    def _parts(self, region: Region) -> Iterator[Atom]:
        buffer = self.buffers[region.buffer]
        experts = range(self.schedule.layer.local_experts)
        match buffer.space:
            case "token":
                chunks = range(self.schedule.row_chunks)
                parts = chunks if region.part is None else [region.part]
                yield from ((region.buffer, None, part) for part in parts)
            case "weight":
                chosen = experts if region.expert is None else [region.expert]
                yield from ((region.buffer, e, None) for e in chosen)
            case _:
                chosen = experts if region.expert is None else [region.expert]
                groups = range(len(self.schedule.groups))
                parts = groups if region.part is None else [region.part]
                yield from ((region.buffer, e, p) for e in chosen for p in parts)

    def _atom(self, atom: Atom) -> Ints:
        """Slices of one part of a buffer; as many on every rank."""
        found = self._atoms.get(atom)
        if found is None:
            name, expert, part = atom
            buffer = self.buffers[name]
            if buffer.space == "weight":
                rows = np.full(self.rows.ranks, buffer.rows)
            else:
                rows = self.rows.rows(Region(name, expert, part))
            size = rows * float(self.row_bytes[name])
            count = max(1, ceil(size.max(initial=0.0) / self.piece_bytes))
            first = len(self._sizes)
            self._sizes += [size / count] * count
            found = self._atoms[atom] = np.arange(first, first + count)
        return found


@dataclass(slots=True)
class _Touches:
    """All touches of all steps, before they are put in order."""

    slice: list[int] = field(default_factory=list[int])
    access: list[int] = field(default_factory=list[int])
    column: list[int] = field(default_factory=list[int])
    place: list[float] = field(default_factory=list[float])
    write: list[bool] = field(default_factory=list[bool])


def replay(
    footprint: Footprint,
    traffic: list[Traffic],
    times: list[Times],
    *,
    repeated: bool = False,
) -> None:
    """Enters what hits into the `traffic` of every queue's steps."""
    touches, shares = _touches(footprint)
    start = np.concatenate([t.start for t in times], axis=1)
    took = np.concatenate([t.end for t in times], axis=1) - start
    column = np.array(touches.column, dtype=np.int64)
    when = start[:, column] + took[:, column] * np.array(touches.place)
    order = np.argsort(when, axis=1, kind="stable")
    known: dict[tuple[bytes, bytes, bytes], tuple[Floats, Floats]] = {}
    widths = [t.read.shape[1] for t in traffic]
    bounds = np.cumsum([0, *widths])
    for rank in range(footprint.rows.ranks):
        sizes = footprint.sizes[rank]
        key = order[rank].tobytes(), sizes.tobytes(), shares[:, rank].tobytes()
        if key not in known:
            cache = _Cache(touches, sizes.tolist(), shares[:, rank].tolist())
            known[key] = cache.run(
                order[rank].tolist(), footprint.capacity, int(bounds[-1]), repeated
            )
        for q, mine in enumerate(traffic):
            part = slice(bounds[q], bounds[q + 1])
            mine.hit[rank], mine.absorbed[rank] = (row[part] for row in known[key])


def _touches(footprint: Footprint) -> tuple[_Touches, Floats]:
    """Touches in program order, and the share of every access [accesses, ranks]."""
    found = _Touches()
    shares: list[Floats] = []
    column = 0
    for queue in footprint.accesses:
        for accesses in queue:
            beats = max((len(access.slices) for access in accesses), default=0)
            for access in accesses:
                count = len(access.slices)
                found.slice += access.slices.tolist()
                found.access += [len(shares)] * count
                found.column += [column] * count
                # Slice j of n is used in beat j * beats // n of a step.
                found.place += [
                    (j * beats // count + 0.5) / beats for j in range(count)
                ]
                found.write += [access.write] * count
                shares.append(access.share)
            column += 1
    table = np.array(shares) if shares else np.zeros((0, footprint.rows.ranks))
    return found, table


class _Cache:
    """The cache of one rank: resident bytes by slice, least recently used first."""

    def __init__(
        self, touches: _Touches, sizes: list[float], shares: list[float]
    ) -> None:
        self.touches, self.sizes, self.shares = touches, sizes, shares

    def run(
        self, order: list[int], capacity: float, columns: int, repeated: bool
    ) -> tuple[Floats, Floats]:
        """Bytes read and bytes overwritten in the cache, by step."""
        resident: dict[int, float] = {}
        if repeated:
            self._pass(order, capacity, resident, columns)
        hit, overwritten = self._pass(order, capacity, resident, columns)
        if not repeated:
            overwritten[:] = 0.0
        return hit, overwritten

    def _pass(
        self,
        order: list[int],
        capacity: float,
        resident: dict[int, float],
        columns: int,
    ) -> tuple[Floats, Floats]:
        touches, sizes, shares = self.touches, self.sizes, self.shares
        hit: npt.NDArray[np.float64] = np.zeros(columns)
        overwritten = np.zeros(columns)
        total = sum(resident.values())
        for t in order:
            which = touches.slice[t]
            share, size = shares[touches.access[t]], sizes[which]
            held = resident.pop(which, 0.0)
            found = overwritten if touches.write[t] else hit
            found[touches.column[t]] += share * held
            now = held + share * (size - held)
            resident[which] = now
            total += now - held
            while total > capacity:
                oldest = next(iter(resident))
                excess = total - capacity
                if resident[oldest] > excess:
                    resident[oldest] -= excess
                    total = capacity
                else:
                    total -= resident.pop(oldest)
        return hit, overwritten


def hit_rates(
    schedule: Schedule, steps: list[list[Step]], traffic: list[Traffic]
) -> dict[str, float]:
    """Share of the bytes read that L2 had, over all ranks, by "operator: result"."""
    read: dict[str, float] = {}
    hit: dict[str, float] = {}
    for queue, mine, all_of in zip(schedule.queues, steps, traffic, strict=True):
        reads, hits = all_of.read.sum(axis=0).tolist(), all_of.hit.sum(axis=0).tolist()
        for s, step in enumerate(mine):
            if step.kind not in (COMPUTE, PUT):
                continue
            instr = queue.code[step.work]
            if isinstance(instr, Put):
                name = f"{instr.kind}: {instr.dest.buffer}"
            else:
                assert isinstance(instr, Task)
                name = f"{instr.op}: {instr.writes[0].buffer}"
            read[name] = read.get(name, 0.0) + reads[s]
            hit[name] = hit.get(name, 0.0) + hits[s]
    return {name: hit_rate(hit[name], read[name]) for name in read if read[name]}


def hit_rate(hit: float, read: float) -> float:
    """Share of bytes, without the digits in which sums over one rank and over many that
    do the same differ."""
    return round(hit / max(read, 1.0), 12)


__all__ = ["Access", "Footprint", "Traffic", "hit_rate", "hit_rates", "replay"]
