"""The replay agrees with every random legal order of single cores on all ranks.

The oracle shares no code with the checker: it runs each core of each rank by itself,
counts signals tile by tile, and picks the next core at random.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.schedule.checks.deadlock import check_deadlock
from hpc.schedule.checks.replay import Replay
from hpc.schedule.model import Barrier, Put, Set, Team, Wait
from tests.builders import (
    dropped,
    edited,
    inserted,
    moved,
    serial_schedule,
    small_layer,
    standard_schedule,
    with_team,
)

TEAMS = (Team("aic", 0, 2), Team("aiv", 0, 3), Team("aiv", 3, 2))


class Machine:
    """All cores of all ranks; `step` runs one instruction of a core that can go on."""

    def __init__(self, programs):
        self.programs = programs
        self.counters = [{} for _ in programs]
        self.barriers = [0] * len(programs)
        self.cores = {
            (rank, q, core): 0
            for rank, s in enumerate(programs)
            for q, queue in enumerate(s.queues)
            for core in range(queue.team.size)
        }

    def at(self, core):
        rank, q, _ = core
        code = self.programs[rank].queues[q].code
        return code[self.cores[core]] if self.cores[core] < len(code) else None

    def can_run(self, core):
        instr = self.at(core)
        if isinstance(instr, Wait):
            return self.counters[core[0]].get(instr.event, 0) >= instr.need
        if isinstance(instr, Barrier):
            mates = [
                mate
                for mate in self.cores
                if instr.scope == "world" or mate[0] == core[0]
            ]
            return all(
                isinstance(there := self.at(mate), Barrier)
                and there.scope == instr.scope
                for mate in mates
            )
        return instr is not None

    def step(self, core):
        instr = self.at(core)
        rank, q, number = core
        if isinstance(instr, Barrier):
            for mate in list(self.cores):
                if instr.scope == "world" or mate[0] == rank:
                    self.cores[mate] += 1
            return
        if isinstance(instr, Set):
            self.signal(rank, instr.event)
        if isinstance(instr, Put) and instr.event is not None:
            s = self.programs[rank]
            tiles = [k for k in s.groups[instr.group] for _ in range(instr.chunks)]
            sign = 1 if instr.kind == "dispatch" else -1
            for tile, k in enumerate(tiles):
                if tile % s.queues[q].team.size == number:
                    to = (rank + sign * k) % len(self.programs)
                    self.signal(to, instr.event)
        self.cores[core] += 1

    def signal(self, rank, event):
        self.counters[rank][event] = self.counters[rank].get(event, 0) + 1

    def ends(self, rng):
        """Whether all cores reach their end under one random order."""
        while True:
            ready = [core for core in self.cores if self.can_run(core)]
            if not ready:
                return all(self.at(core) is None for core in self.cores)
            # Several steps of one core now and then, so that cores drift apart.
            core = rng.choice(ready)
            for _ in range(rng.choice((1, 1, 5))):
                if self.can_run(core):
                    self.step(core)


def small(ep, groups, chunks):
    layer = small_layer(ep=ep, tokens=(4,) * ep, experts=4 if ep < 3 else ep)
    s = standard_schedule(layer, groups, chunks)
    sizes = {"arrived": None, "up_done": 2, "act_done": 2, "down_done": 2}
    for queue, team in enumerate(TEAMS):
        s = with_team(s, queue, team)
    for q, queue in enumerate(s.queues):
        for i, instr in enumerate(queue.code):
            if isinstance(instr, Wait):
                name = s.events[instr.event].name.split("[")[0]
                if sizes.get(name):
                    s = edited(s, q, i, need=sizes[name])
    return s


BASES = [
    small(1, ((0,),), 1),
    small(2, ((0,), (1,)), 2),
    small(2, ((0, 1),), 1),
    small(3, ((0,), (2, 1)), 1),
]


def mutated(s, rng):
    """One or two random faults, of which many are harmless."""
    for _ in range(rng.randint(1, 2)):
        q = rng.randrange(len(s.queues))
        size = len(s.queues[q].code)
        if not size:
            continue
        i, j = rng.randrange(size), rng.randrange(size)
        instr = s.queues[q].code[i]
        kind = rng.randrange(5)
        if kind == 0:
            s = dropped(s, q, i)
        elif kind == 1:
            s = moved(s, q, i, j)
        elif kind == 2:
            s = inserted(s, q, j, instr)
        elif kind == 3 and isinstance(instr, Wait):
            s = edited(s, q, i, need=max(0, instr.need + rng.choice((-1, 1))))
        elif kind == 4 and isinstance(instr, Wait | Set | Put):
            s = edited(s, q, i, event=rng.randrange(len(s.events)))
    return s


def verdicts(programs, seeds):
    return {Machine(programs).ends(random.Random(seed)) for seed in seeds}


@settings(max_examples=150)
@given(st.integers(0, 2**32 - 1))
def test_every_order_ends_as_the_replay_says(seed):
    rng = random.Random(seed)
    s = mutated(rng.choice(BASES), rng)
    programs = [s] * s.layer.ep
    safe = not check_deadlock(s)
    assert verdicts(programs, range(3)) == {safe}
    assert (not check_deadlock(s, programs)) == safe


@settings(max_examples=100)
@given(st.integers(0, 2**32 - 1))
def test_every_order_of_different_programs_ends_as_the_replay_says(seed):
    rng = random.Random(seed)
    base = rng.choice(BASES[1:])
    programs = [base] * base.layer.ep
    for rank in range(base.layer.ep):
        if rng.random() < 0.6:
            programs[rank] = mutated(base, rng)
    safe = not check_deadlock(programs[0], programs)
    assert verdicts(programs, range(3)) == {safe}


def test_the_mutants_are_not_all_alike():
    """Both verdicts occur often enough for the properties above to mean something."""
    hangs = 0
    for seed in range(200):
        rng = random.Random(seed)
        hangs += bool(check_deadlock(mutated(rng.choice(BASES), rng)))
    assert 40 < hangs < 160


@pytest.mark.parametrize("s", BASES, ids=range(len(BASES)))
def test_the_bases_end_under_every_order(s):
    assert verdicts([s] * s.layer.ep, range(5)) == {True}


def test_barriers_join_all_cores_of_all_ranks():
    layer = small_layer(tokens=(4, 4))
    s = serial_schedule(layer)
    for queue, team in enumerate((TEAMS[0], Team("aiv", 0, 3))):
        s = with_team(s, queue, team)
    for change in (s, edited(s, 0, 0, scope="rank"), dropped(s, 1, 3)):
        programs = [change, s]
        safe = not check_deadlock(change, programs)
        assert verdicts(programs, range(3)) == {safe}


def test_where_queues_stand_in_the_end_does_not_depend_on_the_order():
    """Not only the verdict: blocked cores stand where the replay says."""
    s = moved(BASES[1], 1, 0, 6)
    replay = Replay([s, s])
    replay.run()
    assert replay.blocked
    for seed in range(5):
        machine = Machine([s, s])
        assert not machine.ends(random.Random(seed))
        assert {
            (rank, q): at for (rank, q, _), at in machine.cores.items()
        } == replay.pc
