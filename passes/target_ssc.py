"""Target `ssc`: writes the schedule file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import DiagnosticException
from xdsl.utils.target import Target

from dialects import npu
from hpc.schedule.writer import dump_schedule
from passes.program import programs
from passes.to_schedule import to_schedule


@dataclass(frozen=True)
class SscTarget(Target):
    """The `.ssc.json` text of the one program in the module; `pipeline` is recorded."""

    name = "ssc"

    pipeline: str = ""

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        found = programs(module, npu.ProgramOp, "target ssc")
        if len(found) != 1:
            raise DiagnosticException(
                f"a schedule file holds one program, the module has {len(found)}"
            )
        output.write(dump_schedule(to_schedule(found[0], self.pipeline)))
