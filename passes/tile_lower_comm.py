"""`tile-lower-comm`: exchanges become one-sided puts and awaits."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from dialects import tile
from passes.program import ProgramInfo, chosen, programs, replace_body


@dataclass(frozen=True)
class TileLowerCommPass(ModulePass):
    """
    Lower dispatch and combine to one-sided puts with signals, and awaits of the signals
    that other ranks send; the buffers they write become symmetric. Exchanges that are
    needed by the same tasks share one await. `chunks` is the number of puts for each
    destination (else the pin `row_chunks`, else the policy's rows per put).

    Before:
    ```mlir
    tile.buffer @recv routed 32 x 64 bf16 workspace
    %0 = tile.exchange dispatch[0, 1] @x -> @recv[0, 1] on aiv[0:24]
    %1 = tile.task gmm (@recv[0, 1], @w_up[0]) -> (@h[0, 1]) after(%0)
    ```
    After `tile-lower-comm{chunks=1}`:
    ```mlir
    tile.buffer @recv routed 32 x 64 bf16 workspace symmetric
    %0 = tile.put dispatch[0, 1] @x -> @recv[0, 1] chunks 1 via put on aiv[0:24]
    %1 = tile.await(%0)
    %2 = tile.task gmm (@recv[0, 1], @w_up[0]) -> (@h[0, 1]) after(%1)
    ```
    Needs `tile-place`. Refuses more chunks than a rank has rows to send.
    """

    name = "tile-lower-comm"

    chunks: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in programs(op, tile.ProgramOp, self.name):
            _lower(program, self.chunks)


def _lower(program: tile.ProgramOp, chunks: int | None) -> None:
    info = ProgramInfo(program)
    chunks = _chunks(info, chunks)
    transport = "collective" if info.policy.phased else "put"
    groups: dict[frozenset[Operation], list[tile.PutOp]] = {}
    exchanges: dict[SSAValue, tile.PutOp] = {}
    ops: list[Operation] = []
    symmetric: set[str] = set()
    for op in list(program.body.block.ops):
        if not isinstance(op, tile.ExchangeOp):
            ops.append(op)
            continue
        put = tile.PutOp(op, chunks, transport)
        put.location = op.location
        ops.append(put)
        symmetric.add(op.dest.buffer.data)
        users = frozenset(use.operation for use in op.token.uses)
        groups.setdefault(users, []).append(put)
        exchanges[op.token] = put
    for op in ops:
        if isinstance(op, tile.BufferOp) and op.sym_name.data in symmetric:
            op.properties["symmetric"] = UnitAttr()
    _await(ops, groups, exchanges)
    replace_body(program, ops)
    for token in reversed(exchanges):  # users first: a combine may need a dispatch
        assert isinstance(token.owner, Operation)
        token.owner.erase()


def _chunks(info: ProgramInfo, option: int | None) -> int:
    """Puts for each destination; more than the rows one source can send are empty."""
    layer = info.layer
    most = max(1, layer.max_tokens * (layer.top_k if layer.repeats else 1))
    option = chosen(info.program, "chunks", option, most)
    pin = chosen(info.program, "the pin row_chunks", info.pins.row_chunks, most)
    rows = round(info.rows_per_source)
    return option or pin or max(1, ceil(rows / info.policy.put_rows))


def _await(
    ops: list[Operation],
    groups: dict[frozenset[Operation], list[tile.PutOp]],
    exchanges: dict[SSAValue, tile.PutOp],
) -> None:
    """One await for each set of puts with the same users, right before the first."""
    awaits: dict[tile.PutOp, tile.AwaitOp] = {}
    last_of: dict[tile.PutOp, list[tile.AwaitOp]] = {}
    for puts in groups.values():
        op = tile.AwaitOp([put.signal for put in puts])
        op.location = puts[0].location
        last_of.setdefault(puts[-1], []).append(op)
        awaits |= dict.fromkeys(puts, op)
    placed: list[Operation] = []
    for op in ops:
        placed.append(op)
        if isinstance(op, tile.PutOp):
            placed += last_of.get(op, [])
    ops[:] = placed
    for op in ops:
        if not isinstance(op, tile.TileOp) or not op.after:
            continue
        tokens: dict[SSAValue, None] = {}
        for token in op.after:
            put = exchanges.get(token)
            tokens[token if put is None else awaits[put].token] = None
        op.operands = list(tokens)
