"""A narrower copy of a schedule: same queues, tiles, events and puts, fewer columns.

Values of a production layer do not fit a workstation, and need not: synchronisation and
coverage depend on queues, tiles and rows, which stay, not on how wide a column tile is.
Columns shrink by a unit that depends on their number alone, and the width of every
GMM's column tiles shrinks so that their number stays.

Columns that must keep their ratio (an operand and its weight's rows, the two halves of
a gated row and its result) form a dimension; one dimension shrinks as a whole, and is
not made narrower than 32 where it was not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from hpc.schedule.model import Base, Buffer, Instr, Put, Queue, Schedule, Task

UNITS = (64, 32, 16, 8, 4, 2, 1)
"""By how much a dimension may shrink; tile widths mostly are multiples of 64."""

LEAST = 32
"""No dimension shrinks below this: too few columns would hide a wrong one."""

Side = tuple[str, str]
"""A buffer's name and which of its sizes: "cols" or "rows"."""


class ShrinkError(ValueError):
    """The sizes of a schedule's buffers contradict each other."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """Sizes that shrink together: each side is a multiple of `base`."""

    base: int
    multiples: dict[Side, int]


def shrunk_size(size: int, unit: int) -> int:
    """`size` divided by the largest unit, at most `unit`, that leaves `LEAST`.

    >>> shrunk_size(7168, 64), shrunk_size(768, 64), shrunk_size(20, 64)
    (112, 48, 20)
    """
    for each in UNITS:
        if each <= unit and -(-size // each) >= LEAST:
            return -(-size // each)
    return size


def common_unit(schedules: Iterable[Schedule]) -> int:
    """The largest unit with which every GMM of all the schedules keeps its tiles.

    Schedules of one layer must shrink by one unit for their bits to be comparable.
    """
    found = [(s, dimensions(s)) for s in schedules]
    for unit in UNITS:
        if all(_keeps_tiles(s, dims, unit) for s, dims in found):
            return unit
    return 1


def shrink(schedule: Schedule, unit: int | None = None) -> Schedule:
    """The copy shrunk by `unit`, or by the largest that works.

    Row counts, row tiles, capacities, events and routing stay as they are. Raises
    `ShrinkError` if a GMM would get another number of tiles with `unit`, or if the
    sizes of operands do not fit together.
    """
    dims = dimensions(schedule)
    if unit is None:
        unit = common_unit([schedule])
    elif not _keeps_tiles(schedule, dims, unit):
        raise ShrinkError(f"{schedule.layer.name}: unit {unit} would change tiles")
    sizes = _new_sizes(dims, unit)
    if sizes == _sizes(schedule):
        return schedule
    layer = schedule.layer
    return replace(
        schedule,
        layer=replace(
            layer,
            hidden=shrunk_size(layer.hidden, unit),
            intermediate=shrunk_size(layer.intermediate, unit),
        ),
        buffers=tuple(_narrow_buffer(buffer, sizes) for buffer in schedule.buffers),
        queues=tuple(_narrow_queue(q, schedule, sizes) for q in schedule.queues),
        padded=tuple((name, shrunk_size(size, unit)) for name, size in schedule.padded),
    )


def dimensions(schedule: Schedule) -> tuple[Dimension, ...]:
    """The dimensions of a schedule's buffers, from how operators connect them.

    Buffers of one column (the router weights) are left out.
    """
    sizes = _sizes(schedule)
    parent = {side: side for side in sizes}

    def root(side: Side) -> Side:
        while parent[side] != side:
            parent[side] = side = parent[parent[side]]
        return side

    for one, two in _links(schedule):
        if one in sizes and two in sizes:
            parent[root(one)] = root(two)
    members: dict[Side, list[Side]] = {}
    for side in sizes:
        members.setdefault(root(side), []).append(side)
    return tuple(_dimension(sides, sizes) for sides in members.values())


def _dimension(sides: list[Side], sizes: dict[Side, int]) -> Dimension:
    base = min(sizes[side] for side in sides)
    for side in sides:
        if sizes[side] % base:
            raise ShrinkError(
                f"{side[0]}: {sizes[side]} columns are no multiple of {base}"
            )
    return Dimension(base, {side: sizes[side] // base for side in sides})


def _sizes(schedule: Schedule) -> dict[Side, int]:
    found: dict[Side, int] = {}
    for buffer in schedule.buffers:
        if buffer.cols > 1:
            found[buffer.name, "cols"] = buffer.cols
        if buffer.space == "weight" and buffer.rows > 1:
            found[buffer.name, "rows"] = buffer.rows
    return found


def _links(schedule: Schedule) -> Iterator[tuple[Side, Side]]:
    """Pairs of sides that one instruction ties together."""
    for instr in _instructions(schedule):
        if isinstance(instr, Put):
            yield (instr.source.buffer, "cols"), (instr.dest.buffer, "cols")
        elif isinstance(instr, Task) and instr.op == "gmm":
            rows, weight = instr.reads
            yield (rows.buffer, "cols"), (weight.buffer, "rows")
            yield (weight.buffer, "cols"), (instr.writes[0].buffer, "cols")
        elif isinstance(instr, Task):
            for region in instr.reads:
                yield (region.buffer, "cols"), (instr.writes[0].buffer, "cols")


def _instructions(schedule: Schedule) -> Iterator[Instr]:
    for queue in schedule.queues:
        yield from queue.code


def _new_sizes(dims: Iterable[Dimension], unit: int) -> dict[Side, int]:
    return {
        side: multiple * shrunk_size(dim.base, unit)
        for dim in dims
        for side, multiple in dim.multiples.items()
    }


def _keeps_tiles(schedule: Schedule, dims: tuple[Dimension, ...], unit: int) -> bool:
    """Whether some tile width gives every GMM the number of column tiles it has."""
    sizes = _new_sizes(dims, unit)
    shapes = {
        (task.writes[0].buffer, task.base.n)
        for task in _instructions(schedule)
        if isinstance(task, Task) and task.op == "gmm"
    }
    for name, width in shapes:
        tiles = -(-schedule.buffer(name).cols // width)
        cols = sizes.get((name, "cols"), 1)
        if -(-cols // _width(cols, tiles)) != tiles:
            return False
    return True


def _width(cols: int, tiles: int) -> int:
    """Width that cuts `cols` into `tiles`, if any does."""
    return -(-cols // tiles)


def _narrow_buffer(buffer: Buffer, sizes: dict[Side, int]) -> Buffer:
    cols = sizes.get((buffer.name, "cols"), buffer.cols)
    rows = sizes.get((buffer.name, "rows"), buffer.rows)
    return replace(buffer, cols=cols, rows=rows)


def _narrow_queue(queue: Queue, schedule: Schedule, sizes: dict[Side, int]) -> Queue:
    code = tuple(_narrow_instr(instr, schedule, sizes) for instr in queue.code)
    return replace(queue, code=code)


def _narrow_instr(instr: Instr, schedule: Schedule, sizes: dict[Side, int]) -> Instr:
    if not isinstance(instr, Task) or instr.op != "gmm":
        return instr
    name = instr.writes[0].buffer
    tiles = -(-schedule.buffer(name).cols // instr.base.n)
    width = _width(sizes.get((name, "cols"), 1), tiles)
    return replace(instr, base=Base(instr.base.m, width, instr.base.k))
