"""Words for an ordering that is missing: who, on which ranks, what would give it."""

from __future__ import annotations

from hpc.schedule.checks.accesses import Access, Ordered
from hpc.schedule.checks.index import Index, Place
from hpc.schedule.model import Barrier, Put, Set, Task, Wait


def who(place: Place) -> str:
    """`queue 1 instruction 5`."""
    return f"queue {place[0]} instruction {place[1]}"


def relation(ordered: Ordered, first: Access, second: Access) -> str:
    """On which ranks the two run, seen from the rank that has the rows."""
    runs = f"{_ranks(ordered, first)}, {_ranks(ordered, second)}"
    return f"{runs}; the rows are on rank me"


def _ranks(ordered: Ordered, access: Access) -> str:
    if access.how != "land" or not isinstance(access.instr, Put):
        return f"{who(access.place)} runs on me"
    sign = "-" if access.instr.kind == "dispatch" else "+"
    ks = ordered.clocks.index.s.groups[access.instr.group]
    return f"{who(access.place)} runs on {rank_list(sign, ks)}"


def rank_list(sign: str, ks: tuple[int, ...]) -> str:
    """`me, me-1, me-2`; long lists are cut.

    >>> rank_list("+", (0, 1, 2, 3, 4, 5))
    'me, me+1, me+2, ..., me+5'
    """
    names = [f"me{sign}{k}" if k else "me" for k in ks]
    if len(names) > 4:
        names = [*names[:3], "...", names[-1]]
    return ", ".join(names)


def advice(ordered: Ordered, first: Access, second: Access) -> str:
    """The wait that would put `second` behind `first`."""
    index = ordered.clocks.index
    event = _signal_after(index, first)
    before = f"in front of {who(second.place)}"
    if event is None:
        if isinstance(first.instr, Put):
            return f"a signal of the put, or a world barrier {before}"
        queue = first.place[0]
        return (
            f"queue {queue} has no set behind {who(first.place)}; add one, and a wait "
            f"for it {before}"
        )
    need = index.events[event].need
    text = f"wait {index.event_text(event)} >= {need} {before}"
    late = _late_wait(index, event, second.place)
    if late is not None:
        text += f" (queue {late[0]} has it only at instruction {late[1]})"
    return text


def _signal_after(index: Index, access: Access) -> int | None:
    """The event that tells that an access is over."""
    if isinstance(access.instr, Put) and access.how == "land":
        return access.instr.event
    q, i = access.place
    for instr in index.s.queues[q].code[i + 1 :]:
        if isinstance(instr, Set):
            return instr.event
        if isinstance(instr, Barrier):
            return None
        # A set behind further work would do, but delays whoever waits for it.
        if isinstance(instr, Task | Put) and not isinstance(access.instr, Put):
            return None
    return None


def _late_wait(index: Index, event: int, place: Place) -> Place | None:
    """A wait for `event` in the same queue that comes too late to help."""
    q, i = place
    for at, instr in enumerate(index.s.queues[q].code):
        if isinstance(instr, Wait) and instr.event == event and at > i:
            return q, at
    return None
