"""`npu-check`: the safety checker, on IR."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from dialects import npu
from hpc.schedule.check import Limits, check_schedule
from passes.program import ProgramInfo, counts_of, fail, programs
from passes.to_schedule import to_schedule


@dataclass(frozen=True)
class NpuCheckPass(ModulePass):
    """
    Prove the outlined program safe with the checker of the schedule file, or refuse it
    with every violation, each with its witness. The IR does not change.

    Before and after:
    ```mlir
    npu.program @p on "ascend_a3" mode "forward" policy "list" {}
      groups [array<i64: 0>] row_chunks 1 {
      npu.buffer @x token 8 x 64 bf16 input
      npu.buffer @s token 8 x 64 bf16 workspace
      npu.buffer @out token 8 x 64 bf16 output
      npu.event @s_ready 1 x 1 ids [0]
      npu.queue aiv[0:24] {
        npu.task relu (@x[*, 0]) -> (@s[*, 0]) base [8]
        npu.set_flag @s_ready[0, 0]
      }
      npu.queue aiv[24:48] {
        npu.wait_flag @s_ready[0, 0] >= 24
        npu.task gelu (@s[*, 0]) -> (@out[*, 0]) base [8]
      }
    }
    ```
    Needs `npu-allocate-events` and `npu-outline-queues`.
    """

    name = "npu-check"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in programs(op, npu.ProgramOp, self.name):
            schedule = to_schedule(program)
            limits = Limits.of(ProgramInfo(program).machine)
            counts = counts_of(program, schedule.layer, schedule.routing)
            report = check_schedule(schedule, limits, counts)
            if report.violations:
                texts = [str(violation) for violation in report.violations]
                raise fail(program, "the schedule is not safe:\n" + "\n".join(texts))
