"""Schedules written by hand in Python, for tests that must not need the compiler."""

from __future__ import annotations

from dataclasses import replace

from hpc.schedule.layer import Activation, Layer, Routing
from hpc.schedule.model import (
    Barrier,
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
ALL_AIV = Team("aiv", 0, 48)

Groups = tuple[tuple[int, ...], ...]


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


class Flow:
    """Instructions of the standard flow, one (expert, group) at a time."""

    def __init__(self, layer: Layer, groups: Groups, chunks: int, m: int, base: Base):
        self.layer, self.chunks, self.m, self.base = layer, chunks, m, base
        self.pairs = [
            (e, g) for e in range(layer.local_experts) for g in range(len(groups))
        ]

    def dispatch(self, e: int, g: int, event: int | None, transport: str) -> Put:
        scale = self.layer.weights_at == "input"
        source, dest = Region("x"), Region("recv", e, g)
        return Put("dispatch", e, g, self.chunks, source, dest, event, transport, scale)

    def up(self, e: int, g: int) -> Task:
        reads = (Region("recv", e, g), Region("w_up", e))
        return Task("gmm", reads, (Region("h", e, g),), self.base)

    def activation(self, e: int, g: int) -> Task:
        op = self.layer.activation.name
        return Task(op, (Region("h", e, g),), (Region("a", e, g),), Base(self.m))

    def down(self, e: int, g: int) -> Task:
        reads = (Region("a", e, g), Region("w_down", e))
        return Task("gmm", reads, (Region("y", e, g),), self.base)

    def combine(self, e: int, g: int, event: int | None, transport: str) -> Put:
        source, dest = Region("y", e, g), Region("back", e, g)
        return Put("combine", e, g, self.chunks, source, dest, event, transport)

    def reduce(self) -> Task:
        reads = (Region("back"), Region("router"))
        if self.layer.weights_at == "input":
            reads = reads[:1]
        return Task("reduce", reads, (Region("out", None, 0),), Base(self.m))


class Events:
    """The counters of the standard flow: four kinds a pair, and "returned"."""

    def __init__(self, layer: Layer, groups: Groups, chunks: int, flow: Flow):
        self.all: list[Event] = []
        for name in ("arrived", "up_done", "act_done", "down_done"):
            for e, g in flow.pairs:
                need = VEC.size if name == "act_done" else AIC.size
                if name == "arrived":
                    need = len(groups[g]) * chunks
                self.all.append(Event(len(self.all), f"{name}[{e},{g}]", need))
        need = layer.local_experts * layer.ep * chunks
        self.all.append(Event(len(self.all), "returned", need))
        self.by_name = {event.name: event for event in self.all}

    def id(self, name: str, e: int, g: int) -> int:
        return self.by_name[f"{name}[{e},{g}]"].id

    def set(self, name: str, e: int, g: int) -> Set:
        return Set(self.id(name, e, g))

    def wait(self, name: str, e: int, g: int) -> Wait:
        event = self.by_name[f"{name}[{e},{g}]"]
        return Wait(event.id, event.need)


def standard_schedule(
    layer: Layer,
    groups: Groups | None = None,
    chunks: int = 1,
    routing: Routing = Routing("balanced"),  # noqa: B008  (frozen)
    m: int = 128,
    base: Base = Base(128, 256, 64),  # noqa: B008  (frozen)
    machine: str = "ascend_a3",
) -> Schedule:
    """The standard forward flow on three teams (AIC, communication, vector)."""
    groups = groups or (tuple(range(layer.ep)),)
    flow = Flow(layer, groups, chunks, m, base)
    events = Events(layer, groups, chunks, flow)
    returned = events.by_name["returned"]
    aic: list[Instr] = []
    comm: list[Instr] = []
    vec: list[Instr] = []
    for e, g in flow.pairs:
        comm += [flow.dispatch(e, g, events.id("arrived", e, g), "put")]
        aic += [events.wait("arrived", e, g), flow.up(e, g)]
        aic += [events.set("up_done", e, g)]
        vec += [events.wait("up_done", e, g), flow.activation(e, g)]
        vec += [events.set("act_done", e, g)]
    for e, g in flow.pairs:
        aic += [events.wait("act_done", e, g), flow.down(e, g)]
        aic += [events.set("down_done", e, g)]
        comm += [events.wait("down_done", e, g)]
        comm += [flow.combine(e, g, returned.id, "put")]
    vec += [Wait(returned.id, returned.need), flow.reduce()]
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
        events=tuple(events.all),
        queues=tuple(
            Queue(team, tuple(code))
            for team, code in ((AIC, aic), (COMM, comm), (VEC, vec))
        ),
        locs=("hand.moe:1:1",),
    )


