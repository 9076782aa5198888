"""What every tile of an instruction does: cells read, cells written, values made.

A cell is one row of a buffer on a rank, cut by columns where GMM tiles cut it. A value
is a hash of how it came about, so two runs agree exactly if their outputs were computed
from the same inputs by the same operators. `POISON` marks a cell nobody has written.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from hpc.schedule.model import Buffer, Put, Region, Schedule, Task
from tests.safety.rows import Ids, Illegal, Rows

POISON = 0


class Move(NamedTuple):
    """Cell `dest` becomes the hash of `tag` and the values of `sources`."""

    dest: int
    tag: int
    sources: tuple[int, ...]


class Tile(NamedTuple):
    """The work of one core on one tile; `target` is the rank to signal, -1: none."""

    moves: tuple[Move, ...]
    target: int


class Tiles:
    """Tiles of the instructions of one program under one table, made when asked."""

    def __init__(self, s: Schedule, ids: Ids) -> None:
        self.s = s
        self.at = Rows(s, ids)
        self.buffers = {buffer.name: buffer for buffer in s.buffers}
        self.width = _column_cells(s)
        self.first: dict[tuple[int, str], int] = {}
        self.initial: list[int] = []
        self.owner: list[int] = []
        self.is_output: list[bool] = []
        self.space: list[str] = []
        for rank in range(s.layer.ep):
            for buffer in s.buffers:
                if buffer.space != "weight":
                    self._add(rank, buffer)
        self._made: dict[tuple[Put | Task, int], tuple[Tile, ...]] = {}

    def _add(self, rank: int, buffer: Buffer) -> None:
        self.first[rank, buffer.name] = len(self.initial)
        rows = self._row_count(rank, buffer)
        for i in range(rows * self.width[buffer.name]):
            known = hash((buffer.name, rank, i)) | 1
            self.initial.append(known if buffer.role == "input" else POISON)
            self.owner.append(rank)
            self.is_output.append(buffer.role == "output")
            self.space.append(buffer.space)

    def _row_count(self, rank: int, buffer: Buffer) -> int:
        """The same for every table, so that launches share their cells."""
        if buffer.space == "routed":
            return sum(self.at.tokens) * self.s.layer.top_k
        slots = self.s.layer.top_k if buffer.space == "slot" else 1
        return self.at.tokens[rank] * slots

    def cells(self, rank: int, name: str, row: int) -> list[int]:
        """The cells of one row."""
        width = self.width[name]
        first = self.first[rank, name] + row * width
        return list(range(first, first + width))

    def outputs(self, rank: int) -> list[int]:
        """Cells that hold the results of a rank; slots not sent have none."""
        return [
            cell
            for buffer in self.s.buffers
            if buffer.role == "output"
            for row in self.at.rows(rank, Region(buffer.name))
            for cell in self.cells(rank, buffer.name, row)
        ]

    def of(self, instr: Put | Task, rank: int) -> tuple[Tile, ...]:
        """Tiles in order; Illegal if the instruction has no meaning."""
        key = (instr, rank)
        if key not in self._made:
            make = self._put if isinstance(instr, Put) else self._task
            self._made[key] = tuple(make(instr, rank))
        return self._made[key]

    # -- puts --------------------------------------------------------------------

    def _put(self, put: Put, rank: int) -> list[Tile]:
        ep = self.s.layer.ep
        self._require_put(put)
        tiles: list[Tile] = []
        for k in self.s.groups[put.group]:
            target = (rank + (k if put.kind == "dispatch" else -k)) % ep
            moves = self._moved_rows(put, rank, target)
            n, chunks = len(moves), put.chunks
            for c in range(chunks):
                cut = moves[n * c // chunks : n * (c + 1) // chunks]
                flat = tuple(move for row in cut for move in row)
                tiles.append(Tile(flat, target if put.event is not None else -1))
        return tiles

    def _require_put(self, put: Put) -> None:
        spaces = self._space(put.source), self._space(put.dest)
        wanted = ("token", "routed") if put.kind == "dispatch" else ("routed", "slot")
        if spaces != wanted:
            raise Illegal(f"a {put.kind} goes from {wanted}, not from {spaces}")
        if not 0 <= put.group < len(self.s.groups):
            raise Illegal(f"no group {put.group}")
        if not 0 <= put.expert < max(len(mine) for mine in self.at.owned):
            raise Illegal(f"no local expert {put.expert}")
        if put.chunks < 1:
            raise Illegal(f"{put.chunks} chunks")
        self._require_named(put)
        if not self.buffers[put.dest.buffer].symmetric:
            raise Illegal(f"{put.dest.buffer} is not symmetric")
        self._require_written(put.dest)

    def _moved_rows(self, put: Put, rank: int, target: int) -> list[list[Move]]:
        """Moves of each row that `rank` sends to `target`, in order."""
        dispatch = put.kind == "dispatch"
        source, owner = (rank, target) if dispatch else (target, rank)
        found: list[list[Move]] = []
        for slot in self.at.sent(source, owner, put.expert):
            routed = self.at.row_of[owner][put.expert, source, slot]
            token = slot // self.s.layer.top_k
            here, there = (token, routed) if dispatch else (routed, slot)
            sources = tuple(self.cells(rank, put.source.buffer, here))
            tag = hash(("scaled", source, slot)) if put.scale else 1
            dest = self.cells(target, put.dest.buffer, there)
            found.append([_move(cell, i, tag, sources) for i, cell in enumerate(dest)])
        return found

    def _require_named(self, put: Put) -> None:
        """An exchange names the part of its (expert, group), or all tokens."""
        part = (put.expert, put.group)
        whole = (None, None)
        wanted = (whole if put.kind == "dispatch" else part), part
        named = [(r.expert, r.part) for r in (put.source, put.dest)]
        if named != list(wanted):
            raise Illegal(f"{put.source} -> {put.dest} is not {part}")

    # -- tasks -------------------------------------------------------------------

    def _task(self, task: Task, rank: int) -> list[Tile]:
        if len(task.writes) != 1:
            raise Illegal(f"{task.op} writes {len(task.writes)} regions")
        dest = task.writes[0]
        self._require_written(dest)
        rows = self.at.rows(rank, dest)
        m = task.base.m
        blocks = [rows[i : i + m] for i in range(0, len(rows), m)]
        aligned = task.reads[:1] if task.op == "gmm" else task.reads
        if task.op == "reduce":
            aligned = ()
        for region in aligned:
            if self._named(region) != self._named(dest):
                raise Illegal(f"{region} does not name the part of {dest}")
        if task.op == "gmm":
            return self._gmm(task, rank, blocks)
        gather = self._slots_of if task.op == "reduce" else self._same_row
        tag = hash((task.op, task.params))
        return [
            Tile(
                tuple(
                    _move(cell, i, tag, gather(task, rank, row))
                    for row in block
                    for i, cell in enumerate(self.cells(rank, dest.buffer, row))
                ),
                -1,
            )
            for block in blocks
        ]

    def _gmm(self, task: Task, rank: int, blocks: list[list[int]]) -> list[Tile]:
        """Tiles column by column of tiles, as the model says."""
        source, weight = task.reads
        experts = max(len(mine) for mine in self.at.owned)
        if self._space(weight) != "weight" or weight.part is not None:
            raise Illegal(f"{weight} is no matrix")
        if weight.expert is None or not 0 <= weight.expert < experts:
            raise Illegal(f"{weight} is no matrix")
        dest, n = task.writes[0].buffer, task.base.n
        if self.buffers[source.buffer].cols != self.buffers[weight.buffer].rows:
            raise Illegal(f"{source} does not fit {weight}")
        if self.buffers[dest].cols != self.buffers[weight.buffer].cols:
            raise Illegal(f"{weight} does not fit {dest}")
        tag = hash(("gmm", weight.buffer, rank, weight.expert))
        cell_cols = self._cell_cols(dest)
        tiles: list[Tile] = []
        for j in range(-(-self.buffers[dest].cols // n)):
            for block in blocks:
                moves: list[Move] = []
                for row in block:
                    read = self._row(source, rank, row)
                    cells = self.cells(rank, dest, row)
                    lo, hi = j * n // cell_cols, (j + 1) * n // cell_cols
                    moves += [
                        _move(cells[i], i, tag, read)
                        for i in range(lo, min(hi, len(cells)))
                    ]
                tiles.append(Tile(tuple(moves), -1))
        return tiles

    def _cell_cols(self, name: str) -> int:
        return -(-self.buffers[name].cols // self.width[name])

    def _same_row(self, task: Task, rank: int, row: int) -> tuple[int, ...]:
        return tuple(c for read in task.reads for c in self._row(read, rank, row))

    def _named(self, region: Region) -> tuple[str, int | None, int | None]:
        return self._space(region), region.expert, region.part

    def _row(self, region: Region, rank: int, row: int) -> tuple[int, ...]:
        if row not in self.at.row_set(rank, region):
            raise Illegal(f"a task reads row {row} outside {region}")
        return tuple(self.cells(rank, region.buffer, row))

    def _slots_of(self, task: Task, rank: int, token: int) -> tuple[int, ...]:
        """Cells of the slots of a token that were sent, and of their weights."""
        top_k = self.s.layer.top_k
        slots = range(token * top_k, (token + 1) * top_k)
        for read in task.reads:
            if self._named(read) != ("slot", None, None):
                raise Illegal(f"reduce reads all slots, not {read}")
        return tuple(
            cell
            for slot in slots
            if self.at.choice[rank][slot] >= 0
            for read in task.reads
            for cell in self._row(read, rank, slot)
        )

    def _space(self, region: Region) -> str:
        if region.buffer not in self.buffers:
            raise Illegal(f"no buffer {region.buffer}")
        return self.buffers[region.buffer].space

    def _require_written(self, region: Region) -> None:
        space = self._space(region)
        if self.buffers[region.buffer].role in ("input", "weight"):
            raise Illegal(f"{region.buffer} is not to be written ({space})")


def _move(dest: int, column: int, tag: int, sources: tuple[int, ...]) -> Move:
    return Move(dest, hash((tag, column)), sources)


def _column_cells(s: Schedule) -> dict[str, int]:
    """Cells of a row: as few as no GMM tile cuts through."""
    step: dict[str, int] = {}
    for queue in s.queues:
        for instr in queue.code:
            if isinstance(instr, Task) and instr.op == "gmm" and instr.base.n > 0:
                name = instr.writes[0].buffer
                step[name] = gcd(step.get(name, 0), instr.base.n)
    return {b.name: -(-b.cols // step.get(b.name, b.cols)) for b in s.buffers}
