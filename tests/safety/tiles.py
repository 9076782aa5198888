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
    """The work of one core on one tile; `target` is the rank to signal, -1: none.
    `kept` stays with the core where `moves` travel."""

    moves: tuple[Move, ...]
    target: int
    kept: tuple[Move, ...] = ()


class Tiles:
    """Tiles of the instructions of one program under one table, made when asked."""

    def __init__(self, s: Schedule, ids: Ids) -> None:
        self.s = s
        self.at = Rows(s, ids)
        self.buffers = {buffer.name: buffer for buffer in s.buffers}
        self.steps = _cell_steps(s)
        self.first: dict[tuple[int, str], int] = {}
        self.initial: list[int] = []
        self.owner: list[int] = []
        self.is_output: list[bool] = []
        self.space: list[str] = []
        for rank in range(s.layer.ep):
            for buffer in s.buffers:
                if buffer.role != "weight":
                    self._add(rank, buffer)
        self._made: dict[tuple[Put | Task, int], tuple[Tile, ...]] = {}

    def _add(self, rank: int, buffer: Buffer) -> None:
        self.first[rank, buffer.name] = len(self.initial)
        rows = self._row_count(rank, buffer)
        for i in range(rows * self.width(buffer.name)):
            given = buffer.role in ("input", "saved")
            self.initial.append(self._given(rank, buffer, i) if given else POISON)
            self.owner.append(rank)
            self.is_output.append(buffer.role == "output")
            self.space.append(buffer.space)

    def _given(self, rank: int, buffer: Buffer, i: int) -> int:
        """What a cell holds before the launch: routed rows lie where groups say."""
        row, column = divmod(i, self.width(buffer.name))
        routed = self.at.routed[rank]
        if buffer.space == "routed" and row < len(routed):
            found = routed[row]
            key = (found.expert, found.source, found.slot, column)
            return hash((buffer.name, rank, key)) | 1
        return hash((buffer.name, rank, row, column)) | 1

    def _row_count(self, rank: int, buffer: Buffer) -> int:
        """The same for every table, so that launches share their cells."""
        if buffer.space == "routed":
            return sum(self.at.tokens) * self.s.layer.top_k
        if buffer.space == "weight":
            return self.s.layer.local_experts
        slots = self.s.layer.top_k if buffer.space == "slot" else 1
        return self.at.tokens[rank] * slots

    def width(self, name: str) -> int:
        """Cells of one row; for matrices, of one matrix."""
        buffer = self.buffers[name]
        m, n = self.steps.get(_shape(buffer), (buffer.rows, buffer.cols))
        across = -(-buffer.cols // n)
        return across * -(-buffer.rows // m) if buffer.space == "weight" else across

    def cells(self, rank: int, name: str, row: int) -> list[int]:
        """The cells of one row; for matrices, those of expert `row`."""
        width = self.width(name)
        first = self.first[rank, name] + row * width
        return list(range(first, first + width))

    def outputs(self, rank: int) -> list[int]:
        """Cells that hold the results of a rank; slots not sent have none."""
        return [
            cell
            for buffer in self.s.buffers
            if buffer.role == "output"
            for row in self._output_rows(rank, buffer)
            for cell in self.cells(rank, buffer.name, row)
        ]

    def _output_rows(self, rank: int, buffer: Buffer) -> list[int]:
        if buffer.space == "weight":
            return list(range(len(self.at.owned[rank])))
        return self.at.rows(rank, Region(buffer.name))

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
            rows = self._moved_rows(put, rank, target)
            n, chunks = len(rows), put.chunks
            for c in range(chunks):
                cut = rows[n * c // chunks : n * (c + 1) // chunks]
                moves = tuple(move for row, _ in cut for move in row)
                kept = tuple(move for _, row in cut for move in row)
                signalled = target if put.event is not None else -1
                tiles.append(Tile(moves, signalled, kept))
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

    def _moved_rows(
        self, put: Put, rank: int, target: int
    ) -> list[tuple[list[Move], list[Move]]]:
        """Moves of each row that `rank` sends to `target`, in order, and those of its
        dot products."""
        dispatch = put.kind == "dispatch"
        source, owner = (rank, target) if dispatch else (target, rank)
        found: list[tuple[list[Move], list[Move]]] = []
        for slot in self.at.sent(source, owner, put.expert):
            routed = self.at.row_of[owner][put.expert, source, slot]
            token = slot // self.s.layer.top_k
            here, there = (token, routed) if dispatch else (routed, slot)
            sources = tuple(self.cells(rank, put.source.buffer, here))
            tag = hash(("scaled", source, slot)) if put.scale else 1
            dest = self.cells(target, put.dest.buffer, there)
            moves = [_move(cell, i, tag, sources) for i, cell in enumerate(dest)]
            found.append((moves, self._dot(put, rank, slot, sources)))
        return found

    def _dot(
        self, put: Put, rank: int, slot: int, sources: tuple[int, ...]
    ) -> list[Move]:
        """The dot product of a row sent with a row of this rank, kept here."""
        if not put.dot:
            return []
        rows, result = put.dot
        mine = tuple(self.cells(rank, rows.buffer, slot))
        into = self.cells(rank, result.buffer, slot)
        return [_move(cell, i, 2, sources + mine) for i, cell in enumerate(into)]

    def _require_named(self, put: Put) -> None:
        """An exchange names the part of its (expert, group), or all tokens."""
        part = (put.expert, put.group)
        whole = (None, None)
        wanted = (whole if put.kind == "dispatch" else part), part
        named = [(r.expert, r.part) for r in (put.source, put.dest)]
        if named != list(wanted):
            raise Illegal(f"{put.source} -> {put.dest} is not {part}")
        if not put.dot:
            return
        if put.kind != "dispatch" or len(put.dot) != 2:
            raise Illegal("dot products belong to a dispatch: rows and a result")
        if any(self._named(r) != ("slot", *part) for r in put.dot):
            raise Illegal(f"dot products of {put.dot}, not of {part}")
        self._require_written(put.dot[1])

    # -- tasks -------------------------------------------------------------------

    def _task(self, task: Task, rank: int) -> list[Tile]:
        for region in task.writes:
            self._require_written(region)
        counts = (len(task.reads), len(task.writes))
        if task.op == "reduce_dot" and counts != (3, 2):
            raise Illegal("reduce_dot has three operands and two results")
        if task.op != "reduce_dot" and counts[1] != 1:
            raise Illegal(f"{task.op} writes {counts[1]} regions")
        if task.op in ("gmm", "gmm_nt", "gmm_tn") and counts[0] != 2:
            raise Illegal(f"{task.op} has two operands")
        if task.op == "gmm_tn":
            return self._gmm_tn(task, rank)
        dest = task.writes[0]
        rows = self.at.rows(rank, dest)
        m = task.base.m
        blocks = [rows[i : i + m] for i in range(0, len(rows), m)]
        if task.op in ("gmm", "gmm_nt"):
            self._require_aligned(task.reads[:1], dest)
            return self._gmm(task, rank, blocks)
        make = {"reduce": self._reduce_row, "reduce_dot": self._reduce_dot_row}
        row_moves = make.get(task.op, self._same_row)
        if task.op not in make:
            self._require_aligned(task.reads, dest)
        return [
            Tile(tuple(m for row in block for m in row_moves(task, rank, row)), -1)
            for block in blocks
        ]

    def _require_aligned(self, reads: tuple[Region, ...], dest: Region) -> None:
        for region in reads:
            if self._named(region) != self._named(dest):
                raise Illegal(f"{region} does not name the part of {dest}")

    def _gmm(self, task: Task, rank: int, blocks: list[list[int]]) -> list[Tile]:
        """Tiles column by column of tiles, as the model says."""
        source, weight = task.reads
        self._require_matrix(weight)
        dest, n = task.writes[0].buffer, task.base.n
        matrix = self.buffers[weight.buffer]
        sizes = [matrix.rows, matrix.cols]
        if task.op == "gmm_nt":
            sizes.reverse()
        if [self.buffers[source.buffer].cols, self.buffers[dest].cols] != sizes:
            raise Illegal(f"{source} does not fit {weight}, or its result {dest}")
        tag = hash((task.op, weight.buffer, rank, weight.expert))
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

    def _require_matrix(self, region: Region) -> None:
        experts = self.s.layer.local_experts
        if self._space(region) != "weight" or region.part is not None:
            raise Illegal(f"{region} is no matrix")
        if region.expert is None or not 0 <= region.expert < experts:
            raise Illegal(f"{region} is no matrix of one expert")

    def _gmm_tn(self, task: Task, rank: int) -> list[Tile]:
        """A matrix of one expert from all of its rows, source k ascending."""
        (p, q), dest = task.reads, task.writes[0]
        self._require_matrix(dest)
        for region in (p, q):
            if self._named(region) != ("routed", dest.expert, None):
                raise Illegal(f"{region} is not all rows of {dest}")
        matrix = self.buffers[dest.buffer]
        if (matrix.rows, matrix.cols) != tuple(
            self.buffers[region.buffer].cols for region in (p, q)
        ):
            raise Illegal(f"{p} and {q} do not make {dest}")
        ep, received = self.s.layer.ep, self.at.routed[rank]
        order = sorted(
            self.at.rows(rank, p),
            key=lambda i: ((rank - received[i].source) % ep, received[i].slot),
        )
        read = tuple(c for i in order for r in (p, q) for c in self._row(r, rank, i))
        tag = hash(("gmm_tn", rank, dest.expert))
        assert dest.expert is not None
        cells = self.cells(rank, dest.buffer, dest.expert)
        m, n = self.steps[_shape(matrix)]
        across = -(-matrix.cols // n)
        tiles: list[Tile] = []
        for j in range(-(-matrix.cols // task.base.n)):
            for i in range(-(-matrix.rows // task.base.m)):
                mine = [
                    cells[y * across + x]
                    for y in range(i * task.base.m // m, (i + 1) * task.base.m // m)
                    for x in range(j * task.base.n // n, (j + 1) * task.base.n // n)
                    if x < across and y * across + x < len(cells)
                ]
                moves = tuple(_move(c, c - cells[0], tag, read) for c in mine)
                tiles.append(Tile(moves, -1))
        return tiles

    def _cell_cols(self, name: str) -> int:
        return -(-self.buffers[name].cols // self.width(name))

    def _same_row(self, task: Task, rank: int, row: int) -> list[Move]:
        sources = tuple(c for read in task.reads for c in self._row(read, rank, row))
        return self._moves(task, rank, row, sources)

    def _moves(
        self, task: Task, rank: int, row: int, sources: tuple[int, ...]
    ) -> list[Move]:
        cells = self.cells(rank, task.writes[0].buffer, row)
        tag = hash((task.op, task.params))
        return [_move(cell, i, tag, sources) for i, cell in enumerate(cells)]

    def _named(self, region: Region) -> tuple[str, int | None, int | None]:
        return self._space(region), region.expert, region.part

    def _row(self, region: Region, rank: int, row: int) -> tuple[int, ...]:
        if row not in self.at.row_set(rank, region):
            raise Illegal(f"a task reads row {row} outside {region}")
        return tuple(self.cells(rank, region.buffer, row))

    def _reduce_row(self, task: Task, rank: int, token: int) -> list[Move]:
        """The sum over the slots of a token that were sent, with their weights."""
        sources = self._slots_of(task.reads, rank, token)
        return self._moves(task, rank, token, sources)

    def _reduce_dot_row(self, task: Task, rank: int, token: int) -> list[Move]:
        """The same, and a dot product for each slot with the token's own row."""
        rows, router, tokens = task.reads
        result = task.writes[1]
        if self._named(result) != ("slot", None, None):
            raise Illegal(f"dot products of all slots, not {result}")
        self._require_aligned((tokens,), task.writes[0])
        moves = self._moves(
            task, rank, token, self._slots_of((rows, router), rank, token)
        )
        mine = self._row(tokens, rank, token)
        for slot in self._sent_slots(rank, token):
            sources = (*self._row(rows, rank, slot), *mine)
            cells = self.cells(rank, result.buffer, slot)
            moves += [_move(cell, i, 3, sources) for i, cell in enumerate(cells)]
        return moves

    def _sent_slots(self, rank: int, token: int) -> list[int]:
        top_k, choice = self.s.layer.top_k, self.at.choice[rank]
        return [i for i in range(token * top_k, (token + 1) * top_k) if choice[i] >= 0]

    def _slots_of(
        self, reads: tuple[Region, ...], rank: int, token: int
    ) -> tuple[int, ...]:
        for read in reads:
            if self._named(read) != ("slot", None, None):
                raise Illegal(f"reduce reads all slots, not {read}")
        return tuple(
            cell
            for slot in self._sent_slots(rank, token)
            for read in reads
            for cell in self._row(read, rank, slot)
        )

    def _space(self, region: Region) -> str:
        if region.buffer not in self.buffers:
            raise Illegal(f"no buffer {region.buffer}")
        return self.buffers[region.buffer].space

    def _require_written(self, region: Region) -> None:
        space = self._space(region)
        if self.buffers[region.buffer].role in ("input", "weight", "saved"):
            raise Illegal(f"{region.buffer} is not to be written ({space})")


def _move(dest: int, column: int, tag: int, sources: tuple[int, ...]) -> Move:
    return Move(dest, hash((tag, column)), sources)


def _shape(buffer: Buffer) -> tuple[str, int, int]:
    """Buffers of one shape are cut alike: a value does not show which it lay in."""
    return buffer.space, buffer.rows, buffer.cols


def _cell_steps(s: Schedule) -> dict[tuple[str, int, int], tuple[int, int]]:
    """(rows, columns) of a cell by shape: as large as no GMM tile cuts through. Rows
    only count for matrices."""
    step: dict[tuple[str, int, int], tuple[int, int]] = {}
    shapes = {buffer.name: _shape(buffer) for buffer in s.buffers}
    for queue in s.queues:
        for instr in queue.code:
            if isinstance(instr, Task) and instr.op in ("gmm", "gmm_nt", "gmm_tn"):
                shape, base = shapes[instr.writes[0].buffer], instr.base
                m, n = step.get(shape, (0, 0))
                step[shape] = gcd(m, base.m), gcd(n, base.n)
    return step
