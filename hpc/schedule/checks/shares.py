"""Which cores compute which rows, where that does not depend on the routing.

Tile t of an instruction belongs to core (offset + t) mod team size, `offset` being the
tiles of all earlier instructions. Two tasks that cut the same rows into the same tiles
give them to the same cores if the tiles from the first to the second are a multiple of
the team size. Then the order of each core's list orders them, row by row. Counts of
tiles are known for token buffers, for whole slot buffers, and for puts; those of routed
rows depend on the routing, and no such proof is possible there.
"""

from __future__ import annotations

from hpc.schedule.checks.index import Index, Place
from hpc.schedule.model import Instr, Put, Region, Task

_REGROUPING = ("gmm", "gmm_nt", "gmm_tn", "reduce", "reduce_dot")
"""Operators whose tiles read other rows than those that they write."""


def row_wise(instr: Instr) -> bool:
    """Each tile reads and writes the same rows of its operands."""
    return isinstance(instr, Task) and instr.op not in _REGROUPING


def in_place(instr: Instr, region: Region) -> bool:
    """A task that overwrites the rows that it reads, tile by tile."""
    return (
        isinstance(instr, Task)
        and row_wise(instr)
        and region in instr.reads
        and region in instr.writes
    )


def same_cores(index: Index, first: Place, second: Place) -> bool:
    """On every rank, rows of `first` and of `second`, later in its queue, which touch
    the same part, are on the same cores."""
    a, b = index.instr(first), index.instr(second)
    if first[0] != second[0] or first[1] >= second[1]:
        return False
    if not isinstance(a, Task) or not isinstance(b, Task):
        return False
    if not row_wise(a) or not row_wise(b) or a.base.m != b.base.m:
        return False
    if _cut(a) != _cut(b):
        return False
    queue = index.s.queues[first[0]]
    between = queue.code[first[1] : second[1]]
    for rank in range(index.s.layer.ep):
        total = 0
        for instr in between:
            tiles = _tiles(index, instr, rank)
            if tiles is None:
                return False
            total += tiles
        if total % queue.team.size:
            return False
    return True


def _cut(task: Task) -> set[tuple[int | None, int | None]]:
    """The (expert, part) of the rows; one for all operands of a row-wise task."""
    return {(region.expert, region.part) for region in task.reads + task.writes}


def _tiles(index: Index, instr: Instr, rank: int) -> int | None:
    """Tiles of an instruction on a rank; None if the routing decides."""
    if isinstance(instr, Put):
        return len(index.s.groups[instr.group]) * instr.chunks
    if not isinstance(instr, Task):
        return 0
    region = instr.writes[0]
    space = index.buffers[region.buffer].space
    tokens = index.s.layer.tokens[rank]
    whole = region.expert is None and region.part is None
    if space == "token":
        rows = tokens if whole else _part_rows(index, tokens, region.part or 0)
    elif space == "slot" and whole:
        rows = tokens * index.s.layer.top_k
    else:
        return None
    return -(-rows // max(1, instr.base.m))


def _part_rows(index: Index, tokens: int, part: int) -> int:
    chunks = index.s.row_chunks
    return tokens * (part + 1) // chunks - tokens * part // chunks
