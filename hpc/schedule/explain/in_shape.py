"""Examples of schedules with wrong names, sizes, parts, bytes and counters."""

from __future__ import annotations

from hpc.schedule.explain.edits import (
    AIC,
    COMM,
    VEC,
    Example,
    again,
    buffer,
    change,
    declare,
    drop,
    header,
    insert,
    layer,
    team,
)
from hpc.schedule.model import Base, Buffer, Event, Region, Task, Team

_SPARE = Buffer("spare", "token", 32, "bf16", "input", 4)
_LOST_H = Buffer("lost", "routed", 32, "bf16", "workspace", 8)
_ADD_TO_X = Task("add", (Region("x"), Region("x")), (Region("x"),), Base(2))

IN_SHAPE: dict[str, Example] = {
    "bad-layer": Example(
        (layer(tokens=(4,)),), "Give one token count for each rank, and an expert each."
    ),
    "bad-value": Example(
        (change(COMM, 0, chunks=0),), "Use one of the words or numbers allowed."
    ),
    "bad-groups": Example(
        (header(groups=((0,), (0,))),),
        "Put each relative source 0..ranks-1 into one group, 0 into group 0.",
    ),
    "duplicate-buffer": Example(
        (declare(Buffer("h", "routed", 32, "bf16", "workspace", 8)),),
        "Give each buffer its own name.",
    ),
    "unknown-buffer": Example(
        (change(VEC, 1, reads=(Region("hh", 0, 0),)),),
        "Declare the buffer, or correct its name.",
    ),
    "unknown-event": Example(
        (change(AIC, 2, event=99),), "Declare the event, or correct its name."
    ),
    "unknown-op": Example(
        (change(VEC, 1, op="swish"),),
        "Use an operator that `hpc list ops` shows.",
    ),
    "unknown-loc": Example(
        (change(VEC, 1, loc=99),), "Let `loc` index the list of locations."
    ),
    "index-range": Example(
        (change(VEC, 1, reads=(Region("h", 0, 2),)),),
        "Use experts of the rank and groups that there are.",
    ),
    "wrong-arity": Example(
        (change(AIC, 1, reads=(Region("recv", 0, 0),)),),
        "Give the operator its operands: a GMM reads rows and a matrix.",
    ),
    "wrong-space": Example(
        (change(AIC, 1, reads=(Region("w_up", 0), Region("recv", 0, 0))),),
        "Give operands in their order and space: rows first, then the matrix.",
    ),
    "wrong-cols": Example(
        (buffer("a", cols=8),), "Make the columns of operands and result agree."
    ),
    "wrong-part": Example(
        (change(VEC, 1, reads=(Region("h", 0, 1),)),),
        "Read the part of the rows that are written.",
    ),
    "wrong-unit": Example(
        (
            insert(
                AIC,
                12,
                Task("relu", (Region("y", 0, 0),), (Region("y", 0, 0),), Base(2)),
            ),
        ),
        "Put vector work and puts on AIV cores, matrix work on AIC cores.",
    ),
    "wrong-dtype": Example(
        (buffer("w_up", dtype="fp32"),),
        "Let operands and result have one dtype, which the machine can multiply.",
    ),
    "bad-tile": Example(
        (change(AIC, 1, base=Base(2)),), "Give a GMM a base tile of m x n x k."
    ),
    "wrong-activation": Example(
        (change(VEC, 1, op="geglu"),),
        "Use the layer's activation, or change the layer and compile it again.",
    ),
    "wrong-size": Example(
        (layer(hidden=64),),
        "Write the size that the buffers have, or change the layer and compile it "
        "again.",
    ),
    "wrong-padding": Example(
        (header(padded=(("hidden", 40),)),),
        "Round the layer's size up to a multiple of 16, or leave `padded` out.",
    ),
    "wrong-mode": Example(
        (header(mode="train"),),
        "Write the mode that the operators carry out, or compile the layer in the "
        "other one.",
    ),
    "wrong-params": Example(
        (change(VEC, 1, params=(("alpha", 2.0),)),),
        "Give every part of an operator, and its gradient, the same numbers, and only "
        "those that it has.",
    ),
    "put-direction": Example(
        (change(COMM, 0, kind="combine"),),
        "Dispatch token rows into a routed buffer; combine routed rows into slots.",
    ),
    "not-symmetric": Example(
        (buffer("recv", symmetric=False),),
        "Declare buffers that other ranks write as symmetric.",
    ),
    "router-weight": Example(
        (change(COMM, 0, scale=True),),
        "Apply router weights once: in the dispatch or in the reduction, as "
        "`weights_at` says.",
    ),
    "small-buffer": Example(
        (buffer("back", capacity_rows=3),),
        "Give the buffer a row for every token, or token and slot.",
    ),
    "team-range": Example(
        (team(VEC, Team("aiv", 47, 2)),), "Use cores that the machine has."
    ),
    "task-count": Example(
        (),
        "Use fewer groups or experts a rank, so that tasks fit the machine's table.",
        few_tasks=True,
    ),
    "team-overlap": Example(
        (team(VEC, Team("aiv", 1, 2)),), "Give each core to one team."
    ),
    "event-unused": Example(
        (declare(Event(60, "spare", 0)),), "Drop the event, or use it."
    ),
    "program-count": Example(
        (), "Check with one program for each rank.", missing_rank=True
    ),
    "program-differs": Example(
        (drop(AIC, 2),), "Run the same schedule on all ranks.", one_rank=True
    ),
    "written-never": Example(
        (
            declare(_LOST_H),
            change(AIC, 1, writes=(Region("lost", 0, 0),)),
        ),
        "Let somebody write the part, or correct the part that is read.",
    ),
    "written-twice": Example(
        (again(COMM, 0, 1),),
        "Write outputs, and parts that puts write, with one instruction.",
    ),
    "written-unread": Example(
        (change(AIC, 7, reads=(Region("a", 0, 1), Region("w_down", 0))),),
        "Read the result, or drop the task; mostly its reader names another part.",
    ),
    "input-unread": Example((declare(_SPARE),), "Drop the buffer, or read it."),
    "input-written": Example(
        (insert(VEC, 8, _ADD_TO_X),), "Write into a workspace buffer instead."
    ),
    "no-output": Example(
        (buffer("out", role="workspace"),), "Give one buffer the role output."
    ),
    "bytes-pair": Example(
        (drop(COMM, 3),),
        "Put every (expert, group) once: what a rank sends, its peer expects.",
    ),
    "bytes-total": Example(
        (drop(COMM, 3),), "Put every (expert, group) once, in both directions."
    ),
    "range-overlap": Example((again(COMM, 0, 1),), "Put every (expert, group) once."),
    "range-gap": Example((drop(COMM, 0),), "Put every (expert, group) once."),
    "capacity": Example(
        (buffer("recv", capacity_rows=3),),
        "Give receive buffers the rows of the largest receiver, or of the worst case: "
        "tokens * ranks * min(top_k, experts of a rank).",
    ),
    "event-id-range": Example(
        (declare(Event(64, "beyond", 0)),),
        "Use ids below the machine's number of counters; fewer groups need fewer.",
    ),
    "event-id-twice": Example(
        (declare(Event(0, "again", 1)),), "Give each event an id of its own."
    ),
    "event-name-twice": Example(
        (declare(Event(60, "returned", 2)),), "Give each event a name of its own."
    ),
}
"""By violation code."""
