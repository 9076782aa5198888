"""Examples of schedules that hang, race, or meet the launch before."""

from __future__ import annotations

from hpc.schedule.explain.edits import (
    AIC,
    AIV,
    COMM,
    VEC,
    Example,
    again,
    buffer,
    change,
    drop,
    event,
    forget,
    insert,
    move,
)
from hpc.schedule.model import Barrier, Base, Put, Region, Task

_LATE_PUT = Put(
    "dispatch", 0, 1, 1, Region("x"), Region("recv", 0, 1), None, "collective"
)
_ONE_WAY = (
    drop(COMM, 2, 3, 4, 5),
    drop(AIC, 8, 11),
    drop(VEC, 6, 7),
    forget("down_done[0,0]", "down_done[0,1]", "returned", "back", "router", "out"),
    buffer("y", role="output"),
)
"""Rows go out and are used, and nothing comes back."""

IN_ORDER: dict[str, Example] = {
    "deadlock-signal": Example(
        (change(VEC, 0, need=3),),
        "Give every wait the number of signals that one launch brings; look for a set "
        "or put that was dropped or that names another event.",
    ),
    "deadlock-cycle": Example(
        (move(AIC, 2, 6),),
        "Signal as soon as the result is there: no queue may wait for something that "
        "comes behind its own signal in another queue.",
    ),
    "deadlock-barrier": Example(
        (insert(VEC, 0, Barrier("rank")),),
        "Give every queue in the scope of a barrier that barrier.",
    ),
    "race-read-write": Example(
        (move(VEC, 0, 1),),
        "Wait, in front of the reader, for an event that all cores of the writer's "
        "team set behind the write. This holds inside a team too: its cores share "
        "the tiles of both tasks.",
    ),
    "race-write-write": Example(
        (again(VEC, 1, 2),),
        "Write a part once, or order the writers with an event.",
    ),
    "race-put-read": Example(
        (move(AIC, 0, 1),),
        "Wait for the signals of the put, of all sources and chunks, in front of the "
        "first reader.",
    ),
    "race-put-write": Example(
        (
            insert(
                VEC,
                0,
                Task("relu", (Region("recv", 0, 0),), (Region("recv", 0, 0),), Base(2)),
            ),
        ),
        "Let only puts write the rows that puts write, or wait for the put first.",
    ),
    "race-put-over-read": Example(
        (insert(COMM, 6, _LATE_PUT),),
        "Overwrite a receive buffer only when the sender knows that its readers are "
        "through, for example by a signal that they send back; or use another buffer.",
    ),
    "put-unfenced": Example(
        (move(AIV, 11, 10),),
        "Put a world barrier between a put without signal and the reader, or let the "
        "put signal an event and wait for it.",
        base="barriers",
    ),
    "read-too-early": Example(
        (move(AIV, 4, 2),),
        "Move the reader behind the write that it means.",
        base="barriers",
    ),
    "overwritten-unread": Example(
        (
            again(AIC, 1, 2),
            insert(AIC, 2, Barrier("rank")),
            insert(AIV, 3, Barrier("rank")),
        ),
        "Drop the first write, or read it before the second.",
        base="barriers",
    ),
    "put-unfinished": Example(
        (insert(AIV, 13, _LATE_PUT),),
        "Let the destination wait for the put's signal, or meet at a world barrier, "
        "before it ends its launch.",
        base="barriers",
    ),
    "relaunch-race": Example(
        _ONE_WAY,
        "Before a rank ends, let it hear from every rank that it has put rows to that "
        "they were used: the signals of a combine do that, a world barrier at the end "
        "does it too.",
    ),
    "relaunch-signal": Example(
        _ONE_WAY,
        "As for relaunch-race: a rank must not signal a counter of the next launch "
        "while its owner may still wait on it in this one.",
    ),
    "event-shared": Example(
        (change(VEC, 2, event=2), change(AIC, 6, event=2)),
        "Give each join a counter of its own.",
    ),
    "wait-need": Example(
        (change(VEC, 0, need=1),),
        "Wait for all signals of a launch: size of the team for a set; sources times "
        "chunks for a put. With fewer, who comes late is not waited for.",
    ),
    "event-need": Example(
        (event("up_done[0,0]", need=1),),
        "Declare as `need` the signals that one launch brings, of all producers.",
    ),
    "event-unsignalled": Example(
        (drop(AIC, 2),),
        "Let the producer set the event, or drop the wait.",
    ),
    "event-unwaited": Example(
        (drop(VEC, 0),),
        "Wait for the event in front of the user, or drop the signal.",
    ),
    "barrier-mismatch": Example(
        (change(AIV, 2, scope="rank"),),
        "Give all queues the same barriers in the same order.",
        base="barriers",
    ),
}
"""By violation code."""
