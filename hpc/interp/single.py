"""Schedules of one operator, for runs beside published measurements of operators.

They are ordinary schedules: engine, cost model and cache treat them as compiled ones.
Only what is timed is in them: operands are inputs, results outputs.
"""

from __future__ import annotations

from dataclasses import replace

from hpc.machine.record import Machine
from hpc.machine.tiles import choose_gmm_tile
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


def gmm_schedule(
    machine: Machine, rows: int, n: int, k: int, groups: int, dtype: str
) -> Schedule:
    """`groups` products of rows / groups x k by k x n, on all AICs of one die."""
    layer = _layer("gmm", rows, k, n, dtype, experts=groups)
    share = -(-rows // groups)
    base = choose_gmm_tile(machine, share, n, k, dtype, machine.aic_cores)
    code = [
        Task("gmm", (Region("p", e, 0), Region("w", e)), (Region("q", e, 0),), base)
        for e in range(groups)
    ]
    buffers = (
        Buffer("p", "routed", k, dtype, "input", rows),
        Buffer("w", "weight", n, dtype, "weight", groups, k),
        Buffer("q", "routed", n, dtype, "output", rows),
    )
    return _schedule(machine, layer, buffers, Team("aic", 0, machine.aic_cores), code)


def vector_schedule(
    machine: Machine,
    op: str,
    rows: int,
    read_cols: int,
    write_cols: int,
    dtype: str,
    tile_rows: int = 0,
    passes: int = 1,
    blocks: int = 1,
) -> Schedule:
    """One vector operator over token rows, on all AIVs of one die.

    `tile_rows` is the height of a tile, 0 for one tile a core. The rows are cut into
    `blocks`, and each block is worked on `passes` times before the next one begins.
    """
    layer = _layer(op, rows, read_cols, write_cols, dtype)
    share = -(-rows // blocks)
    tile = Base(tile_rows or -(-share // machine.aiv_cores))
    code = [
        Task(op, (Region("p", part=c),), (Region("q", part=c),), tile)
        for c in range(blocks)
        for _ in range(passes)
    ]
    buffers = (
        Buffer("p", "token", read_cols, dtype, "input", rows),
        Buffer("q", "token", write_cols, dtype, "output", rows),
    )
    cores = min(machine.aiv_cores, -(-share // tile.m))
    team = Team("aiv", 0, cores)
    return _schedule(machine, layer, buffers, team, code, blocks=blocks)


def exchange_schedule(
    machine: Machine,
    which: str,
    tokens: int,
    cols: int,
    dtype: str,
    ep: int,
    experts: int,
    top_k: int,
    rows_per_put: int,
    window: int = 0,
    counted: int = 0,
) -> Schedule:
    """A dispatch, or a combine with the sum over the slots, of all ranks, by puts.

    Every expert's rows for one rank go in puts of `rows_per_put`; all cores wait for
    all that this rank receives. A dispatch with `window` writes rows without signals;
    behind a barrier of the die, one flag for each expert goes to every rank, and what
    arrived is copied out of the window. One that is `counted` packs rows densely, so
    it first sums the table of all ranks' counts, one number after the other.
    """
    layer = _layer(which, tokens, cols, cols, dtype, experts, top_k, ep)
    chunks = max(1, -(-tokens * top_k // experts // rows_per_put))
    team = Team("aiv", 0, machine.aiv_cores)
    if which == "combine":
        code, buffers, need = _combine(layer, chunks, machine.aiv_cores)
    else:
        code, buffers, need = _dispatch(layer, chunks, signalled=not window)
    if window:
        return _with_window(machine, layer, team, code, buffers)
    events, blocks = (Event(0, "arrived[0]", need),), 1
    if counted:
        first, table, blocks = _offsets(layer)
        code, buffers = [*first, *code], (*buffers, *table)
    return _schedule(machine, layer, buffers, team, code, events, blocks)


_Parts = tuple[list[Instr], tuple[Buffer, ...], int]


def _dispatch(layer: Layer, chunks: int, *, signalled: bool) -> _Parts:
    """Puts of all experts, the buffers, and the signals a rank receives."""
    need = layer.local_experts * layer.ep * chunks
    event = 0 if signalled else None
    code: list[Instr] = [
        Put("dispatch", e, 0, chunks, Region("x"), Region("recv", e, 0), event)
        for e in range(layer.local_experts)
    ]
    rows, cols, dtype = layer.max_tokens * layer.top_k, layer.hidden, layer.dtype
    buffers = (
        Buffer("x", "token", cols, dtype, "input", layer.max_tokens),
        Buffer("recv", "routed", cols, dtype, "output", rows, symmetric=True),
    )
    return [*code, *([Wait(0, need)] if signalled else [])], buffers, need


def _offsets(layer: Layer) -> tuple[list[Instr], tuple[Buffer, ...], int]:
    """The sums over the table [ranks, experts] of counts on one core, for which all
    wait; the table and its sums; and in how many blocks tokens are cut so that one has
    as many rows as the table, or nearly."""
    blocks = max(1, layer.max_tokens // layer.ep)
    rows = layer.max_tokens // blocks
    cols = -(-layer.ep * layer.experts // rows)
    code: list[Instr] = [
        Task(
            "offsets", (Region("counts", part=0),), (Region("at", part=0),), Base(rows)
        ),
        Barrier("rank"),
    ]
    buffers = (
        Buffer("counts", "token", cols, "fp32", "input", layer.max_tokens),
        Buffer("at", "token", cols, "fp32", "workspace", layer.max_tokens),
    )
    return code, buffers, blocks


def _combine(layer: Layer, chunks: int, cores: int) -> _Parts:
    """As `_dispatch`, with the sum over the slots behind it."""
    need = layer.local_experts * layer.ep * chunks
    code: list[Instr] = [
        Put("combine", e, 0, chunks, Region("y", e, 0), Region("back", e, 0), 0)
        for e in range(layer.local_experts)
    ]
    height = Base(-(-layer.max_tokens // cores))
    code += [
        Wait(0, need),
        Task("reduce", (Region("back"),), (Region("out", part=0),), height),
    ]
    rows, cols, dtype = layer.max_tokens * layer.top_k, layer.hidden, layer.dtype
    buffers = (
        Buffer("y", "routed", cols, dtype, "input", rows),
        Buffer("back", "slot", cols, dtype, "workspace", rows, symmetric=True),
        Buffer("out", "token", cols, dtype, "output", layer.max_tokens),
    )
    return code, buffers, need


def _with_window(
    machine: Machine,
    layer: Layer,
    team: Team,
    puts: list[Instr],
    buffers: tuple[Buffer, ...],
) -> Schedule:
    """Flags are puts of no rows: each rank owns as many experts again, unchosen."""
    local = layer.local_experts
    counts = [layer.max_tokens * layer.top_k // layer.experts] * local + [0] * local
    flags: list[Instr] = [
        Put("dispatch", local + e, 0, 1, Region("x"), Region("recv", local + e, 0), 0)
        for e in range(local)
    ]
    copies: list[Instr] = [
        Task("load", (Region("recv", e, 0),), (Region("out", e, 0),), Base(1))
        for e in range(local)
    ]
    rows = layer.max_tokens * layer.top_k
    out = Buffer("out", "routed", layer.hidden, layer.dtype, "output", rows)
    need = local * layer.ep
    code = [*puts, Barrier("rank"), *flags, Wait(0, need), *copies]
    schedule = _schedule(
        machine,
        replace(layer, experts=2 * layer.experts),
        (*buffers, out),
        team,
        code,
        events=(Event(0, "arrived[0]", need),),
    )
    table = (tuple(counts * layer.ep),) * layer.ep
    return replace(schedule, routing=Routing("counts", counts=table))


def _layer(
    name: str,
    tokens: int,
    hidden: int,
    intermediate: int,
    dtype: str,
    experts: int = 1,
    top_k: int = 1,
    ep: int = 1,
) -> Layer:
    return Layer(
        name=name,
        tokens=(tokens,) * ep,
        hidden=hidden,
        intermediate=intermediate,
        experts=experts,
        top_k=top_k,
        activation=Activation("swiglu"),
        dtype=dtype,
        ep=ep,
    )


def _schedule(
    machine: Machine,
    layer: Layer,
    buffers: tuple[Buffer, ...],
    team: Team,
    code: list[Instr] | list[Task],
    events: tuple[Event, ...] = (),
    blocks: int = 1,
) -> Schedule:
    return Schedule(
        layer=layer,
        machine=machine.name,
        policy="hand",
        mode="forward",
        pipeline="",
        routing=Routing("balanced"),
        groups=(tuple(range(layer.ep)),),
        row_chunks=blocks,
        buffers=buffers,
        events=events,
        queues=(Queue(team, tuple(code)),),
        locs=(f"{layer.name}:1:1",),
    )


def pair_schedule(
    machine: Machine, rows: int, cols: int, dtype: str, blocks: int, interleaved: int
) -> Schedule:
    """SwiGLU to `cols` columns, then the sum with another input, on all AIVs.

    Both work on the rows in `blocks`, and an event for each block says that its SwiGLU
    is done. `interleaved`: the sum of a block follows the SwiGLU of the next one;
    otherwise all SwiGLUs come first.
    """
    layer = _layer("pair", rows, 2 * cols, cols, dtype)
    team = Team("aiv", 0, machine.aiv_cores)
    tile = Base(-(-rows // blocks // team.size))
    first: list[list[Instr]] = [
        [Task("swiglu", (Region("p", part=b),), (Region("s", part=b),), tile), Set(b)]
        for b in range(blocks)
    ]
    second: list[list[Instr]] = [
        [
            Wait(b, team.size),
            Task(
                "add",
                (Region("s", part=b), Region("r", part=b)),
                (Region("q", part=b),),
                tile,
            ),
        ]
        for b in range(blocks)
    ]
    order = [*first, *second]
    if interleaved:
        pairs = zip([*first[1:], []], second, strict=True)
        order = [first[0], *(part for pair in pairs for part in pair)]
    buffers = (
        Buffer("p", "token", 2 * cols, dtype, "input", rows),
        Buffer("r", "token", cols, dtype, "input", rows),
        Buffer("s", "token", cols, dtype, "workspace", rows),
        Buffer("q", "token", cols, dtype, "output", rows),
    )
    events = tuple(Event(b, f"s_ready[{b}]", team.size) for b in range(blocks))
    code = [instr for part in order for instr in part]
    return _schedule(machine, layer, buffers, team, code, events, blocks)
