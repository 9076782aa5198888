"""Helpers that several passes share: find the program, place ops, know the layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from typing_extensions import TypeVar
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp
from xdsl.ir import Operation
from xdsl.utils.exceptions import PassFailedException

from dialects import npu, tile
from dialects.base import LocatedOp, source_line
from hpc.machine.record import Machine, MachineError, load_machine
from hpc.schedule.layer import Layer
from hpc.schedule.policy import POLICIES, Policy
from hpc.spec.attr import PlanPins, layer_of, pins_of

OpT = TypeVar("OpT", bound=LocatedOp)


def programs(module: ModuleOp, kind: type[OpT], pass_name: str) -> list[OpT]:
    """All top-level `kind` operations; a PassFailedException if there are none."""
    found = [op for op in module.body.block.ops if isinstance(op, kind)]
    if not found:
        others = sorted({op.name for op in module.body.block.ops})
        raise PassFailedException(
            f"{pass_name} works on {kind.name}, and the module has"
            f" {', '.join(others) or 'nothing'}"
        )
    return found


def fail(op: Operation, message: str) -> PassFailedException:
    """A PassFailedException that begins with the source line of `op`, if known."""
    where = source_line(op.location)
    return PassFailedException(f"{where}: error: {message}" if where else message)


def replace_body(program: tile.ProgramOp, ops: Sequence[Operation]) -> None:
    """Make `ops`, some of them already inside, the whole body in this order."""
    block = program.body.block
    for op in list(block.ops):
        op.detach()
    block.add_ops(ops)


@dataclass(frozen=True)
class ProgramInfo:
    """What a program records about its layer, machine and policy, decoded once."""

    program: tile.ProgramOp | npu.ProgramOp

    @property
    def spec(self) -> DictionaryAttr:
        return self.program.spec

    @cached_property
    def layer(self) -> Layer:
        return layer_of(self.program.sym_name.data, self.spec)

    @cached_property
    def pins(self) -> PlanPins:
        return pins_of(self.spec)

    @cached_property
    def machine(self) -> Machine:
        return machine_of(self.program, self.program.machine.data)

    @property
    def policy(self) -> Policy:
        return policy_of(self.program, self.program.policy.data)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        lists = (g.get_values() for g in self.program.groups)
        return tuple(tuple(cast("Sequence[int]", g)) for g in lists)

    @property
    def rows_per_source(self) -> float:
        """Mean rows of one expert from one rank, in a full and balanced layer."""
        layer = self.layer
        return layer.max_tokens * layer.top_k / layer.experts

    def part_rows(self, part: int) -> int:
        """Mean rows of one expert from the sources of group `part`, at least 1."""
        return max(1, round(self.rows_per_source * len(self.groups[part])))


def machine_of(op: Operation, name: str) -> Machine:
    """The machine record, its errors as pass failures."""
    try:
        return load_machine(name)
    except MachineError as error:
        raise fail(op, str(error)) from error


def policy_of(op: Operation, name: str) -> Policy:
    """The policy, or a failure that lists those there are."""
    if name not in POLICIES:
        known = ", ".join(POLICIES)
        raise fail(op, f"unknown policy '{name}'; there are {known}")
    return POLICIES[name]
