"""Base tiles of a GMM: does one fit, and which one is fastest."""

from __future__ import annotations

from collections.abc import Iterator

from hpc.machine.cost import ceil_div, gmm_us
from hpc.machine.record import Machine
from hpc.schedule.layer import DTYPE_BYTES
from hpc.schedule.model import FRACTAL, Base

HEIGHTS = (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)
WIDTHS = (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 512)
DEPTHS = (512, 256, 128, 64, 32, 16)


def check_gmm_tile(machine: Machine, base: Base, dtype: str) -> str | None:
    """Why `base` cannot be used for `dtype`, or None if it can.

    L0A, L0B and L1 hold two of everything (double buffering); L0C must hold one
    accumulator, two where there is room.
    """
    if dtype not in machine.dtypes:
        known = ", ".join(machine.dtypes)
        return f"dtype {dtype} is not one of {machine.name}'s: {known}"
    for name, value in (("m", base.m), ("n", base.n), ("k", base.k)):
        if value <= 0 or value % FRACTAL:
            return f"base tile {name} = {value} is not a positive multiple of {FRACTAL}"
    size = DTYPE_BYTES[dtype]
    needs = (
        ("L0A", 2 * base.m * base.k * size, machine.l0a_bytes, "2 x m x k"),
        ("L0B", 2 * base.k * base.n * size, machine.l0b_bytes, "2 x k x n"),
        ("L0C", base.m * base.n * 4, machine.l0c_bytes, "m x n in fp32"),
        (
            "L1",
            2 * (base.m + base.n) * base.k * size,
            machine.l1_bytes,
            "2 x (m + n) x k",
        ),
    )
    for buffer, need, have, formula in needs:
        if need > have:
            return (
                f"base tile {base.m}x{base.n}x{base.k} needs {need} bytes of {buffer}"
                f" ({formula}, {dtype}), {machine.name} has {have}"
            )
    return None


def choose_gmm_tile(
    machine: Machine, rows: int, n: int, k: int, dtype: str, cores: int
) -> Base:
    """The fitting base tile with the least modelled time for rows x k by k x n.

    Equal times prefer fewer tiles, then the lower and wider tile: more of its columns
    are contiguous in memory. ValueError if no tile fits the machine.
    """
    rows = max(rows, 1)
    best: tuple[float, int, int, int] | None = None
    chosen: Base | None = None
    for base in _candidates(machine, rows, n, k, dtype):
        tiles = ceil_div(rows, base.m) * ceil_div(n, base.n)
        time_us = round(gmm_us(machine, rows, n, k, base, dtype, cores), 6)
        rank = (time_us, tiles, base.m, -base.n)
        if best is None or rank < best:
            best, chosen = rank, base
    if chosen is None:
        raise ValueError(f"no base tile for {dtype} fits {machine.name}")
    return chosen


def _candidates(
    machine: Machine, rows: int, n: int, k: int, dtype: str
) -> Iterator[Base]:
    """Tiles no larger than the padded problem, each as deep as its buffers allow."""
    for m in HEIGHTS:
        if m >= rows + FRACTAL:
            break
        for width in WIDTHS:
            if width >= n + FRACTAL:
                break
            base = _deepest(machine, m, width, k, dtype)
            if base is not None:
                yield base


def _deepest(machine: Machine, m: int, n: int, k: int, dtype: str) -> Base | None:
    for depth in DEPTHS:
        base = Base(m, n, depth)
        if depth < k + FRACTAL and check_gmm_tile(machine, base, dtype) is None:
            return base
    return None
