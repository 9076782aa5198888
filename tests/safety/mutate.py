"""Faults put into compiled schedules, by class.

An operator takes a schedule and a random generator and returns a changed schedule, or
None where there is nothing to change. Many of the changes are harmless: whether one is
safe is for the oracle to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from hpc.schedule.model import Barrier, Put, Schedule, Set, Task, Wait
from tests.safety.edits import Operator
from tests.safety.faults_of_names import (
    bad_id,
    capacity,
    chunks,
    declared_need,
    groups,
    merged_counters,
    private_buffer,
    retarget,
    reuse_buffer,
    same_id,
    scale,
    swapped_events,
    team,
    threshold,
    wrong_expert,
    wrong_group,
    wrong_part_everywhere,
    wrong_put,
    wrong_region,
)
from tests.safety.faults_of_order import (
    drop,
    duplicate,
    late_wait,
    move,
    move_to_other_queue,
    narrow_barrier,
    one_barrier_less,
    set_for_signal,
    signal_first,
    silent_put,
    swap,
    swap_blocks,
)


@dataclass(frozen=True)
class Mutant:
    """A changed schedule; `programs[rank]` is what a rank runs."""

    name: str
    cls: str
    programs: tuple[Schedule, ...]


def _two(s: Schedule, rng: Random) -> Schedule | None:
    """Two faults of other classes, which may hide each other."""
    for _ in range(2):
        operator = CLASSES[rng.choice(SIMPLE)]
        changed = operator(s, rng)
        if changed is None:
            return None
        s = changed
    return s


CLASSES: dict[str, Operator] = {
    "drop wait": drop(Wait),
    "drop set": drop(Set),
    "drop put": drop(Put),
    "drop task": drop(Task),
    "drop barrier": drop(Barrier),
    "duplicate wait": duplicate(Wait),
    "duplicate set": duplicate(Set),
    "duplicate put": duplicate(Put),
    "duplicate task": duplicate(Task),
    "duplicate barrier": duplicate(Barrier),
    "move wait": move(Wait),
    "move set": move(Set),
    "move put": move(Put),
    "move task": move(Task),
    "move barrier": move(Barrier),
    "move to other queue": move_to_other_queue,
    "swap instructions": swap,
    "swap steps": swap_blocks,
    "retarget wait": retarget(Wait),
    "retarget set": retarget(Set),
    "retarget put": retarget(Put),
    "threshold + 1": threshold(1),
    "threshold - 1": threshold(-1),
    "declared need": declared_need,
    "swapped counters": swapped_events,
    "wrong rank offset": wrong_group,
    "wrong expert": wrong_expert,
    "wrong put": wrong_put,
    "wrong region read": wrong_region("reads"),
    "wrong region written": wrong_region("writes"),
    "wrong part everywhere": wrong_part_everywhere,
    "buffer reused": reuse_buffer,
    "signal before data": signal_first,
    "wait behind its use": late_wait,
    "put without signal": silent_put,
    "set for a put's signal": set_for_signal,
    "missing barrier": one_barrier_less,
    "barrier scope": narrow_barrier,
    "event id out of range": bad_id,
    "event id twice": same_id,
    "counter shared": merged_counters,
    "capacity": capacity,
    "private buffer": private_buffer,
    "chunk count": chunks,
    "team": team,
    "groups": groups,
    "router weight": scale,
    "two faults": _two,
}
"""Operators by class; the class "one rank differs" applies any of them to one rank."""

ONE_RANK = "one rank differs"
SIMPLE = tuple(name for name in CLASSES if name != "two faults")


def mutate(s: Schedule, cls: str, rng: Random) -> Mutant | None:
    """One mutant of the class; None if the dice found nothing to change."""
    ranks = s.layer.ep
    if cls == ONE_RANK:
        inner = rng.choice(SIMPLE)
        changed = CLASSES[inner](s, rng)
        if changed is None or changed == s or ranks == 1:
            return None
        odd = rng.randrange(ranks)
        programs = tuple(changed if rank == odd else s for rank in range(ranks))
        return Mutant(f"{inner} on rank {odd}", cls, programs)
    changed = CLASSES[cls](s, rng)
    if changed is None or changed == s:
        return None
    return Mutant(cls, cls, (changed,) * ranks)
