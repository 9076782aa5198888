"""`tile-schedule`: the static order of all tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from dialects import tile
from dialects.base import int_attr
from dialects.tile_attrs import ALL
from hpc.machine.cost import gmm_us, put_us, vector_us
from hpc.schedule.model import Base
from hpc.schedule.order import Work, first_early, stage_order
from passes.gmm_shape import GMM_OPS, buffer_of, buffers_of, gmm_shape
from passes.program import ProgramInfo, cost_of, fail, policy_of, programs, replace_body


@dataclass(frozen=True)
class TileSchedulePass(ModulePass):
    """
    Put the tasks in their final order, which is the order of the block; each team runs
    its own tasks in that order. Policies: `serial` (one phase per operator), `paper`
    (operator after operator, expert by expert) and `list` (list scheduling by modelled
    time). Without the option, the policy that `moe-tile` recorded. `interleave` says,
    instead of the policy, whether a weight gradient runs next to the GMM that reads the
    same received rows, expert by expert.

    Before:
    ```mlir
    %0 = tile.task relu (@h[0, 0]) -> (@a[0, 0]) base [128] on aiv[0:48]
    %1 = tile.task relu (@h[1, 0]) -> (@a[1, 0]) base [128] on aiv[0:48]
    ```
    After `tile-schedule{policy=serial}`, tasks know their phase:
    ```mlir
    %0 = tile.task relu (@h[0, 0]) -> (@a[0, 0]) base [128] on aiv[0:48] phase 0
    %1 = tile.task relu (@h[1, 0]) -> (@a[1, 0]) base [128] on aiv[0:48] phase 0
    ```
    Needs `tile-lower-comm`. Refuses tasks without team or base tile, and programs whose
    dependencies the order of the policy cannot keep.
    """

    name = "tile-schedule"

    policy: str | None = None
    interleave: bool | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in programs(op, tile.ProgramOp, self.name):
            if self.policy is not None:
                policy_of(program, self.policy)
                program.properties["policy"] = StringAttr(self.policy)
            _Scheduler(program, self.interleave).run()


class _Scheduler:
    def __init__(self, program: tile.ProgramOp, interleave: bool | None):
        self.program = program
        self.info = ProgramInfo(program)
        self.policy = policy_of(program, program.policy.data)
        self.interleave = self.policy.interleave if interleave is None else interleave
        ops = list(program.body.block.ops)
        self.buffers = buffers_of(program)
        self.tasks = [op for op in ops if isinstance(op, tile.TileOp)]
        self.awaits = [op for op in ops if isinstance(op, tile.AwaitOp)]
        self.others = [
            op for op in ops if not isinstance(op, tile.TileOp | tile.AwaitOp)
        ]

    def run(self) -> None:
        works = self.works()
        chosen = stage_order if self.crowded() else self.policy.order
        order = chosen(works, self.info.machine.l2_bytes)
        early = first_early(works, order)
        if early is not None:
            name = self.policy.name
            raise fail(self.tasks[early], f"the policy '{name}' would run it too early")
        if self.policy.phased:
            for op, work in zip(self.tasks, works, strict=True):
                op.properties["phase"] = int_attr(work.stage)
        placed: list[Operation] = list(self.others)
        pending = set(self.awaits)
        for i in order:
            op = self.tasks[i]
            for token in op.after:
                owner = token.owner
                if isinstance(owner, tile.AwaitOp) and owner in pending:
                    placed.append(owner)
                    pending.discard(owner)
            placed.append(op)
        placed += [op for op in self.awaits if op in pending]
        replace_body(self.program, placed)

    def crowded(self) -> bool:
        """More counters than the machine has: experts will have to share counters,
        which is safe only where whole operators follow each other."""
        counters = [op for op in self.tasks if isinstance(op, tile.TaskOp)]
        return len(counters) + len(self.awaits) > self.info.machine.max_events

    def works(self) -> list[Work]:
        """Every task as the scheduler sees it, in the order of the block; times in us.

        A PassFailedException names a task without a team.
        """
        index = {op: i for i, op in enumerate(self.tasks)}
        stages = self.stages()
        teams: dict[tile.TeamAttr, int] = {}
        works: list[Work] = []
        for op in self.tasks:
            if op.team is None:
                raise fail(op, "the task has no team; run tile-place first")
            expert, part = self.place(op)
            deps = {index[dep] for token in op.after for dep in _producers(token.owner)}
            exchange = isinstance(op, tile.ExchangeLike)
            works.append(
                Work(
                    stage=stages[op],
                    expert=expert,
                    part=part,
                    team=teams.setdefault(op.team, len(teams)),
                    duration_us=self.duration_us(op),
                    deps=tuple(sorted(deps)),
                    delay_us=self.hand_over_us(exchange),
                    exchange=exchange,
                    leaf=not op.results[0].uses,
                    touches=tuple(self.touches(op)),
                )
            )
        return works

    def touches(self, op: tile.TileOp) -> Iterator[tuple[str, int]]:
        """The parts of routed buffers and the matrices that a task reads or writes."""
        if not isinstance(op, tile.TaskOp):
            return
        for region in (*op.reads, *op.writes):
            buffer = buffer_of(op, region, self.buffers)
            expert, part = region.expert.data, region.part.data
            name, row = region.buffer.data, buffer.cols.value.data
            row *= self.info.layer.element_bytes
            if buffer.experts is not None:
                yield f"{name}[{expert}]", buffer.rows.value.data * row
            elif buffer.space.data == "routed":
                for g in range(len(self.info.groups)) if part == ALL else (part,):
                    yield f"{name}[{expert},{g}]", self.info.part_rows(op, g) * row

    def hand_over_us(self, exchange: bool) -> float:
        """From the end of a task until a team that waits for it can start."""
        machine = self.info.machine
        seen_us = machine.event_visible_us + machine.event_poll_us
        return seen_us + (machine.hop_us if exchange else machine.event_set_us)

    def stages(self) -> dict[tile.TileOp, int]:
        """Operators in order of first appearance, told apart by what they write; with
        `interleave`, a weight gradient belongs to the operator that reads the same
        received rows."""
        received = {_written(op) for op in self.tasks if isinstance(op, tile.PutOp)}
        seen: dict[str, int] = {}
        readers: dict[str, int] = {}
        stages: dict[tile.TileOp, int] = {}
        for op in self.tasks:
            new = seen.setdefault(_written(op), len(seen))
            stages[op] = new
            if not (self.interleave and isinstance(op, tile.TaskOp)):
                continue
            rows = {region.buffer.data for region in op.reads} & received
            for name in sorted(rows):
                if op.op.data == "gmm_nt":
                    readers[name] = new
                elif op.op.data == "gmm_tn":
                    stages[op] = readers.get(name, new)
        return stages

    def place(self, op: tile.TileOp) -> tuple[int, int]:
        if isinstance(op, tile.ExchangeLike):
            return op.expert.value.data, op.group.value.data
        region = cast(tile.TaskOp, op).writes.data[0]
        return max(0, region.expert.data), max(0, region.part.data)

    def duration_us(self, op: tile.TileOp) -> float:
        """Modelled time of the task on its whole team, for the rows it expects."""
        machine, dtype = self.info.machine, self.info.layer.dtype
        assert op.team is not None
        cores = op.team.size.data
        if isinstance(op, tile.PutOp):
            return self.put_us(op, cores)
        if not isinstance(op, tile.TaskOp):
            raise fail(op, "the exchange is not lowered; run tile-lower-comm first")
        if op.base is None:
            raise fail(op, "the task has no base tile; run tile-select-gmm first")
        if op.op.data in GMM_OPS:
            m, n, k = gmm_shape(self.info, op, self.buffers)
            return gmm_us(machine, m, n, k, Base(*op.base.get_values()), dtype, cores)
        rows = self.rows(op)
        reads = [buffer_of(op, region, self.buffers) for region in op.reads]
        out = buffer_of(op, op.writes.data[0], self.buffers).cols.value.data
        cost_of(op, op.op.data)
        columns = sum(self.columns(buffer) for buffer in reads)
        return vector_us(machine, op.op.data, rows, columns, out, dtype, cores)

    def columns(self, buffer: tile.BufferOp) -> int:
        """Elements of a buffer read for one row of the result."""
        slots = self.info.layer.top_k if buffer.space.data == "slot" else 1
        return slots * buffer.cols.value.data

    def rows(self, op: tile.TaskOp) -> int:
        region = op.writes.data[0]
        if region.expert.data != ALL:
            return self.info.part_rows(op, region.part.data)
        chunks = self.program.row_chunks.value.data
        return max(1, self.info.layer.max_tokens // chunks)

    def put_us(self, op: tile.PutOp, cores: int) -> float:
        group = self.info.group(op, op.group.value.data)
        cols = buffer_of(op, op.dest, self.buffers).cols.value.data
        size = cols * self.info.layer.element_bytes
        per_source = max(1, round(self.info.rows_per_source))
        total = 0.0
        for remote in (False, True):
            rows = per_source * sum((k != 0) == remote for k in group)
            if rows:
                machine, via = self.info.machine, op.transport.data
                total += put_us(machine, rows, size, cores, remote, via)
        return total


def _written(op: tile.TileOp) -> str:
    if isinstance(op, tile.ExchangeLike):
        return op.dest.buffer.data
    return cast(tile.TaskOp, op).writes.data[0].buffer.data


def _producers(owner: object) -> list[tile.TileOp]:
    """The tasks behind a token: its task, or the puts that an await waits for."""
    if isinstance(owner, tile.AwaitOp):
        return [cast(tile.TileOp, signal.owner) for signal in owner.signals]
    return [cast(tile.TileOp, owner)]
