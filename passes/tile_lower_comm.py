"""`tile-lower-comm`: exchanges become one-sided puts and awaits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from dialects import tile
from hpc.machine.cost import piece_rows, put_row_us
from hpc.machine.topology import shift_of
from hpc.schedule.deal import Exchanges
from passes.gmm_shape import buffer_of, buffers_of
from passes.program import ProgramInfo, chosen, fail, programs, replace_body


@dataclass(frozen=True)
class TileLowerCommPass(ModulePass):
    """
    Lower dispatch and combine to one-sided puts with signals, and awaits of the signals
    that other ranks send; the buffers they write become symmetric. Exchanges that are
    needed by the same tasks share one await. `chunks` is the number of puts for each
    destination (else the pin `row_chunks`, else the policy's rows per put, or finer:
    an exchange to which the routing of the spec brings more rows than the mean, see
    `piece_rows`, and others where the policy fills teams and their pieces would leave
    cores idle, see `hpc.schedule.deal`).

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
    Needs `tile-place`. Refuses more chunks than a rank has rows to send, and where
    chunks come from the routing, one that does not fit and exchanges without a team.
    """

    name = "tile-lower-comm"

    chunks: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in programs(op, tile.ProgramOp, self.name):
            _lower(program, self.chunks)


def _lower(program: tile.ProgramOp, chunks: int | None) -> None:
    info = ProgramInfo(program)
    cutter = _Cutter(info, buffers_of(program), chunks)
    transport = "collective" if info.policy.phased else "put"
    groups: dict[frozenset[Operation], list[tile.PutOp]] = {}
    exchanges: dict[SSAValue, tile.PutOp] = {}
    ops: list[Operation] = []
    symmetric: set[str] = set()
    for op in list(program.body.block.ops):
        if not isinstance(op, tile.ExchangeOp):
            ops.append(op)
            continue
        put = tile.PutOp(op, cutter.chunks(op), transport)
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


class _Cutter:
    """How many puts an exchange becomes for each destination."""

    def __init__(
        self,
        info: ProgramInfo,
        buffers: Mapping[str, tile.BufferOp],
        option: int | None,
    ):
        self.info, self.buffers = info, buffers
        layer = info.layer
        # More than the rows that one source can send are empty.
        most = max(1, layer.max_tokens * (layer.top_k if layer.repeats else 1))
        option = chosen(info.program, "chunks", option, most)
        pin = chosen(info.program, "the pin row_chunks", info.pins.row_chunks, most)
        self.fixed = option or pin
        self.even = max(1, ceil(round(info.rows_per_source) / info.policy.put_rows))
        self.filled: dict[tuple[int, int], Exchanges] = {}

    def chunks(self, op: tile.ExchangeOp) -> int:
        """The number that was given; else that of the policy, or more where one source
        sends more than the mean: its rows must not be the work of a few cores."""
        if self.fixed is not None:
            return self.fixed
        if self.info.policy.phased:  # no core drives a collective
            return self.even
        rows = self.most_rows(op)
        # Dealt evenly, rows differ by less than one from the mean.
        if rows < self.info.rows_per_source + 1:
            return self.even_chunks(op)
        if op.team is None:
            raise fail(op, "the exchange has no team; run tile-place first")
        cores = op.team.size.data
        wanted = ceil(rows / self.piece_rows(op, cores))
        # With a piece for every core of the team, more would shorten no core's list.
        return max(self.even, min(wanted, cores))

    def even_chunks(self, op: tile.ExchangeOp) -> int:
        """The policy's number, or more where the policy fills the team, as if the whole
        layer were balanced."""
        if op.team is None or not self.info.policy.fill_team:
            return self.even
        key = op.team.size.data, self.row_bytes(op)
        if key not in self.filled:
            self.filled[key] = self.exchanges(key[1]).filled(key[0])
        cut = self.filled[key]
        remote = any(self.info.group(op, op.group.value.data))
        wanted = cut.remote if remote else cut.own
        # A piece without rows would only cost its issue.
        return max(self.even, min(wanted, self.most_rows(op)))

    def exchanges(self, row_bytes: int) -> Exchanges:
        """All exchanges of one operator with mean rows, cut as the policy says."""
        machine, layer = self.info.machine, self.info.layer
        shifts = (shift_of(machine, layer.ep, k) for k in range(layer.ep))
        return Exchanges(
            groups=self.info.groups,
            experts=layer.local_experts,
            rows=ceil(self.info.rows_per_source),
            issue_us=tuple(shift.issue_us for shift in shifts),
            own_us=put_row_us(machine, row_bytes, remote=False),
            remote_us=put_row_us(machine, row_bytes, remote=True),
            own=self.even,
            remote=self.even,
        )

    def row_bytes(self, op: tile.ExchangeOp) -> int:
        cols = buffer_of(op, op.dest, self.buffers).cols.value.data
        return cols * self.info.layer.element_bytes

    def most_rows(self, op: tile.ExchangeOp) -> int:
        """Rows of the largest destination, over all ranks."""
        expert, group = op.expert.value.data, op.group.value.data
        self.info.group(op, group)
        experts = self.info.put_rows
        if expert >= len(experts):
            raise fail(op, f"no expert {expert}; a rank has {len(experts)}")
        return experts[expert][group]

    def piece_rows(self, op: tile.ExchangeOp, cores: int) -> float:
        """Rows of a piece, weighed over all exchanges that use the links as `op` does:
        own rows alone are copied, which is much faster."""
        info = self.info
        remote = any(info.group(op, op.group.value.data))
        size = self.row_bytes(op)
        return piece_rows(info.machine, self.totals[remote], size, cores, remote)

    @cached_property
    def totals(self) -> dict[bool, int]:
        """Rows of all exchanges with and without remote destinations, each counted as
        large as the largest."""
        totals = {False: 0, True: 0}
        for rows in self.info.put_rows:
            for most, group in zip(rows, self.info.groups, strict=True):
                totals[any(group)] += most * len(group)
        return totals


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
