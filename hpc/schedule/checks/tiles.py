"""Base tiles: what the compiler's choice (`hpc/machine/tiles.py`) holds to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from hpc.schedule.checks.index import Index, Limits
from hpc.schedule.checks.operands import Problem
from hpc.schedule.checks.operators import OPERATORS
from hpc.schedule.layer import DTYPE_BYTES, MOST_ROWS
from hpc.schedule.model import Base, Task

RULES = {
    "bad-tile": "A base tile has the sides of its operator; a GMM's are multiples of "
    "16 and fit L0 and L1, operands twice.",
}


def tile_problems(index: Index, task: Task, limits: Limits) -> Iterable[Problem]:
    """What is wrong with a task's base tile beyond sides that are not positive."""
    if not OPERATORS[task.op].multiplies:
        return _vector(task)
    dtype = index.buffers[task.reads[0].buffer].dtype if task.reads else ""
    return _product(task.base, DTYPE_BYTES.get(dtype, 0), limits)


@lru_cache(maxsize=64)
def _product(base: Base, element_bytes: int, limits: Limits) -> tuple[Problem, ...]:
    """Of a GMM; a schedule has few different tiles."""
    return (*_fractals(base, limits), *_room(base, element_bytes, limits))


def _vector(task: Task) -> Iterator[Problem]:
    base = task.base
    if base.m > MOST_ROWS:
        yield (
            "bad-tile",
            f"base tile m is {base.m}, more rows than the {MOST_ROWS} that a layer "
            "can have",
        )
    for axis, size in (("n", base.n), ("k", base.k)):
        if size:
            yield "bad-tile", f"base tile {axis} is {size}, but {task.op} has rows only"


def _fractals(base: Base, limits: Limits) -> Iterator[Problem]:
    """A side that is not positive is another check's."""
    for axis, size in (("m", base.m), ("n", base.n), ("k", base.k)):
        if limits.fractal is not None and size > 0 and size % limits.fractal:
            yield (
                "bad-tile",
                f"base tile {axis} is {size}, no multiple of {limits.fractal}",
            )


def _room(base: Base, element_bytes: int, limits: Limits) -> Iterator[Problem]:
    """Two of each operand in L0 and L1 for double buffering; one fp32 result."""
    left = 2 * base.m * base.k * element_bytes
    right = 2 * base.k * base.n * element_bytes
    needs: list[tuple[str, int, int]] = []
    if limits.l0_bytes is not None:
        sizes = (left, right, base.m * base.n * 4)
        needs += zip(("L0A", "L0B", "L0C"), sizes, limits.l0_bytes, strict=True)
    if limits.l1_bytes is not None:
        needs.append(("L1", left + right, limits.l1_bytes))
    for name, need, have in needs:
        if need > have:
            shape = f"{base.m}x{base.n}x{base.k}"
            yield (
                "bad-tile",
                f"base tile {shape} needs {need} bytes of {name}, there are {have}",
            )
