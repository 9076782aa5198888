"""Operands fit their operators, puts their buffers, buffers the layer."""

from __future__ import annotations

from collections.abc import Iterator

from hpc.schedule.checks.index import Index, Limits, Violation
from hpc.schedule.checks.operators import OPERATORS, Operand, Problem, task_problems
from hpc.schedule.model import Buffer, Put, Task

CHECK = "structure"
RULES = {
    "wrong-arity": "An operator has its number of operands and one result.",
    "wrong-space": "An operand lies in a space that the operator works on.",
    "wrong-cols": "Columns of operands and result agree.",
    "wrong-part": "An instruction reads and writes the part that it is about.",
    "wrong-unit": "Matrix work runs on AIC, vector work and puts on AIV.",
    "wrong-dtype": "Dtypes are known, agree, and the machine can multiply them.",
    "bad-tile": "A base tile has positive sides.",
    "put-direction": "Dispatch goes from tokens to routed rows, combine to slots.",
    "not-symmetric": "A put writes a symmetric buffer only.",
    "router-weight": "Router weights are applied once, where the layer says.",
    "small-buffer": "A buffer has room for what its space holds.",
}

_SPACES = {"dispatch": ("token", "routed"), "combine": ("routed", "slot")}


def check_fit(index: Index, limits: Limits) -> list[Violation]:
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
            problems = [*_put(index, instr), *_unit("a put", "aiv", unit)]
        elif isinstance(instr, Task):
            problems = [
                *task_problems(instr, index.buffers),
                *_unit(instr.op, OPERATORS[instr.op].unit, unit),
                *_dtypes(index, instr, limits),
                *_reduce_weights(index, instr),
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
    yield from _scale(index, put)


def _scale(index: Index, put: Put) -> Iterator[Problem]:
    at = index.s.layer.weights_at
    if put.kind == "combine" and put.scale:
        yield "router-weight", "a combine cannot scale rows"
    if put.kind != "dispatch" or index.s.mode != "forward":
        return
    if put.scale != (at == "input"):
        does = "scales" if put.scale else "does not scale"
        yield "router-weight", f"dispatch {does} rows, weights are at the {at}"


def _reduce_weights(index: Index, task: Task) -> Iterator[Problem]:
    at = index.s.layer.weights_at
    if task.op != "reduce" or index.s.mode != "forward":
        return
    if (len(task.reads) == 2) != (at == "output"):
        does = "reads" if len(task.reads) == 2 else "does not read"
        yield "router-weight", f"reduce {does} router weights, they are at the {at}"


def _dtypes(index: Index, task: Task, limits: Limits) -> Iterator[Problem]:
    """Operands of one dtype but for router weights, which are always fp32."""
    rows = task.reads[:1] if task.op == "reduce" else task.reads
    dtypes = {index.buffers[region.buffer].dtype for region in rows + task.writes}
    if len(dtypes) > 1:
        yield "wrong-dtype", f"operands mix {' and '.join(sorted(dtypes))}"
    if task.op == "gmm":
        for dtype in sorted(dtypes - set(limits.dtypes)):
            known = ", ".join(limits.dtypes)
            yield "wrong-dtype", f"the machine multiplies {known}, not {dtype}"
    for region in task.reads[1:] if task.op == "reduce" else ():
        if index.buffers[region.buffer].dtype != "fp32":
            yield "wrong-dtype", "router weights must be fp32"
