"""Operands of a task, and the rules on them that several operators share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hpc.schedule.model import Buffer, Region

Problem = tuple[str, str]
"""(violation code, message)."""

ROWS = ("token", "routed", "slot")


@dataclass(frozen=True, slots=True)
class Operand:
    """A region and the buffer that it is part of."""

    region: Region
    buffer: Buffer

    @property
    def part(self) -> tuple[int | None, int | None]:
        return self.region.expert, self.region.part

    @property
    def size(self) -> str:
        """`"recv" of 7168 columns`, as messages name it."""
        return f'"{self.buffer.name}" of {self.buffer.cols} columns'


def in_space(what: str, operand: Operand, wanted: tuple[str, ...]) -> Iterator[Problem]:
    """The operand's buffer is in one of the wanted spaces."""
    if operand.buffer.space not in wanted:
        yield (
            "wrong-space",
            f'{what} "{operand.buffer.name}" is in space {operand.buffer.space}, '
            f"expected {' or '.join(wanted)}",
        )


def same_part(rows: Operand, out: Operand) -> Iterator[Problem]:
    """A task writes the part that it reads."""
    if rows.part != out.part:
        yield (
            "wrong-part",
            f"reads part {_part(rows)} and writes part {_part(out)}",
        )


def same_cols(rows: Operand, out: Operand) -> Iterator[Problem]:
    """Rows keep their width."""
    if rows.buffer.cols != out.buffer.cols:
        yield "wrong-cols", f"{rows.size} into {out.size}"


def same_expert(weight: Operand, rows: Operand) -> Iterator[Problem]:
    """Rows of an expert meet the matrix of that expert."""
    if weight.region.expert != rows.region.expert:
        yield (
            "wrong-part",
            f"weights of expert {one(weight.region.expert)} for rows of "
            f"expert {one(rows.region.expert)}",
        )


def whole(operand: Operand) -> Iterator[Problem]:
    """Slots are read and written as a whole when tokens are put together."""
    if operand.part != (None, None):
        yield (
            "wrong-part",
            f'takes a part of "{operand.buffer.name}", but the slots of a token '
            "lie in any part",
        )


def router_like(what: str, operand: Operand) -> Iterator[Problem]:
    """One number for every (token, slot)."""
    yield from in_space(what, operand, ("slot",))
    if operand.buffer.cols != 1:
        yield "wrong-cols", f"{what} in {operand.size}, not 1"


def one(number: int | None) -> str:
    """An index as messages name it."""
    return "*" if number is None else str(number)


def _part(operand: Operand) -> str:
    expert, part = operand.part
    return f"[{one(expert)},{one(part)}]"
