"""`npu.program` to the plain `Schedule`: what the checker and the file target share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from xdsl.ir import Operation

from dialects import npu, tile
from dialects.base import source_line
from hpc.schedule.layer import Layer
from hpc.schedule.model import (
    FRACTAL,
    Barrier,
    Base,
    Buffer,
    Event,
    Instr,
    Put,
    Queue,
    Region,
    Schedule,
    Set,
    Task,
    Team,
    Wait,
)
from hpc.spec.attr import params_of
from passes.program import ProgramInfo, fail

DTYPES = {"bf16": "bf16", "f16": "fp16", "f32": "fp32"}


def to_schedule(program: npu.ProgramOp, pipeline: str = "") -> Schedule:
    """The schedule of an outlined program.

    Raises PassFailedException, at the op's source line, for instructions outside a
    queue, events without ids and names that are not declared.
    """
    return _Converter(program, pipeline).convert()


def padded_sizes(layer: Layer) -> tuple[tuple[str, int], ...]:
    """Each dimension of the layer as the cube sees it: one padded size, everywhere."""
    sizes = {
        "hidden": layer.hidden,
        "intermediate": layer.intermediate,
        "up_width": layer.up_width,
    }
    return tuple((name, -(-n // FRACTAL) * FRACTAL) for name, n in sizes.items())


class _Converter:
    def __init__(self, program: npu.ProgramOp, pipeline: str):
        self.program = program
        self.pipeline = pipeline
        self.info = ProgramInfo(program)
        self.locs: dict[str, int] = {}
        self.events = {
            op.sym_name.data: op
            for op in program.body.block.ops
            if isinstance(op, npu.EventOp)
        }
        self.needs: dict[int, int] = {}

    def convert(self) -> Schedule:
        """The whole program; instructions first, since they say what events need."""
        buffers: list[Buffer] = []
        queues: list[Queue] = []
        for op in self.program.body.block.ops:
            if isinstance(op, npu.BufferOp):
                buffers.append(_buffer(op))
            elif isinstance(op, npu.QueueOp):
                code = tuple(self.instruction(i) for i in op.body.block.ops)
                queues.append(Queue(_team(op.team), code))
            elif not isinstance(op, npu.EventOp):
                raise fail(
                    op, f"{op.name} stands outside a queue; run npu-outline-queues"
                )
        program, layer = self.program, self.info.layer
        return Schedule(
            layer=layer,
            machine=program.machine.data,
            policy=program.policy.data,
            mode=program.mode.data,
            pipeline=self.pipeline,
            routing=self.info.routing,
            groups=self.info.groups,
            row_chunks=program.row_chunks.value.data,
            buffers=tuple(buffers),
            events=tuple(self.event_table()),
            queues=tuple(queues),
            locs=tuple(self.locs),
            padded=padded_sizes(layer),
        )

    def loc(self, op: Operation) -> int:
        text = source_line(op.location) or "unknown"
        return self.locs.setdefault(text, len(self.locs))

    def event_id(self, op: Operation, flag: npu.FlagAttr) -> int:
        event = self.events.get(flag.event.data)
        if event is None:
            raise fail(op, f"no event @{flag.event.data}")
        if event.ids is None:
            raise fail(op, f"@{flag.event.data} has no ids; run npu-allocate-events")
        expert, part = flag.expert.data, flag.part.data
        experts, parts = event.experts.value.data, event.parts.value.data
        if expert >= experts or part >= parts:
            raise fail(
                op, f"@{flag.event.data}[{expert}, {part}] is outside {experts}x{parts}"
            )
        found = event.ids.get_values()[expert * parts + part]
        if found < 0:
            raise fail(op, f"@{flag.event.data}[{expert}, {part}] has no id")
        return found

    def event_table(self) -> Iterator[Event]:
        """Counters by id; one that experts share is named after the first of them."""
        names: dict[int, list[str]] = {}
        for name, op in self.events.items():
            parts = op.parts.value.data
            values = () if op.ids is None else op.ids.get_values()
            for i, number in enumerate(cast("tuple[int, ...]", values)):
                if number >= 0:
                    index = divmod(i, parts)
                    text = f"{name}[{index[0]},{index[1]}]"
                    names.setdefault(number, []).append(text)
        for number in sorted(names):
            first, *others = names[number]
            text = f"{first}+{len(others)}" if others else first
            yield Event(number, text, self.needs.get(number, 0))

    def instruction(self, op: Operation) -> Instr:
        loc = self.loc(op)
        match op:
            case npu.WaitFlagOp():
                number, need = self.event_id(op, op.flag), op.need.value.data
                self.needs[number] = max(need, self.needs.get(number, 0))
                return Wait(number, need, loc)
            case npu.SetFlagOp():
                return Set(self.event_id(op, op.flag), loc)
            case npu.BarrierOp():
                return Barrier(op.scope.data, op.launch is not None, loc)
            case npu.PutMemSignalOp():
                return self.put(op, loc)
            case npu.TaskOp():
                return self.task(op, loc)
            case _:
                raise fail(op, f"{op.name} is not an instruction of a queue")

    def put(self, op: npu.PutMemSignalOp, loc: int) -> Put:
        signal = op.signal
        return Put(
            kind=op.kind.data,
            expert=op.expert.value.data,
            group=op.group.value.data,
            chunks=op.chunks.value.data,
            source=_region(op.source),
            dest=_region(op.dest),
            event=None if signal is None else self.event_id(op, signal),
            transport=op.transport.data,
            scale=op.scale is not None,
            dot=() if op.dot is None else tuple(_region(r) for r in op.dot),
            loc=loc,
        )

    def task(self, op: npu.TaskOp, loc: int) -> Task:
        return Task(
            op=op.op.data,
            reads=tuple(_region(r) for r in op.reads),
            writes=tuple(_region(r) for r in op.writes),
            base=Base(*op.base.get_values()),
            params=params_of(op.params),
            loc=loc,
        )


def _region(attr: tile.RegionAttr) -> Region:
    return Region(attr.buffer.data, *attr.indices())


def _team(attr: tile.TeamAttr) -> Team:
    return Team(attr.unit.data, attr.first.data, attr.size.data)


def _buffer(op: npu.BufferOp) -> Buffer:
    dtype = DTYPES.get(str(op.element))
    if dtype is None:
        known = ", ".join(DTYPES)
        raise fail(op, f"a buffer holds {known}, got {op.element}")
    weight = op.experts is not None
    rows = op.rows.value.data
    return Buffer(
        name=op.sym_name.data,
        space=op.space.data,
        cols=op.cols.value.data,
        dtype=dtype,
        role=op.role.data,
        capacity_rows=op.experts.value.data if op.experts is not None else rows,
        rows=rows if weight else 0,
        symmetric=op.symmetric is not None,
        formula="" if op.formula is None else op.formula.data,
    )
