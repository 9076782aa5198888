"""A rank may start the next launch while other ranks are still in this one.

A rank starts launch n + 1 when all its own cores have ended launch n; nothing else
holds it back. Its buffers and counters are those of launch n. Counters count on: in
launch n a wait asks for n times its threshold, so nobody resets a counter that another
rank may be signalling. Before the first launch all counters are zero on all ranks.

Whatever a rank does to itself is ordered by the end of its own launch. So only puts of
launch n + 1 matter. The next launch may have another routing: where the rows of a part
lie is a prefix sum over other counts then, and a put may land in rows that were those
of any other part. Hence one that lands on rank o must come after *every* access of
launch n there to the buffer, local ones and puts, and its signal after every wait of
launch n on that counter, which else might take it for one of its own. A put knows of
launch n what the ranks known to have begun launch n + 1 knew when they ended launch n.

That two launches are enough: the put of launch n + 2 comes after the same put of launch
n + 1 on the same rank. That data and signals of launch n do not arrive in launch n + 1
is `put-unfinished` and the rule that every event is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpc.schedule.checks.accesses import Access, Ordered, accesses
from hpc.schedule.checks.advice import rank_list, who
from hpc.schedule.checks.clocks import Clock, Clocks
from hpc.schedule.checks.index import Index, Place, Violation
from hpc.schedule.checks.offsets import reached
from hpc.schedule.model import Put

CHECK = "relaunch"
RULES = {
    "relaunch-race": "A put of the next launch does not meet an access of this one.",
    "relaunch-signal": "A signal of the next launch does not meet a wait of this one.",
}

_SHOWN = 6
"""Accesses that a witness lists; the rest is counted."""


def check_relaunch(
    index: Index, clocks: Clocks, relaxed: bool = False
) -> list[Violation]:
    """All ways in which a launch can run into the one before; one violation a put."""
    found: list[Violation] = []
    last = _LastLaunch(clocks, relaxed)
    by_buffer = _by_buffer(index)
    for place, instr in index.places():
        if isinstance(instr, Put) and not last.over_everywhere(place, instr):
            touching = by_buffer[instr.dest.buffer]
            found += _overwritten(index, last, touching, place, instr)
            found += _signalled(index, last, place, instr)
    return found


def _by_buffer(index: Index) -> dict[str, list[Access]]:
    """Accesses of each buffer, one for each instruction and way."""
    found: dict[str, dict[tuple[Place, str], Access]] = {}
    for (buffer, _, _), touching in accesses(index).items():
        for access in touching:
            found.setdefault(buffer, {})[access.place, access.how] = access
    return {buffer: list(each.values()) for buffer, each in found.items()}


class _LastLaunch:
    """What a put knows of the launch before its own."""

    def __init__(self, clocks: Clocks, relaxed: bool) -> None:
        self.clocks = clocks
        self.ordered = Ordered(clocks, relaxed)
        self._ends: dict[int, Clock] = {}

    def over_everywhere(self, at: Place, put: Put) -> bool:
        """All ranks that the put writes to have ended the last launch."""
        targets = self.ordered.targets(put)
        return self.clocks.before(at).started & targets == targets

    def over(self, at: Place, put: Put, place: Place) -> bool:
        """All ranks that the put writes to are past `place` of the last launch."""
        targets = self.ordered.targets(put)
        started = self.clocks.before(at).started
        done = reached(self._end(started).done[place[0]], place[1] + 1)
        return (done | started) & targets == targets

    def landed(self, at: Place, put: Put, place: Place) -> bool:
        """All that `place` put in the last launch to where this put goes is there, by
        a barrier, or by a wait that is over there."""
        if self.ordered.fenced_at_end(place):
            return True
        instr = self.clocks.index.instr(place)
        event = instr.event if isinstance(instr, Put) else None
        waits = [] if event is None else self.clocks.index.waits.get(event, [])
        return any(self._passed(at, put, wait) for wait in waits)

    def _passed(self, at: Place, put: Put, wait: Place) -> bool:
        targets = self.ordered.targets(put)
        started = self.clocks.before(at).started
        begun = reached(self._end(started).begun[wait[0]], wait[1] + 1)
        return (begun | started) & targets == targets

    def _end(self, started: int) -> Clock:
        """What the ranks of `started` knew when they ended the last launch."""
        if started not in self._ends:
            end = self.clocks.end
            self._ends[started] = end.shift(self.clocks.offsets, started)
        return self._ends[started]


def _overwritten(
    index: Index,
    last: _LastLaunch,
    touching: list[Access],
    at: Place,
    put: Put,
) -> Iterator[Violation]:
    """`touching` are the accesses of the put's destination, of all parts."""
    open_ = [access.place for access in touching if not _is_over(last, access, at, put)]
    if not open_:
        return
    message = (
        f"{who(at)} of the next launch may overwrite {put.dest.buffer} on "
        f"{_targets(index, put)} while that rank is still in this launch"
    )
    lines = [f"next launch, on rank me: {index.text(at)}"]
    lines += [f"this launch, there: {index.text(place)}" for place in open_[:_SHOWN]]
    if len(open_) > _SHOWN:
        lines.append(f"and {len(open_) - _SHOWN} more")
    lines.append(f"missing: {_missing(put)}")
    yield index.violation(CHECK, "relaunch-race", message, at, witness=tuple(lines))


def _is_over(last: _LastLaunch, access: Access, at: Place, put: Put) -> bool:
    """Whether an access of the last launch is over before `put` of this one."""
    if access.how == "land":
        return last.landed(at, put, access.place)
    return last.over(at, put, access.place)


def _signalled(
    index: Index, last: _LastLaunch, at: Place, put: Put
) -> Iterator[Violation]:
    if put.event is None:
        return
    waits = [
        place
        for place in index.waits.get(put.event, [])
        if not last.over(at, put, place)
    ]
    if not waits:
        return
    message = (
        f"{who(at)} of the next launch may signal {index.event_text(put.event)} on "
        f"{_targets(index, put)} while that rank still waits for it in this launch"
    )
    lines = [f"next launch, on rank me: {index.text(at)}"]
    lines += [f"this launch, there: {index.text(place)}" for place in waits]
    lines.append(f"missing: {_missing(put)}")
    yield index.violation(CHECK, "relaunch-signal", message, at, witness=tuple(lines))


def _targets(index: Index, put: Put) -> str:
    sign = "+" if put.kind == "dispatch" else "-"
    ks = tuple(k for k in index.s.groups[put.group] if k)
    return f"rank {rank_list(sign, ks)}"


def _missing(put: Put) -> str:
    back = "combine" if put.kind == "dispatch" else "dispatch"
    return (
        f"a signal back ({back} or world barrier) that this rank waits for before its "
        "launch ends"
    )
