"""Rules of the format that no execution shows: what a schedule promises besides.

From the text of `hpc.schedule.model`: counters by id, teams of cores, thresholds that
join all signals. A schedule that breaks one may run well by luck; it is not legal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpc.machine.record import Machine
from hpc.schedule.model import Barrier, Put, Region, Schedule, Set, Task, Wait

GMMS = ("gmm", "gmm_nt", "gmm_tn")


def broken_rules(s: Schedule, machine: Machine) -> Iterator[str]:
    """Broken rules of one program, in words."""
    yield from _event_rules(s, machine)
    yield from _shared_counters(s)
    yield from _barrier_rules(s)
    yield from _team_rules(s, machine)
    yield from _reference_rules(s)
    yield from _unread(s)
    yield from _group_rules(s)


def _event_rules(s: Schedule, machine: Machine) -> Iterator[str]:
    ids = [event.id for event in s.events]
    if len(set(ids)) < len(ids):
        yield "two counters have one id"
    if len({event.name for event in s.events}) < len(ids):
        yield "two counters have one name"
    for event in s.events:
        if not 0 <= event.id < machine.max_events:
            yield f"counter {event.id} of {machine.max_events}"
    for queue in s.queues:
        for instr in queue.code:
            used = instr.event if isinstance(instr, Wait | Set | Put) else None
            if used is not None and used not in ids:
                yield f"counter {used} is not declared"


def _shared_counters(s: Schedule) -> Iterator[str]:
    """A counter stands for one buffer: what a put writes, or the last work before a
    set. One that stands for two joins what has nothing to do with each other."""
    stands_for: dict[int, str] = {}
    for queue in s.queues:
        written = ""
        for instr in queue.code:
            if isinstance(instr, Put):
                written = instr.dest.buffer
            elif isinstance(instr, Task) and instr.writes:
                written = instr.writes[0].buffer
            if not isinstance(instr, Put | Set) or instr.event is None:
                continue
            first = stands_for.setdefault(instr.event, written)
            if first != written:
                yield f"counter {instr.event} stands for {first} and for {written}"


def _barrier_rules(s: Schedule) -> Iterator[str]:
    """The nth barriers of all queues are one barrier, so they say the same."""
    lists = [[i for i in q.code if isinstance(i, Barrier)] for q in s.queues]
    for n, same in enumerate(zip(*lists, strict=False)):
        if len({(barrier.scope, barrier.launch) for barrier in same}) > 1:
            yield f"barrier {n} is not the same in all queues"


def _team_rules(s: Schedule, machine: Machine) -> Iterator[str]:
    busy: set[tuple[str, int]] = set()
    for queue in s.queues:
        team = queue.team
        cores = {(team.unit, team.first + i) for i in range(team.size)}
        if not cores:
            yield "a team without cores"
        if busy & cores:
            yield f"two queues run on {sorted(busy & cores)[0]}"
        busy |= cores
        if team.first < 0 or team.first + team.size > machine.cores(team.unit):
            yield f"the machine has no {team.unit} {team.first + team.size - 1}"
        for instr in queue.code:
            if isinstance(instr, Put | Task):
                cube = isinstance(instr, Task) and instr.op in GMMS
                if cube != (team.unit == "aic"):
                    yield f"{team.unit} cannot run {instr}"


def _reference_rules(s: Schedule) -> Iterator[str]:
    names = {buffer.name for buffer in s.buffers}
    if len(names) < len(s.buffers):
        yield "two buffers have one name"
    for queue in s.queues:
        for instr in queue.code:
            if isinstance(instr, Put) and _wrong_scale(s, instr):
                yield "router weights are multiplied twice, or never"
            for region in _regions(instr):
                if region.buffer not in names:
                    yield f"no buffer {region.buffer}"


def _unread(s: Schedule) -> Iterator[str]:
    """Inputs and weights are there to be read."""
    instrs = [instr for queue in s.queues for instr in queue.code]
    puts = [i for i in instrs if isinstance(i, Put)]
    read = {r.buffer for put in puts for r in (put.source, *put.dot[:1])}
    read |= {r.buffer for i in instrs if isinstance(i, Task) for r in i.reads}
    if any(put.scale for put in puts):
        read.add("router")
    for buffer in s.buffers:
        if buffer.role in ("input", "weight", "saved") and buffer.name not in read:
            yield f"nobody reads {buffer.name}"


def _wrong_scale(s: Schedule, put: Put) -> bool:
    """In a forward program; the outputs show it in a backward one."""
    wanted = put.kind == "dispatch" and s.layer.weights_at == "input"
    return s.mode == "forward" and put.scale != wanted


def _regions(instr: object) -> tuple[Region, ...]:
    if isinstance(instr, Put):
        return instr.source, instr.dest, *instr.dot
    return (*instr.reads, *instr.writes) if isinstance(instr, Task) else ()


def _group_rules(s: Schedule) -> Iterator[str]:
    found = sorted(k for ks in s.groups for k in ks)
    if found != list(range(s.layer.ep)):
        yield f"groups {s.groups} are no partition of the sources"
    elif 0 not in s.groups[0]:
        yield "own rows are not in group 0"


def broken_joins(
    programs: Sequence[Schedule], arrived: Sequence[dict[int, int]]
) -> Iterator[str]:
    """Counters whose thresholds are not the signals that really `arrived`."""
    for rank, s in enumerate(programs):
        waits = [
            instr
            for queue in s.queues
            for instr in queue.code
            if isinstance(instr, Wait)
        ]
        waited = {wait.event for wait in waits}
        for event in s.events:
            got = arrived[rank].get(event.id, 0)
            if got != event.need:
                yield f"rank {rank}: {event.name} gets {got}, not {event.need}"
            if got and event.id not in waited:
                yield f"rank {rank}: nobody waits for {event.name}"
        for wait in waits:
            got = arrived[rank].get(wait.event, 0)
            if wait.need != got:
                yield f"rank {rank}: a wait for {wait.need} of {got} signals"


def too_small(s: Schedule, rows: Sequence[int]) -> Iterator[str]:
    """Buffers that cannot hold the `rows` which a rank has in them."""
    most = {
        "routed": max(rows),
        "token": s.layer.max_tokens,
        "slot": s.layer.max_tokens * s.layer.top_k,
    }
    for buffer in s.buffers:
        if buffer.capacity_rows < most.get(buffer.space, 0):
            yield (
                f"{buffer.name} holds {buffer.capacity_rows} rows, "
                f"{most[buffer.space]} come"
            )


def differing_programs(programs: Sequence[Schedule]) -> Iterator[str]:
    """Ranks whose queues are not those of rank 0: all ranks run the same program."""
    for rank, s in enumerate(programs[1:], 1):
        if s.queues != programs[0].queues:
            yield f"rank {rank} runs another program than rank 0"


def differing_globals(programs: Sequence[Schedule]) -> Iterator[str]:
    """Ranks that do not agree on what all ranks must share."""
    first = programs[0]
    for rank, s in enumerate(programs[1:], 1):
        for field in ("layer", "groups", "row_chunks", "buffers", "events", "routing"):
            if getattr(s, field) != getattr(first, field):
                yield f"rank {rank} has other {field} than rank 0"
