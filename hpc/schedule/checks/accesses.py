"""Who reads and writes each part of each buffer, and which access is over before which.

Parts are symbolic: in a routed buffer, part [e, g] holds the rows of local expert e
from the sources of group g, one range for each source, in the order that
`hpc.schedule.model` states. Every range begins at an exclusive prefix sum over the
counts of all ranges in front of it, and the sender computes the same sums as the
receiver, so ranges of two (expert, group, source) never meet *whatever the counts*. In
a slot buffer, a part is a set of slots by where they were sent, and a slot is sent to
one place. Token parts are cut by the token count. Hence accesses of different parts, of
puts from different ranks, and of different chunks of one put never conflict, and no
statement here depends on a routing table.

Within a part, nothing is assumed about which core touches which rows: tiles of a task
go to cores by a running count of tiles, which depends on the routing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpc.schedule.checks.clocks import Clocks
from hpc.schedule.checks.index import Index, Place, reads_of, writes_of
from hpc.schedule.checks.offsets import reached
from hpc.schedule.checks.shares import in_place, same_cores
from hpc.schedule.model import Barrier, Instr, Put, Region

Part = tuple[str, int, int]
"""(buffer, expert, part) as in the part tables of `Index`."""


@dataclass(frozen=True, slots=True)
class Access:
    """An instruction touches a part: on its own rank, or on others ("land").

    `region` is what it names; the part is in it.
    """

    place: Place
    instr: Instr
    how: Literal["read", "write", "land"]
    region: Region

    @property
    def writes(self) -> bool:
        return self.how != "read"


def accesses(index: Index) -> dict[Part, list[Access]]:
    """Accesses of every part that is written at all."""
    found: dict[Part, list[Access]] = {}
    written = {
        region.buffer for _, instr in index.places() for region in writes_of(instr)
    }
    for place, instr in index.places():
        for region in dict.fromkeys(reads_of(instr)):
            if region.buffer in written:
                _add(index, found, region, Access(place, instr, "read", region))
        for region in dict.fromkeys(writes_of(instr)):
            how = "land" if _lands(instr, region) else "write"
            _add(index, found, region, Access(place, instr, how, region))
    return found


def _lands(instr: Instr, region: Region) -> bool:
    """Whether a written region lies on other ranks; the dot product of a put does
    not."""
    return isinstance(instr, Put) and region == instr.dest


def _add(
    index: Index, found: dict[Part, list[Access]], region: Region, access: Access
) -> None:
    experts, parts = index.part_range(region)
    for e in experts:
        for p in parts:
            found.setdefault((region.buffer, e, p), []).append(access)


class Ordered:
    """Is one access of a part over, on its rank, before another one begins?

    Strict: what a core has put is there for everything the core does after it. Relaxed:
    only the put's own signal, or a world barrier, tells that it is there; a later
    signal or flag of the same core may overtake it.
    """

    def __init__(self, clocks: Clocks, relaxed: bool = False) -> None:
        self.clocks = clocks
        self.relaxed = relaxed
        index = clocks.index
        self._first_wait: dict[int, dict[int, int]] = {}
        for event, places in index.waits.items():
            first = self._first_wait.setdefault(event, {})
            for q, i in places:
                first[q] = min(i, first.get(q, i))
        self._fences = [_fences(queue.code) for queue in index.s.queues]

    def over(self, a: Access, b: Access) -> bool:
        """`a` before `b`, for all ranks and all their tiles that share rows."""
        if a.how == "land" and b.how != "land":
            return self.landed(b.place, a.place)
        done = self.clocks.done(b.place, a.place)
        if b.how != "land":
            return bool(done & 1) or self._by_core(a, b) or self._delivered(a, b, 1)
        assert isinstance(b.instr, Put)
        if a.how == "land":
            return self._rewritten(done, a, b)
        target = self.targets(b.instr)
        return (
            done & target == target
            or (self.answers(a, b) and self.landed(b.place, a.place))
            or self._delivered(a, b, target)
        )

    def _by_core(self, a: Access, b: Access) -> bool:
        """The order of a core's own list will do, because rows stay on their core."""
        if a.place == b.place:
            reads_first = a.how == "read" and b.how == "write"
            return reads_first and in_place(a.instr, a.region)
        return same_cores(self.clocks.index, a.place, b.place)

    def _delivered(self, a: Access, b: Access, ranks: int) -> bool:
        """What put `a` of `ranks` reads has arrived everywhere, and `b` knows."""
        if not isinstance(a.instr, Put) or a.how != "read" or a.instr.event is None:
            return False
        if a.region != a.instr.source:
            return False
        there = self.clocks.offsets.sum(ranks, self.targets(a.instr))
        return any(
            self.clocks.begun(b.place, wait) & there == there
            for wait in self.clocks.index.waits.get(a.instr.event, ())
        )

    def targets(self, put: Put) -> int:
        """Mask of the ranks that a put writes to."""
        return self.clocks.offsets.negated(self.clocks.senders(put))

    def landed(self, at: Place, put: Place) -> bool:
        """All data of a put *to this rank* is there, for whoever comes to `at`."""
        event = self._event(put)
        for q, i in (
            self._first_wait.get(event, {}).items() if event is not None else ()
        ):
            if self.clocks.begun(at, (q, i)) & 1:
                return True
        if self._fences[put[0]][put[1]] < self._fences[at[0]][at[1]]:
            return True
        if self.relaxed:
            return False
        sources = self.clocks.senders(self._put(put))
        return self.clocks.done(at, put) & sources == sources

    def landed_at_end(self, put: Place) -> bool:
        """All data of a put to a rank is there when that rank's launch ends."""
        event = self._event(put)
        if event is not None and event in self._first_wait:
            return True
        if self.fenced_at_end(put):
            return True
        if self.relaxed:
            return False
        sources = self.clocks.senders(self._put(put))
        return reached(self.clocks.end.done[put[0]], put[1] + 1) & sources == sources

    def fenced_at_end(self, put: Place) -> bool:
        """A world barrier follows the put."""
        return self._fences[put[0]][put[1]] < self._fences[put[0]][-1]

    def answers(self, a: Access, b: Access) -> bool:
        """A combine reads just what a dispatch of the same (expert, group) wrote, rank
        by rank, and takes it to the rank that the dispatch came from."""
        return (
            isinstance(a.instr, Put)
            and isinstance(b.instr, Put)
            and (a.instr.kind, b.instr.kind) == ("combine", "dispatch")
            and (a.instr.expert, a.instr.group) == (b.instr.expert, b.instr.group)
        )

    def _rewritten(self, done: int, a: Access, b: Access) -> bool:
        """Two puts into one part: rows of one source come from the same rank."""
        assert isinstance(a.instr, Put)
        assert isinstance(b.instr, Put)
        if self._fences[a.place[0]][a.place[1]] < self._fences[b.place[0]][b.place[1]]:
            return True
        return a.instr.kind == b.instr.kind and not self.relaxed and bool(done & 1)

    def _put(self, place: Place) -> Put:
        instr = self.clocks.index.instr(place)
        assert isinstance(instr, Put)
        return instr

    def _event(self, place: Place) -> int | None:
        return self._put(place).event


def _fences(code: tuple[Instr, ...]) -> list[int]:
    """World barriers in front of each instruction, and in all."""
    counts = [0]
    for instr in code:
        world = isinstance(instr, Barrier) and instr.scope == "world"
        counts.append(counts[-1] + world)
    return counts
