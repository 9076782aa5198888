"""What each operator takes and gives, as data: a new operator is one entry here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpc.schedule.layer import GATED_ACTIVATIONS, PLAIN_ACTIVATIONS
from hpc.schedule.model import Buffer, Region, Task

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


@dataclass(frozen=True, slots=True)
class Operator:
    """Unit that runs it, numbers of operands allowed, and a rule on them."""

    unit: str
    reads: tuple[int, ...]
    rule: Callable[[list[Operand], Operand], Iterator[Problem]]
    tile: str = "m"


def _gmm(reads: list[Operand], out: Operand) -> Iterator[Problem]:
    rows, weight = reads
    yield from _space("first operand", rows, ("routed",))
    yield from _space("second operand", weight, ("weight",))
    yield from _space("result", out, ("routed",))
    yield from _same_part(rows, out)
    if weight.region.expert != rows.region.expert:
        yield (
            "wrong-part",
            f"weights of expert {_one(weight.region.expert)} for rows of "
            f"expert {_one(rows.region.expert)}",
        )
    if rows.buffer.cols != weight.buffer.rows:
        yield (
            "wrong-cols",
            f'{rows.size} times "{weight.buffer.name}" of {weight.buffer.rows} rows',
        )
    if weight.buffer.cols != out.buffer.cols:
        yield "wrong-cols", f"{weight.size} into {out.size}"


def _activation(factor: int) -> Callable[[list[Operand], Operand], Iterator[Problem]]:
    def rule(reads: list[Operand], out: Operand) -> Iterator[Problem]:
        (rows,) = reads
        yield from _space("operand", rows, ROWS)
        yield from _space("result", out, (rows.buffer.space,))
        yield from _same_part(rows, out)
        if rows.buffer.cols != factor * out.buffer.cols:
            wanted = "twice the" if factor == 2 else "the same"
            yield "wrong-cols", f"{rows.size} into {out.size}: not {wanted} width"

    return rule


def _add(reads: list[Operand], out: Operand) -> Iterator[Problem]:
    for rows in reads:
        yield from _space("operand", rows, ROWS)
        yield from _space("result", out, (rows.buffer.space,))
        yield from _same_part(rows, out)
        if rows.buffer.cols != out.buffer.cols:
            yield "wrong-cols", f"{rows.size} into {out.size}"


def _reduce(reads: list[Operand], out: Operand) -> Iterator[Problem]:
    rows = reads[0]
    yield from _space("first operand", rows, ("slot",))
    yield from _space("result", out, ("token",))
    if rows.buffer.cols != out.buffer.cols:
        yield "wrong-cols", f"{rows.size} into {out.size}"
    for weight in reads[1:]:
        yield from _space("router weights", weight, ("slot",))
        if weight.buffer.cols != 1:
            yield "wrong-cols", f"router weights in {weight.size}, not 1"
    for each in reads:
        if each.part != (None, None):
            yield (
                "wrong-part",
                f'reads a part of "{each.buffer.name}", but the slots of a token '
                "lie in any part",
            )


def _space(what: str, operand: Operand, wanted: tuple[str, ...]) -> Iterator[Problem]:
    if operand.buffer.space not in wanted:
        yield (
            "wrong-space",
            f'{what} "{operand.buffer.name}" is in space {operand.buffer.space}, '
            f"expected {' or '.join(wanted)}",
        )


def _same_part(rows: Operand, out: Operand) -> Iterator[Problem]:
    if rows.part != out.part:
        yield (
            "wrong-part",
            f"reads part {_part(rows)} and writes part {_part(out)}",
        )


def _part(operand: Operand) -> str:
    expert, part = operand.part
    return f"[{_one(expert)},{_one(part)}]"


def _one(number: int | None) -> str:
    return "*" if number is None else str(number)


OPERATORS: dict[str, Operator] = {
    "gmm": Operator("aic", (2,), _gmm, tile="mnk"),
    "add": Operator("aiv", (2,), _add),
    "reduce": Operator("aiv", (1, 2), _reduce),
    **{name: Operator("aiv", (1,), _activation(2)) for name in GATED_ACTIVATIONS},
    **{name: Operator("aiv", (1,), _activation(1)) for name in PLAIN_ACTIVATIONS},
}


def task_problems(task: Task, buffers: dict[str, Buffer]) -> list[Problem]:
    """Every way in which a task's operands do not fit its operator."""
    operator = OPERATORS[task.op]
    found: list[Problem] = []
    for axis in operator.tile:
        if getattr(task.base, axis) < 1:
            found.append(
                ("bad-tile", f"base tile {axis} is {getattr(task.base, axis)}")
            )
    if len(task.reads) not in operator.reads or len(task.writes) != 1:
        counts = " or ".join(str(n) for n in operator.reads)
        found.append(
            (
                "wrong-arity",
                f"{task.op} reads {counts} and writes 1 region, here "
                f"{len(task.reads)} and {len(task.writes)}",
            )
        )
        return found
    reads = [Operand(region, buffers[region.buffer]) for region in task.reads]
    (out,) = (Operand(region, buffers[region.buffer]) for region in task.writes)
    return found + list(operator.rule(reads, out))
