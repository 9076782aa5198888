"""Schedules written by hand in Python, for tests that must not need the compiler."""

from __future__ import annotations

from hpc.schedule.layer import Activation, Layer, Routing
from hpc.schedule.model import (
    Base,
    Buffer,
    Event,
    Instr,
    Put,
    Queue,
    Region,
    Schedule,
    Set,
    Task,
    Team,
    Wait,
)

AIC = Team("aic", 0, 24)
COMM = Team("aiv", 0, 24)
VEC = Team("aiv", 24, 24)


def small_layer(**changes: object) -> Layer:
    """2 ranks, 4 experts, top-2, 16 tokens, 32 x 16, bf16, unless changed."""
    values: dict[str, object] = {
        "name": "small",
        "tokens": (16, 16),
        "hidden": 32,
        "intermediate": 16,
        "experts": 4,
        "top_k": 2,
        "activation": Activation("swiglu"),
        "dtype": "bf16",
        "ep": 2,
    }
    return Layer(**{**values, **changes})  # type: ignore[arg-type]


def standard_schedule(
    layer: Layer,
    groups: tuple[tuple[int, ...], ...] | None = None,
    chunks: int = 1,
    routing: Routing = Routing("balanced"),  # noqa: B008  (frozen)
    m: int = 128,
    base: Base = Base(128, 256, 64),  # noqa: B008  (frozen)
    machine: str = "ascend_a3",
) -> Schedule:
    """The standard forward flow on three teams (AIC, communication, vector)."""
    groups = groups or (tuple(range(layer.ep)),)
    pairs = [(e, g) for e in range(layer.local_experts) for g in range(len(groups))]
    size = {AIC: AIC.size, VEC: VEC.size}
    events: list[Event] = []
    ids: dict[tuple[str, int, int], int] = {}
    for name in ("arrived", "up_done", "act_done", "down_done"):
        for e, g in pairs:
            need = size[VEC if name == "act_done" else AIC]
            if name == "arrived":
                need = len(groups[g]) * chunks
            ids[name, e, g] = len(events)
            events.append(Event(len(events), f"{name}[{e},{g}]", need))
    returned = len(events)
    events.append(Event(returned, "returned", layer.local_experts * layer.ep * chunks))

    def wait(name: str, e: int, g: int) -> Wait:
        event = events[ids[name, e, g]]
        return Wait(event.id, event.need)

    up = lambda e, g: Task(  # noqa: E731
        "gmm", (Region("recv", e, g), Region("w_up", e)), (Region("h", e, g),), base
    )
    down = lambda e, g: Task(  # noqa: E731
        "gmm", (Region("a", e, g), Region("w_down", e)), (Region("y", e, g),), base
    )
    act = lambda e, g: Task(  # noqa: E731
        layer.activation.name, (Region("h", e, g),), (Region("a", e, g),), Base(m)
    )
    aic: list[Instr] = []
    comm: list[Instr] = []
    vec: list[Instr] = []
    for e, g in pairs:
        dest = Region("recv", e, g)
        arrived = ids["arrived", e, g]
        comm += [
            Put(
                "dispatch",
                e,
                g,
                chunks,
                Region("x"),
                dest,
                arrived,
                scale=layer.weights_at == "input",
            )
        ]
        aic += [wait("arrived", e, g), up(e, g), Set(ids["up_done", e, g])]
        vec += [wait("up_done", e, g), act(e, g), Set(ids["act_done", e, g])]
    for e, g in pairs:
        aic += [wait("act_done", e, g), down(e, g), Set(ids["down_done", e, g])]
        source = Region("y", e, g)
        comm += [
            wait("down_done", e, g),
            Put("combine", e, g, chunks, source, Region("back", e, g), returned),
        ]
    reads = (Region("back"),)
    if layer.weights_at == "output":
        reads += (Region("router"),)
    vec += [
        Wait(returned, events[returned].need),
        Task("reduce", reads, (Region("out", None, 0),), Base(m)),
    ]
    return Schedule(
        layer=layer,
        machine=machine,
        policy="hand",
        mode="forward",
        pipeline="",
        routing=routing,
        groups=groups,
        row_chunks=1,
        buffers=standard_buffers(layer),
        events=tuple(events),
        queues=(
            Queue(AIC, tuple(aic)),
            Queue(COMM, tuple(comm)),
            Queue(VEC, tuple(vec)),
        ),
        locs=("hand.moe:1:1",),
    )


def standard_buffers(layer: Layer) -> tuple[Buffer, ...]:
    """Buffers of the standard flow, with the worst-case receive bound."""
    most = min(layer.top_k, layer.local_experts)
    rows = layer.max_tokens * layer.ep * most
    slots = layer.max_tokens * layer.top_k
    t = layer.dtype
    return (
        Buffer("x", "token", layer.hidden, t, "input", layer.max_tokens),
        Buffer("router", "slot", 1, "fp32", "input", slots),
        Buffer(
            "w_up",
            "weight",
            layer.up_width,
            t,
            "weight",
            layer.local_experts,
            rows=layer.hidden,
        ),
        Buffer(
            "w_down",
            "weight",
            layer.hidden,
            t,
            "weight",
            layer.local_experts,
            rows=layer.intermediate,
        ),
        Buffer("recv", "routed", layer.hidden, t, "workspace", rows, symmetric=True),
        Buffer("h", "routed", layer.up_width, t, "workspace", rows),
        Buffer("a", "routed", layer.intermediate, t, "workspace", rows),
        Buffer("y", "routed", layer.hidden, t, "workspace", rows),
        Buffer("back", "slot", layer.hidden, t, "workspace", slots, symmetric=True),
        Buffer("out", "token", layer.hidden, t, "output", layer.max_tokens),
    )
