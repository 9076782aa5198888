"""The published baseline and schedule, written by hand for the timing tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpc.schedule.layer import Activation, Layer
from hpc.schedule.model import (
    Barrier,
    Event,
    Instr,
    Put,
    Queue,
    Schedule,
    Set,
    Task,
    Team,
    Wait,
)
from tests.builders import small_layer, standard_schedule

AIC = Team("aic", 0, 24)
AIV = Team("aiv", 0, 48)


def deepseek(ep: int) -> Layer:
    """The paper's shape: 8 experts and 4,096 tokens per rank."""
    return small_layer(
        name="deepseek_v3",
        tokens=(4096,) * ep,
        hidden=7168,
        intermediate=2048,
        experts=8 * ep,
        top_k=8,
        activation=Activation("swiglu"),
        ep=ep,
    )


def balanced(layer: Layer) -> np.ndarray:
    """Counts that spread every rank's rows evenly over all experts."""
    share = layer.max_tokens * layer.top_k // layer.experts
    return np.full((layer.ep, layer.experts), share)


def paper_schedule(layer: Layer, chunks: int = 4) -> Schedule:
    """One vector queue of 48 cores: dispatch, activation, combine, reduce."""
    base = standard_schedule(layer, chunks=chunks)
    aic, comm, vec = (queue.code for queue in base.queues)
    dispatch = [i for i in comm if isinstance(i, Put) and i.kind == "dispatch"]
    combine = list(comm[len(dispatch) :])
    merged = [*dispatch, *vec[:-2], *combine, *vec[-2:]]
    needs = {
        instr.event: AIV.size
        for queue in base.queues
        for instr in queue.code
        if isinstance(instr, Set) and queue.team.unit == "aiv"
    }
    return replace(
        base,
        policy="paper",
        events=tuple(Event(e.id, e.name, needs.get(e.id, e.need)) for e in base.events),
        queues=(Queue(AIC, _with(aic, needs)), Queue(AIV, _with(merged, needs))),
    )


def _with(code: tuple[Instr, ...] | list[Instr], needs: dict[int, int]):
    return tuple(
        replace(i, need=needs.get(i.event, i.need)) if isinstance(i, Wait) else i
        for i in code
    )


def serial_schedule(layer: Layer) -> Schedule:
    """Whole-device operators between launches; host-driven all-to-all."""
    base = standard_schedule(layer)
    aic, comm, vec = (queue.code for queue in base.queues)
    puts = [
        replace(i, event=None, transport="collective")
        for i in comm
        if isinstance(i, Put)
    ]
    half = len(puts) // 2
    tasks = [i for i in (*aic, *vec) if isinstance(i, Task)]
    phases: list[tuple[str, list[Instr]]] = [
        ("aiv", list(puts[:half])),
        ("aic", [t for t in tasks if t.writes[0].buffer == "h"]),
        ("aiv", [t for t in tasks if t.writes[0].buffer == "a"]),
        ("aic", [t for t in tasks if t.writes[0].buffer == "y"]),
        ("aiv", list(puts[half:])),
        ("aiv", [t for t in tasks if t.op == "reduce"]),
    ]
    codes: dict[str, list[Instr]] = {"aic": [], "aiv": []}
    for unit, instrs in phases:
        for code in codes.values():
            code.append(Barrier("world", launch=True))
        codes[unit] += instrs
    return replace(
        base,
        policy="serial",
        events=(),
        queues=(Queue(AIC, tuple(codes["aic"])), Queue(AIV, tuple(codes["aiv"]))),
    )
