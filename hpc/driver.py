"""From a `.moe` file to a checked schedule, with a hook after every pass."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.passes import ModulePass, PassPipeline
from xdsl.utils.exceptions import DiagnosticException

from hpc.schedule.model import Schedule
from hpc.spec.frontend import build_module
from hpc.spec.model import Spec
from hpc.spec.parser import parse_spec
from hpc.universe import HPC_UNIVERSE
from passes.pipeline import PASSES, default_pipeline

__all__ = [
    "CompileError",
    "Compiled",
    "compile_file",
    "compile_text",
    "default_pipeline",
]

_IS_ERROR = re.compile(r"([^\n]*:\d+:\d+: )?error: ")

OnPass = Callable[[str, ModuleOp, float], None]
PassTable = dict[str, Callable[[], type[ModulePass]]]


class CompileError(Exception):
    """The input, or the pipeline on it, is at fault; `render` is for the user."""

    def render(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Compiled:
    """A spec, the IR after the last pass, and the schedule it stands for."""

    spec: Spec
    module: ModuleOp
    schedule: Schedule


def context() -> Context:
    """A context that knows builtin and our dialects."""
    ctx = Context()
    ctx.load_dialect(Builtin)
    for name, get in HPC_UNIVERSE.all_dialects.items():
        ctx.register_dialect(name, get)
    return ctx


def compile_file(
    path: str | Path,
    *,
    policy: str | None = None,
    pipeline: str | None = None,
    on_pass: OnPass | None = None,
    passes: PassTable | None = None,
) -> Compiled:
    """Compile the `.moe` file at `path`; OSError if it cannot be read.

    For the rest see `compile_text`.
    """
    return compile_text(
        Path(path).read_bytes(),
        str(path),
        policy=policy,
        pipeline=pipeline,
        on_pass=on_pass,
        passes=passes,
    )


def compile_text(
    text: bytes,
    name: str,
    *,
    policy: str | None = None,
    pipeline: str | None = None,
    on_pass: OnPass | None = None,
    passes: PassTable | None = None,
) -> Compiled:
    """Compile the `.moe` text of the file called `name`.

    `policy` replaces the file's pin (default `list`); `pipeline` is pass text as for
    `-p` and must end in an outlined `npu.program`; `passes` adds passes by name.
    `on_pass(name, module, seconds)` sees the module after the frontend ("input") and
    after every pass. Raises SpecError, CompileError; ValueError for a pipeline text
    that names no pass.
    """
    started = time.perf_counter()
    spec = parse_spec(text, name)
    chosen = policy or spec.pins.policy or "list"
    passed = default_pipeline(chosen) if pipeline is None else pipeline
    module = build_module(spec)
    stages = PassPipeline.parse_spec({**PASSES, **(passes or {})}, passed)
    try:
        run_passes(module, stages, started, on_pass)
        schedule = _schedule(module, passed)
    except DiagnosticException as error:
        raise CompileError(error_text(error)) from error
    return Compiled(spec, module, schedule)


def run_passes(
    module: ModuleOp, stages: PassPipeline, started: float, on_pass: OnPass | None
) -> None:
    """Verify and report after the frontend and after every pass."""
    ctx = context()
    module.verify()
    if on_pass is not None:
        on_pass("input", module, time.perf_counter() - started)
    for stage in stages.passes:
        started = time.perf_counter()
        stage.apply(ctx, module)
        module.verify()
        if on_pass is not None:
            spec = str(stage.spec(include_default=False))
            on_pass(spec, module, time.perf_counter() - started)


def _schedule(module: ModuleOp, pipeline: str) -> Schedule:
    from dialects import npu
    from passes.program import programs
    from passes.to_schedule import to_schedule

    program = programs(module, npu.ProgramOp, "the end of the pipeline")[0]
    return to_schedule(program, pipeline)


def error_text(error: DiagnosticException) -> str:
    """The message alone, as an error: notes hold the whole module in generic form.

    Passes begin theirs with `file:line:col: error:` where they know the line.
    """
    text = str(error).strip()
    return text if _IS_ERROR.match(text) else f"error: {text}"
