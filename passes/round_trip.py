"""Does a program end on a rank only when the other ranks are done with its rows?

A rank starts the next launch when its own cores are done, while others may still be in
this one. Its next puts then meet their waits and rows of this launch, unless it knows
that they are past them. The next routing may be another one, so its rows may lie where
those of any part lie now. A program is safe if combines come back from every group of
ranks behind *all* readers of received rows: tasks that all cores of their team have
ended, because a task behind them in the team's order has a token that is used. Other
programs end in a barrier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from xdsl.ir import Operation, SSAValue

from dialects import tile

Order = dict[Operation, int]


def every_dispatch_returns(ops: Iterable[tile.TileOp]) -> bool:
    """Whether rows of each dispatch, of any part, are read before the last combine of
    each group; True without any. `ops` are the tasks in their final order."""
    order: Order = {op: i for i, op in enumerate(ops)}
    puts = [op for op in order if isinstance(op, tile.PutOp)]
    dispatches = [put for put in puts if put.kind.data == "dispatch"]
    joined: defaultdict[int, set[Operation]] = defaultdict(set)
    for put in puts:
        if put.kind.data == "combine":
            joined[_group(put)] |= _tasks_before(put)
    readers = {reader for put in dispatches for reader in _readers(put)}
    return all(
        _done_by(joined[group], order) >= readers
        for group in {_group(put) for put in dispatches}
    )


def _group(put: tile.PutOp) -> int:
    return put.group.value.data


def _done_by(tasks: set[Operation], order: Order) -> set[Operation]:
    """`tasks` and what their teams did before them."""
    last: dict[tile.TeamAttr | None, int] = {}
    for op in tasks:
        if isinstance(op, tile.TaskOp):
            last[op.team] = max(order[op], last.get(op.team, 0))
    return {
        op
        for op, i in order.items()
        if isinstance(op, tile.TaskOp) and i <= last.get(op.team, -1)
    }


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
