"""Explains a simulation that cannot go on: who waits for what, back to the root cause.

A *place* is where some cores of one queue of one rank stand. A place waits for signals
at a gate; the producers that have not sent theirs stand at other places. Following
these edges ends at a place for whose gate too few signals are ever sent, at a core
that never starts or has ended, or comes round in a cycle: these are the root causes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from hpc.interp.inject import DeadRank, DropSignal, Fault
from hpc.interp.program import NO_GATE, Gate
from hpc.interp.task_steps import BARRIER
from hpc.interp.timing import Run
from hpc.schedule.model import Put, Set
from hpc.schedule.render import event_names, render_instr, render_team

SHOWN = 24
"""Places shown in the text; the rest is counted."""

Key = tuple[int, int, int]
"""(rank, queue, step) of a place; the step behind the last one for cores that ended."""

Steps = dict[tuple[int, int], list[int]]
"""Step that each core of a (rank, queue) stands at."""


class SimulationDeadlock(RuntimeError):
    """Some cores wait for ever; `hang` says who waits for what, and why. `run` is what
    happened until then, as if all waits ended at `until_us`, when nothing moved any
    more."""

    def __init__(self, hang: Hang, run: Run, until_us: float) -> None:
        super().__init__(hang.text())
        self.hang, self.run, self.until_us = hang, run, until_us


@dataclass(frozen=True, slots=True)
class Blocked:
    """Cores of a queue that stand still. `index` is the instruction they stand at,
    `missing` says whose signals have not come and where those stand."""

    rank: int
    queue: int
    team: str
    index: int
    loc: str
    instruction: str
    cores: int
    waits_for: str
    have: int
    need: int
    missing: tuple[str, ...]

    @property
    def where(self) -> str:
        loc = f" ({self.loc})" if self.loc else ""
        place = f"rank {self.rank} queue {self.queue} {self.team}"
        return f"{place} instruction {self.index}{loc}"

    @property
    def reason(self) -> str:
        """What it waits for, and who owes it."""
        if not self.waits_for:
            return "never started"
        text = f"waiting for {self.waits_for}, have {self.have}, need {self.need}"
        return "; ".join([text, *self.missing])


@dataclass(frozen=True, slots=True)
class Hang:
    """A deadlock: every place that is blocked, and the root causes in words."""

    blocked: tuple[Blocked, ...]
    roots: tuple[str, ...]

    def text(self) -> str:
        """For people: the places first, the root causes last."""
        cores = sum(place.cores for place in self.blocked)
        lines = [f"deadlock: {_cores(cores)} wait{'s' * (cores == 1)} for ever"]
        lines += [
            f"{p.where}: {_cores(p.cores)} {p.reason}" for p in self.blocked[:SHOWN]
        ]
        if len(self.blocked) > SHOWN:
            lines.append(f"... and {len(self.blocked) - SHOWN} more places")
        lines += [f"root cause: {root}" for root in self.roots[:SHOWN]]
        if len(self.roots) > SHOWN:
            lines.append(f"... and {len(self.roots) - SHOWN} more root causes")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """All of it."""
        return {
            "root_causes": list(self.roots),
            "blocked": [asdict(place) for place in self.blocked],
        }


def deadlock(
    run: Run, at: Sequence[int], left: Sequence[int], faults: Sequence[Fault] = ()
) -> SimulationDeadlock:
    """The error for a run whose cores stand at the steps `at` for ever; `left` are the
    signals that each gate still waits for."""
    steps: Steps = {}
    start = run.start.copy()
    until = max(float(run.put_delivered.max(initial=0.0)), float(run.arrive.max()))
    core = first = 0
    for rank in range(run.work.rows.ranks):
        for q, queue in enumerate(run.schedule.queues):
            count = len(run.program.codes[q].kinds)
            mine = list(at[core : core + queue.team.size])
            steps[rank, q] = mine
            core += queue.team.size
            for step in mine:
                if step < count:
                    start[first + step] = until
                first += count
    hang = _Explainer(run, steps, left, faults).hang()
    return SimulationDeadlock(hang, replace(run, start=start), until)


@dataclass(frozen=True, slots=True)
class _Debt:
    """Cores of a producer that have not signalled: what they would run, where they
    stand."""

    index: int
    cores: int
    place: Key


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count} cores"


class _Explainer:
    """Places, the debts between them, and what they lead back to."""

    def __init__(
        self,
        run: Run,
        steps: Steps,
        left: Sequence[int],
        faults: Sequence[Fault],
    ) -> None:
        self.s, self.program, self.left, self.at = (
            run.schedule,
            run.program,
            left,
            steps,
        )
        self.steps = [shares.steps for shares in run.work.queues]
        self.offsets = [shares.offsets for shares in run.work.queues]
        self.names = event_names(self.s)
        self.ranks = run.work.rows.ranks
        self.dead = {f.rank for f in faults if isinstance(f, DeadRank)}
        self.dropped = [f for f in faults if isinstance(f, DropSignal)]
        self.places: dict[Key, int] = {}
        for (rank, q), cores in sorted(steps.items()):
            for step in sorted(set(cores)):
                if step < len(self.steps[q]):
                    self.places[rank, q, step] = cores.count(step)
        self.debts = {place: tuple(self._debts(place)) for place in self.places}

    def hang(self) -> Hang:
        blocked = tuple(self._blocked(place) for place in self.places)
        roots = tuple(dict.fromkeys(self._roots()))
        return Hang(blocked, roots or (self._cycle(),))

    # -- debts -------------------------------------------------------------------

    def _gate_of(self, place: Key) -> int:
        return self.program.codes[place[1]].gates[place[2]]

    def _debts(self, place: Key) -> Iterator[_Debt]:
        """Who has not sent what the gate of a place waits for."""
        rank, _, _ = place
        gate = self._gate_of(place)
        if rank in self.dead or gate == NO_GATE:
            return
        if self.program.gates[gate].cause == "barrier":
            yield from self._absent(rank, gate)
            return
        for q, queue in enumerate(self.s.queues):
            for step, each in enumerate(self.steps[q]):
                for index in each.sets:
                    instr = queue.code[index]
                    if isinstance(instr, Set) and gate in self._gates(instr.event):
                        yield from self._owing(rank, q, step, index, None)
                put = queue.code[each.work] if each.work >= 0 else None
                if isinstance(put, Put) and gate in self._gates(put.event):
                    yield from self._late_puts(rank, q, step, each.work, put)

    def _gates(self, event: int | None) -> tuple[int, ...]:
        return () if event is None else self.program.of_event.get(event, ())

    def _owing(
        self, rank: int, q: int, step: int, index: int, members: set[int] | None
    ) -> Iterator[_Debt]:
        """Debts of the cores of (rank, q) that have not come past `step`."""
        found: dict[int, int] = {}
        for member, at in enumerate(self.at[rank, q]):
            if at <= step and (members is None or member in members):
                found[at] = found.get(at, 0) + 1
        for at, cores in sorted(found.items()):
            yield _Debt(index, cores, (rank, q, at))

    def _late_puts(
        self, rank: int, q: int, step: int, index: int, put: Put
    ) -> Iterator[_Debt]:
        """Put tiles to `rank` whose cores have not come past them."""
        size = self.s.queues[q].team.size
        sign = -1 if put.kind == "dispatch" else 1
        for place, k in enumerate(self.s.groups[put.group]):
            source = (rank + sign * k) % self.ranks
            first = int(self.offsets[q][source, index]) + place * put.chunks
            members = {(first + chunk) % size for chunk in range(put.chunks)}
            yield from self._owing(source, q, step, index, members)

    def _absent(self, rank: int, gate: int) -> Iterator[_Debt]:
        """Cores that have not arrived at a barrier, and those that never will."""
        world = self.program.gates[gate].world
        for (r, q), cores in sorted(self.at.items()):
            if not world and r != rank:
                continue
            gates = self.program.codes[q].gates
            step = gates.index(gate) if gate in gates else len(gates)
            found = {at: cores.count(at) for at in set(cores)}
            for at, count in sorted(found.items()):
                if at < step or at == len(gates) or r in self.dead:
                    yield _Debt(self.steps[q][step].work if gate in gates else -1,
                                count, (r, q, at))  # fmt: skip

    # -- words -------------------------------------------------------------------

    def _blocked(self, place: Key) -> Blocked:
        rank, q, step = place
        index, gate = self._index(q, step), self._gate_of(place)
        instr = self.s.queues[q].code[index]
        waits_for, have, need = "", 0, 0
        if rank not in self.dead and gate != NO_GATE:
            found = self.program.gates[gate]
            waits_for, need, have = found.name, found.need, self._have(rank, gate)
        return Blocked(
            rank=rank,
            queue=q,
            team=render_team(self.s.queues[q].team),
            index=index,
            loc=self._loc(q, index),
            instruction=render_instr(self.s, instr, self.names),
            cores=self.places[place],
            waits_for=waits_for,
            have=have,
            need=need,
            missing=tuple(self._owes(debt) for debt in self.debts[place]),
        )

    def _index(self, q: int, step: int) -> int:
        """The instruction that a core at a step stands at."""
        found = self.steps[q][step]
        if found.kind == BARRIER:
            return found.work
        return found.wait if found.wait >= 0 else found.first

    def _have(self, rank: int, gate: int) -> int:
        found = self.program.gates[gate]
        block = self.ranks if found.world else rank
        arrived = found.need - self.left[block * len(self.program.gates) + gate]
        # A dropped signal was added to what is left: it arrived for nothing.
        return max(0, arrived)

    def _loc(self, q: int, index: int) -> str:
        loc = self.s.queues[q].code[index].loc
        return self.s.locs[loc] if loc < len(self.s.locs) else ""

    def _owes(self, debt: _Debt) -> str:
        rank, q, step = debt.place
        who = f"{_cores(debt.cores)} of rank {rank} queue {q}"
        if step == len(self.steps[q]):
            return f"missing {who}, which have ended"
        at = f"which stand at instruction {self._index(q, step)}"
        if rank in self.dead:
            at = "which is dead"
        if debt.index < 0:
            return f"missing {who}, {at}"
        instr = self.s.queues[q].code[debt.index]
        what = render_instr(self.s, instr, self.names)
        return f"missing {who} instruction {debt.index} ({what}), {at}"

    # -- root causes -------------------------------------------------------------

    def _roots(self) -> Iterator[str]:
        for rank in sorted(self.dead):
            yield f"rank {rank} is dead (injected): its cores never start"
        for place, debts in self.debts.items():
            rank, gate = place[0], self._gate_of(place)
            if rank in self.dead or gate == NO_GATE:
                continue
            found = self.program.gates[gate]
            if found.cause == "barrier":
                yield from self._missing_barrier(found, debts)
                continue
            where = f"{found.name} of rank {rank}"
            short = found.need - self._ever_sent(rank, gate)
            if short > 0:
                yield (
                    f"{where} needs {found.need} signals, the program sends "
                    f"{found.need - short}"
                )
            for fault in self.dropped:
                if fault.event == found.name and fault.rank in (None, rank):
                    yield f"a signal to {where} was dropped (injected)"

    def _missing_barrier(self, gate: Gate, debts: Sequence[_Debt]) -> Iterator[str]:
        for debt in debts:
            rank, q, step = debt.place
            if step == len(self.steps[q]):
                yield f"rank {rank} queue {q} ends without coming to {gate.name}"

    def _ever_sent(self, rank: int, gate: int) -> int:
        """Signals to a gate of `rank` if every core ran to its end."""
        total = 0
        for queue in self.s.queues:
            for instr in queue.code:
                if isinstance(instr, Set) and gate in self._gates(instr.event):
                    total += queue.team.size
                elif isinstance(instr, Put) and gate in self._gates(instr.event):
                    total += len(self.s.groups[instr.group]) * instr.chunks
        return total

    def _cycle(self) -> str:
        """Places that wait for each other; there is one if nothing else is missing."""
        seen: dict[Key, int] = {}
        path: list[Key] = []
        place = next(iter(self.places))
        while place not in seen:
            seen[place] = len(path)
            path.append(place)
            later = [d.place for d in self.debts[place] if d.place in self.places]
            if not later:
                return f"{self._short(place)} waits for signals that nobody sends"
            place = later[0]
        ring = [*path[seen[place] :], place]
        return "a cycle of waits: " + " <- ".join(self._short(each) for each in ring)

    def _short(self, place: Key) -> str:
        rank, q, step = place
        index = self._index(q, step)
        instr = render_instr(self.s, self.s.queues[q].code[index], self.names)
        return f"rank {rank} queue {q} instruction {index} ({instr})"
