"""Readers: one syntax node to one plain value, or an error at the node's place.

A reader returns None after it has reported; callers go on, so that one run finds all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hpc.spec.diagnostics import Report, did_you_mean
from hpc.spec.model import Loc
from hpc.spec.nodes import (
    Block,
    Call,
    Input,
    Items,
    Keyword,
    Node,
    Number,
    Setting,
    String,
    Word,
)

_INTEGER = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_REAL = re.compile(r"[+-]?([0-9]+(_[0-9]+)*\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MOST_DIGITS = 30
"""Longer numbers are out of every range here, and Python refuses very long ones."""

Reader = Callable[[Report, Node], Any]


@dataclass(frozen=True, slots=True)
class Read:
    """A value that was read, and where it stood."""

    value: Any
    loc: Loc


@dataclass(frozen=True, slots=True)
class Field:
    """A setting of a block: its name, its reader, and what it is without one."""

    name: str
    read: Reader
    default: Any = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a routing or an activation; without default it is required."""

    name: str
    read: Reader
    default: float | None = None


def integer(low: int, high: int, what: str = "an integer") -> Reader:
    """Reads an integer in low..high; digits may be grouped by `_`."""

    def read(report: Report, node: Node) -> int | None:
        return read_integer(report, node, low, high, what)

    return read


def read_integer(
    report: Report, node: Node, low: int, high: int, what: str = "an integer"
) -> int | None:
    """The integer at `node` if it is one in low..high; both are in the message."""
    if not isinstance(node, Number) or not _INTEGER.fullmatch(node.text):
        report.error(node.loc, f"expected {what}, got {node}")
        return None
    shown = node.text if len(node.text) <= _MOST_DIGITS else node.text[:12] + "..."
    bounds = f"from {low} to {high}"
    if len(node.text) > _MOST_DIGITS or not low <= int(node.text) <= high:
        report.error(node.loc, f"{shown} is out of range: expected {what} {bounds}")
        return None
    return int(node.text)


def real(low: float, high: float, open_low: bool = False) -> Reader:
    """Reads a finite number in low..high (above low when `open_low`)."""
    left = f"above {low:g}" if open_low else f"from {low:g}"

    def read(report: Report, node: Node) -> float | None:
        if not isinstance(node, Number) or not _REAL.fullmatch(node.text):
            report.error(node.loc, f"expected a number, got {node}")
            return None
        value = float(node.text) if len(node.text) <= _MOST_DIGITS else math.inf
        if not low <= value <= high or (open_low and value == low):
            message = f"{node} is out of range: expected a number {left} to {high:g}"
            report.error(node.loc, message)
            return None
        return value

    return read


def choice(names: Sequence[str], what: str) -> Reader:
    """Reads one of `names`; suggests the closest for another."""

    def read(report: Report, node: Node) -> str | None:
        if not isinstance(node, Word):
            report.error(
                node.loc, f"expected {what}, got {node}", did_you_mean("", names)
            )
            return None
        if node.text not in names:
            message = f"unknown {what} '{node.text[:40]}'"
            report.error(node.loc, message, did_you_mean(node.text, names))
            return None
        return node.text

    return read


def boolean(report: Report, node: Node) -> bool | None:
    """Reads `true` or `false`."""
    word = choice(("true", "false"), "truth value")(report, node)
    return None if word is None else word == "true"


def string(report: Report, node: Node) -> str | None:
    """Reads a quoted string that is not empty."""
    if isinstance(node, String) and node.text:
        return node.text
    report.error(
        node.loc, f'expected a quoted file name such as "counts.json", got {node}'
    )
    return None


def integers(low: int, high: int) -> Callable[[Report, Node], tuple[int, ...] | None]:
    """Reads `[a, b, ...]` of integers in low..high."""

    def read(report: Report, node: Node) -> tuple[int, ...] | None:
        if not isinstance(node, Items) or node.name is not None:
            report.error(node.loc, f"expected a list of integers, got {node}")
            return None
        values = [read_integer(report, item, low, high) for item in node.items]
        return None if None in values else tuple(v for v in values if v is not None)

    return read


def read_fields(
    report: Report, kind: str, settings: Sequence[Setting], fields: Sequence[Field]
) -> dict[str, Read]:
    """Values of the settings that are known, unique and well-formed, by name."""
    known = {f.name: f for f in fields}
    first: dict[str, Loc] = {}
    values: dict[str, Read] = {}
    for setting in settings:
        name, loc = setting.name.text, setting.name.loc
        if name not in known:
            message = f"unknown {kind} '{name[:40]}'"
            report.error(loc, message, did_you_mean(name, known))
        elif name in first:
            place = f"{first[name].line}:{first[name].col}"
            report.error(loc, f"duplicate {kind} '{name}', first set at {place}")
        else:
            first[name] = loc
            value = known[name].read(report, setting.value)
            values[name] = Read(value, setting.value.loc)
    return values


def settings_of(report: Report, block: Block) -> list[Setting]:
    """The settings of a block that holds nothing else."""
    for item in block.body:
        if isinstance(item, Input):
            message = f"'{block.kind.text}' holds settings NAME = VALUE only"
            report.error(item.keyword.loc, message)
    return [item for item in block.body if isinstance(item, Setting)]


def bind(
    report: Report, call: Call, params: Sequence[Param], what: str
) -> tuple[tuple[str, float], ...] | None:
    """Values of `params` from the arguments of `call`, positional ones first."""
    found: dict[str, float | None] = {}
    names = [p.name for p in params]
    readers = {p.name: p.read for p in params}
    for position, arg in enumerate(call.args):
        name = _param_name(report, arg, position, names, found, call, what)
        if name is None:
            found[""] = None
            continue
        value = arg.value if isinstance(arg, Keyword) else arg
        found[name] = readers[name](report, value)
    return finish_params(report, call.loc, params, found, f"{what} '{call.name.text}'")


def finish_params(
    report: Report,
    loc: Loc,
    params: Sequence[Param],
    found: dict[str, float | None],
    what: str,
) -> tuple[tuple[str, float], ...] | None:
    """`found` completed by defaults; missing ones are reported at `loc`."""
    for param in params:
        if param.name not in found and param.default is None and "" not in found:
            report.error(loc, f"{what} needs {_signature(params)}: no '{param.name}'")
            found[param.name] = None
        found.setdefault(param.name, param.default)
    if None in found.values():
        return None
    return tuple((p.name, float(found[p.name] or 0)) for p in params)


def _param_name(
    report: Report,
    arg: Node | Keyword,
    position: int,
    names: list[str],
    found: dict[str, float | None],
    call: Call,
    what: str,
) -> str | None:
    """Which parameter `arg` sets, or None after an error."""
    title = f"{what} '{call.name.text}'"
    if not isinstance(arg, Keyword):
        if any(isinstance(a, Keyword) for a in call.args[:position]):
            report.error(arg.loc, "a positional argument cannot follow a named one")
            return None
        if position < len(names):
            return names[position]
        takes = _arguments(len(names))
        report.error(arg.loc, f"{title} takes {takes}, got {len(call.args)}")
        return None
    name = arg.name.text
    if name not in names:
        message = f"{title} has no argument '{name[:40]}'"
        report.error(arg.loc, message, did_you_mean(name, names))
        return None
    if name in found:
        report.error(arg.loc, f"argument '{name}' is given twice")
        return None
    return name


def _signature(params: Sequence[Param]) -> str:
    shown = (p.name if p.default is None else f"{p.name}={p.default:g}" for p in params)
    return f"({', '.join(shown)})"


def _arguments(n: int) -> str:
    return f"{n or 'no'} argument{'s' * (n != 1)}"
