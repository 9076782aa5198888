"""The gradients of a layer by the chain rule, on lists of operators.

The reference follows these, not the compiler's graph, so that a graph with a wrong or
a missing term differs from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from hpc.interp.data import ROUTER
from hpc.interp.steps import Step, StepsError
from hpc.schedule.layer import ACTIVATIONS, Layer


def gradient_of(name: str) -> str:
    """Name of the gradient of an input, a weight, the router or the output."""
    return f"d{name}"


def with_gradients(
    layer: Layer, steps: Sequence[Step], names: Mapping[str, str] | None = None
) -> tuple[Step, ...]:
    """The forward operators `steps`, and behind them those of all gradients.

    What is given is the gradient of the last step's result, an input. Gradients of
    inputs, weights, the router and the last result are called as `names` says, or
    `gradient_of`. Raises `StepsError` for an operator that has no gradient here.
    """
    return _Chain(layer, steps, names or {}).run()


class _Chain:
    """Goes through the forward steps from the last one.

    `parts` are the contributions to the gradient of each value, `reduced` the gradient
    of the sums that slot values go into.
    """

    def __init__(
        self, layer: Layer, steps: Sequence[Step], names: Mapping[str, str]
    ) -> None:
        self.scaled_input = layer.weights_at == "input"
        self.names = names
        self.forward = tuple(steps)
        self.results = {step.result for step in steps}
        self.uses = Counter(arg for step in steps for arg in step.args)
        self.parts: dict[str, list[str]] = {}
        self.reduced: dict[str, str] = {}
        self.found: list[Step] = []

    def run(self) -> tuple[Step, ...]:
        last = self.forward[-1].result
        self.parts[last] = [self.name(last)]
        for step in reversed(self.forward):
            if step.op == "combine":
                self.found += self.combine(step)
            elif step.result in self.parts:
                self.found += self.rule(step, self.total(step.result))
        for name in [name for name in self.parts if name not in self.results]:
            total = self.total(name)
            if total != self.name(name):
                self.found.append(Step("copy", self.name(name), (total,)))
        return self.forward + tuple(self.found)

    def name(self, value: str) -> str:
        return self.names.get(value, gradient_of(value))

    def total(self, name: str) -> str:
        """Name of the sum of all contributions, which it adds up."""
        first, *more = self.parts[name]
        for index, part in enumerate(more):
            result = f"{name}.sum{index}"
            self.found.append(Step("add", result, (first, part)))
            first = result
        return first

    def part(self, name: str) -> str:
        """Name of one more contribution; the dot keeps it apart from a flow's. The
        only one to the gradient of an input is that gradient."""
        parts = self.parts.setdefault(name, [])
        only = self.uses[name] == 1 and name not in self.results
        parts.append(self.name(name) if only else f"{name}.grad{len(parts)}")
        return parts[-1]

    def rule(self, step: Step, above: str) -> Iterator[Step]:
        """The contributions of a step to the gradients of its operands."""
        if step.op == "reduce":
            if self.uses[step.args[0]] > 1:
                raise StepsError(f"{step.args[0]} is not only reduced")
            self.reduced[step.args[0]] = above
        elif step.op == "dispatch":
            yield from self.dispatch(step, above)
        elif step.op == "gmm":
            rows, weight = step.args
            if self.uses[weight] > 1:
                raise StepsError(f"weight {weight} has two users")
            yield Step("gmm_nt", self.part(rows), (above, weight))
            yield Step("gmm_tn", self.part(weight), (rows, above))
        elif step.op == "add":
            for arg in step.args:
                self.parts.setdefault(arg, []).append(above)
        elif step.op in ACTIVATIONS:
            (rows,) = step.args
            op = f"{step.op}_grad"
            yield Step(op, self.part(rows), (rows, above), step.params)
        else:
            raise StepsError(f"{step.op} has no gradient")

    def combine(self, step: Step) -> Iterator[Step]:
        """Of slots that are reduced: each slot's row has the gradient of its token,
        times its router weight, whose own gradient is their product."""
        if step.result not in self.reduced:
            raise StepsError(f"{step.result} has no gradient unless it is reduced")
        above, weighted = self.reduced[step.result], not self.scaled_input
        result = self.part(step.args[0])
        yield Step("dispatch", result, (above,), weighted=weighted)
        if weighted:
            yield Step("slot_dot", self.name(ROUTER), (above, step.result))

    def dispatch(self, step: Step, above: str) -> Iterator[Step]:
        """Each slot's row comes home; a token's gradient is their (weighted) sum."""
        (rows,) = step.args
        back = f"{step.result}.home"
        yield Step("combine", back, (above,))
        weighted = self.scaled_input
        yield Step("reduce", self.part(rows), (back,), weighted=weighted)
        if weighted:
            yield Step("slot_dot", self.name(ROUTER), (rows, back))
