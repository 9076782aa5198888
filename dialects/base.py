"""What the three dialects share: located errors, typed operands, print helpers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, cast

from typing_extensions import TypeVar
from xdsl.dialects.builtin import (
    I64,
    ArrayAttr,
    CallSiteLoc,
    DenseArrayBase,
    FileLineColLoc,
    FusedLoc,
    IntegerAttr,
    LocationAttr,
    NameLoc,
    i64,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLAttrConstraint, IRDLOperation, operand_def

A = TypeVar("A", bound=Attribute)


def typed_operand_def(constraint: IRDLAttrConstraint[A]) -> SSAValue[A]:
    """`operand_def` whose static type remembers the type of the operand."""
    return cast("SSAValue[A]", operand_def(constraint))


def source_line(loc: LocationAttr) -> str | None:
    """`file:line:col` of a location, the first one found inside it; None if unknown."""
    match loc:
        case FileLineColLoc():
            return f"{loc.filename.data}:{loc.line.data}:{loc.column.data}"
        case NameLoc():
            return source_line(cast(LocationAttr, loc.location))
        case CallSiteLoc():
            return source_line(cast(LocationAttr, loc.callee))
        case FusedLoc():
            parts = cast("ArrayAttr[LocationAttr]", loc.locations)
            found = (source_line(part) for part in parts)
            return next((line for line in found if line), None)
        case _:
            return None


class LocatedOp(IRDLOperation):
    """An operation whose verifier errors begin with its source line."""

    def emit_error(self, message: str, underlying_error: Exception) -> NoReturn:
        where = source_line(self.location)
        if where is None or str(underlying_error).startswith(where):
            super().emit_error(message, underlying_error)
        text = f"{where}: error: {underlying_error}"
        super().emit_error(message, type(underlying_error)(text))


def int_attr(value: int) -> IntegerAttr[I64]:
    """An i64 attribute."""
    return IntegerAttr(value, i64)


def ints_attr(values: Sequence[int]) -> DenseArrayBase[I64]:
    """An `array<i64: ...>` attribute."""
    return DenseArrayBase.from_list(i64, values)
