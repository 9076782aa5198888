"""`hpc machine`: a record with its sources, or beside published measurements."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hpc.commands.errors import FAILED, OK, InputError
from hpc.commands.outputs import note, show, show_json, show_table
from hpc.commands.progress import Progress

if TYPE_CHECKING:
    from hpc.commands.validation import Outcome
    from hpc.machine.published import Point, Published
    from hpc.machine.record import Fact, Machine


def run(args: argparse.Namespace) -> int:
    """Show or validate the record; status 1 if a point misses its tolerance."""
    machine = _load(args.name)
    return ACTIONS[args.action](machine, args)


def _load(name: str) -> Machine:
    from hpc.machine.record import MachineError, load_machine

    try:
        return load_machine(name)
    except MachineError as error:
        raise InputError(str(error)) from error


def _show(machine: Machine, args: argparse.Namespace) -> int:
    from hpc.machine.fields import BY_KEY

    if args.json:
        facts = [_fact_json(fact) for fact in machine.facts]
        show_json({"machine": machine.name, "about": machine.summary, "facts": facts})
        return OK
    show(f"{machine.name}: {machine.summary}\n")
    columns = ["key", "value", "unit", "confidence", "meaning", "source"]
    rows = [
        [f.key, _text(f), f.unit, f.confidence, BY_KEY[f.key].doc, f.source]
        for f in machine.facts
    ]
    show_table(columns, rows)
    return OK


def _fact_json(fact: Fact) -> dict[str, object]:
    value = list(fact.value) if isinstance(fact.value, tuple) else fact.value
    return {
        "key": fact.key,
        "value": value,
        "unit": fact.unit,
        "confidence": fact.confidence,
        "source": fact.source,
    }


def _text(fact: Fact) -> str:
    value = fact.value
    if isinstance(value, tuple):
        return " ".join(v if isinstance(v, str) else f"{v:g}" for v in value)
    return str(value) if isinstance(value, int) else f"{value:g}"


def _validate(machine: Machine, args: argparse.Namespace) -> int:
    outcomes = _outcomes(machine, args)
    if args.json:
        show_json(_validation_json(machine, outcomes))
    else:
        show(_validation_text(machine, outcomes, args.points))
    return FAILED if any(one.ok is False for one in outcomes) else OK


def _outcomes(machine: Machine, args: argparse.Namespace) -> list[Outcome]:
    from hpc.commands.validation import Validator

    published, points = _points(machine, args)
    validator = Validator(args.name, machine, published)
    found: list[Outcome] = []
    with Progress() as progress:
        progress.step("checking the points")
        if faults := validator.faults(points):
            raise InputError("\n".join(faults))
        for point in points:
            progress.step(f"simulating {point.id}")
            found.append(validator.outcome(point))
    return found


def _points(
    machine: Machine, args: argparse.Namespace
) -> tuple[Published, tuple[Point, ...]]:
    """What is published, and the points asked for: of a file, or of a machine."""
    from hpc.commands.validation import Validator
    from hpc.machine.published import PointError, load_own_points, load_points
    from hpc.machine.toml_file import is_path

    if args.points is None or not is_path(args.points):
        shipped = load_points()
        device = args.points or machine.name
        if points := shipped.of(device):
            return shipped, points
        raise InputError(
            f"{args.name}: error: no published points for '{device}'; "
            f"--points takes {', '.join(shipped.machines)}, or a .toml file of yours"
        )
    try:
        own = load_own_points(args.points)
    except PointError as error:
        usable = error.usable
        more = Validator(args.name, machine, usable).faults(usable.of(machine.name))
        raise InputError("\n".join([str(error), *more])) from error
    points = own.of(machine.name)
    for_others = f"for other machines: {', '.join(own.machines)}"
    if not points:
        raise InputError(f"{args.points}: error: all points are {for_others}")
    if left := len(own.points) - len(points):
        note(f"{args.points}: note: {left} left out, {for_others}")
    return own, points


def _verdict(one: Outcome) -> str:
    return {True: "ok", False: "FAILED", None: "known miss"}[one.ok]


def _validation_json(machine: Machine, outcomes: list[Outcome]) -> dict[str, object]:
    rows = [
        {
            "point": one.point.id,
            "published": one.point.value,
            "simulated": one.simulated,
            "unit": one.point.unit,
            "error": one.error,
            "tolerance": one.point.tolerance,
            "verdict": _verdict(one),
            "missing": one.point.missing or None,
            "role": one.point.role,
            "source": one.point.source,
        }
        for one in outcomes
    ]
    return {"machine": machine.name, "points": rows, "assumed": _assumed(machine)}


def _validation_text(
    machine: Machine, outcomes: list[Outcome], points: str | None
) -> str:
    from hpc.report.tables import render_table

    columns = ["point", "published", "simulated", "unit", "error", "allowed"]
    columns += ["verdict", "role"]
    rows = [
        [
            one.point.id,
            _number(one.point.value),
            _number(one.simulated),
            one.point.unit,
            f"{one.error:+.1%}",
            "" if one.point.tolerance is None else f"{one.point.tolerance:.0%}",
            _verdict(one),
            one.point.role,
        ]
        for one in outcomes
    ]
    title = f"{machine.name}, published and simulated; not checked on hardware by us"
    if points is not None:
        title = f"{machine.name}, points of {points} and simulated"
    table = render_table(title, columns, rows, color=False, left=(0, 3, 6, 7))
    return table + "".join(f"{line}\n" for line in _footnotes(machine, outcomes))


def _number(value: float) -> str:
    return f"{value:.4g}"


def _footnotes(machine: Machine, outcomes: list[Outcome]) -> list[str]:
    lines = [f"mean absolute error {_mean_error(outcomes):.1%}"]
    judged = [one for one in outcomes if one.ok is not None]
    if judged and len(judged) < len(outcomes):
        lines[0] += f", without the known misses {_mean_error(judged):.1%}"
    terms = dict.fromkeys(one.point.missing for one in outcomes if one.point.missing)
    lines += [f"known miss, term that the model lacks: {term}" for term in terms]
    names = ", ".join(_assumed(machine))
    return [*lines, f"assumed values of the record: {names or 'none'}"]


def _mean_error(outcomes: list[Outcome]) -> float:
    return sum(abs(one.error) for one in outcomes) / len(outcomes)


def _assumed(machine: Machine) -> list[str]:
    return [fact.key for fact in machine.facts if fact.confidence == "assumed"]


ACTIONS = {"show": _show, "validate": _validate}
