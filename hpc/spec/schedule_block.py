"""The block `schedule`: pins, and why the machine or the layer refuses some."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hpc.schedule.model import Base
from hpc.spec.diagnostics import Report
from hpc.spec.layer_block import MAX_RANKS, LayerParts
from hpc.spec.model import Loc, Pins
from hpc.spec.nodes import Block, Node, Number
from hpc.spec.values import Field, choice, integer, read_fields, settings_of

if TYPE_CHECKING:
    from hpc.machine.record import Machine

POLICIES = ("serial", "paper", "list")
MAX_CHUNKS = 4096
MAX_TILE = 1 << 16
MAX_CORES = 1 << 16

EVENTS_A_PAIR = 4
"""Counters of one (expert, group): arrived, up, activation, down done."""

_TILE = re.compile(r"([0-9]{1,9})x([0-9]{1,9})x([0-9]{1,9})")


def _base_tile(report: Report, node: Node) -> tuple[int, int, int] | None:
    match = _TILE.fullmatch(node.text) if isinstance(node, Number) else None
    if match is None:
        report.error(node.loc, f"expected a tile MxNxK such as 128x256x64, got {node}")
        return None
    m, n, k = (int(size) for size in match.groups())
    if not all(0 < size <= MAX_TILE for size in (m, n, k)):
        message = f"tile {m}x{n}x{k}: every size must be from 1 to {MAX_TILE}"
        report.error(node.loc, message)
        return None
    return m, n, k


SCHEDULE = (
    Field("policy", choice(POLICIES, "policy")),
    Field("groups", integer(1, MAX_RANKS)),
    Field("row_chunks", integer(1, MAX_CHUNKS)),
    Field("base_tile", _base_tile),
    Field("aic", integer(1, MAX_CORES)),
    Field("comm_aiv", integer(1, MAX_CORES)),
    Field("vector_aiv", integer(1, MAX_CORES)),
)


def read_pins(report: Report, block: Block | None) -> Pins:
    """The pins of a schedule block; none without one."""
    if block is None:
        return Pins()
    if block.name is not None:
        report.error(block.name.loc, "'schedule' takes no name")
    fields = read_fields(report, "pin", settings_of(report, block), SCHEDULE)
    values: dict[str, Any] = {n: read.value for n, read in fields.items()}
    return Pins(**values, locs=tuple((n, read.loc) for n, read in fields.items()))


def check_pins(
    report: Report, pins: Pins, parts: LayerParts, machine: Machine | None
) -> None:
    """Reports every pin that cannot be honoured, with the limit."""
    places = dict(pins.locs)
    if pins.groups is not None and parts.ep is not None and pins.groups > parts.ep:
        message = f"groups = {pins.groups} exceeds the {parts.ep} ranks (ep)"
        report.error(places["groups"], message)
    tokens, chunks = parts.layer and parts.layer.max_tokens, pins.row_chunks
    if chunks is not None and tokens is not None and chunks > tokens:
        message = f"row_chunks = {chunks} exceeds the {tokens} tokens of a rank"
        report.error(places["row_chunks"], message)
    if machine is not None:
        _check_events(report, pins, parts, machine, places)
        _check_tile(report, pins, parts, machine, places)
        _check_teams(report, pins, machine, places)


def _check_events(
    report: Report,
    pins: Pins,
    parts: LayerParts,
    machine: Machine,
    places: dict[str, Loc],
) -> None:
    if pins.groups is None or parts.routed is None:
        return
    experts = parts.routed.local_experts
    events = pins.groups * experts * EVENTS_A_PAIR + 1
    if events > machine.max_events:
        message = (
            f"groups = {pins.groups} needs {pins.groups} groups * {experts} local "
            f"experts * {EVENTS_A_PAIR} + 1 = {events} events, "
            f"{machine.name} has {machine.max_events}"
        )
        report.error(places["groups"], message)


def _check_tile(
    report: Report,
    pins: Pins,
    parts: LayerParts,
    machine: Machine,
    places: dict[str, Loc],
) -> None:
    if pins.base_tile is None or parts.dtype is None:
        return
    from hpc.machine.tiles import check_gmm_tile

    reason = check_gmm_tile(machine, Base(*pins.base_tile), parts.dtype)
    if reason is not None:
        report.error(places["base_tile"], reason)


def _check_teams(
    report: Report, pins: Pins, machine: Machine, places: dict[str, Loc]
) -> None:
    limits = (
        ("aic", pins.aic, machine.aic_cores),
        ("comm_aiv", pins.comm_aiv, machine.aiv_cores),
        ("vector_aiv", pins.vector_aiv, machine.aiv_cores),
    )
    too_large = [(n, cores, most) for n, cores, most in limits if (cores or 0) > most]
    for name, cores, most in too_large:
        kind = "AIC" if name == "aic" else "AIV"
        message = f"{name} = {cores} exceeds the {most} {kind} cores of {machine.name}"
        report.error(places[name], message)
    both = (pins.comm_aiv or 0) + (pins.vector_aiv or 0)
    if too_large or both <= machine.aiv_cores:
        return
    message = (
        f"comm_aiv + vector_aiv = {pins.comm_aiv} + {pins.vector_aiv} = {both} "
        f"exceeds the {machine.aiv_cores} AIV cores of {machine.name}"
    )
    report.error(max(places["comm_aiv"], places["vector_aiv"], key=_order), message)


def _order(loc: Loc) -> tuple[int, int]:
    return loc.line, loc.col
