"""What each operator takes and gives, as data: a new operator is one entry here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpc.schedule.checks import gradient_operators as gradients
from hpc.schedule.checks.operands import (
    ROWS,
    Operand,
    Problem,
    in_space,
    router_like,
    same_cols,
    same_expert,
    same_part,
    whole,
)
from hpc.schedule.layer import GATED_ACTIVATIONS, PLAIN_ACTIVATIONS
from hpc.schedule.model import Buffer, Region, Task

Operands = list[Operand]
Rule = Callable[[Operands, Operands], Iterator[Problem]]


@dataclass(frozen=True, slots=True)
class Operator:
    """Unit that runs it, numbers of operands allowed, and a rule on them.

    `tile` names the sides of its base tile; `router_reads` and `router_writes` the
    operands with one fp32 number for every (token, slot), whatever the layer's dtype;
    `params` the numbers that a task may have.
    """

    unit: str
    reads: tuple[int, ...]
    rule: Rule
    tile: str = "m"
    writes: int = 1
    router_reads: tuple[int, ...] = ()
    router_writes: tuple[int, ...] = ()
    params: tuple[str, ...] = ()

    @property
    def multiplies(self) -> bool:
        """Whether the cube runs it."""
        return self.tile == "mnk"

    def router_regions(self, task: Task) -> list[Region]:
        """The task's operands that are numbers of the router."""
        reads = [task.reads[i] for i in self.router_reads if i < len(task.reads)]
        return reads + [
            task.writes[i] for i in self.router_writes if i < len(task.writes)
        ]


def _gmm(reads: Operands, writes: Operands) -> Iterator[Problem]:
    (rows, weight), (out,) = reads, writes
    yield from in_space("first operand", rows, ("routed",))
    yield from in_space("second operand", weight, ("weight",))
    yield from in_space("result", out, ("routed",))
    yield from same_part(rows, out)
    yield from same_expert(weight, rows)
    if rows.buffer.cols != weight.buffer.rows:
        yield (
            "wrong-cols",
            f'{rows.size} times "{weight.buffer.name}" of {weight.buffer.rows} rows',
        )
    yield from same_cols(weight, out)


def _activation(factor: int) -> Rule:
    def rule(reads: Operands, writes: Operands) -> Iterator[Problem]:
        (rows,), (out,) = reads, writes
        yield from in_space("operand", rows, ROWS)
        yield from in_space("result", out, (rows.buffer.space,))
        yield from same_part(rows, out)
        if rows.buffer.cols != factor * out.buffer.cols:
            wanted = "twice the" if factor == 2 else "the same"
            yield "wrong-cols", f"{rows.size} into {out.size}: not {wanted} width"

    return rule


def _add(reads: Operands, writes: Operands) -> Iterator[Problem]:
    (out,) = writes
    for rows in reads:
        yield from in_space("operand", rows, ROWS)
        yield from in_space("result", out, (rows.buffer.space,))
        yield from same_part(rows, out)
        yield from same_cols(rows, out)


def _reduce(reads: Operands, writes: Operands) -> Iterator[Problem]:
    rows, (out,) = reads[0], writes
    yield from in_space("first operand", rows, ("slot",))
    yield from in_space("result", out, ("token",))
    yield from same_cols(rows, out)
    for weight in reads[1:]:
        yield from router_like("router weights", weight)
    for each in reads:
        yield from whole(each)


_PARAMS = {"swiglu_oai": ("alpha", "limit")}

OPERATORS: dict[str, Operator] = {
    "gmm": Operator("aic", (2,), _gmm, tile="mnk"),
    "gmm_nt": Operator("aic", (2,), gradients.gmm_nt, tile="mnk"),
    "gmm_tn": Operator("aic", (2,), gradients.gmm_tn, tile="mnk"),
    "add": Operator("aiv", (2,), _add),
    "copy": Operator("aiv", (1,), gradients.copy),
    "reduce": Operator("aiv", (1, 2), _reduce, router_reads=(1,)),
    "reduce_dot": Operator(
        "aiv",
        (3,),
        gradients.reduce_dot,
        writes=2,
        router_reads=(1,),
        router_writes=(1,),
    ),
    **{
        name: Operator("aiv", (1,), _activation(2), params=_PARAMS.get(name, ()))
        for name in GATED_ACTIVATIONS
    },
    **{name: Operator("aiv", (1,), _activation(1)) for name in PLAIN_ACTIVATIONS},
    **{
        f"{name}_grad": Operator(
            "aiv",
            (2,),
            gradients.activation_gradient(2),
            params=_PARAMS.get(name, ()),
        )
        for name in GATED_ACTIVATIONS
    },
    **{
        f"{name}_grad": Operator("aiv", (2,), gradients.activation_gradient(1))
        for name in PLAIN_ACTIVATIONS
    },
}


def task_problems(task: Task, buffers: dict[str, Buffer]) -> list[Problem]:
    """Every way in which a task's operands do not fit its operator."""
    operator = OPERATORS[task.op]
    found: list[Problem] = []
    for axis in operator.tile:
        if getattr(task.base, axis) < 1:
            found.append(
                ("bad-tile", f"base tile {axis} is {getattr(task.base, axis)}")
            )
    if len(task.reads) not in operator.reads or len(task.writes) != operator.writes:
        counts = " or ".join(str(n) for n in operator.reads)
        regions = "region" if operator.writes == 1 else "regions"
        found.append(
            (
                "wrong-arity",
                f"{task.op} reads {counts} and writes {operator.writes} {regions}, "
                f"here {len(task.reads)} and {len(task.writes)}",
            )
        )
        return found
    reads = [Operand(region, buffers[region.buffer]) for region in task.reads]
    writes = [Operand(region, buffers[region.buffer]) for region in task.writes]
    return found + list(operator.rule(reads, writes))
