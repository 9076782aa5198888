"""A complete pass of your own: puts of at most `rows` rows.

    hpc --load samples/my_pass.py list passes
    hpc --load samples/my_pass.py run samples/tiny.moe -p "moe-tile{policy=list},\
tile-select-gmm,tile-place,tile-lower-comm,my-put-rows{rows=1},tile-schedule,\
npu-insert-flags,npu-prune-flags,npu-allocate-events,npu-outline-queues,npu-check"

Shorter puts let the first rows arrive earlier and cost more signals. The thresholds of
the awaits follow by themselves: they are derived from `chunks` in npu-insert-flags, and
npu-check proves the result.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from dialects import tile
from dialects.base import int_attr
from passes.program import ProgramInfo, fail, programs


@dataclass(frozen=True)
class MyPutRowsPass(ModulePass):
    """
    Cut every put so that it moves at most `rows` rows of an expert to a rank.

    Needs `tile-lower-comm`; refuses a `rows` below 1 and a program without puts.
    """

    name = "my-put-rows"

    rows: int = 64

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in programs(op, tile.ProgramOp, self.name):
            if self.rows < 1:
                raise fail(program, f"rows must be at least 1, got {self.rows}")
            puts = [p for p in program.body.block.ops if isinstance(p, tile.PutOp)]
            if not puts:
                raise fail(program, "there are no puts; run tile-lower-comm first")
            # What one expert gets from one rank in a full, balanced layer, rounded up.
            expected = ProgramInfo(program).rows_per_source
            chunks = max(1, int(-(-expected // self.rows)))
            for put in puts:
                put.properties["chunks"] = int_attr(chunks)