def serial_schedule(layer: Layer, groups: Groups | None = None) -> Schedule:
    """The same flow without events: world barriers between the operators."""
    groups = groups or (tuple(range(layer.ep)),)
    flow = Flow(layer, groups, 1, 128, Base(128, 256, 64))
    code: dict[Team, list[Instr]] = {AIC: [], ALL_AIV: []}
    steps: list[tuple[Team, list[Instr]]] = [
        (ALL_AIV, [flow.dispatch(*p, None, "collective") for p in flow.pairs]),
        (AIC, [flow.up(*p) for p in flow.pairs]),
        (ALL_AIV, [flow.activation(*p) for p in flow.pairs]),
        (AIC, [flow.down(*p) for p in flow.pairs]),
        (ALL_AIV, [flow.combine(*p, None, "collective") for p in flow.pairs]),
        (ALL_AIV, [flow.reduce()]),
    ]
    for team, instrs in steps:
        code[team] += instrs
        for each in code.values():
            each.append(Barrier("world", launch=True))
    queues = tuple(Queue(team, tuple(instrs)) for team, instrs in code.items())
    standard = standard_schedule(layer, groups)
    return replace(standard, policy="serial", events=(), queues=queues)


def standard_buffers(layer: Layer) -> tuple[Buffer, ...]:
    """Buffers of the standard flow, with the worst-case receive bound."""
    rows = layer.max_tokens * layer.ep * min(layer.top_k, layer.local_experts)
    slots = layer.max_tokens * layer.top_k
    experts, t = layer.local_experts, layer.dtype
    hidden, inner, up = layer.hidden, layer.intermediate, layer.up_width
    return (
        Buffer("x", "token", hidden, t, "input", layer.max_tokens),
        Buffer("router", "slot", 1, "fp32", "input", slots),
        Buffer("w_up", "weight", up, t, "weight", experts, rows=hidden),
        Buffer("w_down", "weight", hidden, t, "weight", experts, rows=inner),
        Buffer("recv", "routed", hidden, t, "workspace", rows, symmetric=True),
        Buffer("h", "routed", up, t, "workspace", rows),
        Buffer("a", "routed", inner, t, "workspace", rows),
        Buffer("y", "routed", hidden, t, "workspace", rows),
        Buffer("back", "slot", hidden, t, "workspace", slots, symmetric=True),
        Buffer("out", "token", hidden, t, "output", layer.max_tokens),
    )


def with_code(s: Schedule, queue: int, code: list[Instr]) -> Schedule:
    """`s` with other instructions in one queue."""
    queues = list(s.queues)
    queues[queue] = replace(queues[queue], code=tuple(code))
    return replace(s, queues=tuple(queues))


def dropped(s: Schedule, queue: int, index: int) -> Schedule:
    """`s` without one instruction."""
    code = list(s.queues[queue].code)
    del code[index]
    return with_code(s, queue, code)


def inserted(s: Schedule, queue: int, index: int, instr: Instr) -> Schedule:
    """`s` with one more instruction, in front of `index`."""
    code = list(s.queues[queue].code)
    code.insert(index, instr)
    return with_code(s, queue, code)


def moved(s: Schedule, queue: int, index: int, to: int) -> Schedule:
    """`s` with one instruction moved to position `to` of its queue."""
    code = list(s.queues[queue].code)
    code.insert(to, code.pop(index))
    return with_code(s, queue, code)


def edited(s: Schedule, queue: int, index: int, **changes: object) -> Schedule:
    """`s` with fields of one instruction changed."""
    code = list(s.queues[queue].code)
    code[index] = replace(code[index], **changes)
    return with_code(s, queue, code)


def with_buffer(s: Schedule, name: str, **changes: object) -> Schedule:
    """`s` with fields of one buffer changed."""
    buffers = [replace(b, **changes) if b.name == name else b for b in s.buffers]
    return replace(s, buffers=tuple(buffers))


def with_event(s: Schedule, name: str, **changes: object) -> Schedule:
    """`s` with fields of one event changed."""
    events = [replace(e, **changes) if e.name == name else e for e in s.events]
    return replace(s, events=tuple(events))


def with_team(s: Schedule, queue: int, team: Team) -> Schedule:
    """`s` with another team for one queue; thresholds stay as they are."""
    queues = list(s.queues)
    queues[queue] = replace(queues[queue], team=team)
    return replace(s, queues=tuple(queues))
