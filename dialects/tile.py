"""The `tile` dialect: one operation per (operator, expert, group).

Tasks read and write named buffers by symbolic region; dependencies are SSA tokens.
Passes add, step by step, the base tile, the unit and team, and the order, which is the
order of the operations in the block. All ranks run the same program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import (
    I64,
    AnyFloat,
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    UnitAttr,
    i64,
)
from xdsl.ir import (
    Attribute,
    Dialect,
    SSAValue,
)
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from dialects.base import LocatedOp, int_attr
from dialects.tile_attrs import (
    EXCHANGES,
    ROLES,
    SPACES,
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
    printed,
)


@irdl_op_definition
class ProgramOp(LocatedOp):
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

    sym_name = prop_def(SymbolNameConstraint())
    machine = prop_def(StringAttr)
    mode = prop_def(StringAttr)
    policy = prop_def(StringAttr)
    spec = prop_def(DictionaryAttr)
    groups = prop_def(ArrayAttr[DenseArrayBase[I64]])
    row_chunks = prop_def(IntegerAttr[I64])
    body = region_def("single_block")

    traits = traits_def(NoTerminator())

    assembly_format = (
        "$sym_name `on` $machine `mode` $mode `policy` $policy $spec"
        " `groups` $groups `row_chunks` $row_chunks $body attr-dict"
    )

    def verify_(self) -> None:
        ks = sorted(k for group in self.group_lists() for k in group)
        if ks != list(range(len(ks))) or not ks or 0 not in self.group_lists()[0]:
            raise VerifyException(
                "groups must be a partition of 0..R-1 with 0 in the first,"
                f" got {self.group_lists()}"
            )

    def group_lists(self) -> tuple[tuple[int, ...], ...]:
        """The groups as plain tuples."""
        groups = (cast("Sequence[int]", g.get_values()) for g in self.groups)
        return tuple(tuple(g) for g in groups)


class BufferLike(LocatedOp):
    """A buffer declaration; the same at both lower levels.

    `rows` x `cols` of `element`. In space "weight" `rows` is K and `experts` counts the
    matrices; elsewhere `rows` is the capacity and `formula` says where it comes from.
    """

    sym_name = prop_def(SymbolNameConstraint())
    space = prop_def(StringAttr)
    rows = prop_def(IntegerAttr[I64])
    cols = prop_def(IntegerAttr[I64])
    experts = opt_prop_def(IntegerAttr[I64])
    element = prop_def(AnyFloat)
    role = prop_def(StringAttr)
    symmetric = opt_prop_def(UnitAttr)
    formula = opt_prop_def(StringAttr)

    def __init__(
        self,
        name: str,
        space: str,
        rows: int,
        cols: int,
        element: Attribute,
        role: str,
        experts: int | None = None,
        formula: str = "",
        symmetric: bool = False,
    ):
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "space": StringAttr(space),
                "rows": int_attr(rows),
                "cols": int_attr(cols),
                "element": element,
                "role": StringAttr(role),
                "experts": None if experts is None else int_attr(experts),
                "formula": StringAttr(formula) if formula else None,
                "symmetric": UnitAttr() if symmetric else None,
            }
        )

    def verify_(self) -> None:
        one_of("space", self.space.data, SPACES)
        one_of("role", self.role.data, ROLES)
        if self.rows.value.data < 1 or self.cols.value.data < 1:
            raise VerifyException("a buffer has at least one row and one column")
        if (self.space.data == "weight") != (self.experts is not None):
            raise VerifyException("weights, and only weights, count experts")


@irdl_custom_directive
class BufferText(CustomDirective):
    """`@w_up weight 4 x 64 x 32 bf16 weight symmetric formula "..."`."""

    sym_name: AttributeVariable
    space: AttributeVariable
    experts: AttributeVariable
    rows: AttributeVariable
    cols: AttributeVariable
    element: AttributeVariable
    role: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.sym_name.set(state, parser.parse_symbol_name())
        self.space.set(state, StringAttr(parser.parse_identifier()))
        sizes = [parser.parse_integer()]
        while parser.parse_optional_keyword("x") is not None:
            sizes.append(parser.parse_integer())
        if not 2 <= len(sizes) <= 3:
            parser.raise_error(f"expected 2 or 3 sizes, got {len(sizes)}")
        names = (self.experts, self.rows, self.cols)[-len(sizes) :]
        for variable, size in zip(names, sizes, strict=True):
            variable.set(state, int_attr(size))
        self.element.set(state, parser.parse_type())
        self.role.set(state, StringAttr(parser.parse_identifier()))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        op = cast(BufferLike, op)
        state.print_whitespace(printer)
        printer.print_symbol_name(op.sym_name.data)
        sizes = [a.value.data for a in (op.experts, op.rows, op.cols) if a is not None]
        printer.print_string(f" {op.space.data} {' x '.join(map(str, sizes))} ")
        printer.print_attribute(op.element)
        printer.print_string(f" {op.role.data}")
        printed(state)


BUFFER_FORMAT = (
    "custom<BufferText>($sym_name, $space, $experts, $rows, $cols, $element, $role)"
    " (`symmetric` $symmetric^)? (`formula` $formula^)? attr-dict"
)


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
        if self.base is not None and len(self.base) not in (1, 3):
            raise VerifyException(
                f"base must be [m] or [m, n, k], got {len(self.base)} numbers"
            )


class ExchangeLike(TileOp):
    """A dispatch or combine of one (expert, group), on all ranks."""

    kind = prop_def(StringAttr)
    expert = prop_def(IntegerAttr[I64])
    group = prop_def(IntegerAttr[I64])
    source = prop_def(RegionAttr)
    dest = prop_def(RegionAttr)
    scale = opt_prop_def(UnitAttr)

    def verify_(self) -> None:
        one_of("kind", self.kind.data, EXCHANGES)
        if self.expert.value.data < 0 or self.group.value.data < 0:
            raise VerifyException(
                "expert and group must not be negative,"
                f" got [{self.expert.value.data}, {self.group.value.data}]"
            )
        if self.scale is not None and self.kind.data != "dispatch":
            raise VerifyException("only a dispatch scales rows")


_EXCHANGE = (
    "custom<NameText>($kind) `[` $expert `,` $group `]`"
    " custom<RegionText>($source) `->` custom<RegionText>($dest)"
    " (`scale` $scale^)?"
)


@irdl_op_definition
class ExchangeOp(ExchangeLike):
    """
    An all-to-all as a whole, not lowered yet: the part is exchanged on all ranks.

    ```mlir
    %0 = tile.exchange dispatch[0, 1] @x -> @recv[0, 1]
    ```
    """

    name = "tile.exchange"

    token = result_def(TokenType())

    custom_directives = (NameText, RegionText, TeamText)

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

    custom_directives = (NameText, RegionText, TeamText)

    assembly_format = (
        _EXCHANGE + " `chunks` $chunks `via` custom<NameText>($transport)" + _TAIL
    )

    def __init__(self, exchange: ExchangeLike, chunks: int, transport: str):
        shared = ("kind", "expert", "group", "source", "dest", "scale", "team", "phase")
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
        one_of("transport", self.transport.data, TRANSPORTS)
        if self.chunks.value.data < 1:
            raise VerifyException(
                f"chunks must be at least 1, got {self.chunks.value.data}"
            )


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
