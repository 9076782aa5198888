"""Conflicting accesses of one launch are ordered, on all ranks, for every routing.

Two accesses conflict if they touch the same part of a buffer on the same rank and one
writes. `clocks` knows what happens before what, `accesses` which parts conflict. A pair
must be ordered, and a reader must come after a writer. Pairs of the same two queues
over the same buffer are one violation: they lack the same thing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hpc.schedule.checks.accesses import Access, Ordered, Part, accesses
from hpc.schedule.checks.advice import advice, relation, who
from hpc.schedule.checks.clocks import Clocks
from hpc.schedule.checks.index import Index, Place, Violation
from hpc.schedule.model import Put

CHECK = "races"
RULES = {
    "race-read-write": "A read comes after the write that it means, on all cores.",
    "race-write-write": "Two writes of one part are ordered.",
    "race-put-read": "What other ranks put is read only when all of it has arrived.",
    "race-put-write": "A put does not land in rows that a local task writes.",
    "race-put-over-read": "A put does not land in rows that are still read.",
    "put-unfenced": "A world barrier is between a put without signal and its reader.",
    "overwritten-unread": "A value is read before its rows are written again.",
    "read-too-early": "A read does not come before every write of its rows.",
    "put-unfinished": "A rank's launch ends only when all that was put to it is there.",
}

_SHOWN = 6
"""Further pairs that a witness lists by name; the rest is counted."""


@dataclass
class _Kind:
    """Pairs of accesses that lack the same ordering."""

    code: str
    first: Access
    second: Access
    parts: dict[tuple[Place, Place], list[Part]] = field(
        default_factory=dict[tuple[Place, Place], list[Part]]
    )


def check_races(index: Index, clocks: Clocks, relaxed: bool = False) -> list[Violation]:
    """All unordered conflicts of a launch, aggregated; references must be sound and
    `clocks` not stuck. `relaxed`: signals may overtake the data of earlier puts."""
    ordered = Ordered(clocks, relaxed)
    kinds: dict[tuple[object, ...], _Kind] = {}
    for part, touching in accesses(index).items():
        for code, first, second in _conflicts(ordered, touching):
            key = (code, part[0], first.place[0], second.place[0])
            kind = kinds.setdefault(key, _Kind(code, first, second))
            kind.parts.setdefault((first.place, second.place), []).append(part)
    found = [_violation(ordered, kind) for kind in kinds.values()]
    return found + list(_unfinished(index, ordered))


def _conflicts(
    ordered: Ordered, touching: list[Access]
) -> Iterator[tuple[str, Access, Access]]:
    """(code, access that should be first, the other) of one part."""
    writers = [access for access in touching if access.writes]
    for n, first in enumerate(writers):
        for second in writers[n + 1 :]:
            if not ordered.over(first, second) and not ordered.over(second, first):
                yield _write_code(first, second), first, second
    if len(writers) > 1:
        yield from _lost_values(ordered, writers, touching)
    for reader in touching:
        if not reader.writes:
            yield from _reads(ordered, writers, reader)


def _lost_values(
    ordered: Ordered, writers: list[Access], touching: list[Access]
) -> Iterator[tuple[str, Access, Access]]:
    """Writes that the next one overwrites before anybody has read them."""
    readers = [access for access in touching if not access.writes]
    for first in writers:
        for second in writers:
            if first is second or not ordered.over(first, second):
                continue
            if not any(
                ordered.over(first, reader) and ordered.over(reader, second)
                for reader in readers
            ):
                yield "overwritten-unread", first, second


def _reads(
    ordered: Ordered, writers: list[Access], reader: Access
) -> Iterator[tuple[str, Access, Access]]:
    after = [writer for writer in writers if ordered.over(writer, reader)]
    for writer in writers:
        if writer in after:
            continue
        if not ordered.over(reader, writer):
            yield _read_code(writer, bool(after)), writer, reader
        elif not after:
            yield "read-too-early", writer, reader


def _write_code(first: Access, second: Access) -> str:
    return "race-put-write" if first.how != second.how else "race-write-write"


def _read_code(writer: Access, older: bool) -> str:
    """`older`: the reader means an earlier write, and this one comes too soon."""
    if writer.how != "land":
        return "race-read-write"
    if older:
        return "race-put-over-read"
    assert isinstance(writer.instr, Put)
    return "put-unfenced" if writer.instr.event is None else "race-put-read"


_WORDS = {
    "race-read-write": "{second} reads {part}, which {first} may still write",
    "race-write-write": "{first} and {second} both write {part}, in any order",
    "race-put-read": "{second} reads {part}, which {first} may still be putting there",
    "race-put-write": "{first} and {second} both write {part}, in any order",
    "race-put-over-read": "{second} may still read {part} when {first} overwrites it",
    "put-unfenced": "{second} reads {part}, which a put without signal writes, "
    "with no world barrier in between",
    "overwritten-unread": "{second} overwrites {part} of {first}, which nobody read",
    "read-too-early": "{second} reads {part} before {first} writes it",
}


def _violation(ordered: Ordered, kind: _Kind) -> Violation:
    index = ordered.clocks.index
    first, second = kind.first, kind.second
    pairs = list(kind.parts.items())
    message = _WORDS[kind.code].format(
        first=who(first.place),
        second=who(second.place),
        part=_parts(pairs[0][1]),
    )
    if len(pairs) > 1:
        message += f", and {len(pairs) - 1} more such pairs"
    lines = [
        f"{_verb(first)}: {index.text(first.place)}",
        f"{_verb(second)}: {index.text(second.place)}",
        f"ranks: {relation(ordered, first, second)}",
        f"missing: {advice(ordered, first, second)}",
        *_others(pairs[1:]),
    ]
    return index.violation(
        CHECK, kind.code, message, second.place, witness=tuple(lines)
    )


def _others(pairs: list[tuple[tuple[Place, Place], list[Part]]]) -> Iterable[str]:
    for (a, b), parts in pairs[:_SHOWN]:
        yield f"also: {_parts(parts)}, {who(a)} and {who(b)}"
    if len(pairs) > _SHOWN:
        yield f"and {len(pairs) - _SHOWN} more"


def _parts(parts: list[Part]) -> str:
    names = [f"{name}[{e},{p}]" for name, e, p in parts]
    more = f" and {len(names) - 1} more parts" if len(names) > 1 else ""
    return names[0] + more


def _verb(access: Access) -> str:
    return {"read": "reads", "write": "writes", "land": "puts"}[access.how]


def _unfinished(index: Index, ordered: Ordered) -> Iterator[Violation]:
    """Puts that nothing on their destination waits for."""
    for place, instr in index.places():
        if isinstance(instr, Put) and not ordered.landed_at_end(place):
            message = (
                f"{who(place)} may still be on its way to {instr.dest.buffer}"
                f"[{instr.expert},{instr.group}] when its destination ends its launch"
            )
            yield index.violation(CHECK, "put-unfinished", message, place)
