"""`npu-prune-flags`: drop waits and sets that others imply."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from dialects import npu
from passes.program import flat_program, programs


@dataclass(frozen=True)
class NpuPruneFlagsPass(ModulePass):
    """
    Drop a wait when the team already knows that its counter is full: it waited for it
    before, or waited for something whose producers had waited for it. Counters that no
    wait is left for lose their sets and signals.

    What a team knows grows with its waits; a set hands on what its team knew. A put's
    signal comes from other ranks, whose counters are theirs, and hands on nothing.

    Before:
    ```mlir
    npu.program @p on "ascend_a3" mode "forward" policy "list" {}
      groups [array<i64: 0>] row_chunks 1 {
      npu.event @a_ready 1 x 1
      npu.wait_flag @a_ready[0, 0] >= 4 on aic[0:4]
      npu.wait_flag @a_ready[0, 0] >= 4 on aic[0:4]
    }
    ```
    After:
    ```mlir
    npu.program @p on "ascend_a3" mode "forward" policy "list" {}
      groups [array<i64: 0>] row_chunks 1 {
      npu.event @a_ready 1 x 1
      npu.wait_flag @a_ready[0, 0] >= 4 on aic[0:4]
    }
    ```
    Needs `npu-insert-flags`. Refuses outlined programs.
    """

    name = "npu-prune-flags"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in programs(op, npu.ProgramOp, self.name):
            flat_program(program, self.name)
            _drop_implied_waits(program)
            _drop_unheard_signals(program)


def _drop_implied_waits(program: npu.ProgramOp) -> None:
    knows: defaultdict[object, set[npu.FlagAttr]] = defaultdict(set)
    told: dict[npu.FlagAttr, set[npu.FlagAttr]] = {}
    remote = {
        op.signal
        for op in program.body.block.ops
        if isinstance(op, npu.PutMemSignalOp) and op.signal is not None
    }
    for op in list(program.body.block.ops):
        if isinstance(op, npu.WaitFlagOp):
            known = knows[op.team]
            if op.flag in known:
                _erase(op)
                continue
            known.add(op.flag)
            known |= told.get(op.flag, set())
        elif isinstance(op, npu.SetFlagOp) and op.flag not in remote:
            # All setters have set before a wait passes, so it may know what each knew.
            told.setdefault(op.flag, set()).update(knows[op.team])


def _drop_unheard_signals(program: npu.ProgramOp) -> None:
    ops = list(program.body.block.ops)
    heard = {op.flag for op in ops if isinstance(op, npu.WaitFlagOp)}
    used: set[str] = {flag.event.data for flag in heard}
    for op in ops:
        if isinstance(op, npu.SetFlagOp) and op.flag not in heard:
            _erase(op)
        elif isinstance(op, npu.PutMemSignalOp) and op.signal not in heard:
            op.properties.pop("signal", None)
        elif isinstance(op, npu.EventOp) and op.sym_name.data not in used:
            _erase(op)


def _erase(op: Operation) -> None:
    op.detach()
    op.erase()
