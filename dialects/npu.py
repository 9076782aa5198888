"""The `npu` dialect: what the cores run, in final order.

A program first holds a flat list of instructions, each with the team that runs it; once
outlined, one `npu.queue` per team holds them. There is no SSA: order within a queue and
events between queues are all that remains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import (
    I64,
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntAttr,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, Dialect, ParametrizedAttribute, Region
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
)
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    irdl_custom_directive,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from dialects.base import LocatedOp, int_attr, ints_attr
from dialects.declarations import BUFFER_FORMAT, BufferLike, BufferText, ProgramLike
from dialects.tile import check_exchange, check_put, check_task
from dialects.tile_attrs import (
    NameText,
    RegionAttr,
    RegionsText,
    RegionText,
    TeamAttr,
    TeamText,
    one_of,
    printed,
)

SCOPES = ("rank", "world")
MAX_COUNTERS = 1 << 20
"""Far above any machine's limit; keeps tables of a hand-written event small."""


@irdl_attr_definition
class FlagAttr(ParametrizedAttribute):
    """One counter of an event: `#npu.flag<@h_ready[0, 1]>`."""

    name = "npu.flag"

    event: StringAttr
    expert: IntAttr
    part: IntAttr

    @staticmethod
    def of(event: str, expert: int, part: int) -> FlagAttr:
        """Counter [expert, part] of an event."""
        return FlagAttr(StringAttr(event), IntAttr(expert), IntAttr(part))

    def print_plain(self, printer: Printer) -> None:
        """Print without `#npu.flag<>`."""
        printer.print_symbol_name(self.event.data)
        printer.print_string(f"[{self.expert.data}, {self.part.data}]")

    @staticmethod
    def parse_plain(parser: AttrParser) -> FlagAttr:
        """Parse what `print_plain` prints."""
        name = parser.parse_symbol_name()
        with parser.in_square_brackets():
            expert = parser.parse_integer(allow_negative=False)
            parser.parse_punctuation(",")
            part = parser.parse_integer(allow_negative=False)
        return FlagAttr(name, IntAttr(expert), IntAttr(part))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            flag = FlagAttr.parse_plain(parser)
        return flag.parameters

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            self.print_plain(printer)


@irdl_custom_directive
class FlagText(CustomDirective):
    """`@h_ready[0, 1]`."""

    flag: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.flag.set(state, FlagAttr.parse_plain(parser))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        flag = self.flag.get(op)
        assert isinstance(flag, FlagAttr)
        flag.print_plain(printer)
        printed(state)

    def is_present(self, op: IRDLOperation) -> bool:
        return self.flag.get(op) is not None

    def is_anchorable(self) -> bool:
        return True


@irdl_custom_directive
class ThresholdText(CustomDirective):
    """`>= 24`."""

    need: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        parser.parse_punctuation(">")
        parser.parse_punctuation("=")
        self.need.set(state, int_attr(parser.parse_integer()))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        need = self.need.get(op)
        assert isinstance(need, IntegerAttr)
        printer.print_string(f" >= {need.value.data}")
        printed(state)


@irdl_op_definition
class ProgramOp(ProgramLike):
    """
    The program that every rank runs.

    ```mlir
    npu.program @tiny on "ascend_a3" mode "forward" policy "list" {}
      groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
      npu.buffer @x token 8 x 64 bf16 input
      npu.event @h_ready 2 x 2
      npu.queue aic[0:24] {
        npu.set_flag @h_ready[0, 0]
      }
    }
    ```
    """

    name = "npu.program"

    assembly_format = (
        "$sym_name `on` $machine `mode` $mode `policy` $policy $spec"
        " `groups` $groups `row_chunks` $row_chunks $body attr-dict"
    )

    def __init__(self, properties: dict[str, Attribute], body: Region):
        super().__init__(properties=properties, regions=[body])

    def verify_(self) -> None:
        super().verify_()
        self.verify_body(BufferOp, EventOp, QueueOp, Instruction)


@irdl_op_definition
class BufferOp(BufferLike):
    """
    A buffer that every rank has.

    ```mlir
    npu.buffer @recv routed 32 x 64 bf16 workspace symmetric formula "8 x 2 x 2"
    ```
    """

    name = "npu.buffer"

    custom_directives = (BufferText,)

    assembly_format = BUFFER_FORMAT


