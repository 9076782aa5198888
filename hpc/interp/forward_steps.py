"""The forward operators that a backward program's operators are the gradients of.

A spec says what they are; a schedule file alone does not. But gradients stand beside
forward values: `p` transposed times `q` is the gradient of the weight w of `p @ w`,
whose result has the gradient q, and the gradient of p is q times w transposed. So what
the saved values were computed from can be read off, whatever they are called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpc.interp.steps import Step, in_order
from hpc.schedule.model import Schedule

TOKENS = "x"
"""The input that a dispatch is taken to read where a backward program does not say."""

_SUFFIX = "_grad"


def forward_of(schedule: Schedule, steps: Sequence[Step]) -> tuple[Step, ...]:
    """The operators that saved buffers of `schedule` are results of, in dataflow order.

    `steps` are those of the schedule. A saved buffer whose operator they do not tell
    has none here.
    """
    saved = [b.name for b in schedule.buffers if b.role == "saved"]
    if not saved:
        return ()
    graph = _Gradients(steps)
    found: dict[str, Step] = {}
    for gradient in steps:
        for step in graph.forward(gradient):
            found.setdefault(step.result, step)
    wanted = needed_for(tuple(found.values()), saved)
    args = {arg for step in wanted for arg in step.args}
    return in_order(wanted, args - {step.result for step in wanted})


def needed_for(steps: Sequence[Step], results: Sequence[str]) -> tuple[Step, ...]:
    """Those of `steps` that `results` are computed by, in their order."""
    by_result = {step.result: step for step in steps}
    found: set[str] = set()
    left = list(results)
    while left:
        name = left.pop()
        if name in by_result and name not in found:
            found.add(name)
            left += by_result[name].args
    return tuple(step for step in steps if step.result in found)


class _Gradients:
    """A backward graph; `values` has the forward value of each gradient that stands
    beside it in an operator."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.values: dict[str, str] = {}
        for step in steps:
            if step.op.endswith(_SUFFIX):
                self.values[step.result] = step.args[0]
            elif step.op == "gmm_tn":
                rows, above = step.args
                for other in self.readers(above, "gmm_nt"):
                    self.values[other.result] = rows

    def value(self, gradient: str) -> str:
        """The forward value; one that is not saved gets a name of its own."""
        return self.values.get(gradient, f"{gradient}.value")

    def readers(self, name: str, op: str) -> list[Step]:
        """Operators `op` whose first operand is `name`."""
        return [s for s in self.steps if s.op == op and s.args[0] == name]

    def forward(self, step: Step) -> Iterator[Step]:
        """The forward operators that gradient operator `step` tells of."""
        if step.op == "gmm_tn":
            rows, above = step.args
            for other in self.readers(above, "gmm_nt"):
                if self.values[other.result] == rows:
                    yield Step("gmm", self.value(above), (rows, other.args[1]))
        elif step.op.endswith(_SUFFIX):
            rows, above = step.args
            op = step.op.removesuffix(_SUFFIX)
            yield Step(op, self.value(above), (rows,), step.params)
        elif step.op == "combine":
            tokens = self.tokens(step.result)
            yield Step("dispatch", self.value(step.args[0]), (tokens,))
        elif step.op == "slot_dot":
            above, slots = step.args
            for other in self.readers(above, "dispatch"):
                yield Step("combine", slots, (self.value(other.result),))

    def tokens(self, slots: str) -> str:
        """The token value that slot gradients are multiplied with, if any is."""
        for step in self.steps:
            if step.op == "slot_dot" and step.args[1] == slots:
                return step.args[0]
        return TOKENS
