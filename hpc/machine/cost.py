"""Durations of tasks from a machine record: pure functions, microseconds.

The timing engine and the scheduling policies share these. They model one core working
alone; HBM and link bandwidth shared with other cores is the engine's matter, except in
the `*_us` estimates of whole operators, which take the die's rate as a floor.

Units: GB/s is 1e9 B/s, so GB/s x 1000 is bytes per microsecond.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import sqrt

from hpc.machine.ops import OP_COSTS, Instrs, OpCost, op_cost
from hpc.machine.record import Machine
from hpc.schedule.layer import DTYPE_BYTES
from hpc.schedule.model import Base

__all__ = [
    "OP_COSTS",
    "GmmCost",
    "OpCost",
    "cycles_us",
    "dispatched",
    "gm_us",
    "gmm_tile_us",
    "gmm_us",
    "hbm_read_equivalent",
    "launch_us",
    "op_cost",
    "piece_rows",
    "put_row_us",
    "put_us",
    "vector_compute_us",
    "vector_share_us",
    "vector_us",
]


ALIGNED_BYTES = 512
"""Granule of L2: a row that is no multiple of it starts and ends within one."""


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def cycles_us(machine: Machine, cycles: float) -> float:
    """Core cycles as microseconds."""
    return cycles / (machine.clock_ghz * 1e3)


def dispatched(machine: Machine, dispatch: str) -> Machine:
    """The machine with the cost of a task's fetch that goes with "static" or "dynamic"
    dispatch; ValueError for another word."""
    if dispatch == "static":
        return machine
    if dispatch != "dynamic":
        raise ValueError(f"dispatch must be 'static' or 'dynamic', got {dispatch!r}")
    return replace(machine, task_fetch_us=machine.dynamic_fetch_us)


def launch_us(machine: Machine, cores: int) -> float:
    """From the launch of a kernel until the last of its `cores` cores works."""
    return machine.kernel_launch_us + cores * machine.core_start_us


def hbm_read_equivalent(machine: Machine) -> float:
    """What one byte written to HBM costs, in bytes read."""
    return machine.hbm_gbps / machine.hbm_write_gbps


def alignment(machine: Machine, row_bytes: int) -> float:
    """Factor on a core's transfers of rows of that length."""
    return 1.0 if row_bytes % ALIGNED_BYTES == 0 else machine.unaligned_factor


def message_factor(machine: Machine, row_bytes: float) -> float:
    """How much longer rows of that length take on a link than long messages."""
    return 1.0 + machine.message_half_bytes / max(row_bytes, 1.0)


def gm_us(machine: Machine, size_bytes: float) -> float:
    """One transfer between global memory and a core: the small-transfer law."""
    return (size_bytes + machine.gm_half_bytes) / (machine.gm_core_gbps * 1e3)


