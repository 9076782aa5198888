"""One schedule for each violation of ordering: each lacks a wait, a barrier or an
answer, and is sound otherwise as far as that goes."""

from __future__ import annotations

from dataclasses import replace

from hpc.schedule.model import Barrier, Base, Put, Region, Schedule, Set, Task, Wait
from tests.builders import dropped, edited, inserted, moved, with_buffer, with_code
from tests.schedule.broken import ACT, AIC_Q, COMM_Q, REDUCE, SERIAL, UP, VEC_Q, S


def one_way() -> Schedule:
    """Dispatch, GMM, activation, GMM, and nothing comes back: nobody tells a sender
    that its rows have been used."""
    comm = [instr for instr in S.queues[COMM_Q].code if not _is_combine(instr)]
    comm = [instr for instr in comm if isinstance(instr, Put)]
    vec = list(S.queues[VEC_Q].code[:12])
    s = with_code(with_code(S, COMM_Q, comm), VEC_Q, vec)
    aic = [i for i in s.queues[AIC_Q].code if not _sets(i, "down_done")]
    s = with_buffer(with_code(s, AIC_Q, aic), "y", role="output")
    gone = ("back", "router", "out")
    return replace(
        s,
        buffers=tuple(b for b in s.buffers if b.name not in gone),
        events=tuple(e for e in s.events if not _ends_unused(e.name)),
    )


def _is_combine(instr: object) -> bool:
    return isinstance(instr, Put) and instr.kind == "combine"


def _sets(instr: object, name: str) -> bool:
    return isinstance(instr, Set) and S.events[instr.event].name.startswith(name)


def _ends_unused(name: str) -> bool:
    return name == "returned" or name.startswith("down_done")


def with_last_barrier(s: Schedule) -> Schedule:
    """All ranks meet before any ends."""
    for q, queue in enumerate(s.queues):
        s = inserted(s, q, len(queue.code), Barrier("world"))
    return s


def early_reduce() -> Schedule:
    """The reduction of a serial schedule in front of the barrier behind the combine."""
    return moved(SERIAL, 1, 17, 16)


def recomputed() -> Schedule:
    """The first GMM of a serial schedule runs twice, a barrier in between."""
    s = inserted(SERIAL, 0, 1, SERIAL.queues[0].code[1])
    return inserted(inserted(s, 0, 2, Barrier("rank")), 1, 5, Barrier("rank"))


RELU = Task("relu", (Region("recv", 0, 0),), (Region("recv", 0, 0),), Base(8))
LATE_PUT = replace(S.queues[COMM_Q].code[1], event=None)

RACY: dict[str, tuple[Schedule, str]] = {
    "race-read-write": (
        moved(S, VEC_Q, 0, ACT),
        r"queue 2 instruction 0 reads h\[0,0\], which queue 0 instruction 1 may still",
    ),
    "race-write-write": (
        inserted(S, VEC_Q, 2, S.queues[VEC_Q].code[ACT]),
        r"queue 2 instruction 1 and queue 2 instruction 2 both write a\[0,0\]",
    ),
    "race-put-read": (
        moved(S, AIC_Q, 0, UP),
        r"queue 0 instruction 0 reads recv\[0,0\], which queue 1 instruction 0 may",
    ),
    "race-put-write": (
        inserted(S, VEC_Q, 0, RELU),
        r"queue 1 instruction 0 and queue 2 instruction 0 both write recv\[0,0\]",
    ),
    "race-put-over-read": (
        inserted(S, COMM_Q, 12, LATE_PUT),
        r"queue 0 instruction 4 may still read recv\[0,1\] when queue 1 instruction 12",
    ),
    "put-unfenced": (
        early_reduce(),
        r"reads back\[0,0\] and 3 more parts, which a put without signal writes|"
        r"reads back\[0,0\], which a put without signal writes",
    ),
    "overwritten-unread": (
        recomputed(),
        r"queue 0 instruction 3 overwrites h\[0,0\] of queue 0 instruction 1, which",
    ),
    "read-too-early": (
        moved(SERIAL, 1, 6, 4),
        r"queue 1 instruction 4 reads h\[0,0\] before queue 0 instruction 1 writes it",
    ),
    "put-unfinished": (
        inserted(SERIAL, 1, len(SERIAL.queues[1].code), LATE_PUT),
        r"may still be on its way to recv\[0,1\] when its destination ends",
    ),
    "relaunch-race": (
        one_way(),
        r"queue 1 instruction 1 of the next launch may overwrite recv on rank "
        r"me\+1 while that rank is still in this launch",
    ),
    "relaunch-signal": (
        one_way(),
        r"queue 1 instruction 1 of the next launch may signal arrived\[0,1\] on rank "
        r"me\+1 while that rank still waits for it in this launch",
    ),
}


def late_waits() -> list[tuple[int, int]]:
    """(queue, index) of every wait of `S` that has a task or put behind it."""
    return [
        (q, i)
        for q, queue in enumerate(S.queues)
        for i, instr in enumerate(queue.code[:-1])
        if isinstance(instr, Wait)
    ]


__all__ = [
    "RACY",
    "REDUCE",
    "dropped",
    "edited",
    "late_waits",
    "one_way",
    "with_last_barrier",
]
