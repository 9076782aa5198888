"""What every instruction can rely on: happens-before, for all ranks at once.

All ranks run one program and name each other relatively, so one rank's view stands for
all. A core that comes to an instruction knows a `Clock`: how far each queue of each
rank me + d is at least, whatever the durations, the order of signals and the routing.
This is the transitive closure of

- the order of the list on one core. It is *not* an order between cores of a team,
  which share the tiles of every task: instruction i of a queue is done for a later one
  only if the queue waited for all its cores (or has one core);
- `Set` to `Wait` on a rank: the threshold counts every signal of the launch, so behind
  the wait all cores of all setters are past their set, and so is all they knew;
- a put's signal to the `Wait` on the rank it goes to: the tile's data is there, and the
  sending core knew what it knew in front of the put. The cores of its team that sent
  nothing to that rank may be anywhere; with at least as many chunks as cores every
  core has sent something (tiles go round the team);
- barriers: all queues of the rank, or of all ranks.

Waits join all signals whatever number they state: a wrong threshold is reported as
such, and should not hide or cause other violations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpc.schedule.checks.index import Index, Place
from hpc.schedule.checks.offsets import NOTHING, Offsets, Steps, joined, reached, steps
from hpc.schedule.model import Barrier, Put, Set, Wait


@dataclass(frozen=True, slots=True)
class Clock:
    """Knowledge of one core, by queue: `done` on all its cores, `begun` on at least
    one; `started` masks the ranks known to have begun this launch."""

    done: tuple[Steps, ...]
    begun: tuple[Steps, ...]
    started: int

    def join(self, other: Clock) -> Clock:
        if other is self:
            return self
        return Clock(
            tuple(map(joined, self.done, other.done)),
            tuple(map(joined, self.begun, other.begun)),
            self.started | other.started,
        )

    def shift(self, offsets: Offsets, by: int) -> Clock:
        """What the ranks me + s, s in `by`, know, in terms of me."""
        return Clock(
            tuple(offsets.shifted(known, by) for known in self.done),
            tuple(offsets.shifted(known, by) for known in self.begun),
            offsets.sum(self.started, by),
        )

    def at(self, queue: int, count: int, mask: int, all_cores: bool) -> Clock:
        """With `count` instructions of `queue` passed on the ranks of `mask`."""
        here = steps(count, mask)
        done = list(self.done)
        begun = list(self.begun)
        begun[queue] = joined(begun[queue], here)
        if all_cores:
            done[queue] = joined(done[queue], here)
        return Clock(tuple(done), tuple(begun), self.started | mask)


def senders(offsets: Offsets, groups: Sequence[tuple[int, ...]], put: Put) -> int:
    """Mask of the ranks whose put writes to me."""
    return offsets.of(groups[put.group], -1 if put.kind == "dispatch" else 1)


class Clocks:
    """The clock in front of every instruction, and at the end of a rank's launch.

    `stuck` is true if some queue never ends, or barriers do not meet; then there are
    no clocks. Work is linear in instructions; ranks matter only as bits of masks.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self.queues = index.s.queues
        self.offsets = Offsets(index.s.layer.ep)
        count = len(self.queues)
        nothing = Clock((NOTHING,) * count, (NOTHING,) * count, 1)
        self._now = [nothing] * count
        self._pc = [0] * count
        self._before: list[list[Clock]] = [[] for _ in range(count)]
        self._full: dict[int, Clock] = {}
        self._missing = {e: len(places) for e, places in index.producers.items()}
        self._asleep: dict[int, list[int]] = {}
        self._ready = list(range(count))[::-1]
        self._met: list[int] = []
        while self._ready:
            self._advance(self._ready.pop())
        lengths = [len(queue.code) for queue in self.queues]
        self.stuck = self._pc != lengths
        self.end = nothing
        if not self.stuck:
            for q, length in enumerate(lengths):
                self.end = self.end.join(self._now[q]).at(q, length, 1, True)

    def before(self, place: Place) -> Clock:
        """What every core knows when it comes to an instruction, but for its place."""
        return self._before[place[0]][place[1]]

    def done(self, at: Place, place: Place) -> int:
        """Mask of the ranks where all cores are past `place`, seen from `at`."""
        q, i = place
        mask = reached(self.before(at).done[q], i + 1)
        if q == at[0] and i < at[1] and self.queues[q].team.size == 1:
            mask |= 1
        return mask

    def begun(self, at: Place, place: Place) -> int:
        """Mask of the ranks where at least one core is past `place`."""
        q, i = place
        mask = reached(self.before(at).begun[q], i + 1)
        return mask | 1 if q == at[0] and i < at[1] else mask

    def senders(self, put: Put) -> int:
        return senders(self.offsets, self.index.s.groups, put)

    def _advance(self, q: int) -> None:
        """Runs one queue until it has to wait, or ends."""
        code, before = self.queues[q].code, self._before[q]
        while self._pc[q] < len(code):
            i = self._pc[q]
            instr = code[i]
            if len(before) == i:
                before.append(self._now[q])
            if isinstance(instr, Barrier):
                self._arrive(q)
                return
            if isinstance(instr, Wait):
                if self._missing.get(instr.event, 1):
                    self._asleep.setdefault(instr.event, []).append(q)
                    return
                self._now[q] = self._now[q].join(self._full[instr.event])
            elif isinstance(instr, Set):
                self._signal(instr.event, self._now[q].at(q, i + 1, 1, True))
            elif isinstance(instr, Put) and instr.event is not None:
                self._signal(instr.event, self._sent(q, i, instr))
            self._pc[q] += 1

    def _sent(self, q: int, i: int, put: Put) -> Clock:
        """What the signals of a put tell the rank that they go to."""
        every_core = put.chunks >= self.queues[q].team.size
        known = self._now[q].at(q, i, 1, every_core)
        return known.shift(self.offsets, self.senders(put))

    def _signal(self, event: int, clock: Clock) -> None:
        known = self._full.get(event)
        self._full[event] = clock if known is None else known.join(clock)
        self._missing[event] -= 1
        if not self._missing[event]:
            self._ready += self._asleep.pop(event, ())

    def _arrive(self, q: int) -> None:
        """Holds a queue at a barrier; the last one frees all."""
        self._met.append(q)
        if len(self._met) < len(self.queues):
            return
        barriers = [self.queues[mate].code[self._pc[mate]] for mate in self._met]
        scopes = {b.scope for b in barriers if isinstance(b, Barrier)}
        if len(scopes) > 1:
            return
        mask = self.offsets.full if "world" in scopes else 1
        known = self._now[q]
        for mate in self._met:
            known = known.join(self._now[mate]).at(mate, self._pc[mate] + 1, mask, True)
        for mate in self._met:
            self._now[mate] = known
            self._pc[mate] += 1
        self._ready += self._met
        self._met = []
