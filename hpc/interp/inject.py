"""Faults that a simulated run can be given: what they are and how they are written.

`faulty` makes a run suffer them; `stuck` explains the hang that may follow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite

from hpc.schedule.model import UNITS, Put, Schedule, Task

GRAMMAR = """\
a fault is one of
  drop-signal:EVENT[@RANK]             the first signal to an event gets lost
  delay:QUEUE:INDEX:US[@RANK]          a task or put starts US microseconds late
  slow-core:UNIT:CORE:FACTOR[@RANK]    a core computes FACTOR times slower
  dead-rank:RANK                       no core of a rank ever starts
without @RANK on every rank; UNIT is aic or aiv; for example
  drop-signal:recv_ready[0,1]@2   delay:0:3:25.5   slow-core:aic:7:2@0"""

_INTEGER = re.compile(r"[0-9]{1,9}")
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


class FaultError(ValueError):
    """A fault that is badly written, or that does not fit the schedule."""


@dataclass(frozen=True, slots=True)
class DropSignal:
    """The first signal to the counter called `event` is lost, on one rank or all."""

    event: str
    rank: int | None = None

    def __str__(self) -> str:
        return f"drop-signal:{self.event}{_at(self.rank)}"


@dataclass(frozen=True, slots=True)
class Delay:
    """Every core's share of an instruction, a task or put, starts `us` late."""

    queue: int
    index: int
    us: float
    rank: int | None = None

    def __str__(self) -> str:
        return f"delay:{self.queue}:{self.index}:{self.us:g}{_at(self.rank)}"


@dataclass(frozen=True, slots=True)
class SlowCore:
    """A core computes `factor` times slower. Its transfers keep their speed: they are
    bound by memory and links."""

    unit: str
    core: int
    factor: float
    rank: int | None = None

    def __str__(self) -> str:
        return f"slow-core:{self.unit}:{self.core}:{self.factor:g}{_at(self.rank)}"


@dataclass(frozen=True, slots=True)
class DeadRank:
    """No core of a rank ever starts. Its memory can still be written."""

    rank: int

    def __str__(self) -> str:
        return f"dead-rank:{self.rank}"


Fault = DropSignal | Delay | SlowCore | DeadRank


def _at(rank: int | None) -> str:
    return "" if rank is None else f"@{rank}"


def parse_fault(text: str) -> Fault:
    """The fault that `text` describes; FaultError says what is wrong with it."""
    kind, _, rest = text.partition(":")
    if kind == "dead-rank":
        return DeadRank(_integer(rest, "rank"))
    if kind not in _READERS:
        close = get_close_matches(kind, ["dead-rank", *_READERS], n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise FaultError(f"no fault is called '{kind}'{hint}")
    body, at, rank = rest.rpartition("@")
    if not at:
        return _READERS[kind](rest, None)
    return _READERS[kind](body, _integer(rank, "rank"))


def _read_drop(body: str, rank: int | None) -> Fault:
    if not body:
        raise FaultError("drop-signal needs the name of an event")
    return DropSignal(body, rank)


def _read_delay(body: str, rank: int | None) -> Fault:
    queue, index, us = _fields(body, "delay", "QUEUE:INDEX:US")
    return Delay(_integer(queue, "queue"), _integer(index, "index"), _us(us), rank)


def _read_slow(body: str, rank: int | None) -> Fault:
    unit, core, factor = _fields(body, "slow-core", "UNIT:CORE:FACTOR")
    if unit not in UNITS:
        raise FaultError(f"'{unit}' is no unit; units are {' and '.join(UNITS)}")
    number = _number(factor, "factor")
    if number < 1:
        raise FaultError(f"factor {factor} would make the core faster")
    return SlowCore(unit, _integer(core, "core"), number, rank)


_READERS = {
    "drop-signal": _read_drop,
    "delay": _read_delay,
    "slow-core": _read_slow,
}


def _fields(body: str, kind: str, form: str) -> tuple[str, str, str]:
    parts = body.split(":")
    if len(parts) != 3:
        raise FaultError(f"{kind} is written {kind}:{form}[@RANK]")
    return parts[0], parts[1], parts[2]


def _integer(text: str, what: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise FaultError(f"{what} '{text}' is not an integer from 0 to 999999999")
    return int(text)


def _number(text: str, what: str) -> float:
    if not _NUMBER.fullmatch(text) or not isfinite(float(text)):
        raise FaultError(f"{what} '{text}' is not a number such as 2 or 0.5")
    return float(text)


def _us(text: str) -> float:
    return _number(text, "delay")


def check_faults(faults: Sequence[Fault], schedule: Schedule) -> None:
    """FaultError for the first fault that names what the schedule does not have."""
    for fault in faults:
        complaint = _misfit(fault, schedule)
        if complaint:
            raise FaultError(f"{fault}: {complaint}")


def _misfit(fault: Fault, s: Schedule) -> str:
    """Why a fault does not fit, or nothing."""
    if fault.rank is not None and fault.rank >= s.layer.ep:
        return f"no rank {fault.rank}; the last of {s.layer.ep} is {s.layer.ep - 1}"
    match fault:
        case DropSignal():
            return _event_misfit(fault.event, s)
        case Delay():
            return _instruction_misfit(fault, s)
        case SlowCore():
            cores = {
                queue.team.first + core
                for queue in s.queues
                if queue.team.unit == fault.unit
                for core in range(queue.team.size)
            }
            return "" if fault.core in cores else "no queue runs on that core"
        case DeadRank():
            return ""


def _event_misfit(name: str, s: Schedule) -> str:
    names = [event.name for event in s.events]
    if name in names:
        return ""
    if not names:
        return f"no event '{name}'; this schedule has barriers instead of events"
    close = get_close_matches(name, names, n=1)
    known = f"did you mean '{close[0]}'?" if close else f"there is '{names[0]}'"
    return f"no event '{name}'; {known}"


def _instruction_misfit(fault: Delay, s: Schedule) -> str:
    if fault.queue >= len(s.queues):
        return f"no queue {fault.queue}; the last is {len(s.queues) - 1}"
    code = s.queues[fault.queue].code
    if fault.index >= len(code):
        return f"no instruction {fault.index}; the last is {len(code) - 1}"
    if not isinstance(code[fault.index], Task | Put):
        kind = type(code[fault.index]).__name__.lower()
        return f"instruction {fault.index} is a {kind}; only tasks and puts are delayed"
    return ""
