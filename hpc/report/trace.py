"""A recorded simulation as Chrome trace events, for Perfetto or chrome://tracing.

A process is a rank, a track in it a core; counter tracks show the links and the HBM.
Events are written one by one, so that the memory needed does not grow with the trace.
Times are simulated microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from hpc.schedule.model import Instr, Put, Schedule, Set, Task, Wait
from hpc.schedule.render import event_names, render_instr

AIV_TRACK = 1000
"""Track id of the first AIV; an AIC's is its core number."""

COLOURS = {
    "wait": "terrible",
    "barrier": "bad",
    "aic": "thread_state_running",
    "aiv": "thread_state_runnable",
    "put": "rail_load",
    "set": "grey",
}
"""Names from the fixed palette of the trace format."""


@dataclass(frozen=True, slots=True)
class Span:
    """What one core did from `start_us` to `end_us`: instruction `index` of `queue`.
    `blocked` says why it waits for ever, if it does."""

    rank: int
    unit: str
    core: int
    queue: int
    index: int
    start_us: float
    end_us: float
    blocked: str = ""


@dataclass(frozen=True, slots=True)
class Rate:
    """A resource of a rank used at `gbps` between two times; rates add up."""

    rank: int
    resource: str
    start_us: float
    end_us: float
    gbps: float


Event = dict[str, object]


def write_trace(
    stream: IO[str],
    schedule: Schedule,
    spans: Iterable[Span],
    rates: Iterable[Rate],
) -> None:
    """Write the whole trace; one event a line, in an order that depends on nothing
    but the recording."""
    about = {
        "layer": schedule.layer.name,
        "machine": schedule.machine,
        "policy": schedule.policy,
        "times": "simulated microseconds",
    }
    stream.write(f'{{"displayTimeUnit": "ns", "otherData": {json.dumps(about)},\n')
    stream.write('"traceEvents": [\n')
    separator = ""
    for event in _events(schedule, spans, rates):
        stream.write(separator + json.dumps(event, separators=(",", ":")))
        separator = ",\n"
    stream.write("\n]}\n")


def _events(
    schedule: Schedule, spans: Iterable[Span], rates: Iterable[Rate]
) -> Iterator[Event]:
    yield from _names(schedule)
    yield from _span_events(schedule, spans)
    yield from _counter_events(rates)


def _names(schedule: Schedule) -> Iterator[Event]:
    """Names and order of the processes and tracks."""
    tracks = sorted(
        {
            (track(queue.team.unit, core), f"{queue.team.unit} {core}")
            for queue in schedule.queues
            for core in range(queue.team.first, queue.team.first + queue.team.size)
        }
    )
    for rank in range(schedule.layer.ep):
        yield _meta("process_name", rank, None, {"name": f"rank {rank}"})
        yield _meta("process_sort_index", rank, None, {"sort_index": rank})
        for tid, name in tracks:
            yield _meta("thread_name", rank, tid, {"name": name})
            yield _meta("thread_sort_index", rank, tid, {"sort_index": tid})


def track(unit: str, core: int) -> int:
    """Track id of a core."""
    return core if unit == "aic" else AIV_TRACK + core


def _meta(name: str, rank: int, tid: int | None, args: Event) -> Event:
    thread: Event = {} if tid is None else {"tid": tid}
    return {"name": name, "ph": "M", "pid": rank, **thread, "args": args}


def _span_events(schedule: Schedule, spans: Iterable[Span]) -> Iterator[Event]:
    """A slice for each span that lasts; its text is made once per instruction."""
    names = event_names(schedule)
    texts: dict[tuple[int, int], Event] = {}
    for span in spans:
        if span.end_us <= span.start_us:
            continue
        key = (span.queue, span.index)
        if key not in texts:
            instr = schedule.queues[span.queue].code[span.index]
            texts[key] = _slice(schedule, instr, span, names)
        yield {
            **(_blocked(texts[key], span) if span.blocked else texts[key]),
            "ph": "X",
            "pid": span.rank,
            "tid": track(span.unit, span.core),
            "ts": round(span.start_us, 4),
            "dur": round(span.end_us - span.start_us, 4),
        }


def _blocked(event: Event, span: Span) -> Event:
    """The slice of a wait that never ends, with the reason."""
    args = event["args"]
    assert isinstance(args, dict)
    return {
        **event,
        "name": f"blocked: {event['name']}",
        "args": {**args, "blocked": span.blocked},
    }


def _slice(
    schedule: Schedule, instr: Instr, span: Span, names: dict[int, str]
) -> Event:
    """What is the same for all slices of an instruction."""
    kind = _kind(instr, span)
    where = schedule.locs[instr.loc] if instr.loc < len(schedule.locs) else ""
    return {
        "name": _title(instr, span, names),
        "cat": kind,
        "cname": COLOURS[kind],
        "args": {
            "instruction": render_instr(schedule, instr, names),
            "queue": span.queue,
            "index": span.index,
            "source": where,
        },
    }


def _kind(instr: Instr, span: Span) -> str:
    match instr:
        case Wait():
            return "wait"
        case Set():
            return "set"
        case Put():
            return "put"
        case Task():
            return span.unit
        case _:
            return "barrier"


def _title(instr: Instr, span: Span, names: dict[int, str]) -> str:
    """Short text on the slice; a wait says what it waits for."""
    match instr:
        case Wait(event):
            return f"wait {names.get(event, event)}"
        case Set(event):
            return f"set {names.get(event, event)}"
        case Put(kind, expert, group):
            return f"{kind} [{expert},{group}]"
        case Task(op):
            region = instr.writes[0]
            part = [str(i) for i in (region.expert, region.part) if i is not None]
            return f"{op} {region.buffer}[{','.join(part)}]" if part else op
        case _:
            return f"barrier {instr.scope}"


def _counter_events(rates: Iterable[Rate]) -> Iterator[Event]:
    """Steps of each resource's total rate, by rank, resource and time."""
    steps: dict[tuple[int, str], dict[float, float]] = {}
    for rate in rates:
        if rate.end_us <= rate.start_us:
            continue
        changes = steps.setdefault((rate.rank, rate.resource), {})
        changes[rate.start_us] = changes.get(rate.start_us, 0.0) + rate.gbps
        changes[rate.end_us] = changes.get(rate.end_us, 0.0) - rate.gbps
    for (rank, resource), changes in sorted(steps.items()):
        total = 0.0
        for time in sorted(changes):
            total += changes[time]
            yield {
                "name": resource,
                "ph": "C",
                "pid": rank,
                "ts": round(time, 4),
                "args": {"GB/s": round(max(total, 0.0), 3)},
            }
