"""Nothing is in vain: what is computed is read, and so is every input and weight.

A value that nobody reads is seldom wanted; mostly some instruction names another part
than it means, and its neighbour is left over.
"""

from __future__ import annotations

import numpy as np

from hpc.schedule.checks.index import Index, Violation, reads_of, writes_of
from hpc.schedule.layout import Ints
from hpc.schedule.model import Buffer, Put

CHECK = "coverage"
RULES = {
    "written-unread": "A workspace part that is written is read.",
    "input-unread": "Every part of an input, weight or saved tensor is read.",
}


def check_uses(index: Index) -> list[Violation]:
    """All parts that nobody reads; references must be sound."""
    reads = {
        name: np.zeros(index.part_shape(name), dtype=np.int64) for name in index.buffers
    }
    for _, instr in index.places():
        for region in reads_of(instr):
            experts, parts = index.part_range(region)
            reads[region.buffer][
                experts.start : experts.stop, parts.start : parts.stop
            ] = 1
    found: list[Violation] = []
    scaled = any(isinstance(instr, Put) and instr.scale for _, instr in index.places())
    for name, buffer in index.buffers.items():
        if buffer.role in ("workspace", "output"):
            continue
        # A put that scales rows reads their router weights without naming them.
        if not (scaled and _is_router(buffer)):
            found += _unread_inputs(index, buffer, reads[name])
    return found + _unread_results(index, reads)


def _is_router(buffer: Buffer) -> bool:
    return buffer.space == "slot" and buffer.cols == 1


def _unread_inputs(index: Index, buffer: Buffer, reads: Ints) -> list[Violation]:
    unread = np.argwhere(reads == 0)
    if not len(unread):
        return []
    e, p = unread[0]
    parts = f"{buffer.name}[{e},{p}]"
    if len(unread) > 1:
        parts += f" and {len(unread) - 1} more parts"
    message = f"nothing reads {parts} (role {buffer.role})"
    return [index.violation(CHECK, "input-unread", message)]


def _unread_results(index: Index, reads: dict[str, Ints]) -> list[Violation]:
    found: list[Violation] = []
    for place, instr in index.places():
        for region in writes_of(instr):
            if index.buffers[region.buffer].role != "workspace":
                continue
            experts, parts = index.part_range(region)
            unread = [
                f"{region.buffer}[{e},{p}]"
                for e in experts
                for p in parts
                if not reads[region.buffer][e, p]
            ]
            if unread:
                more = f" and {len(unread) - 1} more parts" if len(unread) > 1 else ""
                message = f"writes {unread[0]}{more}, which nothing reads"
                found.append(index.violation(CHECK, "written-unread", message, place))
    return found
