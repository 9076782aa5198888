"""What both lower levels declare: a program, and the buffers of every rank."""

from __future__ import annotations

from collections import Counter
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
)
from xdsl.ir import Attribute, Operation
from xdsl.irdl import IRDLOperation, opt_prop_def, prop_def, region_def, traits_def
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
from dialects.tile_attrs import ROLES, SPACES, one_of, printed


class ProgramLike(LocatedOp):
    """A layer cut into tasks, for a machine, under a policy.

    `spec` is what `hpc.spec.attr.spec_attr` made of the layer; `groups` are the
    relative sources of every group and `row_chunks` the parts of a token buffer.
    """

    sym_name = prop_def(SymbolNameConstraint())
    machine = prop_def(StringAttr)
    mode = prop_def(StringAttr)
    policy = prop_def(StringAttr)
    spec = prop_def(DictionaryAttr)
    groups = prop_def(ArrayAttr[DenseArrayBase[I64]])
    row_chunks = prop_def(IntegerAttr[I64])
    body = region_def("single_block")

    traits = traits_def(NoTerminator())

    def group_lists(self) -> tuple[tuple[int, ...], ...]:
        """The groups as plain tuples."""
        groups = (cast("Sequence[int]", g.get_values()) for g in self.groups)
        return tuple(tuple(g) for g in groups)

    def verify_(self) -> None:
        groups = self.group_lists()
        ks = sorted(k for group in groups for k in group)
        if not ks or ks != list(range(len(ks))) or 0 not in groups[0]:
            raise VerifyException(
                f"groups must be a partition of 0..R-1 with 0 in the first,"
                f" got {[list(group) for group in groups]}"
            )
        if self.row_chunks.value.data < 1:
            raise VerifyException(
                f"row_chunks must be at least 1, got {self.row_chunks.value.data}"
            )
        if self.body.block.args:
            raise VerifyException("a program has no block arguments")

    def verify_body(self, *allowed: type[Operation]) -> None:
        """Raise a VerifyException for other operations and for names used twice."""
        ops = self.body.block.ops
        for op in ops:
            if not isinstance(op, allowed):
                raise VerifyException(f"{op.name} cannot stand in {self.name}")
        names = Counter(
            name.data
            for op in ops
            if isinstance(name := op.properties.get("sym_name"), StringAttr)
        )
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise VerifyException(f"@{twice[0]} is declared {names[twice[0]]} times")


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
        if self.experts is not None and self.experts.value.data < 1:
            raise VerifyException("weights have at least one expert")


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
