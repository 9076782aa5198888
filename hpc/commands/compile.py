"""`hpc compile`: a layer in, a schedule file out, the IR after each pass on request."""

from __future__ import annotations

import argparse
from collections.abc import Callable
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
        text = dump_schedule(compiled.schedule)
        if folder:
            folder.add(f"result{SCHEDULE_SUFFIX}", text)
    finally:
        if folder:
            _close(folder)
    _write(args, compiled.schedule, text)
    return OK


def _close(folder: Folder) -> None:
    """Publish also after a failed pass: the IR before it is what one wants to see."""
    if folder.count:
        folder.publish()
    else:
        folder.discard()


def _write(args: argparse.Namespace, schedule: Schedule, text: str) -> None:
    if args.output == "-":
        show(text)
        return
    output = args.output or _default_output(args.file)
    write_text(output, text)
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
