"""Published measurements as data: what was measured, by whom, and how to rerun it.

`published/*.toml` holds the points that ship; a user's own file has the same format.
Running one is the product's matter (`hpc.commands.validation`): this file only says
what to run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import cast

from hpc.machine.fields import BY_KEY
from hpc.machine.places import KeyPath
from hpc.machine.point_checks import point_faults, spec_fault
from hpc.machine.record import FactValue, did_you_mean, fact_value
from hpc.machine.runs import Run
from hpc.machine.toml_file import TomlError, TomlFile, read_toml, shorten

FOLDER = Path(__file__).parent / "published"


class PointError(Exception):
    """A file of points that is wrong: one line for each fault, in order of place,
    each `file:line:col: error: ...`. `usable` is what can be read all the same."""

    def __init__(self, message: str, usable: Published) -> None:
        super().__init__(message)
        self.usable = usable


@dataclass(frozen=True, slots=True)
class Point:
    """One published number and the run that should give it.

    `value` is in `unit` ("x" is a ratio, "%" a share of 100); `tolerance` is the
    relative error that is still acceptable, or None where the model is known to miss
    the point: `missing` then names the term that it lacks. `machines` are the records
    that describe the measured device; none are all. `run` are the settings of the run,
    `versus` those of the run it is divided by. `facts` replaces values of the record by
    those of the measured device, for example its clock. `where(key, ...)` is the place
    of a part of the point, `file:line:col`.
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
    versus: Run
    facts: dict[str, FactValue]
    where: Callable[..., str] = field(repr=False, compare=False)

    @property
    def runs(self) -> dict[str, Run]:
        """`run`, and `versus` if there is one, by name."""
        named = {"run": self.run, "versus": self.versus}
        return {name: run for name, run in named.items() if run}


@dataclass(frozen=True)
class Published:
    """All points, and the `.moe` texts that their runs name, with `$` placeholders."""

    points: tuple[Point, ...]
    specs: dict[str, Template]

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines that points name, sorted."""
        return tuple(sorted({name for p in self.points for name in p.machines}))

    def of(self, machine: str) -> tuple[Point, ...]:
        """The points that were measured on `machine`, or that name no machine."""
        return tuple(p for p in self.points if not p.machines or machine in p.machines)


def load_points(folder: Path = FOLDER) -> Published:
    """Every point of every file, in order of file and place; PointError if wrong."""
    points: list[Point] = []
    specs: dict[str, Template] = {}
    taken: dict[str, str] = {}
    for path in sorted(folder.glob("*.toml")):
        found = _load(str(path), {}, taken)
        points += found.points
        specs |= found.specs
    return Published(tuple(points), specs)


def load_own_points(path: str) -> Published:
    """The points of a user's file, whose layers may also name specs that ship;
    PointError with every fault of the file."""
    return _load(path, load_points().specs, {})


def _load(path: str, specs: dict[str, Template], taken: dict[str, str]) -> Published:
    """`taken` has the place of every id so far, and gets the new ones."""
    try:
        reader = _Reader(read_toml(path), dict(specs), taken)
    except TomlError as error:
        raise PointError(str(error), Published((), {})) from None
    read = Published(tuple(reader.points()), reader.specs)
    if reader.faults:
        lines = "\n".join(line for _, line in sorted(reader.faults))
        raise PointError(lines, read)
    return read


class _Reader:
    """Reads one file and collects what is wrong with it."""

    def __init__(
        self, file: TomlFile, specs: dict[str, Template], taken: dict[str, str]
    ) -> None:
        self.file, self.specs, self.taken = file, specs, taken
        self.faults: list[tuple[tuple[int, int], str]] = []
        self._broken: set[object] = set()

    def points(self) -> list[Point]:
        """The points without faults."""
        for key in self.file.data:
            if key not in ("specs", "point"):
                guess = did_you_mean(key, ("specs", "point"))
                known = guess or "; there are [specs] and [[point]]"
                self._error((key,), f"unknown key '{key}'{known}")
        self._read_specs()
        found = [
            self._point(("point", index), entry)
            for index, entry in enumerate(self._entries())
        ]
        return [point for point in found if point is not None]

    def _entries(self) -> list[dict[str, object]]:
        entries = self.file.data.get("point", [])
        items = cast(list[object], entries) if isinstance(entries, list) else [None]
        if not all(isinstance(item, dict) for item in items):
            self._error(("point",), "a point is a table: write [[point]]")
            return []
        if not items and not self.faults:
            self._error((), "no [[point]] in this file")
        return cast(list[dict[str, object]], items)

    def _read_specs(self) -> None:
        specs = self.file.data.get("specs", {})
        if not isinstance(specs, dict):
            self._error(("specs",), "specs are a table of texts: write [specs]")
            return
        for name, text in cast(dict[str, object], specs).items():
            self.specs[name] = Template(str(text))
            if fault := spec_fault(text):
                self._error(("specs", name), f"spec {shorten(name)} {fault}")
                self._broken.add(name)

    def _point(self, path: KeyPath, entry: dict[str, object]) -> Point | None:
        name, before = entry.get("id"), len(self.faults)
        label = f"point {shorten(name)}: " if isinstance(name, str) else "point: "
        for keys, text in point_faults(entry, self.specs):
            self._error((*path, *keys), f"{label}{text}")
        if isinstance(name, str):
            here = self.file.where((*path, "id"))
            if (first := self.taken.setdefault(name, here)) != here:
                self._error((*path, "id"), f"{label}listed at {first} already")
        if len(self.faults) > before:
            return None
        point = _made(entry, self.file, path)
        specs = {run.get("spec") for run in point.runs.values()}
        return None if specs & self._broken else point

    def _error(self, path: KeyPath, message: str) -> None:
        line = f"{self.file.where(path)}: error: {message}"
        self.faults.append((self.file.spot(path), line))


def _made(entry: dict[str, object], file: TomlFile, path: KeyPath) -> Point:
    """The point of an entry without faults."""

    def where(*keys: str) -> str:
        return file.where((*path, *keys))

    facts = cast(dict[str, object], entry.get("facts", {}))
    return Point(
        id=str(entry["id"]),
        machines=tuple(cast(list[str], entry.get("machines", []))),
        source=str(entry["source"]),
        role=str(entry["role"]),
        value=float(cast(float, entry["value"])),
        unit=str(entry["unit"]),
        tolerance=cast("float | None", entry.get("tolerance")),
        missing=str(entry.get("missing", "")),
        run=cast(Run, entry["run"]),
        versus=cast(Run, entry.get("versus", {})),
        facts={key: fact_value(BY_KEY[key], value) for key, value in facts.items()},
        where=where,
    )
