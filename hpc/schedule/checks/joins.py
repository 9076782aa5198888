"""Teams, thresholds and barriers: what joins cores, and whether the numbers agree."""

from __future__ import annotations

from collections.abc import Iterator

from hpc.schedule.checks.index import Index, Limits, Place, Violation
from hpc.schedule.model import Barrier, Put, Task, Wait
from hpc.schedule.render import render_team

CHECK = "structure"
RULES = {
    "team-range": "A team's cores exist in the machine.",
    "task-count": "Tasks and puts of a rank fit the machine's task table.",
    "team-overlap": "No core is in two teams.",
    "event-need": "An event's need is the number of signals that one launch brings.",
    "wait-need": "A wait's threshold is the number of signals that can arrive.",
    "event-unsignalled": "Something signals every event that is waited for.",
    "event-unwaited": "Something waits for every event that is signalled.",
    "event-unused": "Every event is used.",
    "barrier-mismatch": "All queues have the same barriers in the same order.",
}


def check_joins(index: Index, limits: Limits) -> list[Violation]:
    """All faults of teams, thresholds and barriers; references must be sound."""
    found = [*_teams(index, limits), *_overlaps(index), *_count(index, limits)]
    for event in index.events:
        found += _event(index, event)
    found += _barriers(index)
    return found


def _teams(index: Index, limits: Limits) -> Iterator[Violation]:
    for q, queue in enumerate(index.s.queues):
        team, cores = queue.team, limits.cores(queue.team.unit)
        if team.size < 1 or team.first < 0 or team.first + team.size > cores:
            yield index.violation(
                CHECK,
                "team-range",
                f"queue {q} runs on {render_team(team)}, the machine has "
                f"{cores} {team.unit} cores",
            )


def _count(index: Index, limits: Limits) -> Iterator[Violation]:
    count = sum(isinstance(instr, Task | Put) for _, instr in index.places())
    if limits.max_tasks is not None and count > limits.max_tasks:
        message = (
            f"{count} tasks and puts on a rank, the machine takes {limits.max_tasks} "
            "(max_tasks of its record)"
        )
        yield index.violation(CHECK, "task-count", message)


def _overlaps(index: Index) -> Iterator[Violation]:
    teams = sorted(
        (queue.team.unit, queue.team.first, queue.team.first + queue.team.size, q)
        for q, queue in enumerate(index.s.queues)
    )
    # Sorted by first core, so a team overlaps one before it iff it begins below
    # the furthest end so far.
    furthest: dict[str, tuple[int, int]] = {}
    for unit, first, end, q in teams:
        before, other = furthest.get(unit, (0, -1))
        if first < before:
            yield index.violation(
                CHECK,
                "team-overlap",
                f"queues {other} and {q} share {unit}[{first}:{min(before, end)}]",
            )
        furthest[unit] = max((before, other), (end, q))


def _event(index: Index, event: int) -> Iterator[Violation]:
    producers = index.producers.get(event, [])
    waits = index.waits.get(event, [])
    name = index.event_text(event)
    signals = sum(index.signals(place) for place in producers)
    if not producers and not waits:
        yield index.violation(CHECK, "event-unused", f"{name} is never used")
    elif not producers:
        for place in waits:
            message = f"{name} is waited for, but nothing signals it"
            yield index.violation(CHECK, "event-unsignalled", message, place)
        return
    elif not waits:
        message = f"{name} is signalled, but nothing waits for it"
        yield index.violation(CHECK, "event-unwaited", message, producers[0])
    if producers and index.events[event].need != signals:
        message = f"{name} needs {index.events[event].need}, a launch brings {signals}"
        lines = _origins(index, producers)
        yield index.violation(CHECK, "event-need", message, witness=lines)
    yield from _thresholds(index, waits, signals, producers)


def _origins(index: Index, producers: list[Place]) -> tuple[str, ...]:
    """Witness lines: where the signals of an event come from."""
    return tuple(
        f"{index.signals(place)} from {index.text(place)}" for place in producers
    )


def _thresholds(
    index: Index, waits: list[Place], signals: int, producers: list[Place]
) -> Iterator[Violation]:
    for place in waits:
        wait = index.instr(place)
        assert isinstance(wait, Wait)
        if wait.need != signals:
            yield index.violation(
                CHECK,
                "wait-need",
                f"waits for {wait.need} of {index.event_text(wait.event)}, "
                f"a launch brings {signals}",
                place,
                witness=(index.text(place), *_origins(index, producers)),
            )


def _barriers(index: Index) -> Iterator[Violation]:
    sequences = [
        [
            (i, instr.scope, instr.launch)
            for i, instr in enumerate(queue.code)
            if isinstance(instr, Barrier)
        ]
        for queue in index.s.queues
    ]
    if not any(sequences):
        return
    model = max(range(len(sequences)), key=lambda q: len(sequences[q]))
    for q, barriers in enumerate(sequences):
        for n, (i, scope, launch) in enumerate(sequences[model]):
            mine = barriers[n] if n < len(barriers) else None
            if mine is not None and mine[1:] == (scope, launch):
                continue
            wanted = index.text((model, i))
            got = index.text((q, mine[0])) if mine else f"queue {q} has none"
            place = (q, mine[0]) if mine else (model, i)
            message = f"barrier {n} of queue {q} is not that of queue {model}"
            yield index.violation(
                CHECK, "barrier-mismatch", message, place, witness=(wanted, got)
            )
            break
