"""One execution of all cores of all ranks, with vector clocks and poisoned cells.

Why one execution decides for all of them, for one table of counts:

- Hangs. A wait asks for "at least", counters only rise, a barrier stays full once it is
  full, and a core does one fixed list. So what can run stays able to run whatever else
  runs first, and by the diamond property all maximal executions end in the same state.
- Races. Let every wait's threshold be the number of signals that arrive (`contract`
  refuses all others). Then a wait is passed after *all* signals of its counter, in
  every execution, so the order "happens before" (each core's own list, signal to wait,
  arrival at to departure from a barrier) is the same in all of them, and so are the
  accesses. Two accesses that this order leaves open can be made neighbours, in either
  order, in some execution; two that it orders cannot. Vector clocks compute it.
- Values. Without races each read has one latest write before it in that order.

Two launches run back to back: a rank starts its next launch when its own cores have
ended this one, whatever the others do; the routing may be another one, and counters
count on, so that launch n waits for n times the signals. Then a wait of launch n must
come before every signal of launch n + 1 to its counter, or it may count the wrong ones.

Relaxed: a put is a small core of its own, that starts when it is issued. Only its own
signal and a barrier of the world wait for its end; what its core does later does not.

With a threshold below the number of signals the first point holds, the second does not:
which signals opened the gate depends on the order. `search` looks at all orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hpc.schedule.model import Barrier, Instr, Put, Queue, Schedule, Set, Task, Wait
from tests.safety.tiles import POISON, Move, Tile, Tiles

Clock = list[int]
CoreId = tuple[int, int, int]
"""(rank, queue, core of its team)."""


@dataclass
class Outcome:
    """What went wrong in an execution; all empty if nothing did.

    `unread` are token cells that were written for nobody: a token that chooses no
    expert has some. Those that are there for every table are a fault (see `oracle`).
    `arrived[rank][event]` counts signals; `outputs[rank]` are the values at the end.
    """

    hang: str = ""
    races: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)
    unread: set[int] = field(default_factory=set)
    arrived: list[dict[int, int]] = field(default_factory=list)
    outputs: list[list[int]] = field(default_factory=list)


@dataclass
class _Signals:
    """A counter: how many signals, their joined clock, and when each was sent; which
    waits of each launch were passed, and when."""

    clock: Clock
    count: int = 0
    sent: list[tuple[int, int]] = field(default_factory=list)
    launches: list[int] = field(default_factory=list)
    passed: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Write:
    """The latest write of a cell, and whether anybody has read it since."""

    core: int
    when: int
    launch: int
    put: bool
    read: bool = False


Action = tuple[Instr, tuple[Tile, ...]]
"""An instruction and the tiles of it that are a core's own."""

END = "launch"
"""Scope of the place between two launches, where a rank's own cores meet."""


def core_actions(
    queue: Queue, rank: int, tiles: Tiles, size: int
) -> list[list[Action]]:
    """The list of each core of a team: tile t is core (offset + t) mod size's."""
    lists: list[list[Action]] = [[] for _ in range(size)]
    offset = 0
    for instr in queue.code:
        mine: Sequence[Tile] = ()
        if isinstance(instr, Put | Task):
            mine = tiles.of(instr, rank)
        for core in range(size):
            owned = mine[(core - offset) % size :: size] if mine else ()
            lists[core].append((instr, tuple(owned)))
        offset += len(mine)
    return lists


