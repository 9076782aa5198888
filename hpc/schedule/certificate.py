"""In which order and precision a schedule adds up: a certificate to compare.

Floating-point sums depend on their order, so two schedules give the same bits only if
every element of every buffer comes from the same operands, added in the same order and
rounded at the same places. The certificate says just that, one line for each kind of
result, and leaves out all that has no say in it: teams, tiles, groups, chunks, queues
and events. A tile cuts the rows and columns of a result, never what is summed for one
element of it, and every part is written by one instruction, so no sum is ever split.

    h[e] = gmm(recv[e], w_up[e]): f32 sum over k = 0..31 of bf16 products, to bf16

Schedules of one spec share their certificate, whatever the policy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from hpc.schedule.checks.index import Index
from hpc.schedule.model import Instr, Put, Region, Schedule, Task

Covered = set[tuple[int, int]]
"""(expert, relative source or row part) of the results of one kind."""


@dataclass(frozen=True)
class Certificate:
    """`lines` in a canonical order; `digest` is the sha256 of them."""

    lines: tuple[str, ...]

    @property
    def digest(self) -> str:
        text = "\n".join(self.lines)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def certify(s: Schedule) -> Certificate:
    """The certificate of a schedule whose references are sound."""
    index = Index(s)
    found: dict[str, Covered] = {}
    targets: dict[str, str] = {}
    for _, instr in index.places():
        for text, region in _results(index, instr):
            found.setdefault(text, set()).update(_cover(index, region))
            targets[text] = region.buffer
    lines = [
        text + _where(index, targets[text], covered) for text, covered in found.items()
    ]
    return Certificate(tuple(sorted(lines)))


def first_difference(a: Certificate, b: Certificate) -> str | None:
    """What the first says and the second does not, and the other way round; None if
    they agree."""
    texts: list[str] = []
    for name, mine, other in (("first", a, b), ("second", b, a)):
        extra = [line for line in mine.lines if line not in set(other.lines)]
        if extra:
            texts.append(f"only the {name} has: {extra[0]}")
    return "; ".join(texts) or None


def _results(index: Index, instr: Instr) -> Iterator[tuple[str, Region]]:
    """(what is computed and how, where it goes) of an instruction."""
    if isinstance(instr, Put):
        yield from _moved(index, instr)
    elif isinstance(instr, Task):
        expert = instr.writes[0].expert
        operands = ", ".join(_name(region, expert) for region in instr.reads)
        params = "".join(f", {key} = {value:g}" for key, value in sorted(instr.params))
        for n, region in enumerate(instr.writes):
            head = f"{_name(region, expert)} = {instr.op}({operands}{params})"
            yield f"{head}: {_sum(index, instr, n)}", region


def _moved(index: Index, put: Put) -> Iterator[tuple[str, Region]]:
    source, dest = _name(put.source, put.expert), _name(put.dest, put.expert)
    how = "copied"
    if put.scale:
        how = f"times the router weight in f32, to {_dtype(index, put.dest)}"
    yield f"{dest} = {put.kind}({source}): {how}", put.dest
    if put.dot:
        rows, result = put.dot
        columns = index.buffers[rows.buffer].cols
        text = (
            f"{_name(result, put.expert)} = dot({source}, {_name(rows, put.expert)}): "
            f"f32 sum over columns 0..{columns - 1}, to {_dtype(index, result)}"
        )
        yield text, result


def _sum(index: Index, task: Task, result: int) -> str:
    """How one element of a result of a task comes about."""
    s, out = index.s, _dtype(index, task.writes[result])
    read = _dtype(index, task.reads[0])
    inner = index.buffers[task.reads[0].buffer].cols
    if task.op in ("gmm", "gmm_nt"):
        return f"f32 sum over k = 0..{inner - 1} of {read} products, to {out}"
    if task.op == "gmm_tn":
        return (
            "f32 sum over the expert's rows, by source k, token and slot, of "
            f"{read} products, to {out}"
        )
    if task.op == "reduce_dot" and result == 1:
        return f"f32 sum over columns 0..{inner - 1}, to {out}"
    if task.op in ("reduce", "reduce_dot"):
        weighted = " times router weight" if len(task.reads) > 1 else ""
        return f"f32 sum over slots 0..{s.layer.top_k - 1}{weighted}, to {out}"
    activation = s.layer.activation
    params = ""
    if task.op.startswith("swiglu_oai"):
        params = f" (alpha {activation.alpha:g}, limit {activation.limit:g})"
    return f"in f32{params}, to {out}"


def _dtype(index: Index, region: Region) -> str:
    return index.buffers[region.buffer].dtype


def _name(region: Region, expert: int | None) -> str:
    """A region without its part; `e` is the expert that the instruction is about."""
    if region.expert is None:
        return region.buffer
    return f"{region.buffer}[{'e' if region.expert == expert else region.expert}]"


def _cover(index: Index, region: Region) -> Iterator[tuple[int, int]]:
    """Entries of a region, with its part as relative sources where it is a group."""
    experts, parts = index.part_range(region)
    by_source = index.buffers[region.buffer].space in ("routed", "slot")
    for e in experts:
        for p in parts:
            for k in index.s.groups[p] if by_source else (p,):
                yield e, k


def _where(index: Index, name: str, covered: Covered) -> str:
    """Nothing if a line holds for a whole buffer, else for which part of it."""
    experts, parts = index.part_shape(name)
    if index.buffers[name].space in ("routed", "slot"):
        parts = index.s.layer.ep
    if len(covered) == experts * parts:
        return ""
    return " for (expert, part) " + ", ".join(map(str, sorted(covered)))
