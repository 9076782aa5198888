"""One schedule for each violation code, with exactly that fault."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpc.schedule.check import Limits
from hpc.schedule.model import (
    Barrier,
    Base,
    Buffer,
    Event,
    Region,
    Schedule,
    Set,
    Task,
    Team,
)
from tests.builders import (
    dropped,
    edited,
    inserted,
    serial_schedule,
    small_layer,
    standard_schedule,
    with_buffer,
    with_event,
    with_team,
)

LIMITS = Limits(64, 24, 48, ("bf16", "fp16"))
LAYER = small_layer()
GROUPS = ((0,), (1,))
S = standard_schedule(LAYER, GROUPS)
SERIAL = serial_schedule(LAYER, GROUPS)
COUNTS = np.array([[8, 8, 8, 8], [8, 8, 8, 8]])
AIC_Q, COMM_Q, VEC_Q = 0, 1, 2
# Positions in queue 0: wait 0, gmm 1, set 2, ... for four (expert, group) pairs; the
# second GMMs begin at 12. Queue 1: four dispatches, then wait, combine. Queue 2: as 0.
UP, DOWN, ACT, REDUCE, COMBINE = 1, 13, 1, 13, 5


def with_layer(s, **changes):
    return replace(s, layer=replace(s.layer, **changes))


def with_buffers(s, *more: Buffer) -> Schedule:
    return replace(s, buffers=s.buffers + more)


def with_events(s, *more: Event) -> Schedule:
    return replace(s, events=s.events + more)


def renumbered(s, name, id_):
    """`s` with another id for an event and for all that use it."""
    old = next(event.id for event in s.events if event.name == name)
    for q, queue in enumerate(s.queues):
        for i, instr in enumerate(queue.code):
            if getattr(instr, "event", None) == old:
                s = edited(s, q, i, event=id_)
    return with_event(s, name, id=id_)


def h_is_never_written() -> Schedule:
    """The GMM writes another buffer, so that the activation reads a hole."""
    other = replace(S.buffer("h"), name="other")
    s = with_buffers(S, other)
    return edited(s, AIC_Q, UP, writes=(Region("other", 0, 0),))


def shared_event() -> Schedule:
    """act_done[0,0] also stands for down_done[0,0]."""
    shared = next(e for e in S.events if e.name == "act_done[0,0]")
    s = with_event(S, "act_done[0,0]", need=48)
    s = edited(s, AIC_Q, 12, need=48)
    s = edited(s, AIC_Q, 14, event=shared.id)
    return edited(s, COMM_Q, 4, event=shared.id, need=48)


NOTE = Region("out", None, 0)
FAULTS: dict[str, tuple[Schedule, str]] = {
    # References.
    "bad-layer": (with_layer(S, experts=1), "1 experts on 2 ranks"),
    "bad-value": (edited(S, COMM_Q, 0, chunks=0), "chunks is 0"),
    "bad-groups": (
        replace(S, groups=((0,), (0,))),
        "source 0 is in 2 places|source 1 is in no group",
    ),
    "duplicate-buffer": (with_buffers(S, S.buffer("h")), '"h" is declared 2 times'),
    "unknown-buffer": (
        edited(S, VEC_Q, ACT, reads=(Region("hh", 0, 0),)),
        '"hh" is not declared',
    ),
    "unknown-event": (edited(S, AIC_Q, 2, event=99), "event id 99 is not declared"),
    "unknown-op": (edited(S, VEC_Q, ACT, op="swish"), '"swish" is not one of add, '),
    "unknown-loc": (edited(S, VEC_Q, ACT, loc=3), "location 3 of 1"),
    "index-range": (
        edited(S, COMM_Q, 0, expert=2, dest=Region("recv", 2, 0)),
        "expert 2 of 2 on a rank",
    ),
    # Fit.
    "wrong-arity": (
        edited(S, AIC_Q, UP, reads=(Region("recv", 0, 0),)),
        "gmm reads 2 and writes 1 region, here 1 and 1",
    ),
    "wrong-space": (
        edited(S, AIC_Q, UP, reads=(Region("w_up", 0), Region("recv", 0, 0))),
        'first operand "w_up" is in space weight, expected routed',
    ),
    "wrong-cols": (
        with_buffer(S, "h", cols=48),
        '"w_up" of 32 columns into "h" of 48 columns',
    ),
    "wrong-part": (
        edited(S, AIC_Q, UP, reads=(Region("recv", 0, 1), Region("w_up", 0))),
        r"reads part \[0,1\] and writes part \[0,0\]",
    ),
    "wrong-unit": (
        inserted(S, AIC_Q, 12, Task("add", (NOTE, NOTE), (NOTE,), Base(1))),
        "add runs on aiv, this queue is on aic",
    ),
    "wrong-dtype": (with_buffer(S, "h", dtype="fp16"), "operands mix bf16 and fp16"),
    "wrong-activation": (
        edited(S, VEC_Q, ACT, op="geglu"),
        "geglu, but the layer's activation is swiglu",
    ),
    "bad-tile": (edited(S, AIC_Q, UP, base=Base(128, 0, 64)), "base tile n is 0"),
    "put-direction": (
        edited(S, COMM_Q, 0, source=Region("h")),
        "dispatch goes from token to routed, here from routed to routed",
    ),
    "not-symmetric": (
        with_buffer(S, "recv", symmetric=False),
        '"recv" is not symmetric',
    ),
    "router-weight": (
        edited(S, VEC_Q, REDUCE, reads=(Region("back"),)),
        "reduce does not read router weights, they are at the output",
    ),
    "small-buffer": (
        with_buffer(S, "back", capacity_rows=31),
        r"capacity_rows is 31, below 32 \(tokens \* top_k\)",
    ),
    # Header and numbers.
    "wrong-size": (
        with_layer(S, hidden=64),
        'hidden is 64, but "x" has 32 columns, not 64, "w_up" has 32 rows, not 64',
    ),
    "wrong-padding": (
        replace(S, padded=(("hidden", 32), ("intermediate", 32))),
        "padded intermediate is 32, expected 16 for intermediate 16",
    ),
    "wrong-mode": (
        replace(S, mode="train"),
        "the mode is train, but nothing computes the gradient of this gmm",
    ),
    "wrong-params": (
        edited(S, VEC_Q, ACT, params=(("alpha", 2.0),)),
        '"alpha" is no number of swiglu, which has none',
    ),
    # Joins.
    "team-range": (
        with_team(S, VEC_Q, Team("aiv", 25, 24)),
        r"queue 2 runs on aiv\[25:49\], the machine has 48 aiv cores",
    ),
    "task-count": (S, "21 tasks and puts on a rank, the machine takes 12"),
    "team-overlap": (
        with_team(S, VEC_Q, Team("aiv", 20, 24)),
        r"queues 1 and 2 share aiv\[20:24\]",
    ),
    "event-need": (
        with_event(S, "up_done[0,0]", need=23),
        r"up_done\[0,0\] needs 23, a launch brings 24",
    ),
    "wait-need": (
        edited(S, VEC_Q, 0, need=23),
        r"waits for 23 of up_done\[0,0\], a launch brings 24",
    ),
    "event-unsignalled": (
        dropped(S, AIC_Q, 2),
        r"up_done\[0,0\] is waited for, but nothing signals it",
    ),
    "event-unwaited": (
        dropped(S, VEC_Q, 0),
        r"up_done\[0,0\] is signalled, but nothing waits for it",
    ),
    "event-unused": (with_events(S, Event(60, "spare", 0)), "spare is never used"),
    "barrier-mismatch": (
        edited(SERIAL, 1, 4, scope="rank"),
        "barrier 0 of queue 1 is not that of queue 0",
    ),
    # Deadlock.
    "deadlock-signal": (
        edited(S, VEC_Q, 0, need=25),
        r"up_done\[0,0\] needs 25, has 24, and at most 24 can arrive",
    ),
    "deadlock-cycle": (
        inserted(dropped(S, AIC_Q, 2), AIC_Q, 12, Set(S.queues[0].code[2].event)),
        "2 queues wait in a cycle, first queue 0 of every rank",
    ),
    "deadlock-barrier": (
        inserted(S, VEC_Q, 0, Barrier("rank")),
        "waits for ever at a barrier that not all queues have",
    ),
    # Coverage.
    "written-never": (h_is_never_written(), r"reads h\[0,0\], which nothing writes"),
    "written-twice": (
        inserted(S, COMM_Q, 1, S.queues[COMM_Q].code[0]),
        r"recv\[0,0\] is written 2 times",
    ),
    "written-unread": (
        edited(S, AIC_Q, DOWN, reads=(Region("a", 0, 1), Region("w_down", 0))),
        r"writes a\[0,0\], which nothing reads",
    ),
    "input-unread": (
        with_buffers(S, replace(S.buffer("x"), name="z")),
        r"nothing reads z\[0,0\] \(role input\)",
    ),
    "input-written": (
        inserted(S, VEC_Q, 14, Task("add", (NOTE, NOTE), (Region("x"),), Base(1))),
        "writes x, which is input",
    ),
    "no-output": (with_buffer(S, "out", role="workspace"), "no buffer is an output"),
    # Bytes.
    "bytes-pair": (
        dropped(S, COMM_Q, COMBINE),
        'combine into "back": rank 0 sends 8 rows to rank 0, which expects 16',
    ),
    "bytes-total": (
        dropped(S, COMM_Q, COMBINE),
        "3072 bytes sent, 64 rows x 64 bytes = 4096 expected",
    ),
    "range-overlap": (
        inserted(S, COMM_Q, 0, S.queues[COMM_Q].code[0]),
        r'rows 0..7 of "recv" are written twice on rank 0',
    ),
    "range-gap": (
        dropped(S, COMM_Q, 0),
        r'rows 0..7 of "recv" are not written on rank 0',
    ),
    "capacity": (
        with_buffer(S, "recv", capacity_rows=31, formula="4 * 8 - 1"),
        r'rank 1 receives 32 > 31 rows of "recv" \(4 \* 8 - 1\)',
    ),
    # Events.
    "event-id-range": (
        renumbered(S, "returned", 64),
        "returned has id 64, the machine has counters 0..63",
    ),
    "event-id-twice": (
        with_events(S, Event(0, "again", 1)),
        "event id 0 is declared 2",
    ),
    "event-name-twice": (
        with_events(S, Event(60, "returned", 4)),
        '"returned" is declared 2 times',
    ),
    "event-shared": (shared_event(), r"act_done\[0,0\] stands for y and for a"),
    # Programs.
    "program-count": (S, "1 programs for 2 ranks"),
    "program-differs": (S, "rank 1 has other global fields: machine"),
}


MORE = [
    ("bad-value", edited(SERIAL, 0, 0, scope="all")),
    ("bad-value", with_team(S, 0, Team("gpu", 0, 24))),
    ("bad-value", with_buffer(S, "h", space="rows")),
    ("bad-value", with_buffer(S, "h", dtype="int8")),
    ("bad-value", with_buffer(S, "h", role="temporary")),
    ("bad-value", edited(S, COMM_Q, 0, kind="scatter")),
    ("bad-value", edited(S, COMM_Q, 0, transport="pigeon")),
    ("bad-layer", with_layer(S, ep=0, tokens=())),
    ("bad-layer", with_layer(S, tokens=(16,))),
    ("bad-layer", with_layer(S, tokens=(16, -1))),
    ("bad-layer", with_layer(S, hidden=0)),
    ("bad-layer", replace(S, row_chunks=0)),
    ("bad-layer", with_layer(S, tokens=(0, 0))),
    ("wrong-size", with_layer(S, intermediate=32)),
    ("wrong-size", with_layer(S, intermediate=15)),
    ("wrong-padding", replace(S, padded=(("depth", 16),))),
    ("wrong-dtype", with_layer(S, dtype="fp16")),
    ("wrong-mode", replace(S, mode="backward")),
    ("wrong-mode", with_buffer(S, "x", role="saved")),
    ("bad-tile", edited(S, VEC_Q, ACT, base=Base(128, 16))),
    ("bad-tile", edited(S, VEC_Q, ACT, base=Base(128, 0, 16))),
    ("bad-tile", edited(S, VEC_Q, ACT, base=Base(2**31 + 1))),
    ("wrong-params", edited(S, AIC_Q, UP, params=(("alpha", 2.0),))),
    ("bad-groups", replace(S, groups=((1,), (0,)))),
    ("bad-groups", replace(S, groups=((0, 1), ()))),
    ("bad-groups", replace(S, groups=((0,), (1, 2)))),
    ("index-range", edited(S, COMM_Q, 0, group=2)),
    ("index-range", edited(S, COMM_Q, 0, source=Region("x", 0))),
    ("index-range", edited(S, VEC_Q, REDUCE, writes=(Region("out", None, 1),))),
    (
        "index-range",
        edited(S, AIC_Q, UP, reads=(Region("recv", 0, 0), Region("w_up", 0, 0))),
    ),
    (
        "wrong-part",
        edited(S, AIC_Q, UP, reads=(Region("recv", 0, 0), Region("w_up", 1))),
    ),
    (
        "wrong-part",
        edited(S, VEC_Q, REDUCE, reads=(Region("back", 0), Region("router"))),
    ),
    ("wrong-part", edited(S, COMM_Q, 0, dest=Region("recv", 0, 1))),
    ("wrong-part", edited(S, COMM_Q, 0, source=Region("x", None, 0))),
    ("wrong-part", edited(S, COMM_Q, COMBINE, source=Region("y", 0, 1))),
    ("wrong-cols", with_buffer(S, "x", cols=64)),
    ("wrong-cols", with_buffer(S, "w_down", rows=32)),
    ("wrong-cols", with_buffer(S, "router", cols=2)),
    ("wrong-cols", edited(S, VEC_Q, ACT, op="relu")),
    ("wrong-unit", with_team(S, COMM_Q, Team("aic", 0, 24))),
    ("wrong-dtype", with_buffer(S, "router", dtype="bf16")),
    ("wrong-dtype", with_buffer(S, "x", dtype="fp32")),
    ("router-weight", edited(S, COMM_Q, 0, scale=True)),
    ("router-weight", edited(S, COMM_Q, COMBINE, scale=True)),
    ("small-buffer", with_buffer(S, "x", capacity_rows=15)),
    ("small-buffer", with_buffer(S, "w_up", capacity_rows=1)),
    ("put-direction", edited(S, COMM_Q, 0, kind="combine")),
    ("barrier-mismatch", dropped(SERIAL, 1, 4)),
    ("barrier-mismatch", edited(SERIAL, 0, 0, launch=False)),
    ("put-unfenced", dropped(dropped(SERIAL, 0, 0), 1, 4)),
    ("written-never", dropped(S, VEC_Q, REDUCE)),
    ("written-twice", inserted(S, COMM_Q, 0, S.queues[COMM_Q].code[0])),
    ("event-id-range", renumbered(S, "returned", -1)),
    ("team-range", with_team(S, 0, Team("aic", 0, 0))),
]
"""More ways into some of the rules: (code, schedule)."""
