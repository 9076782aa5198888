"""What every check needs: a schedule with its names, signals and parts looked up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from hpc.schedule.checks.report import Violation
from hpc.schedule.model import (
    FRACTAL,
    Buffer,
    Event,
    Instr,
    Put,
    Region,
    Schedule,
    Set,
    Wait,
)
from hpc.schedule.render import event_names, render_instr, render_team

Place = tuple[int, int]
"""(queue, index) of an instruction."""

PartRange = tuple[range, range]
"""Experts and parts of a region, as indices of its buffer's part table."""


class HasLimits(Protocol):
    """The part of a machine record that limits a schedule."""

    @property
    def aic_cores(self) -> int: ...
    @property
    def aiv_cores(self) -> int: ...
    @property
    def max_events(self) -> int: ...
    @property
    def max_tasks(self) -> int: ...
    @property
    def dtypes(self) -> tuple[str, ...]: ...
    @property
    def l0a_bytes(self) -> int: ...
    @property
    def l0b_bytes(self) -> int: ...
    @property
    def l0c_bytes(self) -> int: ...
    @property
    def l1_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """What the machine can hold: counters, cores of each kind, dtypes of a GMM,
    tasks of a rank, bytes of L0A, L0B and L0C, bytes of L1, and what the sides of a
    GMM's base tile are multiples of (None: any number)."""

    max_events: int
    aic_cores: int
    aiv_cores: int
    dtypes: tuple[str, ...]
    max_tasks: int | None = None
    l0_bytes: tuple[int, int, int] | None = None
    l1_bytes: int | None = None
    fractal: int | None = None

    @classmethod
    def of(cls, machine: HasLimits) -> Limits:
        """Limits of a machine record."""
        return cls(
            machine.max_events,
            machine.aic_cores,
            machine.aiv_cores,
            tuple(machine.dtypes),
            machine.max_tasks,
            (machine.l0a_bytes, machine.l0b_bytes, machine.l0c_bytes),
            machine.l1_bytes,
            FRACTAL,
        )

    def cores(self, unit: str) -> int:
        return self.aic_cores if unit == "aic" else self.aiv_cores


class Index:
    """A schedule under check. Lookups tolerate broken references."""

    def __init__(self, s: Schedule) -> None:
        self.s = s
        self.buffers: dict[str, Buffer] = {b.name: b for b in s.buffers}
        self.events: dict[int, Event] = {e.id: e for e in s.events}
        self.names = event_names(s)
        self._shapes: dict[str, tuple[int, int]] = {}

    def places(self) -> Iterator[tuple[Place, Instr]]:
        for q, queue in enumerate(self.s.queues):
            for i, instr in enumerate(queue.code):
                yield (q, i), instr

    def instr(self, place: Place) -> Instr:
        return self.s.queues[place[0]].code[place[1]]

    def signals(self, place: Place) -> int:
        """Signals that an instruction of every rank brings to each rank."""
        instr = self.instr(place)
        if isinstance(instr, Set):
            return self.s.queues[place[0]].team.size
        if isinstance(instr, Put) and 0 <= instr.group < len(self.s.groups):
            return len(self.s.groups[instr.group]) * instr.chunks
        return 0

    @cached_property
    def producers(self) -> dict[int, list[Place]]:
        """Instructions that signal each event id."""
        found: dict[int, list[Place]] = {}
        for place, instr in self.places():
            if isinstance(instr, Set | Put) and instr.event is not None:
                found.setdefault(instr.event, []).append(place)
        return found

    @cached_property
    def waits(self) -> dict[int, list[Place]]:
        """Waits for each event id."""
        found: dict[int, list[Place]] = {}
        for place, instr in self.places():
            if isinstance(instr, Wait):
                found.setdefault(instr.event, []).append(place)
        return found

    def event_text(self, event: int) -> str:
        return self.names.get(event, f"event {event}")

    def loc(self, place: Place) -> str:
        loc = self.instr(place).loc
        return self.s.locs[loc] if 0 <= loc < len(self.s.locs) else ""

    def text(self, place: Place) -> str:
        """`queue 0 aic[0:24] instruction 3 at FILE:LINE:COL: wait ...`."""
        q, i = place
        team = render_team(self.s.queues[q].team)
        loc = self.loc(place)
        at = f" at {loc}" if loc else ""
        instr = render_instr(self.s, self.instr(place), self.names)
        return f"queue {q} {team} instruction {i}{at}: {instr}"

    def violation(
        self,
        check: str,
        code: str,
        message: str,
        place: Place | None = None,
        *,
        rank: int | None = None,
        witness: tuple[str, ...] = (),
    ) -> Violation:
        """A violation at an instruction; its text becomes the first witness line."""
        if place is None:
            return Violation(code, check, message, rank=rank, witness=witness)
        q, i = place
        return Violation(
            code,
            check,
            message,
            queue=q,
            index=i,
            rank=rank,
            loc=self.loc(place),
            witness=witness or (self.text(place),),
        )

    def part_shape(self, name: str) -> tuple[int, int]:
        """(experts, parts) of the part table of a buffer."""
        if name not in self._shapes:
            s, space = self.s, self.buffers[name].space
            self._shapes[name] = {
                "token": (1, s.row_chunks),
                "weight": (s.layer.local_experts, 1),
            }.get(space, (s.layer.local_experts, len(s.groups)))
        return self._shapes[name]

    def part_range(self, region: Region) -> PartRange:
        """Entries of the part table that `region` covers; None covers all."""
        experts, parts = self.part_shape(region.buffer)
        e, p = region.expert, region.part
        return (
            range(experts) if e is None else range(e, e + 1),
            range(parts) if p is None else range(p, p + 1),
        )


def reads_of(instr: Instr) -> tuple[Region, ...]:
    """Regions that an instruction reads on the rank that runs it."""
    if isinstance(instr, Put):
        return (instr.source, *instr.dot[:1])
    return () if isinstance(instr, Wait | Set) else getattr(instr, "reads", ())


def writes_of(instr: Instr) -> tuple[Region, ...]:
    """Regions that an instruction of every rank writes on each rank."""
    if isinstance(instr, Put):
        return (instr.dest, *instr.dot[1:])
    return () if isinstance(instr, Wait | Set) else getattr(instr, "writes", ())
