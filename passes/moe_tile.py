"""`moe-tile`: operators become tile tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.passes import ModulePass

from dialects import moe, tile
from dialects.base import int_attr, ints_attr
from dialects.moe_rowwise import MoeOp
from dialects.moe_types import (
    Access,
    RoutedType,
    SlotsType,
    Space,
    as_tensor,
    cols_of,
    element_of,
    slots_of,
    space_of,
)
from hpc.machine.record import Machine
from hpc.schedule.capacity import Bound, receive_bound
from hpc.schedule.layer import Layer
from hpc.schedule.policy import Policy, choose_groups, partition
from hpc.spec.attr import PlanPins, layer_of, params_attr, pins_of, routing_of
from passes.program import (
    chosen,
    counts_of,
    fail,
    machine_of,
    policy_of,
    programs,
    read_spec,
)

Index = tuple[int | None, int | None]


@dataclass(frozen=True)
class MoeTilePass(ModulePass):
    """
    Cut every operator of a `moe.layer` along (expert, group), or along row parts where
    rows are not routed, and make dependencies tokens.

    Splits propagate through the SplitSpec of each operator and nothing else. An option
    that is not given is taken from the user's pins, then from the policy.

    Before:
    ```mlir
    moe.layer @micro on "ascend_a3" mode "forward" {} {
    ^bb0(%p : tensor<8x64xbf16>):
      %a = moe.swiglu %p : tensor<8x64xbf16> -> tensor<8x32xbf16>
      moe.return %a : tensor<8x32xbf16>
    }
    ```
    After `moe-tile{row-chunks=2}` (`{}` stands for the layer's spec):
    ```mlir
    tile.program @micro on "ascend_a3" mode "forward" policy "list" {}
      groups [array<i64: 0>] row_chunks 2 {
      tile.buffer @p token 8 x 64 bf16 input
      tile.buffer @a token 8 x 32 bf16 output
      %0 = tile.task swiglu (@p[*, 0]) -> (@a[*, 0])
      %1 = tile.task swiglu (@p[*, 1]) -> (@a[*, 1])
    }
    ```
    With communication, a pin `row_chunks` is for the puts and only the option cuts
    token buffers. Refuses: unknown policy or machine, more groups than ranks or parts
    than tokens, a spec that lacks something or does not fit the types, a module without
    layer.
    """

    name = "moe-tile"

    policy: str | None = None
    groups: int | None = None
    row_chunks: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for layer_op in programs(op, moe.LayerOp, self.name):
            program = _Tiler(layer_op, self).build()
            block = op.body.block
            block.insert_op_before(program, layer_op)
            layer_op.detach()
            layer_op.erase()


@dataclass
class _Tiler:
    op: moe.LayerOp
    options: MoeTilePass
    names: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])
    tokens: dict[SSAValue, dict[Index, SSAValue]] = field(
        default_factory=dict[SSAValue, dict[Index, SSAValue]]
    )
    ops: list[Operation] = field(default_factory=list[Operation])

    def __post_init__(self) -> None:
        name, spec = self.op.sym_name.data, self.op.spec
        self.layer: Layer = read_spec(self.op, lambda: layer_of(name, spec))
        self.pins: PlanPins = read_spec(self.op, lambda: pins_of(spec))
        self.check_shapes()
        if self.op.mode.data != "forward" and self.op.derived is None:
            raise fail(
                self.op,
                f"mode {self.op.mode.data} has no gradients; run moe-derive-backward",
            )
        self.machine: Machine = machine_of(self.op, self.op.machine.data)
        option = self.options.policy
        policy = option if option is not None else self.pins.policy or "list"
        self.policy: Policy = policy_of(self.op, policy)
        self.groups = self.pick_groups()
        self.row_chunks = self.pick_row_chunks()

    def pick_groups(self) -> tuple[tuple[int, ...], ...]:
        layer = self.layer
        rows = layer.max_tokens * layer.top_k / layer.experts
        limit = self.machine.max_events
        option = chosen(self.op, "groups", self.options.groups, layer.ep)
        pin = chosen(self.op, "the pin groups", self.pins.groups, layer.ep)
        count = option or pin or self.policy.groups
        if count is None:
            mode = self.op.mode.data
            count = choose_groups(layer.ep, layer.local_experts, rows, limit, mode)
        return partition(layer.ep, count)

    def pick_row_chunks(self) -> int:
        """Parts of token buffers; several only where nothing is routed, so that what
        one operator wrote is still in L2 when the next reads it."""
        most = max(1, self.layer.max_tokens)
        option = chosen(self.op, "row_chunks", self.options.row_chunks, most)
        if option is not None:
            return option
        if any(op.split_spec().exchange for op in self.body_ops()):
            return 1  # the pin is for the puts then, see tile-lower-comm
        pin = chosen(self.op, "the pin row_chunks", self.pins.row_chunks, most)
        if pin is not None:
            return pin
        if self.policy.phased:
            return 1
        columns = sum(cols_of(v.type) for v in self.values())
        size = columns * self.layer.max_tokens * self.layer.element_bytes
        parts = -(-size // (self.machine.l2_bytes // 4))
        return max(1, min(parts, most))

    def check_shapes(self) -> None:
        """The values of the body have the sizes that the spec says."""
        layer = self.layer
        slots = f"{layer.max_tokens} tokens x {layer.top_k} slots"
        for value in self.values():
            type_ = value.type
            match space_of(type_):
                case Space.ROUTED:
                    assert isinstance(type_, RoutedType)
                    got, want = type_.experts.data, layer.local_experts
                case Space.SLOT:
                    got, want = "{} tokens x {} slots".format(*slots_of(type_)), slots
                case Space.WEIGHT:
                    got, want = as_tensor(type_).get_shape()[0], layer.local_experts
                case Space.TOKEN:
                    got, want = as_tensor(type_).get_shape()[0], layer.max_tokens
            if got != want:
                raise fail(
                    self.op, f"{type_} does not fit the spec: {want}, and not {got}"
                )

    def body_ops(self) -> Iterator[MoeOp]:
        for op in self.op.body.block.ops:
            if isinstance(op, MoeOp):
                yield op

    def values(self) -> Iterator[SSAValue]:
        yield from self.op.body.block.args
        for op in self.body_ops():
            yield from op.results

    def build(self) -> tile.ProgramOp:
        for value in self.values():
            self.names[value] = self.fresh_name(value)
        self.declare_buffers()
        for stage in self.body_ops():
            self.cut(stage)
        program = tile.ProgramOp.create(
            properties={
                "sym_name": self.op.sym_name,
                "machine": self.op.machine,
                "mode": self.op.mode,
                "policy": StringAttr(self.policy.name),
                "spec": self.op.spec,
                "groups": ArrayAttr(ints_attr(g) for g in self.groups),
                "row_chunks": int_attr(self.row_chunks),
            },
            regions=[Region()],
        )
        program.location = self.op.location
        program.body.add_block(Block(self.ops))
        return program

    def fresh_name(self, value: SSAValue) -> str:
        """The value's own name if the text gave one, else its operator's stem."""
        owner = value.owner
        stem = owner.STEM if isinstance(owner, MoeOp) else "in"
        name = base = value.name_hint or stem
        taken = set(self.names.values())
        number = 2
        while name in taken:
            name, number = f"{base}{number}", number + 1
        return name

    def declare_buffers(self) -> None:
        last = self.op.body.block.last_op
        assert isinstance(last, moe.ReturnOp)
        bound = self.receive_bound()
        outputs, saved = set(last.values), self.op.saved_args()
        for value in self.values():
            role = "output" if value in outputs else "workspace"
            if isinstance(value, BlockArgument):
                weight = space_of(value.type) == Space.WEIGHT
                role = "weight" if weight else "input"
                role = "saved" if value.index in saved else role
            buffer = self.buffer(value, role, bound)
            owner = value.owner
            source = owner if isinstance(owner, Operation) else self.op
            buffer.location = source.location
            self.ops.append(buffer)

    def receive_bound(self) -> Bound | None:
        if not any(isinstance(v.type, RoutedType) for v in self.values()):
            return None
        routing = read_spec(self.op, lambda: routing_of(self.op.spec))
        return receive_bound(self.layer, counts_of(self.op, self.layer, routing))

    def buffer(self, value: SSAValue, role: str, bound: Bound | None) -> tile.BufferOp:
        type_, name = value.type, self.names[value]
        space, cols = space_of(type_), cols_of(type_)
        element = element_of(type_)
        if isinstance(type_, RoutedType):
            assert bound is not None
            rows = max(1, bound.rows)
            return tile.BufferOp(
                name, space, rows, cols, element, role, formula=bound.formula
            )
        if isinstance(type_, SlotsType):
            tokens, top_k = type_.tokens.data, type_.top_k.data
            text = f"tokens {tokens} x top_k {top_k}"
            return tile.BufferOp(
                name, space, tokens * top_k, cols, element, role, formula=text
            )
        shape = as_tensor(type_).get_shape()
        experts = shape[0] if space == Space.WEIGHT else None
        return tile.BufferOp(name, space, shape[-2], cols, element, role, experts)

    def parts(self, space: Space) -> list[Index]:
        if space == Space.TOKEN:
            return [(None, c) for c in range(self.row_chunks)]
        experts, groups = range(self.layer.local_experts), range(len(self.groups))
        if space == Space.WEIGHT:
            return [(e, None) for e in experts]
        return [(e, g) for e in experts for g in groups]

    def cut(self, op: MoeOp) -> None:
        """One task for each part of the operator's result."""
        spec = op.split_spec()
        made: dict[Index, SSAValue] = {}
        for index in self.parts(spec.space):
            after: dict[SSAValue, None] = {}
            for access, value in zip(spec.operands, op.operands, strict=True):
                after |= dict.fromkeys(self.producers(access, value, index))
            reads = self.regions(spec.operands, op.operands, index)
            writes = self.regions(spec.results, op.results, index)
            if spec.exchange is not None:
                task = self.exchange(op, spec.exchange, reads, writes, list(after))
            else:
                name = op.name.removeprefix("moe.")
                params = params_attr(op.params())
                task = tile.TaskOp(name, reads, writes, list(after), params)
            task.location = op.location
            self.ops.append(task)
            made[index] = task.results[0]
        self.tokens |= dict.fromkeys(op.results, made)

    def exchange(
        self,
        op: MoeOp,
        kind: str,
        reads: list[tile.RegionAttr],
        writes: list[tile.RegionAttr],
        after: list[SSAValue],
    ) -> tile.ExchangeOp:
        expert, group = writes[0].expert.data, writes[0].part.data
        scale = isinstance(op, moe.DispatchOp) and op.router is not None
        # Of a dispatch with a dot product, the last operand and result are its own.
        dot = [reads[-1], writes[-1]] if len(writes) > 1 else []
        return tile.ExchangeOp(
            kind, expert, group, reads[0], writes[0], after, scale, dot
        )

    def regions(
        self, accesses: Sequence[Access], values: Sequence[SSAValue], index: Index
    ) -> list[tile.RegionAttr]:
        """What the tile `index` touches of each value."""
        parts = {
            Access.ALIGNED: index,
            Access.EXPERT: (index[0], None),
            Access.WHOLE: (None, None),
        }
        pairs = zip(accesses, values, strict=True)
        return [
            tile.RegionAttr.of(self.names[v], *parts[access]) for access, v in pairs
        ]

    def producers(
        self, access: Access, value: SSAValue, index: Index
    ) -> list[SSAValue]:
        """The tokens of the tasks that wrote what the tile `index` reads."""
        made = self.tokens.get(value, {})
        match access:
            case Access.ALIGNED:
                return [made[index]] if made else []
            case Access.EXPERT:
                return [token for i, token in made.items() if i[0] == index[0]]
            case Access.WHOLE:
                return list(made.values())
