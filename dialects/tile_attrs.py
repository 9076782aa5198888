"""Types, attributes and pieces of syntax that `tile` and `npu` share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    IntAttr,
    StringAttr,
)
from xdsl.ir import (
    Attribute,
    ParametrizedAttribute,
    TypeAttribute,
)
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
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
from xdsl.utils.exceptions import VerifyException

SPACES = ("token", "routed", "slot", "weight")
ROLES = ("input", "weight", "saved", "workspace", "output")
EXCHANGES = ("dispatch", "combine")
TRANSPORTS = ("put", "collective")
UNITS = ("aic", "aiv")
ALL = -1
"""An index of a region that stands for all experts or all parts."""


@irdl_attr_definition
class TokenType(ParametrizedAttribute, TypeAttribute):
    """Orders two tasks of one rank: `!tile.token`."""

    name = "tile.token"


@irdl_attr_definition
class SignalType(ParametrizedAttribute, TypeAttribute):
    """Signals that puts of all ranks bring to a rank: `!tile.signal`."""

    name = "tile.signal"


def _print_index(index: int) -> str:
    return "*" if index == ALL else str(index)


def _parse_index(parser: AttrParser) -> int:
    if parser.parse_optional_punctuation("*") is not None:
        return ALL
    return parser.parse_integer(allow_boolean=False, allow_negative=False)


@irdl_attr_definition
class RegionAttr(ParametrizedAttribute):
    """Part of a buffer: `@recv[0, 1]` is expert 0, group 1; `*` or nothing means all.

    `#tile.region<@recv[0, 1]>`, `#tile.region<@w_up[0]>`, `#tile.region<@x>`
    """

    name = "tile.region"

    buffer: StringAttr
    expert: IntAttr
    part: IntAttr

    @staticmethod
    def of(buffer: str, expert: int | None = None, part: int | None = None):
        """The region, None standing for all."""
        indices = (IntAttr(ALL if i is None else i) for i in (expert, part))
        return RegionAttr(StringAttr(buffer), *indices)

    def indices(self) -> tuple[int | None, int | None]:
        """(expert, part), None for all."""
        expert, part = self.expert.data, self.part.data
        return None if expert == ALL else expert, None if part == ALL else part

    def print_plain(self, printer: Printer) -> None:
        """Print without `#tile.region<>`."""
        printer.print_symbol_name(self.buffer.data)
        expert, part = self.expert.data, self.part.data
        if part != ALL:
            printer.print_string(f"[{_print_index(expert)}, {_print_index(part)}]")
        elif expert != ALL:
            printer.print_string(f"[{expert}]")

    @staticmethod
    def parse_plain(parser: AttrParser) -> RegionAttr:
        """Parse what `print_plain` prints."""
        name = parser.parse_symbol_name()
        found = parser.parse_optional_comma_separated_list(
            parser.Delimiter.SQUARE, lambda: _parse_index(parser)
        )
        indices = [*(found or ()), ALL, ALL][:2]
        if found is not None and not 1 <= len(found) <= 2:
            parser.raise_error(f"a region has 1 or 2 indices, got {len(found)}")
        return RegionAttr(name, *(IntAttr(i) for i in indices))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            region = RegionAttr.parse_plain(parser)
        return region.parameters

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            self.print_plain(printer)


@irdl_attr_definition
class TeamAttr(ParametrizedAttribute):
    """Cores `first` up to `stop` of one kind: `#tile.team<aic[0:24]>`."""

    name = "tile.team"

    unit: StringAttr
    first: IntAttr
    size: IntAttr

    @staticmethod
    def of(unit: str, first: int, size: int):
        """A team of `size` cores from core `first` on."""
        return TeamAttr(StringAttr(unit), IntAttr(first), IntAttr(size))

    def print_plain(self, printer: Printer) -> None:
        """Print without `#tile.team<>`."""
        first = self.first.data
        stop = first + self.size.data
        printer.print_string(f"{self.unit.data}[{first}:{stop}]")

    @staticmethod
    def parse_plain(parser: AttrParser) -> TeamAttr:
        """Parse what `print_plain` prints."""
        unit = StringAttr(parser.parse_identifier())
        with parser.in_square_brackets():
            first = parser.parse_integer(allow_negative=False)
            parser.parse_punctuation(":")
            position = parser.pos
            stop = parser.parse_integer(allow_negative=False)
        if stop <= first:
            parser.raise_error(f"a team has cores, got [{first}:{stop}]", position)
        return TeamAttr(unit, IntAttr(first), IntAttr(stop - first))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            team = TeamAttr.parse_plain(parser)
        return team.parameters

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            self.print_plain(printer)

    def verify(self) -> None:
        one_of("unit", self.unit.data, UNITS)


def printed(state: PrintingState) -> None:
    """A directive that printed text itself: the next one wants a space."""
    state.should_emit_space = True
    state.last_was_punctuation = False


@irdl_custom_directive
class RegionText(CustomDirective):
    """`@recv[0, 1]`."""

    region: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.region.set(state, RegionAttr.parse_plain(parser))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        cast(RegionAttr, self.region.get(op)).print_plain(printer)
        printed(state)


@irdl_custom_directive
class RegionsText(CustomDirective):
    """`(@recv[0, 1], @w_up[0])`."""

    regions: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        found = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: RegionAttr.parse_plain(parser)
        )
        self.regions.set(state, ArrayAttr(found))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        regions = cast("ArrayAttr[RegionAttr]", self.regions.get(op))
        with printer.in_parens():
            printer.print_list(regions, lambda r: r.print_plain(printer))
        printed(state)

    def is_present(self, op: IRDLOperation) -> bool:
        return self.regions.get(op) is not None

    def is_anchorable(self) -> bool:
        return True


@irdl_custom_directive
class TeamText(CustomDirective):
    """`aic[0:24]`, or nothing when the team is not chosen yet."""

    team: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.team.set(state, TeamAttr.parse_plain(parser))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        cast(TeamAttr, self.team.get(op)).print_plain(printer)
        printed(state)

    def is_present(self, op: IRDLOperation) -> bool:
        return self.team.get(op) is not None

    def is_anchorable(self) -> bool:
        return True


def one_of(what: str, value: str, allowed: Sequence[str]) -> None:
    """Raise a VerifyException that lists what is allowed."""
    if value not in allowed:
        names = ", ".join(allowed)
        raise VerifyException(f"{what} must be one of {names}, got {value}")


@irdl_custom_directive
class NameText(CustomDirective):
    """A bare word, held as a string attribute."""

    word: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.word.set(state, StringAttr(parser.parse_identifier()))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        printer.print_string(cast(StringAttr, self.word.get(op)).data)
        printed(state)
