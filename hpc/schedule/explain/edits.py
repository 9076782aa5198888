"""Edits of a small safe schedule, from which examples are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from hpc.schedule.model import Buffer, Event, Instr, Queue, Schedule, Team
from hpc.schedule.reader import load_schedule

Edit = Callable[[Schedule], Schedule]

AIC, COMM, VEC = 0, 1, 2
"""Queues of the schedule "flags"; "barriers" has AIC and one queue of AIVs."""
AIV = 1


@dataclass(frozen=True)
class Example:
    """Edits that break a rule, and what to do instead.

    `one_rank`: only rank 1 runs the edited schedule; `missing_rank`: there is a program
    for one rank of two; `few_tasks`: the machine holds six tasks.
    """

    edits: tuple[Edit, ...]
    fix: str
    base: str = "flags"
    one_rank: bool = False
    missing_rank: bool = False
    few_tasks: bool = False


@cache
def base(name: str) -> Schedule:
    """The safe schedule that an example starts from: "flags" or "barriers"."""
    path = files("hpc.schedule.explain").joinpath(f"{name}.ssc.json")
    return load_schedule(path.read_text(encoding="ascii"), f"{name}.ssc.json")


def drop(queue: int, *indices: int) -> Edit:
    """Instructions taken out; indices are those before the edit."""

    def edit(code: list[Instr]) -> list[Instr]:
        return [instr for i, instr in enumerate(code) if i not in indices]

    return _code(queue, edit)


def move(queue: int, index: int, to: int) -> Edit:
    """One instruction moved to another place of its queue."""

    def edit(code: list[Instr]) -> list[Instr]:
        code.insert(to, code.pop(index))
        return code

    return _code(queue, edit)


def insert(queue: int, index: int, instr: Instr) -> Edit:
    """One more instruction, in front of `index`."""

    def edit(code: list[Instr]) -> list[Instr]:
        code.insert(index, instr)
        return code

    return _code(queue, edit)


def again(queue: int, index: int, to: int) -> Edit:
    """A copy of an instruction of the same queue, in front of `to`."""

    def edit(code: list[Instr]) -> list[Instr]:
        code.insert(to, code[index])
        return code

    return _code(queue, edit)


def change(queue: int, index: int, **fields: object) -> Edit:
    """Fields of one instruction."""

    def edit(code: list[Instr]) -> list[Instr]:
        code[index] = replace(code[index], **fields)
        return code

    return _code(queue, edit)


def _code(queue: int, edit: Callable[[list[Instr]], list[Instr]]) -> Edit:
    def apply(s: Schedule) -> Schedule:
        queues = list(s.queues)
        team = queues[queue].team
        queues[queue] = Queue(team, tuple(edit(list(queues[queue].code))))
        return replace(s, queues=tuple(queues))

    return apply


def team(queue: int, value: Team) -> Edit:
    """Other cores for a queue."""

    def apply(s: Schedule) -> Schedule:
        queues = list(s.queues)
        queues[queue] = replace(queues[queue], team=value)
        return replace(s, queues=tuple(queues))

    return apply


def layer(**fields: object) -> Edit:
    """Fields of the layer."""
    return lambda s: replace(s, layer=replace(s.layer, **fields))


def header(**fields: object) -> Edit:
    """Fields of the schedule itself."""
    return lambda s: replace(s, **fields)


def buffer(name: str, **fields: object) -> Edit:
    """Fields of a declared buffer."""

    def apply(s: Schedule) -> Schedule:
        changed = [replace(b, **fields) if b.name == name else b for b in s.buffers]
        return replace(s, buffers=tuple(changed))

    return apply


def event(name: str, **fields: object) -> Edit:
    """Fields of a declared event."""

    def apply(s: Schedule) -> Schedule:
        changed = [replace(e, **fields) if e.name == name else e for e in s.events]
        return replace(s, events=tuple(changed))

    return apply


def declare(*more: Buffer | Event) -> Edit:
    """Further buffers and events."""

    def apply(s: Schedule) -> Schedule:
        buffers = tuple(each for each in more if isinstance(each, Buffer))
        events = tuple(each for each in more if isinstance(each, Event))
        return replace(s, buffers=s.buffers + buffers, events=s.events + events)

    return apply


def forget(*names: str) -> Edit:
    """Declarations of buffers and events taken out."""

    def apply(s: Schedule) -> Schedule:
        buffers = tuple(b for b in s.buffers if b.name not in names)
        events = tuple(e for e in s.events if e.name not in names)
        return replace(s, buffers=buffers, events=events)

    return apply


def swap_queues(a: int, b: int) -> Edit:
    """Two queues change teams."""

    def apply(s: Schedule) -> Schedule:
        queues = list(s.queues)
        queues[a], queues[b] = (
            Queue(queues[a].team, queues[b].code),
            Queue(queues[b].team, queues[a].code),
        )
        return replace(s, queues=tuple(queues))

    return apply
