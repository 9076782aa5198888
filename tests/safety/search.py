"""Every interleaving of a very small schedule, one (rank, core) step at a time.

A state is where every core stands: counters and barriers follow from it. The search
visits each state once. A hang is a state without a successor that is not the end; a
race is a state in which two cores can both go on with conflicting work. Nothing here
supposes that thresholds join all signals, so it is exact where `execution` is not, and
tests use it to check the argument that `execution` rests on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from hpc.schedule.model import Barrier, Put, Schedule, Set, Wait
from tests.safety.execution import core_actions
from tests.safety.tiles import Move, Tile, Tiles

State = tuple[int, ...]
"""The position of every core."""

MAX_STATES = 400_000


class TooLarge(Exception):
    """More states than a test should visit."""


@dataclass(frozen=True)
class Step:
    """One indivisible step of a core: a wait, a barrier, or work and its signal.

    `signal` is (rank, event); reads and writes are cells.
    """

    wait: tuple[int, int, int] | None = None
    barrier: tuple[str, int] | None = None
    signal: tuple[int, int] | None = None
    reads: frozenset[int] = frozenset()
    writes: frozenset[int] = frozenset()

    def conflicts(self, other: Step) -> bool:
        """Whether the two touch a cell that one of them writes."""
        return bool(
            self.writes & other.writes
            or self.writes & other.reads
            or self.reads & other.writes
        )


@dataclass(frozen=True)
class Found:
    """What all interleavings together can do."""

    hang: bool
    race: bool
    states: int


def search(programs: Sequence[Schedule], tiles: Sequence[Tiles]) -> Found:
    """Visits all reachable states; TooLarge if there are too many."""
    cores = list(_cores(programs, tiles))
    lists = [steps for _, steps in cores]
    ranks = [rank for rank, _ in cores]
    start: State = (0,) * len(lists)
    seen = {start}
    front = [start]
    hang = race = False
    while front:
        state = front.pop()
        sent = _sent(lists, state)
        ready = [c for c in range(len(lists)) if _enabled(lists, c, state, sent)]
        race |= any(
            lists[a][state[a]].conflicts(lists[b][state[b]])
            for a, b in combinations(ready, 2)
        )
        successors = [_after(state, (core,)) for core in ready]
        successors += [_after(state, met) for met in _met(lists, ranks, state)]
        if not successors:
            hang |= any(at < len(steps) for at, steps in zip(state, lists, strict=True))
        for after in successors:
            if after not in seen:
                seen.add(after)
                front.append(after)
        if len(seen) > MAX_STATES:
            raise TooLarge(f"more than {MAX_STATES} states")
    return Found(hang, race, len(seen))


def _cores(
    programs: Sequence[Schedule], tiles: Sequence[Tiles]
) -> Iterator[tuple[int, list[Step]]]:
    for rank, s in enumerate(programs):
        for queue in s.queues:
            lists = core_actions(queue, rank, tiles[rank], queue.team.size)
            for actions in lists:
                yield (
                    rank,
                    [
                        step
                        for instr, mine in actions
                        for step in _steps(instr, mine, rank)
                    ],
                )


def _steps(instr: object, mine: tuple[Tile, ...], rank: int) -> Iterator[Step]:
    if isinstance(instr, Wait):
        yield Step(wait=(rank, instr.event, instr.need))
    elif isinstance(instr, Set):
        yield Step(signal=(rank, instr.event))
    elif isinstance(instr, Barrier):
        yield Step(barrier=(instr.scope, rank if instr.scope == "rank" else -1))
    else:
        event = instr.event if isinstance(instr, Put) else None
        for tile in mine:
            yield Step(
                signal=None if event is None else (tile.target, event),
                reads=frozenset(c for move in _all(tile) for c in move.sources),
                writes=frozenset(move.dest for move in _all(tile)),
            )


def _sent(lists: list[list[Step]], state: State) -> Counter[tuple[int, int]]:
    """Signals sent so far, by (rank, event)."""
    return Counter(
        step.signal
        for at, steps in zip(state, lists, strict=True)
        for step in steps[:at]
        if step.signal is not None
    )


def _all(tile: Tile) -> tuple[Move, ...]:
    return tile.moves + tile.kept


def _enabled(
    lists: list[list[Step]], core: int, state: State, sent: Counter[tuple[int, int]]
) -> bool:
    """Whether a core can go on by itself."""
    if state[core] == len(lists[core]):
        return False
    step = lists[core][state[core]]
    if step.barrier is not None:
        return False
    if step.wait is None:
        return True
    rank, event, need = step.wait
    return sent[rank, event] >= need


def _met(
    lists: list[list[Step]], ranks: list[int], state: State
) -> Iterator[tuple[int, ...]]:
    """Groups of cores that have all come to one barrier."""
    standing: dict[tuple[str, int], list[int]] = {}
    for core, steps in enumerate(lists):
        if state[core] < len(steps):
            barrier = steps[state[core]].barrier
            if barrier is not None:
                standing.setdefault(barrier, []).append(core)
    for (scope, rank), cores in standing.items():
        wanted = [c for c, r in enumerate(ranks) if scope == "world" or r == rank]
        if cores == wanted:
            yield tuple(cores)


def _after(state: State, cores: Sequence[int]) -> State:
    moved = list(state)
    for core in cores:
        moved[core] += 1
    return tuple(moved)
