"""The `tile` dialect: one operation per (operator, expert, group).

Tasks read and write named buffers by symbolic region; dependencies are SSA tokens.
Passes add, step by step, the base tile, the unit and team, and the order, which is the
order of the operations in the block. All ranks run the same program.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    I64,
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntegerAttr,
    StringAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import (
    Dialect,
    SSAValue,
)
from xdsl.irdl import (
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    result_def,
    var_operand_def,
)
from xdsl.utils.exceptions import VerifyException

from dialects.base import LocatedOp, int_attr
from dialects.declarations import BUFFER_FORMAT, BufferLike, BufferText, ProgramLike
from dialects.tile_attrs import (
    EXCHANGES,
    TRANSPORTS,
    NameText,
    RegionAttr,
    RegionsText,
    RegionText,
    SignalType,
    TeamAttr,
    TeamText,
    TokenType,
    one_of,
)


@irdl_op_definition
class ProgramOp(ProgramLike):
    """
    A layer cut into tasks. `groups` are the relative sources of every group.

    ```mlir
    tile.program @tiny on "ascend_a3" mode "forward" policy "list" {}
      groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
      tile.buffer @x token 8 x 64 bf16 input
    }
    ```
    """

    name = "tile.program"

    assembly_format = (
        "$sym_name `on` $machine `mode` $mode `policy` $policy $spec"
        " `groups` $groups `row_chunks` $row_chunks $body attr-dict"
    )

    def verify_(self) -> None:
        super().verify_()
        self.verify_body(BufferOp, TileOp, AwaitOp)
        made: set[SSAValue] = set()
        for op in self.body.block.ops:
            if not made.issuperset(op.operands):
                raise VerifyException(f"nothing before {op.name} makes what it needs")
            made.update(op.results)


@irdl_op_definition
class BufferOp(BufferLike):
    """
    A buffer that every rank has.

    ```mlir
    tile.buffer @x token 8 x 64 bf16 input
    tile.buffer @w_up weight 2 x 64 x 64 bf16 weight
    tile.buffer @recv routed 32 x 64 bf16 workspace symmetric formula "8 x 2 x 2"
    ```
    """

    name = "tile.buffer"

    custom_directives = (BufferText,)

    assembly_format = BUFFER_FORMAT


class TileOp(LocatedOp):
    """What all tasks share: dependencies in, a result out, and a team once placed."""

    after = var_operand_def(TokenType())
    team = opt_prop_def(TeamAttr)
    phase = opt_prop_def(IntegerAttr[I64])


_TAIL = (
    " (`after` `(` $after^ `)`)? (`on` custom<TeamText>($team)^)?"
    " (`phase` $phase^)? attr-dict"
)


@irdl_op_definition
class TaskOp(TileOp):
    """
    A compute task: one operator on one part.

    `base` is the base tile [m, n, k] of a GMM or the rows [m] of a vector tile; `phase`
    numbers the kernels of a serial schedule.

    ```mlir
    %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0])
    %1 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) base [128] after(%0) on aiv[24:48]
    ```
    """

    name = "tile.task"

    op = prop_def(StringAttr)
    reads = prop_def(ArrayAttr[RegionAttr])
    writes = prop_def(ArrayAttr[RegionAttr])
    params = opt_prop_def(DictionaryAttr)
    base = opt_prop_def(DenseArrayBase.constr(i64))
    token = result_def(TokenType())

    custom_directives = (NameText, RegionsText, TeamText)

    assembly_format = (
        "custom<NameText>($op) custom<RegionsText>($reads) `->`"
        " custom<RegionsText>($writes) (`params` $params^)? (`base` $base^)?" + _TAIL
    )

    def __init__(
        self,
        op: str,
        reads: Sequence[RegionAttr],
        writes: Sequence[RegionAttr],
        after: Sequence[SSAValue],
        params: DictionaryAttr | None = None,
    ):
        super().__init__(
            operands=[after],
            result_types=[TokenType()],
            properties={
                "op": StringAttr(op),
                "reads": ArrayAttr(reads),
                "writes": ArrayAttr(writes),
                "params": params,
            },
        )

    def verify_(self) -> None:
        if not self.reads or not self.writes:
            raise VerifyException("a task reads and writes at least one region")
        check_task(self.op.data, self.base)


def check_task(op: str, base: DenseArrayBase[I64] | None) -> None:
    """Raise a VerifyException for a name that cannot be printed or a wrong base."""
    if not op.isidentifier():
        raise VerifyException(f"op must be a word, got '{op}'")
    sizes = (1,) if base is None else base.get_values()
    if len(sizes) not in (1, 3) or min(sizes) < 1:
        raise VerifyException(
            f"base must be [m] or [m, n, k], all positive, got {list(sizes)}"
        )


def check_exchange(
    kind: str,
    expert: int,
    group: int,
    scale: bool,
    dot: ArrayAttr[RegionAttr] | None,
) -> None:
    """Raise a VerifyException for an exchange that means nothing."""
    one_of("kind", kind, EXCHANGES)
    if min(expert, group) < 0:
        raise VerifyException(
            f"expert and group must not be negative, got [{expert}, {group}]"
        )
    if scale and kind != "dispatch":
        raise VerifyException("only a dispatch scales rows")
    if dot is not None and (kind != "dispatch" or len(dot) != 2):
        raise VerifyException("dot is (rows, result), of a dispatch")


def check_put(transport: str, chunks: int) -> None:
    """Raise a VerifyException for an unknown transport or no chunk at all."""
    one_of("transport", transport, TRANSPORTS)
    if chunks < 1:
        raise VerifyException(f"chunks must be at least 1, got {chunks}")


class ExchangeLike(TileOp):
    """A dispatch or combine of one (expert, group), on all ranks.

    `dot` is [rows, result], both of this rank: the rows of the slots that the dot
    product of each sent row is taken with, and where it goes.
    """

    kind = prop_def(StringAttr)
    expert = prop_def(IntegerAttr[I64])
    group = prop_def(IntegerAttr[I64])
    source = prop_def(RegionAttr)
    dest = prop_def(RegionAttr)
    scale = opt_prop_def(UnitAttr)
    dot = opt_prop_def(ArrayAttr[RegionAttr])

    def verify_(self) -> None:
        index = self.expert.value.data, self.group.value.data
        check_exchange(self.kind.data, *index, self.scale is not None, self.dot)


_EXCHANGE = (
    "custom<NameText>($kind) `[` $expert `,` $group `]`"
    " custom<RegionText>($source) `->` custom<RegionText>($dest)"
    " (`scale` $scale^)? (`dot` custom<RegionsText>($dot)^)?"
)


@irdl_op_definition
class ExchangeOp(ExchangeLike):
    """
    An all-to-all as a whole, not lowered yet: the part is exchanged on all ranks.

    ```mlir
    %0 = tile.exchange dispatch[0, 1] @x -> @recv[0, 1]
    %1 = tile.exchange dispatch[0, 1] @d -> @dy[0, 1] scale dot (@back[0, 1], @dr[0, 1])
    ```
    """

    name = "tile.exchange"

    token = result_def(TokenType())

    custom_directives = (NameText, RegionText, RegionsText, TeamText)

    assembly_format = _EXCHANGE + _TAIL

    def __init__(
        self,
        kind: str,
        expert: int,
        group: int,
        source: RegionAttr,
        dest: RegionAttr,
        after: Sequence[SSAValue],
        scale: bool = False,
        dot: Sequence[RegionAttr] = (),
    ):
        super().__init__(
            operands=[after],
            result_types=[TokenType()],
            properties={
                "kind": StringAttr(kind),
                "expert": int_attr(expert),
                "group": int_attr(group),
                "source": source,
                "dest": dest,
                "scale": UnitAttr() if scale else None,
                "dot": ArrayAttr(dot) if dot else None,
            },
        )


@irdl_op_definition
class PutOp(ExchangeLike):
    """
    One-sided writes of a part, `chunks` for every destination, each with a signal.

    ```mlir
    %0 = tile.put dispatch[0, 1] @x -> @recv[0, 1] chunks 4 via put on aiv[0:24]
    ```
    """

    name = "tile.put"

    chunks = prop_def(IntegerAttr[I64])
    transport = prop_def(StringAttr)
    signal = result_def(SignalType())

    custom_directives = (NameText, RegionText, RegionsText, TeamText)

    assembly_format = (
        _EXCHANGE + " `chunks` $chunks `via` custom<NameText>($transport)" + _TAIL
    )

    def __init__(self, exchange: ExchangeLike, chunks: int, transport: str):
        shared = ("kind", "expert", "group", "source", "dest", "scale", "dot")
        shared += ("team", "phase")
        super().__init__(
            operands=[exchange.after],
            result_types=[SignalType()],
            properties={
                **{name: exchange.properties.get(name) for name in shared},
                "chunks": int_attr(chunks),
                "transport": StringAttr(transport),
            },
        )

    def verify_(self) -> None:
        super().verify_()
        check_put(self.transport.data, self.chunks.value.data)


@irdl_op_definition
class AwaitOp(LocatedOp):
    """
    All signals of these puts, from whichever ranks, have arrived here.

    ```mlir
    %0 = tile.put dispatch[0, 1] @x -> @recv[0, 1] chunks 4 via put
    %1 = tile.await(%0)
    ```
    """

    name = "tile.await"

    signals = var_operand_def(SignalType())
    token = result_def(TokenType())

    assembly_format = "`(` $signals `)` attr-dict"

    def __init__(self, signals: Sequence[SSAValue]):
        super().__init__(operands=[signals], result_types=[TokenType()])

    def verify_(self) -> None:
        if not self.signals:
            raise VerifyException("an await waits for at least one put")


Tile = Dialect(
    "tile",
    [ProgramOp, BufferOp, TaskOp, ExchangeOp, PutOp, AwaitOp],
    [TokenType, SignalType, RegionAttr, TeamAttr],
)
