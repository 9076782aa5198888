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
from typing import NamedTuple

from hpc.schedule.checks.accesses import Access, Ordered, accesses
from hpc.schedule.checks.advice import rank_list, who
from hpc.schedule.checks.clocks import Clock, Clocks
from hpc.schedule.checks.index import Index, Place, Violation
from hpc.schedule.checks.offsets import Steps, reached
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
    last = _LastLaunch(index, clocks, relaxed)
    for place, instr in index.places():
        if isinstance(instr, Put):
            view = last.view(place, instr)
            if view.started & view.targets != view.targets:
                found += _overwritten(index, last, view, place, instr)
                found += _signalled(index, last, view, place, instr)
    return found


class _View(NamedTuple):
    """Ranks that a put writes to, and those known to have begun its own launch."""

    targets: int
    started: int


class _LastLaunch:
    """What a put knows of the launch before its own.

    That depends on its `_View` only, of which a program has few; so what is still open
    is looked up once for each buffer and view, not for each put.
    """

    def __init__(self, index: Index, clocks: Clocks, relaxed: bool) -> None:
        self.index = index
        self.clocks = clocks
        self.relaxed = relaxed
        self.ordered = Ordered(clocks, relaxed)
        self._ends: dict[int, Clock] = {}
        self._open: dict[tuple[str, _View], list[Place]] = {}
        self._by_buffer = _by_buffer(index)

    def view(self, at: Place, put: Put) -> _View:
        return _View(self.ordered.targets(put), self.clocks.before(at).started)

    def open(self, buffer: str, view: _View) -> list[Place]:
        """Accesses of a buffer, of all its parts, that may not be over there."""
        key = (buffer, view)
        if key not in self._open:
            self._open[key] = [
                access.place
                for access in self._by_buffer[buffer]
                if not self._is_over(access, view)
            ]
        return self._open[key]

    def over(self, place: Place, view: _View) -> bool:
        """All ranks that the put writes to are past `place` of the last launch."""
        return self._all(self._end(view).done, place, view.targets, view)

    def _is_over(self, access: Access, view: _View) -> bool:
        if access.how != "land":
            return self.over(access.place, view)
        assert isinstance(access.instr, Put)
        if self.ordered.fenced_at_end(access.place):
            return True
        event, end = access.instr.event, self._end(view)
        waits = [] if event is None else self.index.waits.get(event, [])
        if any(self._all(end.begun, wait, view.targets, view) for wait in waits):
            return True
        if self.relaxed:
            return False
        # The senders are past it: what a core has put is there for what comes later.
        senders = self.clocks.senders(access.instr)
        ranks = self.clocks.offsets.sum(view.targets, senders)
        return self._all(end.done, access.place, ranks, view)

    def _all(
        self, known: tuple[Steps, ...], place: Place, ranks: int, view: _View
    ) -> bool:
        """All of `ranks` are past `place`, or in the next launch altogether."""
        mask = reached(known[place[0]], place[1] + 1) | view.started
        return mask & ranks == ranks

    def _end(self, view: _View) -> Clock:
        """What the ranks that have started knew when they ended the last launch."""
        started = view.started
        if started not in self._ends:
            end = self.clocks.end
            self._ends[started] = end.shift(self.clocks.offsets, started)
        return self._ends[started]


def _by_buffer(index: Index) -> dict[str, list[Access]]:
    """Accesses of each buffer, one for each instruction and way."""
    found: dict[str, dict[tuple[Place, str], Access]] = {}
    for (buffer, _, _), touching in accesses(index).items():
        for access in touching:
            found.setdefault(buffer, {})[access.place, access.how] = access
    return {buffer: list(each.values()) for buffer, each in found.items()}


def _overwritten(
    index: Index, last: _LastLaunch, view: _View, at: Place, put: Put
) -> Iterator[Violation]:
    places = last.open(put.dest.buffer, view)
    if not places:
        return
    message = (
        f"{who(at)} of the next launch may overwrite {put.dest.buffer} on "
        f"{_targets(index, put)} while that rank is still in this launch"
    )
    lines = [f"next launch, on rank me: {index.text(at)}"]
    lines += [f"this launch, there: {index.text(place)}" for place in places[:_SHOWN]]
    if len(places) > _SHOWN:
        lines.append(f"and {len(places) - _SHOWN} more")
    lines.append(f"missing: {_missing(put)}")
    yield index.violation(CHECK, "relaunch-race", message, at, witness=tuple(lines))


def _signalled(
    index: Index, last: _LastLaunch, view: _View, at: Place, put: Put
) -> Iterator[Violation]:
    if put.event is None:
        return
    waits = [
        place for place in index.waits.get(put.event, []) if not last.over(place, view)
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
