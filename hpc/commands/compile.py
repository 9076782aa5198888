"""`hpc compile`: a layer in, a schedule file out, the IR after each pass on request."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from hpc.commands.errors import OK
from hpc.commands.inputs import SCHEDULE_SUFFIX, compile_layer
from hpc.commands.outputs import Folder, note, show, show_json, write_text
from hpc.commands.progress import Progress

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from hpc.schedule.model import Schedule


def run(args: argparse.Namespace) -> int:
    """Compile and write the schedule; one line on stdout says what was made."""
    from hpc.schedule.writer import dump_schedule

    folder = Folder(args.dump_ir) if args.dump_ir else None
    try:
        with Progress() as progress:
            progress.step(f"compiling {args.file}")
            compiled = compile_layer(
                args.file,
                policy=args.policy,
                pipeline=args.pipeline,
                on_pass=_watcher(args, folder),
            )
        if folder:
            text = dump_schedule(_seen_from(args.dump_ir, compiled.schedule))
            folder.add(f"result{SCHEDULE_SUFFIX}", text)
    finally:
        if folder:
            _close(folder)
    _write(args, compiled.schedule)
    return OK


def _seen_from(folder: str | Path, schedule: Schedule) -> Schedule:
    """The path of a user's machine record as it is from the folder of the schedule, so
    that the schedule can be used from any working directory."""
    from hpc.machine.toml_file import is_path

    machine = Path(schedule.machine)
    if not is_path(schedule.machine) or machine.is_absolute():
        return schedule
    record = Path(os.path.realpath(machine.parent), machine.name)
    path = os.path.relpath(record, os.path.realpath(folder))
    return replace(schedule, machine=path if is_path(path) else f"./{path}")


def _close(folder: Folder) -> None:
    """Publish also after a failed pass: the IR before it is what one wants to see."""
    if folder.count:
        folder.publish()
    else:
        folder.discard()


def _write(args: argparse.Namespace, schedule: Schedule) -> None:
    from hpc.schedule.writer import dump_schedule

    if args.output == "-":
        show(dump_schedule(schedule))
        return
    output = args.output or _default_output(args.file)
    if not Path(output).exists() or Path(output).is_file():  # not a pipe
        schedule = _seen_from(Path(output).parent, schedule)
    write_text(output, dump_schedule(schedule))
    summary = summarise(schedule, output)
    if args.json:
        show_json(summary)
    else:
        show(
            "{output}: layer {layer}, policy {policy}, {ranks} ranks, {queues} queues, "
            "{instructions} instructions, {events} events".format(**summary)
        )


def _default_output(file: str) -> str:
    """`NAME.ssc.json` in the current directory."""
    return Path(file).name.removesuffix(".moe") + SCHEDULE_SUFFIX


def summarise(schedule: Schedule, output: str) -> dict[str, object]:
    """What was made, in numbers."""
    return {
        "output": output,
        "layer": schedule.layer.name,
        "machine": schedule.machine,
        "mode": schedule.mode,
        "policy": schedule.policy,
        "ranks": schedule.layer.ep,
        "groups": len(schedule.groups),
        "queues": len(schedule.queues),
        "instructions": sum(len(queue.code) for queue in schedule.queues),
        "events": len(schedule.events),
    }


def _watcher(
    args: argparse.Namespace, folder: Folder | None
) -> Callable[[str, ModuleOp, float], None] | None:
    """What to do with the IR after each pass, if anything."""
    if not args.print_ir_after_all and folder is None:
        return None

    def on_pass(name: str, module: ModuleOp, _seconds: float) -> None:
        text = print_ir(module, locations=args.print_debuginfo)
        if folder:
            folder.add(f"{name.split('{')[0]}.mlir", text)
        if args.print_ir_after_all:
            when = "as read" if name == "input" else f"after {name}"
            note(f"// -----// IR {when} //----- //\n{text}")

    return on_pass


def print_ir(module: ModuleOp, *, locations: bool) -> str:
    """The module as text that parses back."""
    from xdsl.printer import Printer

    stream = StringIO()
    Printer(stream, print_debuginfo=locations).print_op(module)
    return stream.getvalue() + "\n"
