"""Schedules written by hand in Python, for tests that must not need the compiler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
    """The counters of the standard flow: four kinds a pair, and "returned".

    `kinds` name, in this order, what dispatch, the first GMM, the activation and the
    second GMM count; ids begin at `first`.
    """

    def __init__(
        self,
        layer: Layer,
        groups: Groups,
        chunks: int,
        flow: Flow,
        first: int = 0,
        kinds: tuple[str, ...] = ("arrived", "up_done", "act_done", "down_done"),
        last: str = "returned",
    ):
        self.all: list[Event] = []
        for name in kinds:
            for e, g in flow.pairs:
                need = VEC.size if name == kinds[2] else AIC.size
                if name == kinds[0]:
                    need = len(groups[g]) * chunks
                event = Event(first + len(self.all), f"{name}[{e},{g}]", need)
                self.all.append(event)
        need = layer.local_experts * layer.ep * chunks
        self.all.append(Event(first + len(self.all), last, need))
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


class Gradients:
    """Instructions of the standard backward flow, as `Flow` for the forward one."""

    def __init__(self, flow: Flow):
        self.layer, self.chunks = flow.layer, flow.chunks
        self.m, self.base, self.pairs = flow.m, flow.base, flow.pairs
        self.scaled = self.layer.weights_at == "output"

    def dispatch(self, e: int, g: int, event: int | None, transport: str) -> Put:
        dot = (Region("back", e, g), Region("dweights", e, g)) if self.scaled else ()
        source, dest = Region("dout"), Region("dy", e, g)
        where = (source, dest, event, transport, self.scaled, dot)
        return Put("dispatch", e, g, self.chunks, *where)

    def down(self, e: int, g: int) -> Task:
        reads = (Region("dy", e, g), Region("w_down", e))
        return Task("gmm_nt", reads, (Region("da", e, g),), self.base)

    def activation(self, e: int, g: int) -> Task:
        op = self.layer.activation.name + "_grad"
        reads = (Region("h", e, g), Region("da", e, g))
        return Task(op, reads, (Region("dh", e, g),), Base(self.m))

    def up(self, e: int, g: int) -> Task:
        reads = (Region("dh", e, g), Region("w_up", e))
        return Task("gmm_nt", reads, (Region("dx_rows", e, g),), self.base)

    def weight(self, e: int, name: str) -> Task:
        pair = ("recv", "dh") if name == "w_up" else ("a", "dy")
        reads = tuple(Region(rows, e) for rows in pair)
        return Task("gmm_tn", reads, (Region(f"d{name}", e),), self.base)

    def combine(self, e: int, g: int, event: int | None, transport: str) -> Put:
        source, dest = Region("dx_rows", e, g), Region("dback", e, g)
        return Put("combine", e, g, self.chunks, source, dest, event, transport)

    def reduce(self) -> Task:
        dx, dback = Region("dx", None, 0), Region("dback")
        if self.scaled:
            return Task("reduce", (dback,), (dx,), Base(self.m))
        reads = (dback, Region("router"), Region("x", None, 0))
        return Task("reduce_dot", reads, (dx, Region("dweights")), Base(self.m))


def backward_schedule(
    layer: Layer, groups: Groups | None = None, chunks: int = 1, **how: Any
) -> Schedule:
    """The standard backward flow on three teams; arguments as `standard_schedule`."""
    forward = standard_schedule(layer, groups, chunks, **how)
    code, events = _backward(forward, chunks, how, 0)
    return replace(
        forward,
        mode="backward",
        buffers=gradient_buffers(layer, "backward"),
        events=events,
        queues=_queues(code),
    )


def train_schedule(
    layer: Layer, groups: Groups | None = None, chunks: int = 1, **how: Any
) -> Schedule:
    """Forward, then backward: what communicates waits for all expert rows first."""
    forward = standard_schedule(layer, groups, chunks, **how)
    code, events = _backward(forward, chunks, how, len(forward.events))
    returned = forward.events[-1]
    first = [q.code for q in forward.queues]
    joined = (
        (*first[0], *code[0]),
        (*first[1], Wait(returned.id, returned.need), *code[1]),
        (*first[2], *code[2]),
    )
    return replace(
        forward,
        mode="train",
        buffers=standard_buffers(layer) + gradient_buffers(layer, "train"),
        events=forward.events + events,
        queues=_queues(joined),
    )


Codes = tuple[tuple[Instr, ...], tuple[Instr, ...], tuple[Instr, ...]]


def _backward(
    forward: Schedule, chunks: int, how: dict[str, Any], first: int
) -> tuple[Codes, tuple[Event, ...]]:
    """Code of AIC, communication and vector team, and events from id `first` on."""
    layer, groups = forward.layer, forward.groups
    base = how.get("base", Base(128, 256, 64))
    flow = Flow(layer, groups, chunks, how.get("m", 128), base)
    grad = Gradients(flow)
    kinds = ("dy_arrived", "da_done", "dh_done", "rows_done")
    events = Events(layer, groups, chunks, flow, first, kinds, "dback_returned")
    returned = events.all[-1]
    aic: list[Instr] = []
    comm: list[Instr] = []
    vec: list[Instr] = []
    for e, g in flow.pairs:
        comm += [grad.dispatch(e, g, events.id("dy_arrived", e, g), "put")]
        aic += [events.wait("dy_arrived", e, g), grad.down(e, g)]
        aic += [events.set("da_done", e, g)]
        vec += [events.wait("da_done", e, g), grad.activation(e, g)]
        vec += [events.set("dh_done", e, g)]
    for e, g in flow.pairs:
        aic += [events.wait("dh_done", e, g), grad.up(e, g)]
        aic += [events.set("rows_done", e, g)]
        comm += [events.wait("rows_done", e, g)]
        comm += [grad.combine(e, g, returned.id, "put")]
    for e in range(layer.local_experts):
        aic += [grad.weight(e, "w_down"), grad.weight(e, "w_up")]
    vec += [Wait(returned.id, returned.need), grad.reduce()]
    return (tuple(aic), tuple(comm), tuple(vec)), tuple(events.all)


def _queues(code: Codes) -> tuple[Queue, ...]:
    teams = (AIC, COMM, VEC)
    return tuple(Queue(team, c) for team, c in zip(teams, code, strict=True))


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


def gradient_buffers(layer: Layer, mode: str) -> tuple[Buffer, ...]:
    """All buffers of a backward program, or what a train program has in addition."""
    forward = {b.name: b for b in standard_buffers(layer)}
    slots, x = forward["back"].capacity_rows, forward["x"]
    like = lambda old, new, role: replace(forward[old], name=new, role=role)  # noqa: E731
    found = [
        like("x", "dout", "input"),
        like("recv", "dy", "workspace"),
        like("a", "da", "workspace"),
        like("h", "dh", "workspace"),
        like("y", "dx_rows", "workspace"),
        like("back", "dback", "workspace"),
        like("x", "dx", "output"),
        like("w_up", "dw_up", "output"),
        like("w_down", "dw_down", "output"),
        Buffer("dweights", "slot", 1, "fp32", "output", slots),
    ]
    if mode == "backward":
        saved = ["recv", "h", "a"] + ["back"] * (layer.weights_at == "output")
        found += [
            replace(forward[n], role="saved", symmetric=False, formula="")
            for n in saved
        ]
        found += [forward[name] for name in ("router", "w_up", "w_down")]
        found += [x] * (layer.weights_at == "input")
    return tuple(found)


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
