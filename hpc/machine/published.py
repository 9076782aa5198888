"""Published measurements as data: what was measured, by whom, and how to rerun it.

`published/*.toml` holds points; `load_points` reads and checks them. Running one is the
product's matter (`hpc.commands.validation`): this file only says what to run.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import cast

FOLDER = Path(__file__).parent / "published"

ROLES = ("fitted", "held out")
UNITS = ("us", "ms", "GB/s", "x", "%")

Setting = str | int | float
Run = dict[str, Setting]


class PointError(Exception):
    """A file of points that is wrong; the message names file, point and fault."""


@dataclass(frozen=True, slots=True)
class Point:
    """One published number and the run that should give it.

    `value` is in `unit` ("x" is a ratio, "%" a share of 100); `tolerance` is the
    relative error that is still acceptable, or None where the model is known to miss
    the point: `missing` then names the term that it lacks. `machines` are the records
    that describe the measured device. `run` are the settings of the run, `versus`
    those of the run it is divided by. `facts` replaces values of the record by those
    of the measured device, for example its clock.
    """

    id: str
    machines: tuple[str, ...]
    source: str
    role: str
    value: float
    unit: str
    tolerance: float | None
    missing: str
    run: Run
    versus: Run = field(default_factory=dict[str, Setting])
    facts: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Published:
    """All points, and the `.moe` texts that their runs name, with `$` placeholders."""

    points: tuple[Point, ...]
    specs: dict[str, Template]

    def of(self, machine: str) -> tuple[Point, ...]:
        """The points that were measured on `machine`."""
        return tuple(point for point in self.points if machine in point.machines)


def load_points(folder: Path = FOLDER) -> Published:
    """Every point of every file, in order of file and place; PointError if wrong."""
    points: list[Point] = []
    specs: dict[str, Template] = {}
    for path in sorted(folder.glob("*.toml")):
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        texts = cast(dict[str, str], data.get("specs", {}))
        specs |= {name: Template(text) for name, text in texts.items()}
        entries = cast(list[dict[str, object]], data.get("point", []))
        points += [_point(path.name, entry) for entry in entries]
    seen: set[str] = set()
    for point in points:
        if point.id in seen:
            raise PointError(f"point '{point.id}': listed twice")
        seen.add(point.id)
        for run in (point.run, point.versus):
            if "spec" in run and run["spec"] not in specs:
                raise PointError(f"point '{point.id}': no spec '{run['spec']}'")
    return Published(tuple(points), specs)


def _point(file: str, entry: dict[str, object]) -> Point:
    where = f"{file}: point {entry.get('id', '?')!r}"
    needed = {"id", "machines", "source", "role", "value", "unit", "run"}
    known = needed | {"tolerance", "missing", "versus", "facts"}
    faults = [f"missing '{key}'" for key in sorted(needed - entry.keys())]
    faults += [f"unknown key '{key}'" for key in sorted(entry.keys() - known)]
    if not faults:
        if entry["role"] not in ROLES:
            faults.append(f"role must be one of {', '.join(ROLES)}")
        if entry["unit"] not in UNITS:
            faults.append(f"unit must be one of {', '.join(UNITS)}")
        if ("tolerance" in entry) == ("missing" in entry):
            faults.append("needs either a tolerance or what is missing")
    if faults:
        raise PointError(f"{where}: {'; '.join(faults)}")
    tolerance = cast("float | None", entry.get("tolerance"))
    return Point(
        id=str(entry["id"]),
        machines=tuple(cast(list[str], entry["machines"])),
        source=str(entry["source"]),
        role=str(entry["role"]),
        value=float(cast(float, entry["value"])),
        unit=str(entry["unit"]),
        tolerance=tolerance,
        missing=str(entry.get("missing", "")),
        run=cast(Run, entry["run"]),
        versus=cast(Run, entry.get("versus", {})),
        facts=cast(dict[str, float], entry.get("facts", {})),
    )