@dataclass(slots=True)
class GmmCost:
    """Cost of the tiles of a GMM of depth `k` with base tile `base`, on one core.
    The factors are those of `alignment` for the rows of its operands.

    A tile is a loop over K in steps of `base.k`. Loads to L1 come in slabs as deep as
    the double-buffered L1 allows, L1 to L0 and the cube overlap step by step, so the
    slowest of the three sets the pace. The result leaves through the fixpipe, behind
    the next tile if L0C holds two accumulators. Otherwise it leaves part by part while
    the last step finishes them and the next tile's first step follows (unit flags), and
    only what these two steps do not cover is waited for. A tile of depth 0, the
    gradient of an expert without rows, only writes its zeros.
    """

    machine: Machine
    base: Base
    k: int
    dtype: str
    left_factor: float = 1.0
    right_factor: float = 1.0
    double_l0c: bool = field(init=False)
    slab: int = field(init=False)
    _tiles: dict[tuple[int, int], tuple[float, float]] = field(init=False)

    def __post_init__(self) -> None:
        base, machine = self.base, self.machine
        self.double_l0c = 2 * base.m * base.n * 4 <= machine.l0c_bytes
        row_bytes = 2 * (base.m + base.n) * DTYPE_BYTES[self.dtype]
        steps = max(1, machine.l1_bytes // (row_bytes * base.k))
        self.slab = max(1, min(steps * base.k, self.k))
        self._tiles = {}

    def tile_us(self, m: int, n: int) -> tuple[float, float]:
        """(time in the pipeline, end) of a tile of m rows and n columns.

        The pace is set by the slower of the loop over K and the drain; what is left of
        a row of tiles at its end is the faster one. It is part of the first number when
        it cannot be hidden.
        """
        found = self._tiles.get((m, n))
        if found is None:
            found = self._tiles[m, n] = self._price(m, n)
        return found

    def fill_us(self, m: int, n: int) -> float:
        """First loads of a core's share, before its cube has anything to do."""
        if not self.k:
            return 0.0
        size = DTYPE_BYTES[self.dtype] * min(self.slab, self.base.k)
        return gm_us(self.machine, m * size) + gm_us(self.machine, n * size)

    def _price(self, m: int, n: int) -> tuple[float, float]:
        size, machine = DTYPE_BYTES[self.dtype], self.machine
        full, rest = divmod(self.k, self.base.k)
        cycles = full * self._step_cycles(m, n, self.base.k)
        cycles += self._step_cycles(m, n, rest) if rest else 0
        slabs = ceil_div(self.k, self.slab)
        # All AICs stream at once, so a core gets at most its share of L2.
        rate = min(machine.gm_core_gbps, machine.l2_gbps / machine.aic_cores) * 1e3
        left, right = m * self.left_factor, n * self.right_factor
        loads = (left + right) * self.k * size / rate + 2 * slabs * gm_us(machine, 0)
        main = max(cycles_us(machine, cycles), loads)
        drain = cycles_us(machine, m * n * size / machine.fixpipe_bytes_per_cycle)
        if self.double_l0c:
            return max(main, drain), min(main, drain)
        if not self.k:
            return drain, 0.0
        last = self._step_cycles(m, n, rest or self.base.k)
        first = self._step_cycles(m, n, min(self.base.k, self.k))
        waited = max(0.0, drain - cycles_us(machine, first + last))
        return max(cycles_us(machine, cycles) + waited, loads, drain), 0.0

    def _step_cycles(self, m: int, n: int, k: int) -> float:
        machine, size = self.machine, DTYPE_BYTES[self.dtype]
        cube = ceil_div(m, machine.cube_m0) * ceil_div(n, machine.cube_n0)
        cube *= ceil_div(k, machine.cube_k0(self.dtype))
        mmad = machine.mmad_head_cycles + machine.mmad_sync_cycles + cube
        left = m * k * size / machine.l1_l0a_bytes_per_cycle
        right = k * n * size / machine.l1_l0b_bytes_per_cycle
        return max(mmad, left + right)


def gmm_tile_us(
    machine: Machine, m: int, n: int, k: int, base: Base, dtype: str
) -> float:
    """One tile of m x n over depth k, alone: fill, pipeline, drain."""
    cost = GmmCost(machine, base, k, dtype)
    main, drain = cost.tile_us(m, n)
    return cost.fill_us(m, n) + main + drain


def gmm_us(
    machine: Machine, rows: int, n: int, k: int, base: Base, dtype: str, cores: int
) -> float:
    """A whole GMM of rows x k by k x n over a team of `cores` AICs.

    The busiest core decides: ceil(tiles / cores) tiles of full height; HBM is a floor.
    """
    if rows <= 0:
        return 0.0
    size = DTYPE_BYTES[dtype]
    factors = alignment(machine, k * size), alignment(machine, n * size)
    cost = GmmCost(machine, base, k, dtype, *factors)
    m, width = min(rows, base.m), min(n, base.n)
    tiles = ceil_div(rows, base.m) * ceil_div(n, base.n)
    main, drain = cost.tile_us(m, width)
    compute = cost.fill_us(m, width) + ceil_div(tiles, cores) * main + drain
    read, written = (rows + n) * k * size, rows * n * size
    return max(compute, _hbm_us(machine, read, written, min(cores, tiles)))


def vector_compute_us(
    machine: Machine, op: str, read: float, written: float, dtype: str
) -> float:
    """Vector pipeline time of `read` and `written` elements, without fixed costs."""
    cost = op_cost(op)
    conv = 0.0 if dtype == "fp32" else machine.vconv[1]
    per_read = conv + _slope(machine, cost.per_read)
    per_write = conv + _slope(machine, cost.per_write)
    per_write += _slope(machine, cost.per_pair) / 2
    repeat = machine.vector_bytes / 4
    return cycles_us(machine, (read * per_read + written * per_write) / repeat)


def vector_share_us(
    machine: Machine,
    op: str,
    read: float,
    written: float,
    dtype: str,
    tiles: int = 1,
    aligned: float = 1.0,
) -> float:
    """One core's share of a vector task: elements read and written by it.

    Data pass through UB in double-buffered pieces, at least one for each of the
    share's `tiles`; loads and stores overlap the arithmetic, the first piece's load and
    the last one's store do not. `aligned` is the factor of `alignment`. Of a scalar
    operator only the reads count, one after the other.
    """
    if written <= 0:
        return 0.0
    if op_cost(op).scalar:
        return read * machine.scalar_load_us
    size = DTYPE_BYTES[dtype]
    # An element takes two places for transfers and one for arithmetic in fp32.
    held = (read + written) * (2 * size + 4)
    pieces = max(1, tiles, ceil_div(int(held), machine.ub_bytes))
    fixed = cycles_us(machine, pieces * _head_tail(machine, op_cost(op), dtype))
    compute = vector_compute_us(machine, op, read, written, dtype) + fixed
    # All AIVs stream at once, so a core gets at most its share of L2.
    rate = min(machine.gm_core_gbps, machine.l2_gbps / machine.aiv_cores) * 1e3
    issue = cycles_us(machine, pieces * machine.gm_issue_cycles)
    transfer = aligned * (read + written) * size / rate + issue
    ends = gm_us(machine, read * size / pieces) + gm_us(
        machine, written * size / pieces
    )
    return max(compute, transfer * (1 - 1 / pieces)) + ends


def vector_us(
    machine: Machine,
    op: str,
    rows: int,
    read_cols: int,
    write_cols: int,
    dtype: str,
    cores: int,
) -> float:
    """A whole vector operator of `rows` rows over `cores` AIVs; HBM is a floor."""
    if rows <= 0:
        return 0.0
    share = ceil_div(rows, cores)
    alone = vector_share_us(machine, op, share * read_cols, share * write_cols, dtype)
    size = rows * DTYPE_BYTES[dtype]
    return max(alone, _hbm_us(machine, size * read_cols, size * write_cols, cores))


def put_us(
    machine: Machine,
    rows: int,
    row_bytes: int,
    cores: int,
    remote: bool,
    transport: str = "put",
) -> float:
    """`rows` rows sent by `cores` AIVs, until the receiver can see their signal."""
    size = rows * row_bytes
    if not remote:
        moved = _hbm_us(machine, size, size, cores)
        return machine.put_issue_us + moved + machine.event_visible_us
    if transport == "collective":
        return size / (machine.collective_gbps * 1e3) + machine.hop_us
    rate = min(machine.link_gbps, cores * machine.put_core_gbps) * 1e3
    fixed = machine.put_issue_us + machine.hop_us + machine.event_visible_us
    return fixed + size * message_factor(machine, row_bytes) / rate


def put_row_us(machine: Machine, row_bytes: int, remote: bool) -> float:
    """What one more row costs the AIV that drives a put."""
    row_us = put_us(machine, 1, row_bytes, 1, remote)
    return row_us - put_us(machine, 0, row_bytes, 1, remote)


def piece_rows(
    machine: Machine, rows: float, row_bytes: int, cores: int, remote: bool
) -> float:
    """How many rows one put had best carry, of `rows` that `cores` AIVs send in all.

    One core drives a put. Pieces of p rows cost every core rows / p / cores times the
    fixed cost of a put, and the others may wait for the last piece, p times the time of
    a row: the sum is least at p = sqrt(rows / cores * fixed / row). So there are at
    most sqrt(rows * cores * row / fixed) pieces, however long the table of rows.
    """
    row_us = put_row_us(machine, row_bytes, remote)
    return max(1.0, sqrt(rows / cores * machine.put_issue_us / row_us))


def _hbm_us(machine: Machine, read: float, written: float, cores: int) -> float:
    """Bytes read and written by `cores` cores together, each within its own rate."""
    together = (read + written * hbm_read_equivalent(machine)) / machine.hbm_gbps
    return max(together, (read + written) / (cores * machine.hbm_core_gbps)) / 1e3


def _slope(machine: Machine, instrs: Instrs) -> float:
    return sum(count * getattr(machine, kind)[1] for kind, count in instrs)


def _head_tail(machine: Machine, cost: OpCost, dtype: str) -> float:
    conv: Instrs = () if dtype == "fp32" else (("vconv", 2),)
    every = (*cost.per_read, *cost.per_write, *cost.per_pair, *conv)
    return sum(
        count * (getattr(machine, kind)[0] + getattr(machine, kind)[2])
        for kind, count in every
    )
