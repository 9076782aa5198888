"""Schedule to text: the same schedule always gives the same bytes, in ASCII.

One instruction, buffer, event, location a line, so that line-based tools can show and
merge differences. The schema (`schema`) fixes keys and their order.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from hpc.schedule.model import FORMAT, VERSION, Schedule
from hpc.schedule.schema import BUFFER, EVENT, INSTRUCTION, SCHEDULE, TEAM
from hpc.schedule.shapes import Names

GLOBAL_FIELDS = (
    "layer",
    "machine",
    "mode",
    "routing",
    "groups",
    "row_chunks",
    "padded",
    "events",
)
"""Fields in which all ranks of a launch must agree; symmetric buffers join them."""

# NaN and infinity are no JSON; a schedule with one must not be written.
_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False)


def names_of(s: Schedule) -> Names:
    """Resolves references of `s` both ways; ambiguous names stay ids."""
    uses = Counter(event.name for event in s.events)
    unique = [event for event in s.events if uses[event.name] == 1]
    return Names(
        events={event.name: event.id for event in unique},
        event_ids=frozenset(event.id for event in s.events),
        event_names={event.id: event.name for event in reversed(unique)},
        buffers=frozenset(buffer.name for buffer in s.buffers),
        locs=len(s.locs),
    )


def dump_schedule(s: Schedule) -> str:
    """The file's text. ValueError if a number in `s` is not finite."""
    body = _body(s)
    digest = hashlib.sha256(body.encode("ascii")).hexdigest()
    head = [
        f'"format": "{FORMAT}"',
        f'"version": {VERSION}',
        f'"hash": "sha256:{digest}"',
        f'"globals_hash": "{globals_hash(s)}"',
    ]
    return "{\n" + ",\n".join(head) + ",\n" + body + "}\n"


def write_schedule(s: Schedule, path: str | os.PathLike[str]) -> None:
    """Writes the file whole or not at all; a link is followed. OSError as `open`."""
    text = dump_schedule(s)
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        # A device or a pipe cannot be replaced; a directory raises here.
        target.write_text(text, encoding="ascii", newline="\n")
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="ascii", newline="\n")
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def globals_hash(s: Schedule) -> str:
    """`sha256:...` over what must be equal in the program of every rank."""
    names = names_of(s)
    shapes = {each.key: each.shape for each in SCHEDULE.fields}
    values = {key: shapes[key].write(getattr(s, key), names) for key in GLOBAL_FIELDS}
    values["symmetric"] = [BUFFER.write(b, names) for b in s.buffers if b.symmetric]
    text = _ENCODER.encode(values)
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()


def _body(s: Schedule) -> str:
    names = names_of(s)
    parts = [
        f'"{each.key}": {_field_text(each.key, each.shape, s, names)}'
        for each in SCHEDULE.fields
    ]
    return ",\n".join(parts) + "\n"


def _field_text(key: str, shape: Any, s: Schedule, names: Names) -> str:
    encode = _ENCODER.encode
    match key:
        case "locs" | "notes":
            return _lines([encode(text) for text in getattr(s, key)])
        case "buffers":
            return _lines([encode(BUFFER.write(each, names)) for each in s.buffers])
        case "events":
            return _lines([encode(EVENT.write(each, names)) for each in s.events])
        case "queues":
            return _lines([_queue_text(queue, names) for queue in s.queues])
        case "routing":
            return _routing_text(shape.write(s.routing, names))
        case _:
            return encode(shape.write(getattr(s, key), names))


def _lines(items: list[str], indent: str = "") -> str:
    if not items:
        return "[]"
    inner = f",\n{indent}  ".join(items)
    return f"[\n{indent}  {inner}\n{indent}]"


def _queue_text(queue: Any, names: Names) -> str:
    team = _ENCODER.encode(TEAM.write(queue.team, names))
    write = INSTRUCTION.write
    code = [_ENCODER.encode(write(instr, names)) for instr in queue.code]
    return f'{{"team": {team}, "code": {_lines(code, "  ")}}}'


def _routing_text(routing: dict[str, Any]) -> str:
    """One rank of a table a line."""
    parts: list[str] = []
    for key, value in routing.items():
        text = _ENCODER.encode(value)
        if key in ("counts", "ids"):
            text = _lines([_ENCODER.encode(row) for row in value], "  ")
        parts.append(f'"{key}": {text}')
    return "{" + ", ".join(parts) + "}"
