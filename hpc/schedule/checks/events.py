"""Counters: within the machine's limit, one name and one purpose each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hpc.schedule.checks.index import Index, Limits, Place, Violation
from hpc.schedule.model import Put, Set, Task

CHECK = "events"
RULES = {
    "event-id-range": "Event ids are below the number of counters of the machine.",
    "event-id-twice": "An event id is declared once.",
    "event-name-twice": "An event name is declared once.",
    "event-shared": "A counter does not serve unrelated joins.",
}


def check_events(index: Index, limits: Limits) -> list[Violation]:
    """All misuses of counters; references must be sound."""
    found: list[Violation] = []
    for event in index.s.events:
        if not 0 <= event.id < limits.max_events:
            message = (
                f"{event.name} has id {event.id}, the machine has counters "
                f"0..{limits.max_events - 1}"
            )
            found.append(index.violation(CHECK, "event-id-range", message))
    ids = Counter(event.id for event in index.s.events)
    names = Counter(event.name for event in index.s.events)
    for id_, n in ids.items():
        if n > 1:
            message = f"event id {id_} is declared {n} times"
            found.append(index.violation(CHECK, "event-id-twice", message))
    for name, n in names.items():
        if n > 1:
            message = f'event name "{name}" is declared {n} times'
            found.append(index.violation(CHECK, "event-name-twice", message))
    return found + list(_shared(index))


def _shared(index: Index) -> Iterator[Violation]:
    """Counters with several waits whose producers publish nothing in common.

    What a put publishes is its destination; what a set publishes are the results of
    its queue since the set before it. A counter with one wait is one join, whatever
    signals it.
    """
    published = _published(index)
    for event, producers in index.producers.items():
        if len(index.waits.get(event, ())) < 2:
            continue
        first = producers[0]
        for other in producers[1:]:
            if not published[first] or not published[other]:
                continue
            if published[first].isdisjoint(published[other]):
                yield index.violation(
                    CHECK,
                    "event-shared",
                    f"{index.event_text(event)} stands for "
                    f"{_list(published[first])} and for {_list(published[other])}",
                    other,
                    witness=(index.text(first), index.text(other)),
                )
                break


def _published(index: Index) -> dict[Place, frozenset[str]]:
    """Buffers that each signalling instruction makes visible."""
    published: dict[Place, frozenset[str]] = {}
    for q, queue in enumerate(index.s.queues):
        fresh: set[str] = set()
        for i, instr in enumerate(queue.code):
            if isinstance(instr, Task):
                fresh |= {region.buffer for region in instr.writes}
            elif isinstance(instr, Put):
                published[q, i] = frozenset([instr.dest.buffer])
            elif isinstance(instr, Set):
                published[q, i] = frozenset(fresh)
                fresh.clear()
    return published


def _list(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
