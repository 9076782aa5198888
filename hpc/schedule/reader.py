"""Text to schedule, refusing what is not one with the JSON path of the fault.

A file edited by hand is welcome: it is read like any other, and `was_edited` tells.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

from hpc.schedule.faults import (
    Fault,
    Json,
    Odd,
    Where,
    is_object,
    path_text,
    quoted,
    shown,
)
from hpc.schedule.layer import MOST_ROWS
from hpc.schedule.model import FORMAT, VERSION, Schedule
from hpc.schedule.schema import SCHEDULE
from hpc.schedule.shapes import REQUIRED, Field, Int, Names, Record, Text
from hpc.schedule.writer import dump_schedule

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST_INT = 18
_BRIEF = 40

MOST_PAIRS = 1 << 24
"""Most pairs of rank and expert: the table of counts takes 128 MiB then."""

HEAD = (
    Field("format", Text((FORMAT,)), "marks the file"),
    Field("version", Int(1), "version of the schema"),
    Field("hash", Text(), "sha256 of the body as the compiler wrote it", ""),
    Field("globals_hash", Text(), "sha256 of what all ranks must share", ""),
)
_FILE = Record("schedule", Schedule, HEAD + SCHEDULE.fields)


class ScheduleFormatError(Exception):
    """Not a schedule file. The message is `FILE: error: at PATH: what`, or, for text
    that is not JSON, `FILE:LINE:COL: error: what`."""


def load_schedule(text: str, name: str = "<string>") -> Schedule:
    """The schedule in `text`; `name` is the file named in a ScheduleFormatError."""
    values = _parse(text, name)
    try:
        return _read(values)
    except Fault as fault:
        where = path_text(fault.where)
        raise ScheduleFormatError(
            f"{name}: error: at {where}: {fault.detail}"
        ) from None


def read_schedule(path: str | os.PathLike[str]) -> Schedule:
    """Reads a file. ScheduleFormatError if it is no schedule; OSError as `open`."""
    return load_schedule(read_text(path), os.fspath(path))


def read_text(path: str | os.PathLike[str]) -> str:
    """A schedule file's text; ScheduleFormatError if it is not UTF-8."""
    data = Path(path).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ScheduleFormatError(
            f"{os.fspath(path)}: error: not a schedule file: byte {error.start} "
            f"(0x{data[error.start]:02x}) is not UTF-8"
        ) from None


def was_edited(text: str) -> bool:
    """Whether a legal file differs from what the compiler wrote.

    White space does not count; a missing hash does. ScheduleFormatError as
    `load_schedule`.
    """
    written = dump_schedule(load_schedule(text))
    head: dict[str, Json] = json.loads(text)
    fresh: dict[str, Json] = json.loads(written)
    return any(head.get(key) != fresh[key] for key in ("hash", "globals_hash"))


def _parse(text: str, name: str) -> Json:
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_constant=Odd,
        )
    except json.JSONDecodeError as error:
        what = "is empty" if not text.strip() else f"is not JSON: {error.msg}"
        raise ScheduleFormatError(
            f"{name}:{error.lineno}:{error.colno}: error: the schedule {what}"
        ) from None
    except RecursionError:
        raise ScheduleFormatError(
            f"{name}: error: the schedule is nested too deeply to be one"
        ) from None


def _object(pairs: list[tuple[str, Json]]) -> Json:
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    uses = Counter(key for key, _ in pairs)
    twice = uses.most_common(1)[0][0]
    return Odd(f"an object that has the key {quoted(twice)} twice")


def _integer(digits: str) -> int | Odd:
    if len(digits) <= _LONGEST_INT:
        return int(digits)
    return Odd(f"{digits[:_BRIEF]}... ({len(digits)} digits)")


