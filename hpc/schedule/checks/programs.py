"""Programs of different ranks agree in what a launch shares."""

from __future__ import annotations

from collections.abc import Sequence

from hpc.schedule.checks.index import Violation
from hpc.schedule.diff import diff_schedules
from hpc.schedule.model import Schedule
from hpc.schedule.writer import globals_hash

CHECK = "structure"
RULES = {
    "program-count": "There is one program for each rank.",
    "program-differs": "Fields that a launch shares are equal on all ranks.",
}


def check_programs(s: Schedule, programs: Sequence[Schedule]) -> list[Violation]:
    """One violation for each rank whose global fields are not those of rank 0."""
    found: list[Violation] = []
    if len(programs) != s.layer.ep:
        message = f"{len(programs)} programs for {s.layer.ep} ranks"
        found.append(Violation("program-count", CHECK, message))
    wanted = globals_hash(s)
    for rank, program in enumerate(programs):
        if program is not s and globals_hash(program) != wanted:
            lines = diff_schedules(s, program)
            message = f"rank {rank} has other global fields than rank 0: {lines[0]}"
            found.append(
                Violation(
                    "program-differs", CHECK, message, rank=rank, witness=tuple(lines)
                )
            )
    return found
