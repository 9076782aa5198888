"""Turning a file the user named into a compiled layer or a schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpc.commands.errors import InputError, UsageError, file_error
from hpc.commands.outputs import note
from hpc.commands.pipelines import Passes, available_passes, check_pipeline

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from hpc.driver import Compiled
    from hpc.machine.record import Machine
    from hpc.schedule.model import Schedule
    from hpc.spec.model import Spec

OnPass = Callable[[str, "ModuleOp", float], None]
"""Called with "input" or a pass, the module after it, and the seconds it took."""

SCHEDULE_SUFFIX = ".ssc.json"

PARTIAL = "note: to see the IR after a part of the pipeline, use hpc opt"


def is_schedule(file: str) -> bool:
    """Whether the file is named like a schedule (else it is a layer to compile)."""
    return file.endswith(".json")


def require_readable(file: str) -> None:
    """Raise InputError unless `file` is a readable file (a pipe will do)."""
    try:
        if Path(file).is_dir():
            raise InputError(f"{file}: error: is a directory")
        with open(file, "rb"):
            pass
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError):
            raise InputError(f"{file!r}: error: not a file name") from error
        raise file_error(file, error) from error


def compile_layer(
    file: str,
    *,
    policy: str | None = None,
    pipeline: str | None = None,
    on_pass: OnPass | None = None,
) -> Compiled:
    """Compile a `.moe` file; every fault in it is an InputError, rendered."""
    from hpc.driver import CompileError, compile_file
    from hpc.spec.diagnostics import SpecError

    if is_schedule(file):
        raise UsageError(f"'{file}' is a schedule already; a .moe file is compiled")
    require_readable(file)
    passes: Passes = {}
    if pipeline is not None:
        passes = available_passes()
        check_pipeline(pipeline, passes)
    try:
        return compile_file(
            file, policy=policy, pipeline=pipeline, on_pass=on_pass, passes=passes
        )
    except SpecError as error:
        raise InputError(error.render().rstrip("\n")) from error
    except CompileError as error:
        hint = "" if pipeline is None else f"\n{PARTIAL}"
        raise InputError(error.render().rstrip("\n") + hint) from error
    except OSError as error:
        raise file_error(file, error) from error


def read_schedule_file(file: str) -> Schedule:
    """Read a schedule file; a broken one is an InputError that says where.

    A file that was changed by hand is welcome, and said to be so.
    """
    from hpc.schedule.reader import (
        ScheduleFormatError,
        load_schedule,
        read_text,
        was_edited,
    )

    require_readable(file)
    try:
        text = read_text(file)
        schedule = load_schedule(text, file)
    except ScheduleFormatError as error:
        raise InputError(str(error)) from error
    except OSError as error:
        raise file_error(file, error) from error
    if was_edited(text):
        note(f"{file}: note: edited since it was compiled")
    return schedule


@dataclass(frozen=True)
class Opened:
    """A schedule, and the spec it was compiled from, unless it came from a file."""

    file: str
    schedule: Schedule
    spec: Spec | None


def open_schedule(
    file: str, *, policy: str | None = None, pipeline: str | None = None
) -> Opened:
    """The schedule in the file, or that of the layer in it, freshly compiled."""
    if not is_schedule(file):
        compiled = compile_layer(file, policy=policy, pipeline=pipeline)
        return Opened(file, compiled.schedule, compiled.spec)
    if policy or pipeline:
        raise UsageError(
            f"'{file}' is compiled already; --policy and -p are for .moe files"
        )
    return Opened(file, read_schedule_file(file), None)


def load_machine_of(opened: Opened) -> Machine:
    """The record that the schedule was made for; InputError if there is none.

    A path in a schedule file is seen from the file's own folder, so that both can be
    moved together; if nothing is there, from the working directory.
    """
    from hpc.machine.record import MachineError, load_machine

    name = opened.schedule.machine
    if opened.spec is None:
        name = _find_record(opened.file, name)
    try:
        return load_machine(name)
    except MachineError as error:
        raise InputError(str(error)) from error


def _find_record(file: str, name: str) -> str:
    """The name itself, or the first of the paths it may stand for that exists."""
    from hpc.machine.toml_file import is_path

    if not is_path(name):
        return name
    places = dict.fromkeys((str(Path(file).parent / name), name))
    found = next((place for place in places if _exists(place)), None)
    if found is None:
        tried = " and no ".join(repr(place) for place in places)
        raise InputError(f"{file}: error: its machine record is missing: no {tried}")
    return found


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # no file has such a name
        return False
