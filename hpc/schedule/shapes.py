"""Shapes of JSON values: each can read one, with the path of a fault, and write one.

A shape is data (`Int(low=1)`, `Items(Text())`, ...); `schema` builds the schedule file
out of them. `read` returns model objects and raises `Fault`; `write` is its inverse.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from hpc.schedule.faults import (
    Fault,
    Json,
    Where,
    expected,
    is_list,
    is_object,
    nearest,
    quoted,
    shown,
)
from hpc.schedule.model import Region

MAX_INT = 2**53 - 1
"""Largest integer that every JSON reader keeps exact."""

REQUIRED: Any = object()
"""Marks a field that has no default."""


@dataclass
class Names:
    """What references resolve to, in one schedule."""

    events: dict[str, int] = field(default_factory=dict[str, int])
    event_ids: frozenset[int] = frozenset()
    event_names: dict[int, str] = field(default_factory=dict[int, str])
    buffers: frozenset[str] = frozenset()
    locs: int = 0


class Shape(Protocol):
    """Reads a JSON value into a model value, and writes it back."""

    @property
    def summary(self) -> str: ...
    def read(self, value: Json, where: Where, names: Names) -> Any: ...
    def write(self, value: Any, names: Names) -> Json: ...


@dataclass(frozen=True)
class Int:
    """An integer; true and false are none."""

    low: int = 0
    high: int = MAX_INT

    @property
    def summary(self) -> str:
        if self.high == MAX_INT:
            return f"integer >= {self.low}"
        return f"integer {self.low}..{self.high}"

    def read(self, value: Json, where: Where, names: Names) -> int:
        if type(value) is not int or not self.low <= value <= self.high:
            raise expected(self.summary, value, where)
        return value

    def write(self, value: int, names: Names) -> Json:
        return value


@dataclass(frozen=True)
class Num:
    """A finite number, read as a float."""

    summary: str = "finite number"

    def read(self, value: Json, where: Where, names: Names) -> float:
        if type(value) not in (int, float) or not math.isfinite(value):
            raise expected(self.summary, value, where)
        return float(value)

    def write(self, value: float, names: Names) -> Json:
        return float(value)


@dataclass(frozen=True)
class Bool:
    summary: str = "true or false"

    def read(self, value: Json, where: Where, names: Names) -> bool:
        if type(value) is not bool:
            raise expected(self.summary, value, where)
        return value

    def write(self, value: bool, names: Names) -> Json:
        return value


@dataclass(frozen=True)
class Text:
    """A string, one of `choices` if there are any."""

    choices: tuple[str, ...] = ()
    empty: bool = True

    @property
    def summary(self) -> str:
        if self.choices:
            return " or ".join(f'"{choice}"' for choice in self.choices)
        return "string" if self.empty else "non-empty string"

    def read(self, value: Json, where: Where, names: Names) -> str:
        if not isinstance(value, str) or not (value or self.empty):
            raise expected(self.summary, value, where)
        if self.choices and value not in self.choices:
            hint = nearest(value, self.choices)
            raise Fault(where, f"expected {self.summary}, got {shown(value)}{hint}")
        return value

    def write(self, value: str, names: Names) -> Json:
        return value


@dataclass(frozen=True)
class Items:
    """A list of values of one shape, read as a tuple."""

    of: Shape
    least: int = 0

    @property
    def summary(self) -> str:
        return f"list of {self.of.summary}"

    def read(self, value: Json, where: Where, names: Names) -> tuple[Any, ...]:
        if not is_list(value):
            raise expected(f"a {self.summary}", value, where)
        if len(value) < self.least:
            raise Fault(
                where, f"expected at least {self.least} entries, got {len(value)}"
            )
        read = self.of.read
        return tuple([read(item, (where, i), names) for i, item in enumerate(value)])

    def write(self, value: tuple[Any, ...], names: Names) -> Json:
        write = self.of.write
        return [write(item, names) for item in value]


@dataclass(frozen=True)
class Pairs:
    """An object of named numbers, read as a tuple of (name, value) in file order."""

    of: Shape

    @property
    def summary(self) -> str:
        return f"object of name: {self.of.summary}"

    def read(self, value: Json, where: Where, names: Names) -> tuple[Any, ...]:
        if not is_object(value):
            raise expected(f"an {self.summary}", value, where)
        read = self.of.read
        return tuple((key, read(v, (where, key), names)) for key, v in value.items())

    def write(self, value: tuple[Any, ...], names: Names) -> Json:
        return {key: self.of.write(number, names) for key, number in value}


@dataclass(frozen=True)
class EventRef:
    """An event by its name, or by its id; null where a signal may be missing."""

    optional: bool = False

    @property
    def summary(self) -> str:
        return "event name" + (" or null" if self.optional else "")

    def read(self, value: Json, where: Where, names: Names) -> int | None:
        if isinstance(value, str) and value in names.events:
            return names.events[value]
        if type(value) is int and value in names.event_ids:
            return value
        if value is None and self.optional:
            return None
        if isinstance(value, str):
            hint = nearest(value, names.events)
            raise Fault(where, f"no event is called {shown(value)}{hint}")
        if type(value) is int:
            raise Fault(where, f"no event has the id {value}")
        raise expected(self.summary, value, where)

    def write(self, value: int | None, names: Names) -> Json:
        return value if value is None else names.event_names.get(value, value)


@dataclass(frozen=True)
class LocRef:
    """An index into `locs`."""

    summary: str = "index into locs"

    def read(self, value: Json, where: Where, names: Names) -> int:
        if type(value) is not int or not 0 <= value < names.locs:
            last = names.locs - 1
            raise expected(f"an index into locs (0..{last})", value, where)
        return value

    def write(self, value: int, names: Names) -> Json:
        return value


@dataclass(frozen=True)
class RegionShape:
    """`[buffer, expert, part]`; null is "all", nulls at the end are left out."""

    summary: str = "region [buffer, expert, part]"

    def read(self, value: Json, where: Where, names: Names) -> Region:
        if not is_list(value):
            raise expected(f"a {self.summary}", value, where)
        if not 1 <= len(value) <= 3:
            raise Fault(where, f"expected a {self.summary}, got {len(value)} entries")
        buffer = value[0]
        if not isinstance(buffer, str):
            raise expected("a buffer name", buffer, (where, 0))
        if buffer not in names.buffers:
            hint = nearest(buffer, names.buffers)
            raise Fault((where, 0), f"no buffer is called {shown(buffer)}{hint}")
        for i, index in enumerate(value[1:], 1):
            if index is not None and not (type(index) is int and 0 <= index < MAX_INT):
                raise expected("an integer >= 0 or null", index, (where, i))
        return Region(*value)

    def write(self, value: Region, names: Names) -> Json:
        if value.part is not None:
            return [value.buffer, value.expert, value.part]
        if value.expert is not None:
            return [value.buffer, value.expert]
        return [value.buffer]


@dataclass(frozen=True)
class Field:
    """One key of an object. A field equal to its default is not written."""

    key: str
    shape: Shape
    doc: str
    default: Any = REQUIRED


@dataclass(frozen=True)
class Record:
    """An object with fixed keys, read as `make(**fields)`.

    Inside a `Union` the key "do" holds `case` and tells the records apart.
    """

    name: str
    make: Callable[..., Any]
    fields: tuple[Field, ...]
    case: str = ""

    @property
    def summary(self) -> str:
        return f"{self.name} object"

    def check_keys(self, value: Json, where: Where) -> None:
        """Refuses what is no object, an unknown key and a missing one."""
        if not is_object(value):
            raise expected(f"a {self.summary}", value, where)
        known = [each.key for each in self.fields]
        if self.case:
            known.append("do")
        for key in value:
            if key not in known:
                hint = nearest(key, known) or f"; the keys are {', '.join(known)}"
                raise Fault(where, f"unknown key {quoted(key)}{hint}")
        for each in self.fields:
            if each.default is REQUIRED and each.key not in value:
                raise Fault(where, f'key "{each.key}" is missing')

    def read(self, value: Json, where: Where, names: Names) -> Any:
        self.check_keys(value, where)
        return self.make(
            **{
                each.key: each.shape.read(value[each.key], (where, each.key), names)
                for each in self.fields
                if each.key in value
            }
        )

    def write(self, value: Any, names: Names) -> Json:
        out: dict[str, Json] = {"do": self.case} if self.case else {}
        for each in self.fields:
            item = getattr(value, each.key)
            if each.default is REQUIRED or item != each.default:
                out[each.key] = each.shape.write(item, names)
        return out


@dataclass(frozen=True)
class Union:
    """One of several records, told apart by the key "do"."""

    name: str
    cases: tuple[Record, ...]

    @property
    def summary(self) -> str:
        return f"{self.name} object"

    def read(self, value: Json, where: Where, names: Names) -> Any:
        if not is_object(value):
            raise expected(f"an {self.summary}", value, where)
        if "do" not in value:
            raise Fault(where, f'key "do" is missing in an {self.summary}')
        for record in self.cases:
            if record.case == value["do"]:
                return record.read(value, where, names)
        Text(tuple(record.case for record in self.cases)).read(
            value["do"], (where, "do"), names
        )
        raise AssertionError("a case that no record has was read")

    def write(self, value: Any, names: Names) -> Json:
        for record in self.cases:
            if type(value) is record.make:
                return record.write(value, names)
        raise TypeError(f"{type(value).__name__} is no {self.name}")
