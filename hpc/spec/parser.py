"""`.moe` text to a checked `Spec`, or one error that holds everything wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpc.spec.diagnostics import Diagnostic, Report, SpecError, did_you_mean
from hpc.spec.flow import fields_needed, read_flow
from hpc.spec.layer_block import LayerParts, read_layer
from hpc.spec.memory import check_memory
from hpc.spec.model import Loc, Spec
from hpc.spec.nodes import Block, Node, Setting, String, Word
from hpc.spec.routing_block import read_routing_setting
from hpc.spec.schedule_block import check_pins, read_pins
from hpc.spec.syntax import MAX_BYTES, decode, parse

if TYPE_CHECKING:
    from hpc.machine.record import Machine
    from hpc.schedule.layer import Routing

MODES = ("forward", "backward", "train")
DEFAULT_MACHINE = "ascend_a3"

BLOCKS = ("layer", "parallel", "flow", "schedule")
SETTINGS = ("machine", "mode", "routing")

__all__ = ["SpecError", "load_spec", "parse_spec"]


def load_spec(path: str | Path) -> Spec:
    """Reads and checks a `.moe` file. Raises `SpecError`, also if it is unreadable."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        loc = Loc(str(path), 1, 1)
        raise SpecError([Diagnostic(loc, f"cannot read the file: {reason}")]) from None
    return parse_spec(data, str(path))


def parse_spec(data: bytes, filename: str) -> Spec:
    """Checks the bytes of a `.moe` file called `filename`.

    Paths in the text are relative to the directory of `filename`. Raises `SpecError`
    with all semantic errors, or with the first syntax error.
    """
    text = decode(data, filename)
    report = Report(filename, text.split("\n"))
    entries = parse(report)
    sections = _Sections.collect(report, entries)
    spec = _check(report, sections, Path(filename).parent)
    report.raise_if_failed()
    if spec is None:
        raise AssertionError("no spec and no error")
    return spec


@dataclass(frozen=True)
class _Sections:
    """The entries of a file by name, each at most once."""

    blocks: dict[str, Block]
    settings: dict[str, Setting]

    @classmethod
    def collect(cls, report: Report, entries: Sequence[Block | Setting]) -> _Sections:
        blocks: dict[str, Block] = {}
        settings: dict[str, Setting] = {}
        for entry in entries:
            if isinstance(entry, Block):
                if _is_known(report, entry.kind, BLOCKS, blocks):
                    blocks[entry.kind.text] = entry
            elif _is_known(report, entry.name, SETTINGS, settings):
                settings[entry.name.text] = entry
        return cls(blocks, settings)

    def value(self, name: str) -> Node | None:
        setting = self.settings.get(name)
        return None if setting is None else setting.value


def _is_known(
    report: Report,
    word: Word,
    known: Sequence[str],
    seen: dict[str, Block] | dict[str, Setting],
) -> bool:
    """Is this section one of `known`, and the first of its name?"""
    name = word.text
    if name in (BLOCKS if known is SETTINGS else SETTINGS):
        form = f"{name} {{ ... }}" if known is SETTINGS else f"{name} = VALUE"
        report.error(word.loc, f"'{name}' is written {form}")
    elif name not in known:
        help = did_you_mean(name, (*BLOCKS, *SETTINGS))
        report.error(word.loc, f"unknown section '{name[:40]}'", help)
    elif name in seen:
        first = seen[name]
        at = (first.kind if isinstance(first, Block) else first.name).loc
        message = f"duplicate section '{name}', first set at {at.line}:{at.col}"
        report.error(word.loc, message)
    else:
        return True
    return False


