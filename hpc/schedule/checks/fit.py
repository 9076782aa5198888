"""Operands fit their operators, puts their buffers, buffers the layer."""

from __future__ import annotations

from collections.abc import Iterator

from hpc.schedule.checks import tiles
from hpc.schedule.checks.index import Index, Limits, Violation
from hpc.schedule.checks.operands import Operand, Problem, router_like
from hpc.schedule.checks.operators import OPERATORS, task_problems
from hpc.schedule.checks.router import Router
from hpc.schedule.layer import ACTIVATIONS
from hpc.schedule.model import Buffer, Put, Task

CHECK = "structure"
RULES = {
    "wrong-arity": "An operator has its number of operands and one result.",
    "wrong-space": "An operand lies in a space that the operator works on.",
    "wrong-cols": "Columns of operands and result agree.",
    "wrong-part": "An instruction reads and writes the part that it is about.",
    "wrong-unit": "Matrix work runs on AIC, vector work and puts on AIV.",
    "wrong-dtype": "Dtypes are known, agree, are the layer's, and can be multiplied.",
    **tiles.RULES,
    "wrong-activation": "On routed rows there is one activation: that of the layer.",
    "put-direction": "Dispatch goes from tokens to routed rows, combine to slots.",
    "not-symmetric": "A put writes a symmetric buffer only.",
    "router-weight": "Router weights apply once in each direction, as the layer says.",
    "small-buffer": "A buffer has room for what its space holds.",
}

_SPACES = {"dispatch": ("token", "routed"), "combine": ("routed", "slot")}


def check_fit(index: Index, limits: Limits, router: Router) -> list[Violation]:
    """All misfits of instructions and buffers; references must be sound."""
    found = [
        index.violation(CHECK, code, f'buffer "{buffer.name}": {message}')
        for buffer in index.s.buffers
        for code, message in _buffer(index, buffer)
    ]
    for place, instr in index.places():
        unit = index.s.queues[place[0]].team.unit
        problems: list[Problem] = []
        if isinstance(instr, Put):
            problems = [
                *_put(index, instr),
                *_unit("a put", "aiv", unit),
                *router.put_problems(instr),
            ]
        elif isinstance(instr, Task):
            problems = [
                *task_problems(instr, index.buffers),
                *_unit(instr.op, OPERATORS[instr.op].unit, unit),
                *_dtypes(index, instr, limits),
                *tiles.tile_problems(index, instr, limits),
                *_activation(index, instr),
                *_chunk(index, instr),
                *router.task_problems(instr),
            ]
        found += [
            index.violation(CHECK, code, message, place) for code, message in problems
        ]
    return found


def _unit(what: str, wanted: str, unit: str) -> Iterator[Problem]:
    if unit != wanted:
        yield "wrong-unit", f"{what} runs on {wanted}, this queue is on {unit}"


def _buffer(index: Index, buffer: Buffer) -> Iterator[Problem]:
    layer = index.s.layer
    least = {
        "token": (layer.max_tokens, "tokens"),
        "slot": (layer.max_tokens * layer.top_k, "tokens * top_k"),
        "weight": (layer.local_experts, "experts of a rank"),
        "routed": (0, ""),
    }
    rows, what = least[buffer.space]
    if buffer.capacity_rows < rows:
        yield (
            "small-buffer",
            f"capacity_rows is {buffer.capacity_rows}, below {rows} ({what})",
        )
    if buffer.cols < 1 or (buffer.space == "weight" and buffer.rows < 1):
        yield "small-buffer", f"it is {buffer.rows} x {buffer.cols}"


