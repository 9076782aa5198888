"""Each part of each buffer that matters is written exactly once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpc.schedule.checks.index import Index, Place, Violation, reads_of, writes_of
from hpc.schedule.layout import Ints
from hpc.schedule.model import Buffer, Put, Region
from hpc.schedule.render import render_region

CHECK = "coverage"
RULES = {
    "written-never": "A part that is read, or belongs to the output, is written.",
    "written-twice": "Outputs, and parts that puts write, are written once.",
    "input-written": "Nothing writes an input, a weight or a saved tensor.",
    "no-output": "A schedule has an output.",
}


def check_coverage(index: Index) -> list[Violation]:
    """All holes and overlaps, part by part; references must be sound."""
    tables = {
        name: np.zeros(index.part_shape(name), dtype=np.int64) for name in index.buffers
    }
    writers: dict[str, list[tuple[Place, Region]]] = {}
    readers: dict[str, list[tuple[Place, Region]]] = {}
    for place, instr in index.places():
        for region in writes_of(instr):
            _entries(index, tables, region)[...] += 1
            writers.setdefault(region.buffer, []).append((place, region))
        for region in reads_of(instr):
            readers.setdefault(region.buffer, []).append((place, region))
    found: list[Violation] = []
    if not any(buffer.role == "output" for buffer in index.s.buffers):
        found.append(index.violation(CHECK, "no-output", "no buffer is an output"))
    for name, buffer in index.buffers.items():
        written = writers.get(name, [])
        if buffer.role in ("input", "weight", "saved"):
            found += _inputs(index, buffer, written)
            continue
        found += _overlaps(index, tables[name], buffer, written)
        found += _holes(index, tables, buffer, readers.get(name, []))
    return found


def _entries(index: Index, tables: dict[str, Ints], region: Region) -> Ints:
    """The entries of a region in its part table, as a view."""
    experts, parts = index.part_range(region)
    table = tables[region.buffer]
    return table[experts.start : experts.stop, parts.start : parts.stop]


def _inputs(
    index: Index, buffer: Buffer, written: list[tuple[Place, Region]]
) -> Iterator[Violation]:
    for place, region in written:
        message = f"writes {render_region(region)}, which is {buffer.role}"
        yield index.violation(CHECK, "input-written", message, place)


def _overlaps(
    index: Index, table: Ints, buffer: Buffer, written: list[tuple[Place, Region]]
) -> Iterator[Violation]:
    if not (table > 1).any() or _reusable(index, buffer, written):
        return
    by_part: dict[tuple[int, int], list[Place]] = {}
    for place, region in written:
        experts, parts = index.part_range(region)
        for part in ((e, p) for e in experts for p in parts):
            by_part.setdefault(part, []).append(place)
    for (e, p), places in by_part.items():
        if len(places) > 1:
            yield index.violation(
                CHECK,
                "written-twice",
                f"{buffer.name}[{e},{p}] is written {len(places)} times",
                places[1],
                witness=tuple(index.text(place) for place in places),
            )


def _reusable(
    index: Index, buffer: Buffer, written: list[tuple[Place, Region]]
) -> bool:
    """Local workspace may be written again; the check of races sees to the order."""
    return buffer.role == "workspace" and not any(
        isinstance(index.instr(place), Put) for place, _ in written
    )


def _holes(
    index: Index,
    tables: dict[str, Ints],
    buffer: Buffer,
    read: list[tuple[Place, Region]],
) -> Iterator[Violation]:
    reported = np.zeros_like(tables[buffer.name])
    for place, region in read:
        holes = (_entries(index, tables, region) == 0) & (
            _entries(index, {buffer.name: reported}, region) == 0
        )
        _entries(index, {buffer.name: reported}, region)[holes] = 1
        experts, parts = index.part_range(region)
        for e, p in np.argwhere(holes):
            part = f"{buffer.name}[{experts[e]},{parts[p]}]"
            message = f"reads {part}, which nothing writes"
            yield index.violation(CHECK, "written-never", message, place)
    if buffer.role == "output":
        for e, p in np.argwhere((tables[buffer.name] == 0) & (reported == 0)):
            message = f"output {buffer.name}[{e},{p}] is never written"
            yield index.violation(CHECK, "written-never", message)
