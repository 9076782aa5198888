"""`npu-insert-flags`: SSA tokens become set_flag and wait_flag."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass

from dialects import npu, tile
from passes.program import ProgramInfo, fail, programs
from passes.round_trip import every_dispatch_returns


@dataclass(frozen=True)
class NpuInsertFlagsPass(ModulePass):
    """
    Leave SSA: every dependency becomes an event. The producer's team sets the counter
    after the task (or the put signals it at its destination) and the user's team waits
    for all signals before its task. A dependency inside one team needs its event too,
    since the cores of a team share the tiles of a task. A program whose rows do not
    come back ends in a barrier of all ranks (see `round_trip.py`). In a serial
    schedule, barriers between the phases stand for all events.

    Before:
    ```mlir
    tile.program @p on "ascend_a3" mode "forward" policy "list" {}
      groups [array<i64: 0>] row_chunks 1 {
      %0 = tile.task add (@p, @q) -> (@s[*, 0]) base [8] on aiv[0:48]
      %1 = tile.task relu (@s[*, 0]) -> (@a[*, 0]) base [8] after(%0) on aiv[0:48]
    }
    ```
    After:
    ```mlir
    npu.program @p on "ascend_a3" mode "forward" policy "list" {}
      groups [array<i64: 0>] row_chunks 1 {
      npu.event @s_ready 1 x 1
      npu.task add (@p, @q) -> (@s[*, 0]) base [8] on aiv[0:48]
      npu.set_flag @s_ready[0, 0] on aiv[0:48]
      npu.wait_flag @s_ready[0, 0] >= 48 on aiv[0:48]
      npu.task relu (@s[*, 0]) -> (@a[*, 0]) base [8] on aiv[0:48]
    }
    ```
    Needs `tile-schedule`. Refuses exchanges that are not lowered and tasks that have no
    team or base tile.
    """

    name = "npu-insert-flags"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in programs(op, tile.ProgramOp, self.name):
            info = ProgramInfo(program)
            phased = info.policy.phased
            writer = _Phases(info) if phased else _Flags(info)
            body = list(writer.run())
            new = npu.ProgramOp(dict(program.properties), Region(Block(body)))
            new.location = program.location
            op.body.block.insert_op_before(new, program)
            program.detach()
            program.erase()


@dataclass
class _Writer:
    """Translates tasks one to one; subclasses order them between the teams."""

    info: ProgramInfo

    def source(self) -> Iterator[Operation]:
        yield from self.info.program.body.block.ops

    def buffers(self) -> Iterator[Operation]:
        for op in self.source():
            if isinstance(op, tile.BufferOp):
                new = npu.BufferOp.create(properties=dict(op.properties))
                new.location = op.location
                yield new

    def run(self) -> Iterator[Operation]:
        raise NotImplementedError

    def teams(self) -> list[tile.TeamAttr]:
        """All teams, in order of their first task."""
        tasks = (op for op in self.source() if isinstance(op, tile.TileOp))
        return list(dict.fromkeys(op.team for op in tasks if op.team is not None))

    def barrier(
        self, teams: list[tile.TeamAttr], world: bool, launch: bool, op: Operation
    ) -> Iterator[Operation]:
        """All teams stop; an exchange also synchronises the ranks."""
        for team in teams:
            barrier = npu.BarrierOp("world" if world else "rank", launch, team)
            barrier.location = op.location
            yield barrier

    def instruction(self, op: tile.TileOp, signal: npu.FlagAttr | None) -> Operation:
        properties = dict(op.properties)
        properties.pop("phase", None)
        if op.team is None:
            raise fail(op, "the task has no team; run tile-place first")
        if isinstance(op, tile.TaskOp):
            if op.base is None:
                raise fail(op, "the task has no base tile; run tile-select-gmm first")
            new: Operation = npu.TaskOp(properties)
        elif isinstance(op, tile.PutOp):
            if signal is not None:
                properties["signal"] = signal
            new = npu.PutMemSignalOp(properties)
        else:
            raise fail(op, "the exchange is not lowered; run tile-lower-comm first")
        new.location = op.location
        return new


@dataclass
class _Join:
    """One counter: its place in its event's table and the signals it gets."""

    flag: npu.FlagAttr
    need: int


