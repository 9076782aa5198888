"""Does a program end on a rank only when the other ranks are done with its rows?

A rank starts the next launch when its own cores are done, while others may still be in
this one. Its next puts then meet their waits and rows of this launch, unless it knows
that they are past them. It does if every dispatch has a round trip: the tasks that read
the rows are joined by all cores of their team (a task whose token is used), and a
combine of the same part comes after them. Other programs end in a barrier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from xdsl.ir import Operation, SSAValue

from dialects import tile

Part = tuple[int, int]


def every_dispatch_returns(ops: Iterable[Operation]) -> bool:
    """Whether each dispatch among `ops` has a round trip; True without any."""
    puts = [op for op in ops if isinstance(op, tile.PutOp)]
    joined: defaultdict[Part, set[Operation]] = defaultdict(set)
    for put in puts:
        if put.kind.data == "combine":
            joined[_part(put)] |= _tasks_before(put)
    return all(
        _readers(put) <= joined[_part(put)]
        for put in puts
        if put.kind.data == "dispatch"
    )


def _part(put: tile.PutOp) -> Part:
    return put.expert.value.data, put.group.value.data


def _readers(put: tile.PutOp) -> set[Operation]:
    """What waits for the rows of `put`; the put itself, which no one joins, if none."""
    awaits = [use.operation for use in put.signal.uses]
    users = {use.operation for op in awaits for use in op.results[0].uses}
    return users or {put}


def _tasks_before(put: tile.PutOp) -> set[Operation]:
    """Tasks that all cores of their team have ended when `put` starts."""
    found: set[Operation] = set()
    waiting: list[SSAValue] = list(put.after)
    while waiting:
        op = waiting.pop().owner
        if isinstance(op, tile.TaskOp) and op not in found:
            found.add(op)
            waiting += op.after
    return found
