"""Random schedules that are legal by construction: any flow, any order, any teams.

Works form a random DAG: token operators, and on several ranks a dispatch, GMMs, an
activation, a combine and a reduce somewhere in it. Every work goes to a random team,
the teams run a random topological order, and every dependency gets a counter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from hpc.schedule.model import (
    Barrier,
    Base,
    Buffer,
    Event,
    Instr,
    Put,
    Queue,
    Region,
    Schedule,
    Set,
    Task,
    Team,
    Wait,
)
from tests.builders import small_layer, standard_buffers, standard_schedule


@dataclass
class Work:
    """A task or put, the works whose results it needs, and its counter's place."""

    instr: Task | Put
    needs: list[int]
    unit: str = "aiv"
    team: int = 0
    event: int = -1


class Builder:
    """One random schedule; everything is drawn from `rng`.

    `full` ones have rows for every core in every chunk, as schedules have at full size.
    """

    def __init__(self, rng: Random, full: bool = False) -> None:
        self.rng, self.full = rng, full
        self.ep = rng.choice((1, 2, 2, 3))
        tokens = tuple(rng.randint(0 if self.ep > 1 else 1, 6) for _ in range(self.ep))
        tokens = (max(1, tokens[0]), *tokens[1:])
        self.layer = small_layer(
            tokens=tokens, ep=self.ep, experts=self.ep + rng.randint(0, 2), hidden=32,
            intermediate=32, top_k=rng.randint(1, 2) if self.ep > 1 else 1,
        )  # fmt: skip
        self.row_chunks = rng.randint(1, 2 if full else 3)
        if full:
            # No multiple of a team: else one core might do a tile of two works by luck.
            tokens = tuple((5 + 2 * (n % 2)) * self.row_chunks for n in tokens)
            self.layer = replace(self.layer, tokens=tokens)
        self.groups = self._groups()
        self.works: list[Work] = []
        self.buffers: list[Buffer] = []
        self.parts: dict[str, list[int]] = {}
        """Works that write the chunks of a token buffer; none for an input."""

    def _rows(self) -> int:
        return 1 if self.full else self.rng.randint(1, 3)

    def _groups(self) -> tuple[tuple[int, ...], ...]:
        rest = list(range(1, self.ep))
        self.rng.shuffle(rest)
        groups: list[list[int]] = [[0]]
        for k in rest:
            if self.rng.random() < 0.5:
                groups.append([k])
            else:
                self.rng.choice(groups).append(k)
        return tuple(tuple(ks) for ks in groups)

    def build(self) -> Schedule:
        self.parts["x"] = []
        self._token_works(self.rng.randint(1, 3))
        if self.ep > 1:
            self._exchange()
            self._token_works(self.rng.randint(0, 2))
        teams = self._teams()
        return self._schedule(teams)

    def _token_works(self, count: int) -> None:
        for _ in range(count):
            self._token_work(self.rng.choice(("add", "relu", "gelu")))

    def _token_work(self, op: str) -> None:
        """An operator on all chunks of one or two earlier buffers."""
        latest = list(self.parts)[-1]
        reads = [latest] if op != "add" else [latest, self.rng.choice(list(self.parts))]
        name = f"t{len(self.buffers)}"
        cols, dtype = self.layer.hidden, self.layer.dtype
        rows = self.layer.max_tokens
        self.buffers.append(Buffer(name, "token", cols, dtype, "workspace", rows))
        base = Base(self._rows())
        made: list[int] = []
        for c in range(self.row_chunks):
            regions = tuple(Region(read, None, c) for read in reads)
            needs = [self.parts[read][c] for read in reads if self.parts[read]]
            made.append(
                self._add(Task(op, regions, (Region(name, None, c),), base), needs)
            )
        self.parts[name] = made

    def _add(self, instr: Task | Put, needs: list[int], unit: str = "aiv") -> int:
        self.works.append(Work(instr, sorted(set(needs)), unit))
        return len(self.works) - 1

    def _exchange(self) -> None:
        """The standard flow on the latest token buffer."""
        source = list(self.parts)[-1]
        base = Base(self._rows(), 16, 16)
        back: list[int] = []
        for e in range(self.layer.local_experts):
            for g in range(len(self.groups)):
                back.append(self._pair(source, e, g, base))
        self.buffers += [
            b for b in standard_buffers(self.layer) if b.name not in ("x", "out")
        ]
        reads = (Region("back"), Region("router"))
        name, rows = "reduced", self.layer.max_tokens
        cols, dtype = self.layer.hidden, self.layer.dtype
        self.buffers.append(Buffer(name, "token", cols, dtype, "workspace", rows))
        self.parts[name] = [
            self._add(Task("reduce", reads, (Region(name, None, c),), Base(1)), back)
            for c in range(self.row_chunks)
        ]

    def _pair(self, source: str, e: int, g: int, base: Base) -> int:
        """One (expert, group) from dispatch to combine; the combine's work."""
        chunks = self.rng.randint(1, 2)
        put = Put("dispatch", e, g, chunks, Region(source), Region("recv", e, g), 0)
        sent = self._add(put, self.parts[source])
        recv, h, a, y = (Region(name, e, g) for name in ("recv", "h", "a", "y"))
        up = Task("gmm", (recv, Region("w_up", e)), (h,), base)
        act = Task("swiglu", (h,), (a,), Base(self._rows()))
        down = Task("gmm", (a, Region("w_down", e)), (y,), base)
        last = self._add(up, [sent], "aic")
        last = self._add(act, [last])
        last = self._add(down, [last], "aic")
        put = replace(put, kind="combine", source=y, dest=Region("back", e, g))
        return self._add(put, [last])

    def _teams(self) -> list[Team]:
        """One or two teams of each kind that is needed; works go to any of them."""
        teams: list[Team] = []
        for unit in ("aic", "aiv"):
            mine = [work for work in self.works if work.unit == unit]
            sizes = [self.rng.randint(1, 3) for _ in range(self.rng.randint(1, 3))]
            firsts = [sum(sizes[:i]) for i in range(len(sizes))]
            made = [Team(unit, a, b) for a, b in zip(firsts, sizes, strict=True)]
            for work in mine:
                work.team = len(teams) + self.rng.randrange(len(made))
            if mine:
                teams += made
        return teams

    def _schedule(self, teams: list[Team]) -> Schedule:
        events = self._events(teams)
        code: list[list[Instr]] = [[] for _ in teams]
        waited: list[set[int]] = [set() for _ in teams]
        for index in self._order():
            work = self.works[index]
            mine = code[work.team]
            for event in sorted({self.works[n].event for n in work.needs}):
                # A wait once passed need not be repeated, and may be.
                if event not in waited[work.team] or self.rng.random() < 0.1:
                    mine.append(Wait(event, events[event].need))
                    waited[work.team].add(event)
            put = isinstance(work.instr, Put)
            mine.append(replace(work.instr, event=work.event) if put else work.instr)
            if not put and work.event >= 0:
                mine.append(Set(work.event))
        if self.ep > 1:
            # Ranks drift apart otherwise: the next launch may meet this one.
            for mine in code:
                mine.append(Barrier("world"))
        return self._whole(teams, code, events)

    def _order(self) -> list[int]:
        """A random topological order."""
        done: list[int] = []
        left = set(range(len(self.works)))
        while left:
            ready = [i for i in sorted(left) if not left & set(self.works[i].needs)]
            done.append(self.rng.choice(ready))
            left.discard(done[-1])
        return done

    def _events(self, teams: list[Team]) -> list[Event]:
        """A counter for each work that somebody needs."""
        needed = {n for work in self.works for n in work.needs}
        events: list[Event] = []
        for index, work in enumerate(self.works):
            if index not in needed:
                continue
            need = teams[work.team].size
            if isinstance(work.instr, Put):
                need = len(self.groups[work.instr.group]) * work.instr.chunks
            work.event = len(events)
            events.append(Event(len(events), f"e{index}", need))
        return events

    def _whole(
        self, teams: list[Team], code: list[list[Instr]], events: list[Event]
    ) -> Schedule:
        read = {r.buffer for w in self.works if isinstance(w.instr, Task)
                for r in w.instr.reads}  # fmt: skip
        read |= {w.instr.source.buffer for w in self.works if isinstance(w.instr, Put)}
        x = Buffer("x", "token", self.layer.hidden, self.layer.dtype, "input",
                   self.layer.max_tokens)  # fmt: skip
        buffers = [x] + [
            replace(b, role="output")
            if b.space == "token" and b.name not in read
            else b
            for b in self.buffers
        ]
        return replace(
            standard_schedule(self.layer, self.groups),
            row_chunks=self.row_chunks,
            buffers=tuple(buffers),
            events=tuple(events),
            queues=tuple(
                Queue(team, tuple(mine)) for team, mine in zip(teams, code, strict=True)
            ),
        )


def random_schedule(seed: int, full: bool = False) -> Schedule:
    """The schedule of a seed."""
    return Builder(Random(seed), full).build()