class Execution:
    """Runs `programs[rank]` on every rank, once for each table in `tables`;
    `tables[launch][rank]` are its tiles."""

    def __init__(
        self,
        programs: Sequence[Schedule],
        tables: Sequence[Sequence[Tiles]],
        relaxed: bool = False,
    ) -> None:
        self.programs, self.relaxed = programs, relaxed
        self.cores: list[CoreId] = []
        self.code: list[list[Action]] = []
        for rank, s in enumerate(programs):
            for q, queue in enumerate(s.queues):
                self._add_team(rank, q, queue, tables)
        n = len(self.cores)
        self.size = n + (self._count_puts() if relaxed else 0)
        self.clock = [[0] * self.size for _ in self.cores]
        self.flying: list[int] = []
        """Puts without a signal, relaxed, since the last barrier of the world."""
        for core in range(n):
            self.clock[core][core] = 1
        self.pc = [0] * n
        self.launch = [1] * n
        self.signals: dict[tuple[int, int], _Signals] = {}
        self.waiting: dict[tuple[int, int], list[int]] = {}
        self.gathered: dict[tuple[str, int], list[int]] = {}
        self.last = tables[-1]
        self.cells = tables[0][0]
        self.given = [tiles[0].initial for tiles in tables]
        """What each launch finds: saved tensors are those of its own routing."""
        self.value = [POISON] * len(self.cells.initial)
        self.writes: list[_Write | None] = [None] * len(self.value)
        self.readers: list[dict[int, int]] = [{} for _ in self.value]
        self.used = bytearray(len(self.value))
        self.outcome = Outcome()
        self.reported: set[tuple[str, int, int]] = set()

    def _add_team(
        self, rank: int, q: int, queue: Queue, tables: Sequence[Sequence[Tiles]]
    ) -> None:
        size = queue.team.size
        lists: list[list[Action]] = [[] for _ in range(size)]
        for launch, tiles in enumerate(tables):
            more = core_actions(queue, rank, tiles[rank], size)
            for mine, actions in zip(lists, more, strict=True):
                mine += [(Barrier(END), ()), *actions] if launch else actions
        self.code += lists
        self.cores += [(rank, q, core) for core in range(size)]

    def _count_puts(self) -> int:
        return sum(
            len(tiles)
            for actions in self.code
            for instr, tiles in actions
            if isinstance(instr, Put)
        )

    def run(self) -> Outcome:
        """To the end, or until no core can go on."""
        self.ready = list(range(len(self.cores)))[::-1]
        while self.ready:
            core = self.ready.pop()
            while self._step(core):
                pass
        if any(pc < len(c) for pc, c in zip(self.pc, self.code, strict=False)):
            self.outcome.hang = self._who_waits()
        else:
            self._finish()
        self.outcome.arrived = [{} for _ in self.programs]
        for (rank, event), got in self.signals.items():
            self.outcome.arrived[rank][event] = got.count
        return self.outcome

    def _step(self, core: int) -> bool:
        """One instruction of a core; False if it is blocked, gathered or done."""
        code = self.code[core]
        if self.pc[core] == len(code):
            return False
        instr, tiles = code[self.pc[core]]
        rank = self.cores[core][0]
        if isinstance(instr, Wait):
            if not self._pass(core, rank, instr):
                return False
        elif isinstance(instr, Set):
            self._signal(core, rank, instr.event)
        elif isinstance(instr, Barrier):
            self._arrive(core, rank, instr.scope)
            return False
        else:
            self._work(core, instr, tiles)
        self.pc[core] += 1
        return True

    def _pass(self, core: int, rank: int, wait: Wait) -> bool:
        got = self.signals.get((rank, wait.event))
        launch = self.launch[core]
        if (got.count if got else 0) < wait.need * launch:
            self.waiting.setdefault((rank, wait.event), []).append(core)
            return False
        if got:
            clock = self.clock[core]
            _join(clock, got.clock)
            if any(other > launch for other in got.launches):
                self._mixed(core, rank, wait.event)
            got.passed.append((core, clock[core], launch))
            clock[core] += 1
        return True

    def _signal(self, core: int, rank: int, event: int, put: int = -1) -> None:
        """One signal of a core; with what `put`, its own number, has done if any."""
        clock, launch = self.clock[core], self.launch[core]
        got = self.signals.get((rank, event))
        if got is None:
            got = self.signals[rank, event] = _Signals([0] * self.size)
        if launch > 1 and any(
            clock[waiter] < when for waiter, when, old in got.passed if old < launch
        ):
            self._mixed(core, rank, event)
        _join(got.clock, clock)
        got.count += 1
        got.sent.append((core, clock[core]))
        if put >= 0:
            _join(got.clock, self.clock[put])
            got.sent.append((put, 1))
        got.launches.append(launch)
        clock[core] += 1
        self.ready += self.waiting.pop((rank, event), ())

    def _mixed(self, core: int, rank: int, event: int) -> None:
        self.outcome.mixed.append(
            f"counter {event} of rank {rank}: a signal of the next launch may be "
            f"counted for this one, {self._name(core)}"
        )

    def _arrive(self, core: int, rank: int, scope: str) -> None:
        key = (scope, 0 if scope == "world" else rank)
        here = self.gathered.setdefault(key, [])
        here.append(core)
        cores = self.cores[: len(self.code)]
        need = sum(scope == "world" or r == rank for r, _, _ in cores)
        if len(here) < need:
            return
        del self.gathered[key]
        joined = [max(column) for column in zip(*(self.clock[c] for c in here))]  # noqa: B905
        if scope == "world":
            for put in self.flying:
                joined[put] = 1
            self.flying = []
        for each in here:
            self.clock[each] = list(joined)
            self.clock[each][each] += 1
            self.pc[each] += 1
            self.launch[each] += scope == END
        self.ready += here

    def _work(self, core: int, instr: Put | Task, tiles: tuple[Tile, ...]) -> None:
        put = isinstance(instr, Put)
        for tile in tiles:
            # All is read before any is written, as through a core's own buffer.
            moved = self._computed(core, tile.moves)
            kept = self._computed(core, tile.kept)
            writer = self._take_off(core) if put and self.relaxed else core
            self._store(writer, tile.moves, moved, put)
            self._store(core, tile.kept, kept, False)
            if tile.target >= 0:
                assert isinstance(instr, Put)
                assert instr.event is not None
                number = writer if writer != core else -1
                self._signal(core, tile.target, instr.event, number)
            elif writer != core:
                self.flying.append(writer)

    def _take_off(self, core: int) -> int:
        """A put in flight: a core that knows what its core knew, and goes its way."""
        number = len(self.clock)
        self.clock.append(list(self.clock[core]))
        self.clock[number][number] = 1
        self.launch.append(self.launch[core])
        self.cores.append(self.cores[core])
        self.pc.append(self.pc[core])
        return number

    def _computed(self, core: int, moves: Sequence[Move]) -> list[int]:
        given = self.given[self.launch[core] - 1]
        made: list[int] = []
        for move in moves:
            values = [move.tag]
            for cell in move.sources:
                self._read(core, cell, given[cell])
                values.append(given[cell] or self.value[cell])
            poisoned = POISON in values[1:]
            made.append(POISON if poisoned else hash(tuple(values)) | 1)
        return made

    def _store(
        self, core: int, moves: Sequence[Move], made: Sequence[int], put: bool
    ) -> None:
        for move, value in zip(moves, made, strict=True):
            self._write(core, move.dest, put)
            self.value[move.dest] = value

    def _read(self, core: int, cell: int, given: int) -> None:
        write, clock = self.writes[cell], self.clock[core]
        if write is None:
            if given == POISON:
                self._wrong(core, "reads unwritten", cell)
        elif clock[write.core] < write.when:
            self._race("read", "the write of it", core, write.core, cell)
        elif write.launch != self.launch[core]:
            self._wrong(core, "reads what an earlier launch wrote to", cell)
        else:
            write.read = True
            self.used[cell] = 1
        self.readers[cell][core] = clock[core]

    def _write(self, core: int, cell: int, put: bool) -> None:
        clock, launch = self.clock[core], self.launch[core]
        for reader, at in self.readers[cell].items():
            if clock[reader] < at:
                self._race("write", "a read", core, reader, cell)
        self.readers[cell] = {}
        old = self.writes[cell]
        self.writes[cell] = _Write(core, clock[core], launch, put)
        if old is None:
            return
        if clock[old.core] < old.when:
            self._race("write", "a write", core, old.core, cell)
        elif old.launch == launch:
            # Memory may be used again, but an exchange or an output brings a row once.
            if put or old.put or self.cells.is_output[cell]:
                self._wrong(core, "writes again", cell)
            elif not old.read:
                self._unread(old.core, cell)

    def _unread(self, core: int, cell: int) -> None:
        """A value that nobody has read. Token rows may be meant for no expert."""
        if self.cells.space[cell] == "token":
            self.outcome.unread.add(cell)
        else:
            self._wrong(core, "writes what nobody reads,", cell)

    def _wrong(self, core: int, what: str, cell: int) -> None:
        self.outcome.wrong.append(f"{self._name(core)} {what} cell {cell}")

    def _race(self, what: str, other: str, a: int, b: int, cell: int) -> None:
        if (what, a, b) in self.reported:
            return
        self.reported.add((what, a, b))
        self.outcome.races.append(
            f"{what} by {self._name(a)} is not ordered against {other} "
            f"by {self._name(b)}, cell {cell} of rank {self.cells.owner[cell]}"
        )

    def _finish(self) -> None:
        """What reaches a rank must be there when its last core ends."""
        ends: list[Clock] = [[0] * self.size for _ in self.programs]
        for core, (rank, _, _) in enumerate(self.cores[: len(self.code)]):
            _join(ends[rank], self.clock[core])
        for cell, write in enumerate(self.writes):
            rank = self.cells.owner[cell]
            if write is None:
                continue
            if ends[rank][write.core] < write.when:
                self.outcome.late.append(
                    f"rank {rank} may end before {self._name(write.core)} writes to it"
                )
            elif not self.used[cell] and not self.cells.is_output[cell]:
                self._unread(write.core, cell)
        for (rank, event), got in self.signals.items():
            if any(ends[rank][core] < when for core, when in got.sent):
                self.outcome.late.append(
                    f"rank {rank} may end before its counter {event} is complete"
                )
        for rank, tiles in enumerate(self.last):
            values = [self.value[cell] for cell in tiles.outputs(rank)]
            self.outcome.outputs.append(values)
            if POISON in values:
                self.outcome.wrong.append(f"output rows of rank {rank} not computed")

    def _name(self, core: int) -> str:
        rank, q, number = self.cores[core]
        return f"rank {rank} queue {q} core {number} at {self.pc[core]}"

    def _who_waits(self) -> str:
        stuck = [c for c, code in enumerate(self.code) if self.pc[c] < len(code)]
        return "; ".join(self._name(core) for core in stuck)


def _join(into: Clock, other: Clock) -> None:
    for i, t in enumerate(other):
        if t > into[i]:
            into[i] = t
