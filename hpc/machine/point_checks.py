"""What may be wrong with one point of a file; `hpc.machine.published` reads files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from string import Template
from typing import cast

from hpc.machine.fields import BY_KEY
from hpc.machine.places import KeyPath
from hpc.machine.record import did_you_mean, value_faults
from hpc.machine.runs import COMMON, KINDS, run_faults
from hpc.machine.toml_file import shorten

ROLES = ("fitted", "held out")
UNITS = ("us", "ms", "GB/s", "x", "%")

LARGEST = 1e15
"""Largest value of a point; also what an infinite one exceeds."""

Faults = Iterator[tuple[KeyPath, str]]
"""Keys below the point, and what is wrong there."""

Table = Mapping[str, object]


def _text(value: object) -> str | None:
    if isinstance(value, str) and value.strip() and value.isprintable():
        return None
    return f"must be a line of text, got {shorten(value)}"


def _one_of(*words: str) -> Callable[[object], str | None]:
    known = ", ".join(words)

    def check(value: object) -> str | None:
        if value in words:
            return None
        return f"must be one of {known}, got {shorten(value)}"

    return check


def _positive(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"must be a number, got {shorten(value)}"
    # NaN compares false, so it is refused like any other value out of range.
    if 0 < value <= LARGEST:
        return None
    return f"must be above 0 and at most {LARGEST:g}, got {shorten(value)}"


def _names(value: object) -> str | None:
    message = f"must be a list of names of machines, got {shorten(value)}"
    names = cast(list[object], value) if isinstance(value, list) else []
    good = names and all(isinstance(name, str) and name for name in names)
    return None if good else message


def _table(value: object) -> str | None:
    if isinstance(value, dict):
        return None
    return f"must be a table {{ key = value, ... }}, got {shorten(value)}"


NEEDED: dict[str, Callable[[object], str | None]] = {
    "id": _text,
    "source": _text,
    "role": _one_of(*ROLES),
    "value": _positive,
    "unit": _one_of(*UNITS),
    "run": _table,
}
OPTIONAL: dict[str, Callable[[object], str | None]] = {
    "tolerance": _positive,
    "missing": _text,
    "machines": _names,
    "versus": _table,
    "facts": _table,
}
"""Checks of a point's keys: what is wrong with a value, behind the key's name."""


def point_faults(entry: Table, specs: Mapping[str, Template]) -> Faults:
    """Everything that is wrong with a point on any machine."""
    checks = {**NEEDED, **OPTIONAL}
    for key in sorted(NEEDED.keys() - entry.keys()):
        yield (), f"missing '{key}'"
    for key, value in entry.items():
        if key not in checks:
            guess = did_you_mean(key, checks) or f"; a point has {', '.join(checks)}"
            yield (key,), f"unknown key '{key}'{guess}"
        elif fault := checks[key](value):
            yield (key,), f"{key} {fault}"
    yield from _relations(entry)
    for name in ("run", "versus"):
        run = entry.get(name)
        if isinstance(run, dict):
            found = _run_faults(cast(Table, run), entry.get("unit"), specs)
            yield from (((name, *keys), f"{name}: {text}") for keys, text in found)
    facts = entry.get("facts")
    if isinstance(facts, dict):
        yield from _fact_faults(cast(Table, facts))


def _relations(entry: Table) -> Faults:
    if ("tolerance" in entry) == ("missing" in entry):
        yield (), "needs either a tolerance or what is missing"
    unit, value = entry.get("unit"), entry.get("value")
    if unit == "x" and "versus" not in entry:
        yield ("unit",), "unit 'x' is a ratio: it needs a run in 'versus'"
    if unit in UNITS and unit != "x" and "versus" in entry:
        yield ("versus",), f"'versus' makes a ratio, its unit is 'x', not '{unit}'"
    if unit == "%" and isinstance(value, int | float) and value > 100:
        yield ("value",), f"value {shorten(value)} exceeds 100 %"


def _run_faults(run: Table, unit: object, specs: Mapping[str, Template]) -> Faults:
    yield from (((key,) if key else (), text) for key, text in run_faults(run))
    if unit == "GB/s" and "payload_bytes" not in run:
        yield (), "unit 'GB/s' needs 'payload_bytes', the bytes that it counts"
    if unit in UNITS and unit != "GB/s" and "payload_bytes" in run:
        yield ("payload_bytes",), f"payload_bytes is for 'GB/s', the unit is '{unit}'"
    if run.get("kind") == "layer" and isinstance(run.get("spec"), str):
        yield from _placeholder_faults(run, specs)


def _placeholder_faults(run: Table, specs: Mapping[str, Template]) -> Faults:
    """Is the spec there, and has the run a value for each of its placeholders?"""
    name = str(run["spec"])
    if name not in specs:
        known = f"; specs: {', '.join(specs)}" if specs else ""
        yield ("spec",), f"no spec {shorten(name)}{did_you_mean(name, specs) or known}"
        return
    wanted = set(specs[name].get_identifiers()) - {"machine"}
    settings = {p.name for p in (*KINDS["layer"], *COMMON)} | {"kind"}
    for key in sorted(wanted - run.keys()):
        yield (), f"spec '{name}' needs a value for ${key}"
    for key, value in run.items():
        if key in settings:
            continue
        if key not in wanted:
            guess = did_you_mean(key, {*wanted, *settings})
            yield (key,), f"spec '{name}' has no ${key}{guess}"
        elif isinstance(value, bool) or not isinstance(value, int | float | str):
            yield (key,), f"{key} must be a number or a string, got {shorten(value)}"
        elif isinstance(value, int) and abs(value) > LARGEST:
            yield (key,), f"{key} = {shorten(value)} exceeds {LARGEST:g}"


def _fact_faults(facts: Table) -> Faults:
    for key, value in facts.items():
        field = BY_KEY.get(key)
        if field is None:
            guess = did_you_mean(key, BY_KEY)
            yield ("facts", key), f"facts: a record has no '{key}'{guess}"
            continue
        for fault in value_faults(field, value):
            yield ("facts", key), f"facts: {key}: {fault}"


def spec_fault(text: object) -> str | None:
    """What is wrong with a text of [specs], apart from its being `.moe`."""
    if not isinstance(text, str) or not text.strip():
        return f"must be a text, got {shorten(text)}"
    template = Template(text)
    if not template.is_valid():
        return "has a '$' that begins no name; '$$' stands for one '$'"
    if "machine" not in template.get_identifiers():
        return "must say machine = $machine: the record at hand stands for it"
    return None
