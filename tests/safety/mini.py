"""Schedules small enough for a search of all interleavings: teams of one or two."""

from __future__ import annotations

from hpc.schedule.model import Base, Schedule, Team, Wait
from tests.builders import (
    edited,
    serial_schedule,
    small_layer,
    standard_schedule,
    with_event,
    with_team,
)
from tests.safety.rows import Ids

ONE_EACH = (Team("aic", 0, 1), Team("aiv", 0, 1), Team("aiv", 1, 1))
IDS: Ids = [[[0], [1]], [[1], [0]]]
"""Two ranks, two tokens each; every expert gets one row from each rank."""


def mini(aic: int = 1, chunks: int = 1) -> Schedule:
    """Two ranks with an expert each, top-1, one group."""
    layer = small_layer(tokens=(2, 2), experts=2, top_k=1, hidden=16, intermediate=8)
    s = standard_schedule(layer, chunks=chunks, m=1, base=Base(1, 16, 16))
    teams = (Team("aic", 0, aic), *ONE_EACH[1:])
    for q, team in enumerate(teams):
        s = with_team(s, q, team)
    for name in ("up_done", "down_done", "act_done"):
        need = 1 if name == "act_done" else aic
        s = with_event(s, f"{name}[0,0]", need=need)
    needs = {event.id: event.need for event in s.events}
    for q, queue in enumerate(s.queues):
        for i, instr in enumerate(queue.code):
            if isinstance(instr, Wait):
                s = edited(s, q, i, need=needs[instr.event])
    return s


def mini_serial() -> Schedule:
    """The same with barriers."""
    layer = small_layer(tokens=(2, 2), experts=2, top_k=1, hidden=16, intermediate=8)
    s = serial_schedule(layer)
    for q, team in enumerate(ONE_EACH[:2]):
        s = with_team(s, q, team)
    return s
