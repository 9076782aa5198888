"""What differs between two schedules, as lines of text. No lines: they are equal."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from hpc.schedule.model import Buffer, Event, Instr, Queue, Schedule
from hpc.schedule.render import event_names, render_instr, render_team

_HEADER = (
    "machine",
    "policy",
    "mode",
    "pipeline",
    "routing",
    "groups",
    "row_chunks",
    "padded",
    "notes",
)


def diff_schedules(a: Schedule, b: Schedule) -> list[str]:
    """Differences from `a` to `b`: header, buffers, events, then queue by queue.

    Instructions are compared by meaning (events by name) and aligned, so one inserted
    instruction is one line, `+ text`.
    """
    lines = _fields("layer", a.layer, b.layer)
    for key in _HEADER:
        lines += _value(key, getattr(a, key), getattr(b, key))
    lines += _by_name("buffer", a.buffers, b.buffers)
    lines += _by_name("event", a.events, b.events)
    lines += _queues(a, b)
    lines += _locs(a, b)
    if not lines and a != b:
        lines.append("instructions differ in fields that their text does not show")
    return lines


def _value(name: str, a: object, b: object) -> list[str]:
    return [] if a == b else [f"{name}: {_brief(a)} -> {_brief(b)}"]


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _fields(name: str, a: Any, b: Any) -> list[str]:
    lines: list[str] = []
    for key in a.__slots__:
        lines += _value(f"{name}.{key}", getattr(a, key), getattr(b, key))
    return lines


def _by_name(
    kind: str, a: Sequence[Buffer | Event], b: Sequence[Buffer | Event]
) -> list[str]:
    old = {each.name: each for each in a}
    new = {each.name: each for each in b}
    lines = [f"- {kind} {name}" for name in old if name not in new]
    lines += [f"+ {kind} {name}" for name in new if name not in old]
    for name, each in old.items():
        if name in new:
            lines += _fields(f"{kind} {name}", each, new[name])
    if not lines and a != b:
        lines.append(f"{kind}s: same ones, in another order or number")
    return lines


def _queues(a: Schedule, b: Schedule) -> list[str]:
    lines: list[str] = []
    names_a, names_b = event_names(a), event_names(b)
    for i in range(max(len(a.queues), len(b.queues))):
        if i >= len(a.queues):
            lines.append(f"+ {_title(i, b.queues[i])}")
        elif i >= len(b.queues):
            lines.append(f"- {_title(i, a.queues[i])}")
        else:
            old, new = a.queues[i], b.queues[i]
            teams = render_team(old.team), render_team(new.team)
            if teams[0] != teams[1]:
                lines.append(f"queue {i} team: {teams[0]} -> {teams[1]}")
            old_text = [render_instr(a, instr, names_a) for instr in old.code]
            new_text = [render_instr(b, instr, names_b) for instr in new.code]
            lines += _code(i, old_text, new_text)
    return lines


def _title(index: int, queue: Queue) -> str:
    return f"queue {index} {render_team(queue.team)} ({len(queue.code)} instructions)"


def _code(queue: int, a: list[str], b: list[str]) -> list[str]:
    head = 0
    while head < min(len(a), len(b)) and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    old, new = a[head : len(a) - tail], b[head : len(b) - tail]
    lines: list[str] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, i0, i1, j0, j1 in matcher.get_opcodes():
        if tag == "equal":
            continue
        lines += [f"- queue {queue}[{head + i}] {old[i]}" for i in range(i0, i1)]
        lines += [f"+ queue {queue}[{head + j}] {new[j]}" for j in range(j0, j1)]
    return lines


def _locs(a: Schedule, b: Schedule) -> list[str]:
    """One line if equal programs name other source locations."""
    pairs = zip(_all_instrs(a), _all_instrs(b), strict=False)
    moved = [
        (old, new)
        for old, new in ((_loc(a, x), _loc(b, y)) for x, y in pairs)
        if old != new
    ]
    if not moved:
        return _value("locs", a.locs, b.locs)
    old, new = moved[0]
    return [f"source locations of {len(moved)} instructions, first {old} -> {new}"]


def _all_instrs(s: Schedule) -> list[Instr]:
    return [instr for queue in s.queues for instr in queue.code]


def _loc(s: Schedule, instr: Instr) -> str:
    return s.locs[instr.loc] if 0 <= instr.loc < len(s.locs) else f"#{instr.loc}"
