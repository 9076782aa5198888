"""`hpc machine`: a record with its sources, or beside published measurements."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpc.commands.errors import FAILED, INTERRUPTED, OK, InputError
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
        about = {"machine": machine.name, "record": args.name}
        show_json({**about, "about": machine.summary, "facts": facts})
        return OK
    show(f"{_title(machine, args.name)}: {machine.summary}\n")
    columns = ["key", "value", "unit", "confidence", "meaning", "source"]
    rows = [
        [f.key, _text(f), f.unit, f.confidence, BY_KEY[f.key].doc, f.source]
        for f in machine.facts
    ]
    show_table(columns, rows)
    return OK


def _title(machine: Machine, record: str) -> str:
    """The record's own name, and the file if it is not the one that ships."""
    from hpc.machine.toml_file import is_path

    return f"{machine.name} of {record}" if is_path(record) else machine.name


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


@dataclass(frozen=True)
class Validation:
    """Points run so far, of `planned`; `interrupt` is what kept it from the rest."""

    machine: Machine
    record: str
    points: str | None
    outcomes: list[Outcome]
    planned: int
    interrupt: KeyboardInterrupt | None

    def left(self) -> str:
        """How many points were run, and how far the next one had come."""
        from hpc.interp.engine import Stopped

        text = f"{len(self.outcomes)} of {self.planned} points were run"
        stopped = isinstance(self.interrupt, Stopped)
        return f"{text}; the next one {self.interrupt}" if stopped else text


def _validate(machine: Machine, args: argparse.Namespace) -> int:
    done = _outcomes(machine, args)
    if args.json:
        show_json(_validation_json(done))
    elif done.outcomes:
        show(_validation_text(done))
    if done.interrupt is not None:
        note(f"{args.name}: interrupted: {done.left()}")
        return INTERRUPTED
    return FAILED if any(one.ok is False for one in done.outcomes) else OK


def _outcomes(machine: Machine, args: argparse.Namespace) -> Validation:
    """All points, or those before an interrupt."""
    from hpc.commands.validation import Validator

    published, points = _points(machine, args)
    validator = Validator(args.name, machine, published)
    found: list[Outcome] = []
    interrupted: KeyboardInterrupt | None = None
    try:
        with Progress() as progress:
            progress.step("checking the points")
            if faults := validator.faults(points):
                raise InputError("\n".join(faults))
            for point in points:
                progress.step(f"simulating {point.id}")
                found.append(validator.outcome(point))
    except KeyboardInterrupt as interrupt:
        interrupted = interrupt
    return Validation(machine, args.name, args.points, found, len(points), interrupted)


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


def _validation_json(done: Validation) -> dict[str, object]:
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
        for one in done.outcomes
    ]
    report: dict[str, object] = {
        "machine": done.machine.name,
        "record": done.record,
        "points": rows,
        "assumed": list(done.machine.assumed),
    }
    if done.interrupt is not None:
        report["interrupted"] = {"run": len(rows), "planned": done.planned}
    return report


def _validation_text(done: Validation) -> str:
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
        for one in done.outcomes
    ]
    name = _title(done.machine, done.record)
    title = f"{name}, published and simulated; not checked on hardware by us"
    if done.points is not None:
        title = f"{name}, points of {done.points} and simulated"
    table = render_table(title, columns, rows, color=False, left=(0, 3, 6, 7))
    return table + "".join(f"{line}\n" for line in _footnotes(done))


def _number(value: float) -> str:
    return f"{value:.4g}"


def _footnotes(done: Validation) -> list[str]:
    outcomes = done.outcomes
    lines = [f"mean absolute error {_mean_error(outcomes):.1%}"]
    judged = [one for one in outcomes if one.ok is not None]
    if judged and len(judged) < len(outcomes):
        lines[0] += f", without the known misses {_mean_error(judged):.1%}"
    terms = dict.fromkeys(one.point.missing for one in outcomes if one.point.missing)
    lines += [f"known miss, term that the model lacks: {term}" for term in terms]
    names = ", ".join(done.machine.assumed)
    return [*lines, f"assumed values of the record: {names or 'none'}"]


def _mean_error(outcomes: list[Outcome]) -> float:
    return sum(abs(one.error) for one in outcomes) / len(outcomes)


ACTIONS = {"show": _show, "validate": _validate}
