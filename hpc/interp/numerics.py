"""Rounding and matrix products whose bits do not depend on how work is cut.

A legal schedule may cut a product into any tiles, in any order, so an element's value
must not depend on the tile it was computed in. BLAS does not promise that: its order
of summation changes with the shape of the call. Here every BLAS call of one inner size
K has one shape, [rows, kb] times [kb, cols]: both are padded with zeros to whole
blocks, and the blocks of K are added in ascending order in f32. What is left to
BLAS is that, within that one shape, an element's sum is the same at every position and
beside any neighbours; `position_free` tests exactly that at the first use of each
shape, on the machine at hand. A shape that fails is not used: the next candidate is
tried, and in the end a loop over K of elementwise operations, which are IEEE-exact
wherever they stand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
Array = npt.NDArray[Any]

BLOCKS = ((64, 32), (32, 32), (16, 16))
"""Candidate (rows, columns) of a BLAS call, best first."""

MAX_K = 128
"""Most of K in one BLAS call; fixed, so that no schedule has a say in it. With the
blocks above, calls stay below the size from which OpenBLAS uses several threads, which
is slow beyond measure on a machine that is busy otherwise."""

_ROWS_AT_ONCE = 2048
_LOOP = (16, 16)
_PROBE_SEED = 20_240_229


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of "bf16", "fp16" or "fp32"; KeyError for another name."""
    if name == "bf16":
        # Imported here: only values need it, and it costs every start of the command.
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype({"fp16": np.float16, "fp32": np.float32}[name])


def widen(values: Array) -> F32:
    """`values` as contiguous f32; exact, since f32 holds every bf16 and fp16."""
    return np.ascontiguousarray(values, dtype=np.float32)


def round_to(values: F32, dtype: np.dtype[Any]) -> Array:
    """`values` rounded once, to nearest even, to `dtype`."""
    if values.dtype == dtype:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(dtype)


def k_block(k: int) -> int:
    """Length of the blocks that an inner dimension of `k` is summed in."""
    return min(MAX_K, -(-max(k, 1) // 16) * 16)


@dataclass(frozen=True, slots=True)
class Packed:
    """A weight cut into BLAS blocks: f32 [k blocks, col blocks, kb, block columns]."""

    blocks: F32
    cols: int


def pack(weight: Array) -> Packed:
    """Cuts a [K, N] matrix into zero-padded blocks for `multiply`."""
    k, cols = weight.shape
    kb = k_block(k)
    nb = kernel(kb).cols
    padded = np.zeros((-(-max(k, 1) // kb) * kb, -(-cols // nb) * nb), np.float32)
    padded[:k, :cols] = weight
    cut = padded.reshape(-1, kb, padded.shape[1] // nb, nb)
    return Packed(np.ascontiguousarray(cut.transpose(0, 2, 1, 3)), cols)


def multiply(rows: Array, weight: Packed) -> F32:
    """`rows` [M, K] times a packed [K, N], in f32, f32 accumulation; f32 [M, N].

    Element (i, j) depends on row i and column j alone, bit for bit: not on M, N, the
    position of the row or the column, nor on other rows (a row of NaN spoils itself).
    """
    result = np.empty((len(rows), weight.cols), np.float32)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, len(rows))
        result[start:stop] = _multiply_some(rows[start:stop], weight)
    return result


def _multiply_some(rows: Array, weight: Packed) -> F32:
    """`multiply` for few enough rows to keep the blocks in cache."""
    k_blocks, col_blocks, kb, nb = weight.blocks.shape
    blas = kernel(kb)
    mb, product = blas.rows, blas.product
    count, k = rows.shape
    row_blocks = -(-count // mb)
    padded = np.zeros((row_blocks * mb, k_blocks * kb), np.float32)
    padded[:count, :k] = rows
    left = padded.reshape(row_blocks, mb, k_blocks, kb).transpose(2, 0, 1, 3)
    left = np.ascontiguousarray(left)
    with np.errstate(invalid="ignore", over="ignore"):
        total = product(left[0][:, None], weight.blocks[0][None])
        for index in range(1, k_blocks):
            total += product(left[index][:, None], weight.blocks[index][None])
    joined = total.transpose(0, 2, 1, 3).reshape(row_blocks * mb, col_blocks * nb)
    return joined[:count, : weight.cols]


@dataclass(frozen=True, slots=True)
class Kernel:
    """How blocks of `rows` x kb and kb x `cols` are multiplied."""

    rows: int
    cols: int
    product: Callable[[F32, F32], F32]


@cache
def kernel(kb: int) -> Kernel:
    """BLAS at the first block shape that passes the test, else the plain loop."""
    for rows, cols in BLOCKS:
        if position_free(np.matmul, rows, kb, cols):
            return Kernel(rows, cols, np.matmul)
    return Kernel(*_LOOP, product_by_loop)


def product_by_loop(left: F32, right: F32) -> F32:
    """[..., M, K] times [..., K, N] by ascending k, elementwise operations only."""
    total = left[..., :, :1] * right[..., :1, :]
    for k in range(1, left.shape[-1]):
        total += left[..., :, k : k + 1] * right[..., k : k + 1, :]
    return total


def position_free(
    product: Callable[[F32, F32], F32], rows: int, kb: int, cols: int
) -> bool:
    """Whether every element of a block is summed alike at every position.

    Random full-mantissa rows and columns are moved through all positions, and then
    stand beside zeros and NaN instead; any change of the order of a sum of `kb` such
    terms shows in the last bits of some of the `rows` x `cols` results.
    """
    rng = np.random.default_rng(_PROBE_SEED + kb)
    left = rng.standard_normal((rows, kb), dtype=np.float32)
    right = rng.standard_normal((kb, cols), dtype=np.float32)
    wanted = product(left[None, None], right[None, None])[0, 0]
    turned = np.stack([np.roll(left, s, axis=0) for s in range(rows)])
    got = product(turned[:, None], right[None, None])[:, 0]
    if any(not _same(np.roll(wanted, s, axis=0), got[s]) for s in range(rows)):
        return False
    turned = np.stack([np.roll(right, s, axis=1) for s in range(cols)])
    got = product(left[None, None], turned[None])[0]
    if any(not _same(np.roll(wanted, s, axis=1), got[s]) for s in range(cols)):
        return False
    return all(
        _same(wanted[::3], _beside(product, left, right, other)[::3])
        for other in (np.float32(0), np.float32(np.nan))
    )


def _beside(
    product: Callable[[F32, F32], F32], left: F32, right: F32, other: np.float32
) -> F32:
    """The product when only every third row is kept, the rest being `other`."""
    changed = np.full_like(left, other)
    changed[::3] = left[::3]
    with np.errstate(invalid="ignore"):
        return product(changed[None, None], right[None, None])[0, 0]


def _same(one: F32, two: F32) -> bool:
    return one.tobytes() == two.tobytes()