def _put(index: Index, put: Put) -> Iterator[Problem]:
    source = Operand(put.source, index.buffers[put.source.buffer])
    dest = Operand(put.dest, index.buffers[put.dest.buffer])
    part = (put.expert, put.group)
    if (source.buffer.space, dest.buffer.space) != _SPACES[put.kind]:
        wanted = " to ".join(_SPACES[put.kind])
        yield (
            "put-direction",
            f"{put.kind} goes from {wanted}, here from {source.buffer.space} "
            f"to {dest.buffer.space}",
        )
    if not dest.buffer.symmetric:
        yield "not-symmetric", f'"{dest.buffer.name}" is not symmetric'
    if dest.part != part:
        yield "wrong-part", f"a put of {list(part)} writes {list(dest.part)}"
    wanted_part = (None, None) if put.kind == "dispatch" else part
    if source.part != wanted_part:
        yield (
            "wrong-part",
            f"a {put.kind} of {list(part)} reads {list(source.part)}, "
            f"expected {list(wanted_part)}",
        )
    if source.buffer.cols != dest.buffer.cols:
        yield "wrong-cols", f"{source.size} into {dest.size}"
    if source.buffer.dtype != dest.buffer.dtype:
        yield "wrong-dtype", f"{source.buffer.dtype} into {dest.buffer.dtype}"
    if put.dot:
        yield from _dot(index, put, source)


def _dot(index: Index, put: Put, source: Operand) -> Iterator[Problem]:
    """The dot product of a put is of the slots that it sends rows for."""
    rows, result = (Operand(region, index.buffers[region.buffer]) for region in put.dot)
    if put.kind != "dispatch":
        yield "put-direction", f"a {put.kind} has no dot product, only a dispatch"
    if rows.buffer.space != "slot":
        yield (
            "wrong-space",
            f'dot with "{rows.buffer.name}" in space {rows.buffer.space}, '
            "expected slot",
        )
    yield from router_like("dot products", result)
    part = (put.expert, put.group)
    for operand in (rows, result):
        if operand.part != part:
            yield (
                "wrong-part",
                f"a put of {list(part)} has a dot product in part "
                f'{list(operand.part)} of "{operand.buffer.name}"',
            )
    if rows.buffer.cols != source.buffer.cols:
        yield "wrong-cols", f"dot of {source.size} with {rows.size}"
    if rows.buffer.dtype != source.buffer.dtype:
        yield "wrong-dtype", f"dot of {source.buffer.dtype} with {rows.buffer.dtype}"
    if result.buffer.dtype != "fp32":
        yield "wrong-dtype", "dot products must be fp32"


def _activation(index: Index, task: Task) -> Iterator[Problem]:
    name, own = task.op.removesuffix("_grad"), index.s.layer.activation.name
    if name not in ACTIVATIONS or name == own or not task.reads:
        return
    if index.buffers[task.reads[0].buffer].space == "routed":
        yield "wrong-activation", f"{task.op}, but the layer's activation is {own}"


def _chunk(index: Index, task: Task) -> Iterator[Problem]:
    """A chunk of the tokens would leave the results of all other slots unwritten."""
    if task.op != "reduce_dot" or index.s.row_chunks == 1:
        return
    for region in (*task.reads[2:3], *task.writes[:1]):
        if region.part is not None:
            yield (
                "wrong-part",
                f'chunk {region.part} of "{region.buffer}", but every slot of the '
                "rank gets a result",
            )


def _dtypes(index: Index, task: Task, limits: Limits) -> Iterator[Problem]:
    """Operands of one dtype but for numbers of the router, which are always fp32."""
    operator = OPERATORS[task.op]
    router = operator.router_regions(task)
    regions = task.reads + task.writes
    dtypes = {
        index.buffers[region.buffer].dtype for region in regions if region not in router
    }
    if len(dtypes) > 1:
        yield "wrong-dtype", f"operands mix {' and '.join(sorted(dtypes))}"
    if operator.multiplies:
        for dtype in sorted(dtypes - set(limits.dtypes)):
            known = ", ".join(limits.dtypes)
            yield "wrong-dtype", f"the machine multiplies {known}, not {dtype}"
    for region in router:
        if index.buffers[region.buffer].dtype != "fp32":
            what = "weights" if region in task.reads else "gradients"
            yield "wrong-dtype", f"router {what} must be fp32"