@irdl_op_definition
class EventOp(LocatedOp):
    """
    A table of counters, one for each (expert, part); `ids` are their numbers on the
    machine once allocated, -1 where nobody uses the counter. Equal ids share a counter.

    ```mlir
    npu.event @h_ready 2 x 2
    npu.event @a_ready 1 x 2 ids [4, 5]
    ```
    """

    name = "npu.event"

    sym_name = prop_def(SymbolNameConstraint())
    experts = prop_def(IntegerAttr[I64])
    parts = prop_def(IntegerAttr[I64])
    ids = opt_prop_def(DenseArrayBase.constr(i64))

    assembly_format = "$sym_name $experts `x` $parts (`ids` $ids^)? attr-dict"

    def __init__(self, name: str, experts: int, parts: int):
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "experts": int_attr(experts),
                "parts": int_attr(parts),
            }
        )

    def set_ids(self, ids: Sequence[int]) -> None:
        """Give every counter its number, in row-major order of [expert, part]."""
        self.properties["ids"] = ints_attr(ids)

    def verify_(self) -> None:
        experts, parts = self.experts.value.data, self.parts.value.data
        size = experts * parts
        if min(experts, parts) < 1 or size > MAX_COUNTERS:
            raise VerifyException(
                f"an event has 1 to {MAX_COUNTERS} counters, got {experts} x {parts}"
            )
        if self.ids is not None and len(self.ids) != size:
            raise VerifyException(f"expected {size} ids, got {len(self.ids)}")


@irdl_op_definition
class QueueOp(LocatedOp):
    """
    The in-order list that each core of a team runs.

    ```mlir
    npu.queue aiv[24:48] {
      npu.wait_flag @h_ready[0, 0] >= 24
      npu.task swiglu (@h[0, 0]) -> (@a[0, 0]) base [128]
      npu.set_flag @a_ready[0, 0]
    }
    ```
    """

    name = "npu.queue"

    team = prop_def(TeamAttr)
    body = region_def("single_block")

    traits = traits_def(NoTerminator())

    custom_directives = (TeamText,)

    assembly_format = "custom<TeamText>($team) $body attr-dict"

    def __init__(self, team: TeamAttr, body: Region):
        super().__init__(properties={"team": team}, regions=[body])

    def verify_(self) -> None:
        for op in self.body.block.ops:
            if not isinstance(op, Instruction):
                raise VerifyException(f"{op.name} is not an instruction of a queue")


class Instruction(LocatedOp):
    """An instruction; `team` is set until it stands in a queue."""

    team = opt_prop_def(TeamAttr)

    def verify_(self) -> None:
        inside = isinstance(self.parent_op(), QueueOp)
        if inside and self.team is not None:
            raise VerifyException("an instruction in a queue has the queue's team")


_TEAM = " (`on` custom<TeamText>($team)^)? attr-dict"


@irdl_op_definition
class WaitFlagOp(Instruction):
    """
    Blocks until the local counter is at least `need`.

    ```mlir
    npu.wait_flag @h_ready[0, 0] >= 24 on aiv[24:48]
    ```
    """

    name = "npu.wait_flag"

    flag = prop_def(FlagAttr)
    need = prop_def(IntegerAttr[I64])

    custom_directives = (FlagText, ThresholdText, TeamText)

    assembly_format = "custom<FlagText>($flag) custom<ThresholdText>($need)" + _TEAM

    def __init__(self, flag: FlagAttr, need: int, team: TeamAttr):
        super().__init__(
            properties={"flag": flag, "need": int_attr(need), "team": team}
        )

    def verify_(self) -> None:
        super().verify_()
        if self.need.value.data < 1:
            raise VerifyException(
                f"a wait needs at least 1 signal, got {self.need.value.data}"
            )


@irdl_op_definition
class SetFlagOp(Instruction):
    """
    Adds one to the local counter once all the core did before is visible.

    ```mlir
    npu.set_flag @h_ready[0, 0] on aic[0:24]
    ```
    """

    name = "npu.set_flag"

    flag = prop_def(FlagAttr)

    custom_directives = (FlagText, TeamText)

    assembly_format = "custom<FlagText>($flag)" + _TEAM

    def __init__(self, flag: FlagAttr, team: TeamAttr):
        super().__init__(properties={"flag": flag, "team": team})