def _check(report: Report, sections: _Sections, directory: Path) -> Spec | None:
    machine = _machine(report, sections.value("machine"), directory)
    mode = _mode(report, sections.value("mode"))
    pins = read_pins(report, sections.blocks.get("schedule"))
    flow_block = sections.blocks.get("flow")
    if flow_block is not None and flow_block.name is not None:
        report.error(flow_block.name.loc, "'flow' takes no name")
    block = sections.blocks.get("layer")
    if block is None:
        read_routing_setting(report, sections.value("routing"), None, directory)
        _no_layer(report)
        return None
    parallel = sections.blocks.get("parallel")
    parts = read_layer(report, block, parallel, fields_needed(flow_block))
    routed = read_routing_setting(
        report, sections.value("routing"), parts.routed, directory
    )
    _check_dtype(report, parts, machine)
    check_pins(report, pins, parts, machine)
    inputs, flow = read_flow(report, flow_block, parts)
    layer = parts.layer_with_tokens(routed.layer)
    if report.failed or layer is None or machine is None or routed.routing is None:
        return None
    if mode in ("backward", "train") and _drops_rows(routed.routing):
        place = sections.settings["routing"].value.loc
        message = f"mode {mode} needs every slot sent, and the routing drops some (-1)"
        report.error(place, message)
        return None
    place = parts.place("tokens")
    routing, mode = routed.routing, mode or MODES[0]
    check_memory(report, place, machine, layer, routing, inputs, flow, mode)
    return Spec(
        layer=layer,
        machine=_machine_name(sections.value("machine"), directory),
        mode=mode,
        routing=routing,
        inputs=inputs,
        flow=flow,
        pins=pins,
        file=report.file,
        loc=parts.loc,
        warnings=report.warnings(),
    )


def _drops_rows(routing: Routing) -> bool:
    """Does some token leave a slot unsent?"""
    return any(-1 in token for rank in routing.ids for token in rank)


def _no_layer(report: Report) -> None:
    empty = not any(line.split("#")[0].strip() for line in report.lines)
    message = "the file is empty" if empty else "the file has no layer"
    report.error(Loc(report.file, 1, 1), message, "a spec needs: layer NAME { ... }")


def _machine(report: Report, node: Node | None, directory: Path) -> Machine | None:
    from hpc.machine.record import MachineError, load_machine, machine_names

    if node is not None and not isinstance(node, Word | String):
        message = f"expected a machine's name, got {node}"
        report.error(node.loc, message, did_you_mean("", machine_names()))
        return None
    if isinstance(node, Word) and node.text not in machine_names():
        known = ", ".join(machine_names())
        message = f"unknown machine '{node.text[:40]}', known machines: {known}"
        close = did_you_mean(node.text, machine_names())
        help = close if close.startswith("did") else 'or a record: machine = "my.toml"'
        report.error(node.loc, message, help)
        return None
    if isinstance(node, String) and not node.text.endswith(".toml"):
        message = f"{node} is no machine record: expected a file name ending in .toml"
        report.error(node.loc, message)
        return None
    try:
        return load_machine(_machine_name(node, directory))
    except (MachineError, OSError, ValueError) as error:
        loc = Loc(report.file, 1, 1) if node is None else node.loc
        for fault in str(error).splitlines():
            report.error(loc, f"machine record: {fault}")
        return None


def _machine_name(node: Node | None, directory: Path) -> str:
    """A machine's name, or the path of a record seen from the working directory."""
    if isinstance(node, String):
        return str(directory / node.text)
    return node.text if isinstance(node, Word) else DEFAULT_MACHINE


def _mode(report: Report, node: Node | None) -> str | None:
    if node is None:
        return MODES[0]
    supported = ", ".join(MODES)
    if not isinstance(node, Word):
        report.error(
            node.loc, f"expected a mode, got {node}", f"supported: {supported}"
        )
    elif node.text not in MODES:
        help = did_you_mean(node.text, MODES)
        report.error(node.loc, f"unknown mode '{node.text[:40]}'", help)
    else:
        return node.text
    return None


def _check_dtype(report: Report, parts: LayerParts, machine: Machine | None) -> None:
    dtype = parts.dtype
    if machine is None or dtype is None or dtype in machine.dtypes:
        return
    have = ", ".join(machine.dtypes)
    message = f"{machine.name} does not support dtype {dtype}, it has: {have}"
    report.error(parts.place("dtype"), message)
