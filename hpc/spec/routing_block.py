"""The setting `routing`: generator forms as a table, inline tables and files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hpc.interp.routing_check import RoutingError, check_routing
from hpc.interp.routing_file import MAX_BYTES, fit_layer, read_routing
from hpc.schedule.layer import Layer, Routing
from hpc.spec.diagnostics import Report, did_you_mean
from hpc.spec.layer_block import MAX_EXPERTS, MAX_RANKS, MAX_ROWS
from hpc.spec.model import Loc
from hpc.spec.nodes import Call, Items, Keyword, Node, Word
from hpc.spec.values import Param, Reader, bind, integer, integers, real, string

BALANCED = Routing("balanced")
"""What a file without the setting means."""

_SEED = Param("seed", integer(0, (1 << 32) - 1), 0)

FORMS: dict[str, tuple[Param, ...]] = {
    "balanced": (),
    "uniform": (_SEED,),
    "zipf": (Param("s", real(0, 100)), _SEED),
    "hot": (
        Param("n", integer(1, MAX_EXPERTS)),
        Param("share", real(0, 1, open_low=True)),
        _SEED,
    ),
    "one_rank": (Param("r", integer(0, MAX_RANKS - 1)),),
}
"""Generators by name with their parameters, in the order of positional arguments."""

_NAMES = (*FORMS, "file", "table")


@dataclass(frozen=True, slots=True)
class RoutingRead:
    """A routing, the layer it was checked against (a file may lower its tokens)."""

    routing: Routing | None
    layer: Layer | None


def read_routing_setting(
    report: Report, node: Node | None, layer: Layer | None, directory: Path
) -> RoutingRead:
    """Reads and checks the setting; without a layer only what needs none."""
    if node is None:
        return RoutingRead(BALANCED, layer)
    if isinstance(node, Items) and node.name is not None and node.name.text == "table":
        return _checked(report, node.loc, _table(report, node), layer)
    if isinstance(node, Call) and node.name.text == "file":
        return _file(report, node, layer, directory)
    return _checked(report, node.loc, _generator(report, node), layer)


def _checked(
    report: Report, loc: Loc, routing: Routing | None, layer: Layer | None
) -> RoutingRead:
    if routing is not None and layer is not None:
        for problem in check_routing(layer, routing):
            report.error(loc, problem)
    return RoutingRead(routing, layer)


def _generator(report: Report, node: Node) -> Routing | None:
    call = Call(node, (), 1) if isinstance(node, Word) else node
    name = node.name if isinstance(node, Call | Items) else node
    if not isinstance(name, Word):
        message = f"expected a routing such as balanced, got {node}"
        report.error(node.loc, message, did_you_mean("", _NAMES))
        return None
    if name.text in ("file", "table"):
        report.error(node.loc, f"expected {_usage(name.text)}, got {node}")
        return None
    if name.text not in FORMS or not isinstance(call, Call):
        message = f"unknown routing '{name.text[:40]}'"
        report.error(name.loc, message, did_you_mean(name.text, _NAMES))
        return None
    params = bind(report, call, FORMS[name.text], "routing")
    return None if params is None else Routing(name.text, params)


def _usage(name: str) -> str:
    return 'file("PATH")' if name == "file" else "table [[...], ...]"


def _table(report: Report, node: Items) -> Routing | None:
    """`table [[rows of expert 0, 1, ...] of rank 0, ...]`."""
    read: Reader = integers(0, MAX_ROWS)
    rows = [read(report, item) for item in node.items]
    if None in rows:
        return None
    return Routing("counts", counts=tuple(rows))


def _file(
    report: Report, call: Call, layer: Layer | None, directory: Path
) -> RoutingRead:
    """`file("PATH")`; the path is relative to the `.moe` file."""
    if len(call.args) != 1 or isinstance(call.args[0], Keyword):
        report.error(call.loc, 'expected one argument: file("PATH")')
        return RoutingRead(None, layer)
    node = call.args[0]
    if (name := string(report, node)) is None:
        return RoutingRead(None, layer)
    try:
        with (directory / name).open("rb") as stream:
            file = read_routing(stream.read(MAX_BYTES + 1), name)
    except OSError as error:
        reason = error.strerror or "cannot be read"
        report.error(
            node.loc, f"routing file '{name}': {reason}", f"looked in {directory}"
        )
        return RoutingRead(None, layer)
    except RoutingError as error:
        for problem in error.problems:
            report.error(node.loc, f"routing file '{name}': {problem}")
        return RoutingRead(None, layer)
    if layer is None:
        return RoutingRead(file.routing, None)
    layer, problems = fit_layer(file, layer)
    for problem in problems:
        report.error(node.loc, f"routing file '{name}': {problem}")
    return RoutingRead(file.routing, layer)