@irdl_op_definition
class PutMemSignalOp(Instruction):
    """
    One-sided writes of a part, `chunks` for every destination; each, once visible, adds
    one to `signal` at its destination.

    ```mlir
    npu.put_mem_signal dispatch[0, 1] @x -> @recv[0, 1] chunks 4 via put
      signal @recv_ready[0, 1] on aiv[0:24]
    npu.put_mem_signal combine[0, 0] @y[0, 0] -> @back[0, 0] chunks 1 via collective
    ```
    """

    name = "npu.put_mem_signal"

    kind = prop_def(StringAttr)
    expert = prop_def(IntegerAttr[I64])
    group = prop_def(IntegerAttr[I64])
    source = prop_def(RegionAttr)
    dest = prop_def(RegionAttr)
    scale = opt_prop_def(UnitAttr)
    dot = opt_prop_def(ArrayAttr[RegionAttr])
    chunks = prop_def(IntegerAttr[I64])
    transport = prop_def(StringAttr)
    signal = opt_prop_def(FlagAttr)

    custom_directives = (NameText, RegionText, RegionsText, FlagText, TeamText)

    assembly_format = (
        "custom<NameText>($kind) `[` $expert `,` $group `]`"
        " custom<RegionText>($source) `->` custom<RegionText>($dest)"
        " (`scale` $scale^)? (`dot` custom<RegionsText>($dot)^)?"
        " `chunks` $chunks `via` custom<NameText>($transport)"
        " (`signal` custom<FlagText>($signal)^)?" + _TEAM
    )

    def __init__(self, properties: Mapping[str, Attribute | None]):
        super().__init__(properties=properties)

    def verify_(self) -> None:
        super().verify_()
        index = self.expert.value.data, self.group.value.data
        check_exchange(self.kind.data, *index, self.scale is not None, self.dot)
        check_put(self.transport.data, self.chunks.value.data)


@irdl_op_definition
class TaskOp(Instruction):
    """
    A compute task; the cores of the team share its tiles.

    ```mlir
    npu.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64]
    ```
    """

    name = "npu.task"

    op = prop_def(StringAttr)
    reads = prop_def(ArrayAttr[RegionAttr])
    writes = prop_def(ArrayAttr[RegionAttr])
    params = opt_prop_def(DictionaryAttr)
    base = prop_def(DenseArrayBase.constr(i64))

    custom_directives = (NameText, RegionsText, TeamText)

    assembly_format = (
        "custom<NameText>($op) custom<RegionsText>($reads) `->`"
        " custom<RegionsText>($writes) (`params` $params^)? `base` $base" + _TEAM
    )

    def __init__(self, properties: Mapping[str, Attribute | None]):
        super().__init__(properties=properties)

    def verify_(self) -> None:
        super().verify_()
        if not self.reads or not self.writes:
            raise VerifyException("a task reads and writes at least one region")
        check_task(self.op.data, self.base)


@irdl_op_definition
class BarrierOp(Instruction):
    """
    All cores of a rank, or of the world, arrive before any leaves.

    ```mlir
    npu.barrier world launch on aic[0:24]
    ```
    """

    name = "npu.barrier"

    scope = prop_def(StringAttr)
    launch = opt_prop_def(UnitAttr)

    custom_directives = (NameText, TeamText)

    assembly_format = "custom<NameText>($scope) (`launch` $launch^)?" + _TEAM

    def __init__(self, scope: str, launch: bool, team: TeamAttr):
        super().__init__(
            properties={
                "scope": StringAttr(scope),
                "launch": UnitAttr() if launch else None,
                "team": team,
            }
        )

    def verify_(self) -> None:
        super().verify_()
        one_of("scope", self.scope.data, SCOPES)


Npu = Dialect(
    "npu",
    [
        ProgramOp,
        BufferOp,
        EventOp,
        QueueOp,
        WaitFlagOp,
        SetFlagOp,
        PutMemSignalOp,
        TaskOp,
        BarrierOp,
    ],
    [FlagAttr],
)
