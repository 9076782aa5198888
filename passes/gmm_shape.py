"""The matrix product behind a GMM task: its three sizes."""

from __future__ import annotations

from collections.abc import Mapping

from dialects import tile
from dialects.tile_attrs import RegionAttr
from passes.program import ProgramInfo, fail

GMM_OPS = ("gmm", "gmm_nt", "gmm_tn")
"""Rows times weight, rows times weight transposed, rows transposed times rows."""


def buffers_of(program: tile.ProgramOp) -> dict[str, tile.BufferOp]:
    """The declared buffers by name."""
    ops = program.body.block.ops
    return {op.sym_name.data: op for op in ops if isinstance(op, tile.BufferOp)}


def buffer_of(
    op: tile.TileOp, region: RegionAttr, buffers: Mapping[str, tile.BufferOp]
) -> tile.BufferOp:
    """The declaration of the buffer that `op` names in `region`."""
    found = buffers.get(region.buffer.data)
    if found is None:
        raise fail(op, f"no buffer @{region.buffer.data}")
    return found


def gmm_shape(
    info: ProgramInfo, op: tile.TaskOp, buffers: Mapping[str, tile.BufferOp]
) -> tuple[int, int, int]:
    """(m, n, k) of the product, for the rows that the task expects."""
    if len(op.reads) != 2:
        raise fail(op, f"a gmm reads two regions, got {len(op.reads)}")
    weight = buffer_of(op, op.reads.data[1], buffers)
    write = op.writes.data[0]
    if op.op.data == "gmm_tn":
        matrix = buffer_of(op, write, buffers)
        rows = max(1, round(info.rows_per_source * info.layer.ep))
        return matrix.rows.value.data, matrix.cols.value.data, rows
    rows = info.part_rows(op, write.part.data)
    k, n = weight.rows.value.data, weight.cols.value.data
    return (rows, k, n) if op.op.data == "gmm_nt" else (rows, n, k)
