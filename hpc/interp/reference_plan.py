"""What a list of operators says of each value, for the reference."""

from __future__ import annotations

from collections.abc import Sequence

from hpc.interp.data import Data
from hpc.interp.steps import Step


class Plan:
    """What the steps say of every name, and what of it the outputs need.

    `matrices` are the needed gradients of matrices; `collected` the routed values that
    are needed by slot.
    """

    def __init__(
        self, steps: Sequence[Step], data: Data, outputs: Sequence[str]
    ) -> None:
        self.steps = {step.result: step for step in steps}
        self.data = data
        self._depths: dict[str, int] = {}
        if missing := set(outputs) - set(self.steps):
            raise KeyError(f"no step computes {', '.join(sorted(missing))}")
        needed = self._needed(outputs)
        self.matrices = [n for n in outputs if self.steps[n].op == "gmm_tn"]
        combined = [
            step.args[0]
            for name, step in self.steps.items()
            if step.op == "combine" and name in needed
        ]
        routed = [name for name in outputs if self.is_routed(name)]
        self.collected = list(dict.fromkeys([*combined, *routed]))

    def collected_at(self, depth: int) -> list[str]:
        """Routed values of one depth that are needed by slot."""
        return [name for name in self.collected if self.depth(name) == depth]

    def _needed(self, outputs: Sequence[str]) -> set[str]:
        found: set[str] = set()
        left = list(outputs)
        while left:
            name = left.pop()
            if name in self.steps and name not in found:
                found.add(name)
                left += self.steps[name].args
        return found

    def is_routed(self, name: str) -> bool:
        """Whether there is a row per slot that was sent, at an expert."""
        step = self.steps.get(name)
        if step is None:
            buffer = self.data.buffers.get(name)
            return buffer is not None and buffer.space == "routed"
        if step.op in ("combine", "reduce", "slot_dot", "gmm_tn"):
            return False
        return step.op == "dispatch" or self.is_routed(step.args[0])

    def depth(self, name: str) -> int:
        """How many dispatches lie one behind the other before `name`."""
        if name not in self.steps:
            return 0
        if name not in self._depths:
            step = self.steps[name]
            deepest = max(map(self.depth, step.args))
            self._depths[name] = deepest + (step.op == "dispatch")
        return self._depths[name]
