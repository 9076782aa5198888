"""One line of text for an instruction, as witnesses, differences and traces show it."""

from __future__ import annotations

from collections.abc import Mapping

from hpc.schedule.model import (
    Barrier,
    Base,
    Instr,
    Put,
    Region,
    Schedule,
    Set,
    Task,
    Team,
    Wait,
)


def event_names(s: Schedule) -> dict[int, str]:
    """Event id to name. Make it once where many instructions are rendered."""
    return {event.id: event.name for event in s.events}


def render_region(region: Region) -> str:
    """`recv[0,1]`; `*` is all; indices that only say "all" are left out.

    >>> render_region(Region("out", None, 0)), render_region(Region("w_up", 2))
    ('out[*,0]', 'w_up[2]')
    """
    if region.part is not None:
        expert = "*" if region.expert is None else region.expert
        return f"{region.buffer}[{expert},{region.part}]"
    if region.expert is not None:
        return f"{region.buffer}[{region.expert}]"
    return region.buffer


def render_team(team: Team) -> str:
    """`aiv[24:48]`, the end excluded."""
    return f"{team.unit}[{team.first}:{team.first + team.size}]"


def render_instr(
    s: Schedule, instr: Instr, names: Mapping[int, str] | None = None
) -> str:
    """For example `wait arrived[0,1] >= 4`. `names` are those of `event_names`."""
    names = event_names(s) if names is None else names
    match instr:
        case Wait(event, need):
            return f"wait {_event(names, event)} >= {need}"
        case Set(event):
            return f"set {_event(names, event)}"
        case Put():
            return _put(instr, names)
        case Task():
            return _task(instr)
        case Barrier(scope, launch):
            return f"barrier {scope}" + (" launch" if launch else "")


def _event(names: Mapping[int, str], event: int) -> str:
    return names.get(event, f"event {event}")


def _put(put: Put, names: Mapping[int, str]) -> str:
    source, dest = render_region(put.source), render_region(put.dest)
    parts = [f"put {put.kind} [{put.expert},{put.group}] {source} -> {dest}"]
    parts.append(f"chunks {put.chunks}")
    if put.event is not None:
        parts.append(f"signal {_event(names, put.event)}")
    if put.transport != "put":
        parts.append(f"by {put.transport}")
    if put.scale:
        parts.append("scaled")
    if put.dot:
        parts.append("dot " + " -> ".join(render_region(region) for region in put.dot))
    return " ".join(parts)


def _task(task: Task) -> str:
    reads = ", ".join(render_region(region) for region in task.reads)
    writes = ", ".join(render_region(region) for region in task.writes)
    params = "".join(f" {name}={value:g}" for name, value in task.params)
    return f"{task.op} {reads} -> {writes} base {_base(task.base)}{params}"


def _base(base: Base) -> str:
    if base.n or base.k:
        return f"{base.m}x{base.n}x{base.k}"
    return str(base.m)
