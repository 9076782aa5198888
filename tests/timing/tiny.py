"""Programs of a few instructions on a machine with round numbers, for arithmetic by
hand: fetch 1, set 2, visible 10, poll 3, issue 5, hop 100 us, launch 1000 us."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpc.machine.record import load_machine
from hpc.schedule.layer import Layer, Routing
from hpc.schedule.model import (
    Base,
    Buffer,
    Event,
    Instr,
    Put,
    Queue,
    Region,
    Schedule,
    Task,
    Team,
)
from tests.builders import small_layer, standard_buffers

ROUND = replace(
    load_machine("ascend_a3"),
    task_fetch_us=1.0,
    event_set_us=2.0,
    event_visible_us=10.0,
    event_poll_us=3.0,
    put_issue_us=5.0,
    across_issue_us=7.0,
    hop_us=100.0,
    kernel_launch_us=1000.0,
    host_launch_us=200.0,
    sync_all_us=50.0,
    hbm_gbps=1000.0,  # 1e6 bytes/us: memory is never in the way ...
    hbm_core_gbps=1000.0,
    hbm_write_gbps=1000.0,
    l2_gbps=1e6,
    gm_issue_cycles=0.0,
    core_start_us=0.0,
    dies_per_package=1,
    dies_per_node=64,
    message_half_bytes=0.0,
    link_gbps=0.001,  # ... and a link carries one byte per us.
    put_core_gbps=0.001,
    collective_gbps=0.0005,
)
ONE = Team("aiv", 0, 1)
CUBE = Team("aic", 0, 1)


def layer_of(ep: int = 1, experts: int | None = None) -> Layer:
    """Rows of one bf16 element: 2 bytes."""
    return small_layer(
        ep=ep, experts=experts or ep, top_k=1, tokens=(8,) * ep, hidden=1
    )


def program(
    layer: Layer,
    *queues: tuple[Team, list[Instr]],
    events: dict[int, int] | None = None,
    groups: tuple[tuple[int, ...], ...] | None = None,
) -> Schedule:
    """A schedule of these queues; `events` maps id to need, names are e0, e1, ..."""
    extra = (
        Buffer("p", "token", 1 << 16, "bf16", "input", 8),
        Buffer("q", "token", 1 << 16, "bf16", "output", 8),
        Buffer("small_p", "token", 1 << 12, "bf16", "input", 8),
        Buffer("small_q", "token", 1 << 12, "bf16", "output", 8),
    )
    return Schedule(
        layer=layer,
        machine="round",
        policy="hand",
        mode="forward",
        pipeline="",
        routing=Routing("balanced"),
        groups=groups or (tuple(range(layer.ep)),),
        row_chunks=1,
        buffers=standard_buffers(layer) + extra,
        events=tuple(
            Event(id, f"e{id}[0]", need) for id, need in (events or {}).items()
        ),
        queues=tuple(Queue(team, tuple(code)) for team, code in queues),
        locs=("hand.moe:7:3",),
    )


def work(small: bool = False) -> Task:
    """A vector task on all eight tokens: 8 x 65,536 results, or 8 x 4,096."""
    name = "small_q" if small else "q"
    return Task("relu", (Region(name.replace("q", "p")),), (Region(name),), Base(8))


def send(expert: int = 0, group: int = 0, event: int | None = 0, chunks: int = 1,
         transport: str = "put") -> Put:  # fmt: skip
    dest = Region("recv", expert, group)
    return Put("dispatch", expert, group, chunks, Region("x"), dest, event, transport)


def to(ep: int, table: dict[tuple[int, int], int], experts: int | None = None):
    """Counts from {(source rank, expert): rows}."""
    counts = np.zeros((ep, experts or ep), dtype=int)
    for place, rows in table.items():
        counts[place] = rows
    return counts
