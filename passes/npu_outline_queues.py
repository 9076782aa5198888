"""`npu-outline-queues`: one region per team."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region
from xdsl.passes import ModulePass

from dialects import npu, tile
from passes.program import fail, programs


@dataclass(frozen=True)
class NpuOutlineQueuesPass(ModulePass):
    """
    Gather the instructions of every team, in their order, in an `npu.queue`.

    Before:
    ```mlir
    npu.program @p on "ascend_a3" mode "forward" policy "list" {}
      groups [array<i64: 0>] row_chunks 1 {
      npu.event @a_ready 1 x 1 ids [0]
      npu.set_flag @a_ready[0, 0] on aiv[0:48]
      npu.wait_flag @a_ready[0, 0] >= 48 on aic[0:24]
    }
    ```
    After:
    ```mlir
    npu.program @p on "ascend_a3" mode "forward" policy "list" {}
      groups [array<i64: 0>] row_chunks 1 {
      npu.event @a_ready 1 x 1 ids [0]
      npu.queue aic[0:24] {
        npu.wait_flag @a_ready[0, 0] >= 48
      }
      npu.queue aiv[0:48] {
        npu.set_flag @a_ready[0, 0]
      }
    }
    ```
    Refuses an instruction without a team.
    """

    name = "npu-outline-queues"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in programs(op, npu.ProgramOp, self.name):
            _outline(program)


def _outline(program: npu.ProgramOp) -> None:
    queues: dict[tile.TeamAttr, list[Operation]] = {}
    for op in list(program.body.block.ops):
        if not isinstance(op, npu.Instruction):
            continue
        if op.team is None:
            raise fail(op, "the instruction has no team; run tile-place first")
        queues.setdefault(op.team, []).append(op)
        op.detach()
        op.properties.pop("team")
    for team in sorted(queues, key=lambda t: (t.unit.data, t.first.data)):
        queue = npu.QueueOp(team, Region(Block(queues[team])))
        queue.location = program.location
        program.body.block.add_op(queue)
