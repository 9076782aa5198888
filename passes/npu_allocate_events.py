"""`npu-allocate-events`: counters to numbers within the machine's limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from dialects import npu
from dialects.base import int_attr
from passes.program import ProgramInfo, chosen, fail, flat_program, programs

Key = tuple[str, int, int]


@dataclass(frozen=True)
class NpuAllocateEventsPass(ModulePass):
    """
    Give every counter that is waited for a number below the machine's limit (or
    `limit`). If there are more counters than numbers, counters of neighbouring experts
    share one: its threshold is the sum, and everyone waits for all of them. That is
    done only where all their signals come before the first wait in program order, so
    it cannot hang.

    Before:
    ```mlir
    npu.event @a_ready 1 x 2
    npu.wait_flag @a_ready[0, 1] >= 4 on aic[0:4]
    ```
    After, with -1 for the counter that nobody waits for:
    ```mlir
    npu.event @a_ready 1 x 2 ids [-1, 0]
    npu.wait_flag @a_ready[0, 1] >= 4 on aic[0:4]
    ```
    Needs `npu-insert-flags`. Refuses outlined programs, and those that need more
    counters than sharing can save.
    """

    name = "npu-allocate-events"

    limit: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in programs(op, npu.ProgramOp, self.name):
            flat_program(program, self.name)
            most = ProgramInfo(program).machine.max_events
            limit = chosen(program, "limit", self.limit, most)
            _Allocator(program, limit or most).run()


class _Allocator:
    def __init__(self, program: npu.ProgramOp, limit: int):
        self.program = program
        self.limit = limit
        self.ops = list(program.body.block.ops)
        self.waits = [op for op in self.ops if isinstance(op, npu.WaitFlagOp)]
        self.need = self.needs()

    def needs(self) -> dict[Key, int]:
        """Threshold of every counter, the same in all its waits."""
        needs: dict[Key, int] = {}
        for op in self.waits:
            need = op.need.value.data
            if needs.setdefault(_key(op.flag), need) != need:
                name = op.flag.event.data
                raise fail(op, f"two waits for one counter of @{name} differ")
        return needs

    def run(self) -> None:
        width = self.block_width()
        ids: dict[Key, int] = {}
        for key in self.need:
            ids.setdefault(_block(key, width), len(ids))
        if width > 1:
            self.share(width)
        for op in self.ops:
            if isinstance(op, npu.EventOp):
                op.set_ids([ids.get(_block(k, width), -1) for k in self.keys(op)])

    def keys(self, op: npu.EventOp) -> Iterator[Key]:
        """The counters of an event; those nobody waits for get a key of no block."""
        for expert in range(op.experts.value.data):
            for part in range(op.parts.value.data):
                key = (op.sym_name.data, expert, part)
                yield key if key in self.need else ("", 0, 0)

    def block_width(self) -> int:
        """Experts that share a counter: the fewest that fit."""
        width, count = 1, len(self.need)
        while count > self.limit:
            width += 1
            smaller = len({_block(key, width) for key in self.need})
            if smaller == len({_block(key, 1 << 30) for key in self.need}) > self.limit:
                raise fail(
                    self.program,
                    f"the schedule needs {len(self.need)} events, {smaller} when all"
                    f" experts share, and there are {self.limit};"
                    " use fewer groups or more ranks",
                )
            count = smaller
        return width

    def share(self, width: int) -> None:
        """Sum the thresholds of every block; drop waits a team has done already."""
        sums: dict[Key, int] = {}
        for key, need in self.need.items():
            block = _block(key, width)
            sums[block] = sums.get(block, 0) + need
        self.refuse_cycles(width)
        seen: set[tuple[object, Key]] = set()
        for op in self.waits:
            block = _block(_key(op.flag), width)
            if (op.team, block) in seen:
                op.detach()
                op.erase()
                continue
            seen.add((op.team, block))
            op.properties["need"] = int_attr(sums[block])

    def refuse_cycles(self, width: int) -> None:
        """Every signal of a block must come before the first wait for the block."""
        waited: dict[Key, Operation] = {}
        for op in self.ops:
            if isinstance(op, npu.WaitFlagOp):
                waited.setdefault(_block(_key(op.flag), width), op)
                continue
            flag = None
            if isinstance(op, npu.SetFlagOp):
                flag = op.flag
            elif isinstance(op, npu.PutMemSignalOp):
                flag = op.signal
            if flag is not None and _block(_key(flag), width) in waited:
                raise fail(
                    op,
                    f"{len(self.need)} events do not fit the {self.limit} there are,"
                    f" and sharing @{flag.event.data} between {width} experts would"
                    " hang; use fewer groups or more ranks",
                )


def _key(flag: npu.FlagAttr) -> Key:
    return flag.event.data, flag.expert.data, flag.part.data


def _block(key: Key, width: int) -> Key:
    return key[0], key[1] // width, key[2]
