"""Everything that a schedule names exists. The other checks rely on this one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from hpc.schedule.checks.index import Index, Place, Violation
from hpc.schedule.checks.operators import OPERATORS
from hpc.schedule.layer import DTYPE_BYTES
from hpc.schedule.model import (
    PUT_KINDS,
    ROLES,
    SCOPES,
    SPACES,
    TRANSPORTS,
    UNITS,
    Barrier,
    Instr,
    Put,
    Region,
    Set,
    Task,
    Wait,
)

CHECK = "structure"
RULES = {
    "bad-layer": "Token counts, experts and ranks of the layer fit each other.",
    "bad-value": "A word is one of those allowed, and a number in its range.",
    "bad-groups": "The groups are a partition of 0..ranks-1 with 0 in group 0.",
    "duplicate-buffer": "A buffer name is declared once.",
    "unknown-buffer": "A region names a declared buffer.",
    "unknown-event": "An instruction names a declared event.",
    "unknown-op": "A task names an operator of the table.",
    "unknown-loc": "An instruction's location is in the table of locations.",
    "index-range": "Expert, group and part of a region exist.",
}

_BUFFER_WORDS: Mapping[str, Collection[str]] = {
    "space": SPACES,
    "role": ROLES,
    "dtype": DTYPE_BYTES,
}
_WORDS: Mapping[type[Instr], Mapping[str, Collection[str]]] = {
    Put: {"kind": PUT_KINDS, "transport": TRANSPORTS},
    Barrier: {"scope": SCOPES},
}


def check_references(index: Index) -> list[Violation]:
    """All dangling references; where there are any, no other check is meaningful."""
    found = _layer(index)
    if index.s.layer.ep < 1:
        return found
    found += [*_groups(index), *_buffers(index), *_teams(index)]
    for place, instr in index.places():
        found += _instr(index, place, instr)
    return found


def _layer(index: Index) -> list[Violation]:
    layer = index.s.layer
    found: list[Violation] = []

    def bad(message: str) -> None:
        found.append(index.violation(CHECK, "bad-layer", message))

    if layer.ep < 1 or len(layer.tokens) != layer.ep:
        bad(f"{len(layer.tokens)} token counts for {layer.ep} ranks")
    if not any(layer.tokens):
        bad("no rank has a token")
    if any(tokens < 0 for tokens in layer.tokens):
        bad(f"a negative token count: {min(layer.tokens)}")
    if layer.experts < max(layer.ep, 1):
        bad(f"{layer.experts} experts on {layer.ep} ranks: a rank would have none")
    if min(layer.hidden, layer.intermediate, layer.top_k) < 1:
        bad(
            f"hidden {layer.hidden}, intermediate {layer.intermediate} and top_k "
            f"{layer.top_k} must be at least 1"
        )
    if index.s.row_chunks < 1:
        bad(f"row_chunks is {index.s.row_chunks}, must be at least 1")
    return found


def _groups(index: Index) -> list[Violation]:
    groups, ep = index.s.groups, index.s.layer.ep
    seen = Counter(k for ks in groups for k in ks)
    problems: list[str] = []
    problems += [f"source {k} is in {n} places" for k, n in seen.items() if n > 1]
    problems += [f"source {k} is no rank" for k in seen if not 0 <= k < ep]
    problems += [f"source {k} is in no group" for k in range(ep) if k not in seen]
    problems += [f"group {g} is empty" for g, ks in enumerate(groups) if not ks]
    if groups and 0 in seen and 0 not in groups[0]:
        problems.append("own rows (k = 0) are not in group 0")
    return [
        index.violation(CHECK, "bad-groups", f"groups of {ep} ranks: {problem}")
        for problem in problems
    ]


def _buffers(index: Index) -> list[Violation]:
    uses = Counter(buffer.name for buffer in index.s.buffers)
    found = [
        index.violation(
            CHECK, "duplicate-buffer", f'buffer "{name}" is declared {n} times'
        )
        for name, n in uses.items()
        if n > 1
    ]
    for buffer in index.s.buffers:
        for key, allowed in _BUFFER_WORDS.items():
            problem = _word(getattr(buffer, key), allowed)
            if problem:
                message = f'{key} of buffer "{buffer.name}" is {problem}'
                found.append(index.violation(CHECK, "bad-value", message))
    return found


def _teams(index: Index) -> list[Violation]:
    return [
        index.violation(CHECK, "bad-value", f"unit of queue {q} is {problem}")
        for q, queue in enumerate(index.s.queues)
        if (problem := _word(queue.team.unit, UNITS))
    ]


def _word(word: str, allowed: Collection[str]) -> str:
    """What is wrong with a word, or nothing."""
    return "" if word in allowed else f'"{word}", not one of {", ".join(allowed)}'


def _instr(index: Index, place: Place, instr: Instr) -> list[Violation]:
    found: list[Violation] = []

    def bad(code: str, message: str) -> None:
        found.append(index.violation(CHECK, code, message, place))

    if not 0 <= instr.loc < len(index.s.locs):
        bad("unknown-loc", f"location {instr.loc} of {len(index.s.locs)}")
    event = instr.event if isinstance(instr, Wait | Set | Put) else None
    if event is not None and event not in index.events:
        bad("unknown-event", f"event id {event} is not declared")
    if isinstance(instr, Task) and instr.op not in OPERATORS:
        known = ", ".join(sorted(OPERATORS))
        bad("unknown-op", f'"{instr.op}" is not one of {known}')
    for key, allowed in _WORDS.get(type(instr), {}).items():
        problem = _word(getattr(instr, key), allowed)
        if problem:
            bad("bad-value", f"{key} is {problem}")
    if isinstance(instr, Put):
        if instr.chunks < 1:
            bad("bad-value", f"chunks is {instr.chunks}, must be at least 1")
        if len(instr.dot) not in (0, 2):
            bad("bad-value", f"dot has {len(instr.dot)} regions, must be two or none")
        experts, groups = index.s.layer.local_experts, len(index.s.groups)
        if not 0 <= instr.expert < experts:
            bad("index-range", f"expert {instr.expert} of {experts} on a rank")
        if not 0 <= instr.group < groups:
            bad("index-range", f"group {instr.group} of {groups}")
    for region in _regions(instr):
        if region.buffer not in index.buffers:
            bad("unknown-buffer", f'buffer "{region.buffer}" is not declared')
        else:
            found += _range(index, place, region)
    return found


def _regions(instr: Instr) -> tuple[Region, ...]:
    if isinstance(instr, Put):
        return instr.source, instr.dest, *instr.dot
    if isinstance(instr, Task):
        return instr.reads + instr.writes
    return ()


def _range(index: Index, place: Place, region: Region) -> list[Violation]:
    buffer = index.buffers[region.buffer]
    if buffer.space not in SPACES:
        return []
    experts, parts = index.part_shape(buffer.name)
    found: list[Violation] = []
    if buffer.space == "token" and region.expert is not None:
        found.append(
            index.violation(
                CHECK,
                "index-range",
                f'expert {region.expert} of "{buffer.name}", a token buffer, '
                "which has no experts",
                place,
            )
        )
    elif buffer.space == "weight" and region.part is not None:
        found.append(
            index.violation(
                CHECK,
                "index-range",
                f'part {region.part} of "{buffer.name}", a weight buffer, '
                "which has no parts",
                place,
            )
        )
    elif not _inside(region.expert, experts) or not _inside(region.part, parts):
        found.append(
            index.violation(
                CHECK,
                "index-range",
                f'[{region.expert}, {region.part}] is outside of "{buffer.name}", '
                f"which has {experts} x {parts} parts",
                place,
            )
        )
    return found


def _inside(value: int | None, count: int) -> bool:
    return value is None or 0 <= value < count