def _read(values: Json) -> Schedule:
    where: Where = ()
    if is_object(values) and "format" in values:
        _check_version(values)
    _FILE.check_keys(values, where)
    for field in HEAD[2:]:
        _check_hash(values.get(field.key), (where, field.key))
    names = Names()
    parts: dict[str, Any] = {}
    for field in SCHEDULE.fields:
        if field.default is not REQUIRED and field.key not in values:
            continue
        part = field.shape.read(values[field.key], (where, field.key), names)
        parts[field.key] = part
        _declare(names, field.key, part)
    schedule = Schedule(**parts)
    _check_layer(schedule)
    return schedule


def _check_version(values: dict[str, Json]) -> None:
    if values["format"] != FORMAT:
        raise Fault(
            ((), "format"), f'expected "{FORMAT}", got {shown(values["format"])}'
        )
    version = values.get("version")
    if type(version) is not int or version != VERSION:
        raise Fault(
            ((), "version"),
            f"expected version {VERSION}, the one this program reads, "
            f"got {shown(version)}",
        )


def _check_hash(value: Json, where: Where) -> None:
    if value is None or (isinstance(value, str) and _DIGEST.fullmatch(value)):
        return
    raise Fault(where, f'expected "sha256:" and 64 hex digits, got {shown(value)}')


def _declare(names: Names, key: str, part: Any) -> None:
    """Lets later fields refer to what this one declares."""
    if key == "locs":
        names.locs = len(part)
    elif key == "buffers":
        names.buffers = frozenset(buffer.name for buffer in part)
    elif key == "events":
        names.event_ids = frozenset(event.id for event in part)
        seen: set[str] = set()
        for event in part:
            if event.name in seen:
                names.events.pop(event.name, None)
            else:
                names.events[event.name] = event.id
            seen.add(event.name)


def _check_layer(s: Schedule) -> None:
    """Sizes in the header that must agree, for nothing below could read them."""
    layer, routing = s.layer, s.routing
    _same(len(layer.tokens), layer.ep, "entries, one a rank", "layer", "tokens")
    if not any(layer.tokens):
        _fault("expected a rank that has a token", "layer", "tokens")
    if layer.top_k > layer.experts and not layer.repeats:
        _fault(
            f"expected at most {layer.experts} (experts), got {layer.top_k}",
            "layer",
            "top_k",
        )
    if layer.ep * layer.experts > MOST_PAIRS:
        _fault(
            f"expected at most {MOST_PAIRS} pairs of rank and expert, got "
            f"{layer.ep * layer.experts}",
            "layer",
            "experts",
        )
    if (rows := sum(layer.tokens) * layer.top_k) > MOST_ROWS:
        _fault(
            f"expected at most {MOST_ROWS} rows over all ranks, got {rows}",
            "layer",
            "tokens",
        )
    if layer.experts < layer.ep:
        _fault(
            f"expected at least {layer.ep} (ep), got {layer.experts}",
            "layer",
            "experts",
        )
    if routing.kind == "counts":
        _same(len(routing.counts), layer.ep, "rows, one a rank", "routing", "counts")
    for rank, row in enumerate(routing.counts):
        _same(
            len(row), layer.experts, "entries, one an expert", "routing", "counts", rank
        )
    if routing.kind == "ids":
        _same(len(routing.ids), layer.ep, "ranks", "routing", "ids")
    _check_ids(s)


def _check_ids(s: Schedule) -> None:
    layer = s.layer
    for rank, tokens in enumerate(s.routing.ids):
        path = ("routing", "ids", rank)
        _same(len(tokens), layer.tokens[rank], "tokens", *path)
        for token, slots in enumerate(tokens):
            _same(len(slots), layer.top_k, "slots (top_k)", *path, token)
            for slot, expert in enumerate(slots):
                if expert >= layer.experts:
                    _fault(
                        f"expected an expert below {layer.experts} or -1, got {expert}",
                        *path,
                        token,
                        slot,
                    )


def _same(got: int, wanted: int, what: str, *path: str | int) -> None:
    if got != wanted:
        _fault(f"expected {wanted} {what}, got {got}", *path)


def _fault(detail: str, *path: str | int) -> None:
    where: Where = ()
    for key in path:
        where = (where, key)
    raise Fault(where, detail)
