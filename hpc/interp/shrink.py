"""A narrower copy of a schedule: same queues, tiles, events and puts, fewer columns.

Values of a production layer do not fit a workstation, and need not: synchronisation and
coverage depend on queues, tiles and rows, which stay, not on how wide a column tile is.
Columns shrink by a unit that depends on their number alone, and the tiles of matrix
products shrink so that their number stays: the width of column tiles, and for the
gradient of a matrix, whose rows are columns elsewhere, the height too.

Columns that must keep their ratio (an operand and its weight's rows, the two halves of
a gated row and its result) form a dimension, which shrinks as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from hpc.interp.products import PRODUCTS
from hpc.schedule.model import Base, Buffer, Instr, Put, Queue, Schedule, Task

FACTORS = (64, 32, 16, 8, 4, 2)
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


def least_size(size: int) -> int:
    """`size` divided by the largest factor that leaves `LEAST`.

    >>> least_size(7168), least_size(768), least_size(20)
    (112, 48, 20)
    """
    for factor in FACTORS:
        if -(-size // factor) >= LEAST:
            return -(-size // factor)
    return size


def common_sizes(schedules: Iterable[Schedule]) -> dict[int, int]:
    """Dimensions of the schedules and what each shrinks to, {base: new base}.

    The new one is the smallest from `least_size` on with which every product of every
    schedule keeps its number of tiles; schedules of one layer must shrink alike
    for their bits to be comparable. Raises `ShrinkError` if the sizes of operands do
    not fit together.
    """
    cuts: dict[int, set[tuple[int, int]]] = {}
    for schedule in schedules:
        tiles = _tiles(schedule)
        for dim in dimensions(schedule):
            cuts.setdefault(dim.base, set()).update(
                (dim.multiples[side], count)
                for side, count in tiles
                if side in dim.multiples
            )
    return {base: _shrunk(base, found) for base, found in sorted(cuts.items())}


def _shrunk(base: int, cuts: set[tuple[int, int]]) -> int:
    """Smallest new base that every (multiple, column tiles) can be cut out of."""
    return next(
        size
        for size in range(least_size(base), base + 1)
        if all(_cuttable(multiple * size, tiles) for multiple, tiles in cuts)
    )


def shrink(schedule: Schedule, sizes: Mapping[int, int] | None = None) -> Schedule:
    """The copy with every dimension shrunk as `sizes` (default: `common_sizes`) says.

    Row counts, row tiles, capacities, events and routing stay as they are. Raises
    `ShrinkError` if a product would get another number of tiles, or if the sizes of
    operands do not fit together.
    """
    if sizes is None:
        sizes = common_sizes([schedule])
    new = {
        side: multiple * sizes.get(dim.base, dim.base)
        for dim in dimensions(schedule)
        for side, multiple in dim.multiples.items()
    }
    if new == _sizes(schedule):
        return schedule
    for (name, which), tiles in sorted(_tiles(schedule)):
        size = new.get((name, which), 1)
        if not _cuttable(size, tiles):
            what = "columns" if which == "cols" else which
            raise ShrinkError(f"{name}: {size} {what} cannot be cut into {tiles} tiles")
    layer = schedule.layer
    return replace(
        schedule,
        layer=replace(
            layer,
            hidden=sizes.get(layer.hidden, layer.hidden),
            intermediate=sizes.get(layer.intermediate, layer.intermediate),
        ),
        buffers=tuple(_narrow_buffer(buffer, new) for buffer in schedule.buffers),
        queues=tuple(_narrow_queue(q, schedule, new) for q in schedule.queues),
        padded=tuple((name, sizes.get(size, size)) for name, size in schedule.padded),
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
            for region in (instr.dest, *instr.dot[:1]):
                yield (instr.source.buffer, "cols"), (region.buffer, "cols")
        elif isinstance(instr, Task):
            yield from _task_links(instr)


def _task_links(task: Task) -> Iterator[tuple[Side, Side]]:
    result = task.writes[0].buffer
    first, *others = (region.buffer for region in task.reads)
    if task.op not in PRODUCTS:
        for read in (first, *others):
            yield (read, "cols"), (result, "cols")
        return
    (second,) = others
    if task.op == "gmm_tn":
        yield (first, "cols"), (result, "rows")
        yield (second, "cols"), (result, "cols")
        return
    inner, outer = ("cols", "rows") if task.op == "gmm_nt" else ("rows", "cols")
    yield (first, "cols"), (second, inner)
    yield (second, outer), (result, "cols")


def _instructions(schedule: Schedule) -> Iterator[Instr]:
    for queue in schedule.queues:
        yield from queue.code


def _tiles(schedule: Schedule) -> set[tuple[Side, int]]:
    """(side, tiles it is cut into) of the products' results; one side may be cut in
    several ways."""
    return {
        found
        for task in _instructions(schedule)
        if isinstance(task, Task) and task.op in PRODUCTS
        for found in _cuts(schedule, task)
    }


def _cuts(schedule: Schedule, task: Task) -> Iterator[tuple[Side, int]]:
    """The sides of a product's result that its base tile cuts, rows of data apart."""
    buffer = schedule.buffer(task.writes[0].buffer)
    yield (buffer.name, "cols"), -(-buffer.cols // task.base.n)
    if task.op == "gmm_tn":
        yield (buffer.name, "rows"), -(-buffer.rows // task.base.m)


def _cuttable(cols: int, tiles: int) -> bool:
    """Whether tiles of some one width, the last one maybe narrower, are so many."""
    return -(-cols // _width(cols, tiles)) == tiles


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
    if not isinstance(instr, Task) or instr.op not in PRODUCTS:
        return instr
    widths = {
        side[1]: _width(sizes.get(side, 1), tiles)
        for side, tiles in _cuts(schedule, instr)
    }
    m = widths.get("rows", instr.base.m)
    return replace(instr, base=Base(m, widths["cols"], instr.base.k))