@dataclass
class _Flags(_Writer):
    joins: dict[SSAValue, _Join] = field(default_factory=dict[SSAValue, _Join])
    shapes: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def run(self) -> Iterator[Operation]:
        for op in self.source():
            self.name_join(op)
        yield from self.buffers()
        for name, (experts, parts) in self.shapes.items():
            event = npu.EventOp(name, experts, parts)
            event.location = self.info.program.location
            yield event
        for op in self.source():
            if isinstance(op, tile.TileOp):
                yield from self.translate(op)
        yield from self.last_waits()
        yield from self.last_barrier()

    def name_join(self, op: Operation) -> None:
        """Give the counter behind a token its name, after the buffer it guards."""
        if isinstance(op, tile.AwaitOp):
            puts = [s.owner for s in op.signals if isinstance(s.owner, tile.PutOp)]
            region = puts[0].dest
            # A put belongs to one await, so its part names no other await's counter.
            indices = (max(0, region.expert.data), max(0, region.part.data))
            need = sum(self.signals(put) for put in puts)
            self.joins[op.token] = self.join(region.buffer.data, *indices, need)
            for signal in op.signals:
                self.joins[signal] = self.joins[op.token]
        elif isinstance(op, tile.TaskOp) and op.token.uses:
            if op.team is None:
                raise fail(op, "the task has no team; run tile-place first")
            region = op.writes.data[0]
            indices = (max(0, region.expert.data), max(0, region.part.data))
            need = op.team.size.data
            self.joins[op.token] = self.join(region.buffer.data, *indices, need)

    def join(self, buffer: str, expert: int, part: int, need: int) -> _Join:
        name = f"{buffer}_ready"
        shape = self.shapes.setdefault(name, [1, 1])
        shape[:] = [max(shape[0], expert + 1), max(shape[1], part + 1)]
        return _Join(npu.FlagAttr.of(name, expert, part), need)

    def signals(self, put: tile.PutOp) -> int:
        """Signals that a put brings to each rank: one per source and chunk."""
        group = self.info.group(put, put.group.value.data)
        return len(group) * put.chunks.value.data

    def translate(self, op: tile.TileOp) -> Iterator[Operation]:
        if op.team is None:
            raise fail(op, "the task has no team; run tile-place first")
        for token in op.after:
            join = self.joins[token]
            wait = npu.WaitFlagOp(join.flag, join.need, op.team)
            wait.location = op.location
            yield wait
        join = self.joins.get(op.results[0])
        signal = join.flag if join is not None else None
        yield self.instruction(op, signal)
        if isinstance(op, tile.TaskOp) and signal is not None:
            flag = npu.SetFlagOp(signal, op.team)
            flag.location = op.location
            yield flag

    def last_waits(self) -> Iterator[Operation]:
        """What other ranks send and no task reads must still arrive before the end."""
        for op in self.source():
            if isinstance(op, tile.AwaitOp) and not op.token.uses:
                put = op.signals[0].owner
                assert isinstance(put, tile.PutOp)
                assert put.team is not None
                join = self.joins[op.token]
                wait = npu.WaitFlagOp(join.flag, join.need, put.team)
                wait.location = op.location
                yield wait

    def last_barrier(self) -> Iterator[Operation]:
        """No rank may start its next launch while others still need this one."""
        tasks = [op for op in self.source() if isinstance(op, tile.TileOp)]
        if not every_dispatch_returns(tasks):
            yield from self.barrier(self.teams(), True, False, tasks[-1])


@dataclass
class _Phases(_Writer):
    def run(self) -> Iterator[Operation]:
        yield from self.buffers()
        tasks = [op for op in self.source() if isinstance(op, tile.TileOp)]
        teams = self.teams()
        before: tile.TileOp | None = None
        for op in tasks:
            if op.phase is None:
                raise fail(op, "the task has no phase; run tile-schedule first")
            if before is None or op.phase != before.phase:
                exchange = isinstance(op, tile.PutOp) or isinstance(before, tile.PutOp)
                yield from self.barrier(teams, exchange, True, op)
            yield self.instruction(op, None)
            before = op
        if isinstance(before, tile.PutOp):
            yield from self.barrier(teams, True, False, before)
