"""Router weights are applied once in each direction, where the layer says.

Forward, the weight of a (token, slot) multiplies in the dispatch (`weights_at` input)
or in the reduce (output). The gradient passes the same weight on its way back, which
swaps the places: gradients are scaled by their dispatch if the output was, and by
their reduce if the input was. The dot product that is the gradient of the weight
itself belongs to the same place.

Which of the two a put or a reduce is, its rows tell, not its name or the mode of the
program: gradients are what the gradient operators take and give, and what puts, sums,
copies and reduces make of them or make them of.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpc.schedule.checks.index import Index
from hpc.schedule.checks.operands import Problem
from hpc.schedule.model import Instr, Put, Region, Task

_LINEAR = ("add", "copy", "reduce")
"""Operators whose operand and result are gradients if one of them is."""


class Router:
    """The rule for the puts and reduces of one schedule; references must be sound."""

    def __init__(self, index: Index) -> None:
        self.at = index.s.layer.weights_at
        self.gradients = gradient_buffers(index)

    def put_problems(self, put: Put) -> Iterator[Problem]:
        """A dispatch scales rows iff it should; a combine never does."""
        if put.kind == "combine":
            if put.scale:
                yield "router-weight", "a combine cannot scale rows"
            return
        back = put.source.buffer in self.gradients
        what = "dispatch of gradients" if back else "dispatch"
        if put.scale != self._scales("input", back):
            does = "scales" if put.scale else "does not scale"
            yield "router-weight", f"{what} {does} rows, weights are at the {self.at}"
        if put.dot and self.at == "input":
            yield (
                "router-weight",
                f"{what} has a dot product, but weights are at the input: their "
                "gradient is that of a reduce_dot",
            )

    def task_problems(self, task: Task) -> Iterator[Problem]:
        """A reduce reads router weights iff it should."""
        if task.op not in ("reduce", "reduce_dot") or not task.reads:
            return
        back = task.reads[0].buffer in self.gradients
        what = f"{task.op} of gradients" if back else task.op
        weighted = len(task.reads) > 1
        if weighted != self._scales("output", back):
            does = "reads" if weighted else "does not read"
            yield (
                "router-weight",
                f"{what} {does} router weights, they are at the {self.at}",
            )

    def _scales(self, place: str, back: bool) -> bool:
        return (self.at == place) != back


def gradient_buffers(index: Index) -> frozenset[str]:
    """Names of the buffers that hold gradients of rows; empty in a forward program."""
    found: set[str] = set()
    neighbours: dict[str, set[str]] = {}
    for _, instr in index.places():
        found.update(region.buffer for region in _gradients(instr))
        linear = [region.buffer for region in _linear(instr)]
        for name in linear:
            neighbours.setdefault(name, set()).update(linear)
    new = list(found)
    while new:
        new = [n for name in new for n in neighbours.get(name, ()) if n not in found]
        found.update(new)
    return frozenset(found)


def gives_gradients(instr: Instr) -> bool:
    """Whether an instruction is one that only programs with gradients have."""
    return bool(_gradients(instr))


def _gradients(instr: Instr) -> tuple[Region, ...]:
    """Regions that an instruction takes or gives as gradients of rows."""
    if isinstance(instr, Put):
        return (instr.source, instr.dest) if instr.dot else ()
    if not isinstance(instr, Task):
        return ()
    if instr.op in ("gmm_nt", "reduce_dot"):
        return instr.reads[:1] + instr.writes[:1]
    if instr.op == "gmm_tn":
        return instr.reads[1:2]
    return instr.reads[1:2] + instr.writes if instr.op.endswith("_grad") else ()


def _linear(instr: Instr) -> tuple[Region, ...]:
    """Regions of which all are gradients if one is."""
    if isinstance(instr, Put):
        return (instr.source, instr.dest)
    if not isinstance(instr, Task) or instr.op not in _LINEAR:
        return ()
    rows = instr.reads[:1] if instr.op == "reduce" else instr.reads
    return rows + instr.writes
