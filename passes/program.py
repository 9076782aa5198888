"""Helpers that several passes share: find the program, place ops, know the layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp
from xdsl.ir import Operation
from xdsl.utils.exceptions import PassFailedException

from dialects import npu, tile
from dialects.base import LocatedOp, source_line
from hpc.interp.routing import RoutingError, routing_counts
from hpc.machine.ops import OpCost, op_cost
from hpc.machine.record import Machine, MachineError, load_machine
from hpc.schedule.capacity import pair_rows
from hpc.schedule.layer import Layer, Routing
from hpc.schedule.policy import POLICIES, Policy
from hpc.spec.attr import PlanPins, layer_of, pins_of, routing_of

OpT = TypeVar("OpT", bound=LocatedOp)
T = TypeVar("T")


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


def chosen(op: Operation, name: str, value: int | None, most: int) -> int | None:
    """An option that was given, in 1..`most`; a failure naming the limit otherwise."""
    if value is not None and not 1 <= value <= most:
        raise fail(op, f"{name} must be 1 to {most}, got {value}")
    return value


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
        return read_spec(
            self.program, lambda: layer_of(self.program.sym_name.data, self.spec)
        )

    @cached_property
    def pins(self) -> PlanPins:
        return read_spec(self.program, lambda: pins_of(self.spec))

    @cached_property
    def routing(self) -> Routing:
        return read_spec(self.program, lambda: routing_of(self.spec))

    @cached_property
    def machine(self) -> Machine:
        return machine_of(self.program, self.program.machine.data)

    @property
    def policy(self) -> Policy:
        return policy_of(self.program, self.program.policy.data)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        groups = self.program.group_lists()
        sources = sum(len(group) for group in groups)
        if sources != self.layer.ep:
            raise fail(
                self.program,
                f"the groups have {sources} sources, the spec {self.layer.ep} ranks",
            )
        return groups

    def group(self, op: Operation, part: int) -> tuple[int, ...]:
        """Group number `part`, which `op` names."""
        if not 0 <= part < len(self.groups):
            raise fail(op, f"no group {part}; there are {len(self.groups)}")
        return self.groups[part]

    @property
    def rows_per_source(self) -> float:
        """Mean rows of one expert from one rank, in a full and balanced layer."""
        layer = self.layer
        return layer.max_tokens * layer.top_k / layer.experts

    @cached_property
    def put_rows(self) -> list[list[int]]:
        """Most rows that a put of (expert, group) sends from one rank to another, under
        the routing of the spec."""
        counts = counts_of(self.program, self.layer, self.routing)
        pairs = pair_rows(self.layer, counts)
        most = [pairs[:, list(group)].max(axis=1) for group in self.groups]
        return np.stack(most, axis=1).tolist()

    def part_rows(self, op: Operation, part: int) -> int:
        """Mean rows of one expert from the sources of group `part`, at least 1; `op`
        names the part."""
        return max(1, round(self.rows_per_source * len(self.group(op, part))))


def cost_of(op: Operation, name: str) -> OpCost:
    """The entry of operator `name` in the cost table, or a failure at `op`."""
    try:
        return op_cost(name)
    except KeyError as error:
        raise fail(op, str(error.args[0])) from error


def flat_program(program: npu.ProgramOp, pass_name: str) -> None:
    """Fail for a program that is outlined already."""
    if any(isinstance(op, npu.QueueOp) for op in program.body.block.ops):
        raise fail(program, f"{pass_name} comes before npu-outline-queues")


def read_spec(op: Operation, read: Callable[[], T]) -> T:
    """What `read` finds in the spec of `op`; its failures name the source line."""
    try:
        return read()
    except PassFailedException as error:
        raise fail(op, str(error)) from error


def counts_of(op: Operation, layer: Layer, routing: Routing) -> NDArray[np.int64]:
    """Rows by [source rank, expert]; a routing that does not fit is a failure."""
    try:
        return _counts(layer, routing)
    except RoutingError as error:
        raise fail(op, f"the routing does not fit: {error}") from error


@lru_cache(maxsize=1)
def _counts(layer: Layer, routing: Routing) -> NDArray[np.int64]:
    """Three passes need the table, and drawing a large one takes seconds."""
    counts = routing_counts(layer, routing)
    counts.setflags(write=False)
    return counts


def machine_of(op: Operation, name: str) -> Machine:
    """The machine record, its errors as pass failures."""
    try:
        return load_machine(name)
    except (MachineError, ValueError) as error:
        raise fail(op, str(error).replace(": error:", ":")) from error


def policy_of(op: Operation, name: str) -> Policy:
    """The policy, or a failure that lists those there are."""
    if name not in POLICIES:
        known = ", ".join(POLICIES)
        raise fail(op, f"unknown policy '{name}'; there are {known}")
    return POLICIES[name]
