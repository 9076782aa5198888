"""Machine records: a TOML file of facts, loaded into one frozen dataclass.

A record lists every value as `{value, unit, confidence, source}` under its group; the
keys, units and ranges are in `hpc.machine.fields`. Nothing is defaulted: a record says
everything or is refused with all its faults at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from hpc.machine.fields import BY_KEY, CONFIDENCES, FIELDS, GROUPS, Field
from hpc.machine.places import KeyPath
from hpc.machine.toml_file import TomlError, TomlFile, is_path, read_toml, shorten

RECORDS = Path(__file__).parent / "records"
DTYPES = ("bf16", "fp16", "fp32")
FACT_KEYS = ("value", "unit", "confidence", "source")

Cycles = tuple[float, float, float]
FactValue = int | float | Cycles | tuple[str, ...]


Faults = list[tuple[KeyPath, str]]
"""Where in a record, and what is wrong there."""


class MachineError(Exception):
    """A machine that does not exist or a record that is wrong.

    The message has one line per fault, each `file:line:col: error: ...`, as far as
    there is a place.
    """


@dataclass(frozen=True, slots=True)
class Fact:
    """One value of a record and how it is known."""

    key: str
    value: FactValue
    unit: str
    confidence: str
    source: str


@dataclass(frozen=True)
class Machine:
    """One die and its links; attributes are plain numbers in the unit of their name.

    What each key means, its unit and its range is in `hpc.machine.fields.FIELDS`;
    `facts` carries confidence and source of every value for reports.
    """

    name: str
    summary: str
    aic_cores: int
    aiv_cores: int
    clock_ghz: float
    dtypes: tuple[str, ...]
    cube_m0: int
    cube_n0: int
    cube_k0_16bit: int
    cube_k0_32bit: int
    mmad_head_cycles: float
    mmad_sync_cycles: float
    vector_bytes: int
    vadd: Cycles
    vmul: Cycles
    vmuls: Cycles
    vdiv: Cycles
    vexp: Cycles
    vconv: Cycles
    vmax: Cycles
    l0a_bytes: int
    l0b_bytes: int
    l0c_bytes: int
    l1_bytes: int
    ub_bytes: int
    l2_bytes: int
    hbm_bytes: int
    l1_l0a_bytes_per_cycle: float
    l1_l0b_bytes_per_cycle: float
    fixpipe_bytes_per_cycle: float
    gm_core_gbps: float
    gm_half_bytes: float
    l2_gbps: float
    hbm_core_gbps: float
    hbm_gbps: float
    hbm_write_gbps: float
    gm_issue_cycles: float
    scalar_load_us: float
    unaligned_factor: float
    max_events: int
    max_tasks: int
    task_fetch_us: float
    dynamic_fetch_us: float
    event_set_us: float
    event_visible_us: float
    event_poll_us: float
    sync_all_us: float
    kernel_launch_us: float
    core_start_us: float
    host_launch_us: float
    dies_per_package: int
    dies_per_node: int
    package_gbps: float
    link_gbps: float
    across_gbps: float
    message_half_bytes: float
    put_core_gbps: float
    put_issue_us: float
    across_issue_us: float
    package_hop_us: float
    hop_us: float
    across_hop_us: float
    collective_gbps: float
    facts: tuple[Fact, ...]

    def cores(self, unit: str) -> int:
        """Cores of kind "aic" or "aiv"."""
        return self.aic_cores if unit == "aic" else self.aiv_cores

    @property
    def assumed(self) -> tuple[str, ...]:
        """Keys of the values that are guesses, in the record's order."""
        return tuple(f.key for f in self.facts if f.confidence == "assumed")

    def cube_k0(self, dtype: str) -> int:
        """Depth of one cube step for `dtype`."""
        return self.cube_k0_32bit if dtype == "fp32" else self.cube_k0_16bit


def machine_names() -> tuple[str, ...]:
    """Names of the records that ship, sorted."""
    return tuple(sorted(path.stem for path in RECORDS.glob("*.toml")))


def load_machine(name_or_path: str) -> Machine:
    """The shipped record called so, or the one at a path (with `/` or `.toml`).

    Raises MachineError if there is none or if it is wrong.
    """
    if is_path(name_or_path):
        return _read_record(Path(name_or_path))
    if name_or_path not in machine_names():
        known = ", ".join(machine_names())
        guess = did_you_mean(name_or_path, machine_names())
        raise MachineError(
            f"{name_or_path}: error: unknown machine{guess}; known machines: {known}"
        )
    return _shipped(name_or_path)


@cache
def _shipped(name: str) -> Machine:
    return _read_record(RECORDS / f"{name}.toml")


def _read_record(path: Path) -> Machine:
    try:
        return parse_record(read_toml(str(path)))
    except TomlError as error:
        raise MachineError(str(error)) from None


def parse_record(file: TomlFile) -> Machine:
    """A machine from parsed TOML; MachineError lists every fault with its place."""
    faults: Faults = []
    header = {key: _header(file.data, key, faults) for key in ("name", "summary")}
    facts = _facts(file.data, faults)
    values = {key: fact.value for key, fact in facts.items()}
    for key, fault in misfits(values):
        faults.append(((BY_KEY[key].group, key), fault))
    if faults:
        faults.sort(key=lambda fault: file.spot(fault[0]))
        lines = (f"{file.where(path)}: error: {text}" for path, text in faults)
        raise MachineError("\n".join(lines))
    ordered = tuple(facts[field.key] for field in FIELDS)
    # The dataclass and FIELDS list the same keys: tests/machine checks it.
    return Machine(**header, facts=ordered, **values)  # pyright: ignore[reportArgumentType]


def _header(data: dict[str, object], key: str, faults: Faults) -> str:
    value = data.get(key)
    if isinstance(value, str) and value:
        return value
    missing = f'missing {key} = "..."'
    wrong = f"{key}: expected a string, got {shorten(value)}"
    faults.append(((key,), missing if value is None else wrong))
    return ""


def _facts(data: dict[str, object], faults: Faults) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for group, table in data.items():
        if group in ("name", "summary"):
            continue
        if group not in GROUPS or not isinstance(table, dict):
            guess = did_you_mean(group, (*GROUPS, "name", "summary"))
            faults.append(((group,), f"unknown section or key '{group}'{guess}"))
            continue
        for key, entry in cast(dict[str, object], table).items():
            fact = _fact(group, key, entry, faults)
            if fact is not None:
                facts[key] = fact
    seen = {key for group in GROUPS for key in _keys(data.get(group))}
    faults += [
        (
            (field.group,),
            f"missing {field.group}.{field.key} ({field.doc}, {field.unit})",
        )
        for field in FIELDS
        if field.key not in seen
    ]
    return facts


def _keys(table: object) -> Iterable[str]:
    return cast(dict[str, object], table) if isinstance(table, dict) else ()


def _fact(group: str, key: str, entry: object, faults: Faults) -> Fact | None:
    field, where = BY_KEY.get(key), f"{group}.{key}"
    found: list[str] = []
    if field is None:
        found.append(f"unknown key {where}{did_you_mean(key, BY_KEY)}")
    elif field.group != group:
        found.append(f"{where}: belongs to [{field.group}]")
    elif not isinstance(entry, dict):
        wanted = f"{{ {', '.join(FACT_KEYS)} }}"
        found.append(f"{where}: expected {wanted}, got {shorten(entry)}")
    else:
        table = cast(dict[str, object], entry)
        found += [f"{where}: {fault}" for fault in _entry_faults(field, table)]
    faults += [((group, key), fault) for fault in found]
    if field is None or found:
        return None
    table = cast(dict[str, object], entry)
    value = fact_value(field, table["value"])
    return Fact(key, value, field.unit, str(table["confidence"]), str(table["source"]))


def _entry_faults(field: Field, table: dict[str, object]) -> list[str]:
    faults = [f"missing '{key}'" for key in FACT_KEYS if key not in table]
    faults += [
        f"unknown key '{key}'{did_you_mean(key, FACT_KEYS)}"
        for key in table
        if key not in FACT_KEYS
    ]
    if faults:
        return faults
    unit, confidence, source = table["unit"], table["confidence"], table["source"]
    if unit != field.unit:
        faults.append(f"unit must be '{field.unit}', got {shorten(unit)}")
    if confidence not in CONFIDENCES:
        names = ", ".join(CONFIDENCES)
        faults.append(f"confidence must be one of {names}, got {shorten(confidence)}")
    if not isinstance(source, str) or not source.strip():
        faults.append(f"source must say where the value is from, got {shorten(source)}")
    return faults + value_faults(field, table["value"])


def value_faults(field: Field, value: object) -> list[str]:
    """What is wrong with the value of a key; nothing if it can be used."""
    if field.kind == "dtypes":
        wrong = f"value must be a list of {', '.join(DTYPES)}, got {shorten(value)}"
        items = cast(list[object], value) if isinstance(value, list) else []
        return [] if items and all(item in DTYPES for item in items) else [wrong]
    if field.kind != "cycles":
        return _number_faults(field, value)
    wrong = f"value must be [head, slope, tail], got {shorten(value)}"
    parts = cast(list[object], value) if isinstance(value, list) else []
    if len(parts) != 3:
        return [wrong]
    return [fault for part in parts for fault in _number_faults(field, part)]


def _number_faults(field: Field, value: object) -> list[str]:
    kinds = (int,) if field.kind == "int" else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        expected = "a whole number" if field.kind == "int" else "a number"
        return [f"value must be {expected}, got {shorten(value)}"]
    # NaN compares false, so it is refused like any other value out of range.
    if field.low <= value <= field.high:
        return []
    allowed = f"{field.low:g} .. {field.high:g} {field.unit}"
    return [f"value {shorten(value)} is outside {allowed}"]


def fact_value(field: Field, value: object) -> FactValue:
    """A value without faults, as a Machine holds it."""
    if field.kind == "dtypes":
        return tuple(cast(list[str], value))
    if field.kind == "cycles":
        head, slope, tail = (float(part) for part in cast(list[float], value))
        return (head, slope, tail)
    return cast(int, value) if field.kind == "int" else float(cast(float, value))


def misfits(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """Keys whose values are each in range but cannot hold together, and why."""
    pairs = (
        ("put_core_gbps", "link_gbps"),
        ("hbm_core_gbps", "hbm_gbps"),
        ("hbm_write_gbps", "hbm_gbps"),
        ("dies_per_package", "dies_per_node"),
        ("l2_bytes", "hbm_bytes"),
        ("l1_bytes", "l2_bytes"),
    )
    faults: list[tuple[str, str]] = []
    for small, large in pairs:
        if small not in values or large not in values:
            continue
        low, high = cast(float, values[small]), cast(float, values[large])
        if low > high:
            faults.append((small, f"{small} = {low} exceeds {large} = {high}"))
    return faults + _split_packages(values)


def _split_packages(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """A node holds whole packages: ranks fill both in order (see `topology`)."""
    package = cast("int | None", values.get("dies_per_package"))
    node = cast("int | None", values.get("dies_per_node"))
    if package is None or node is None or package > node or node % package == 0:
        return []
    message = f"dies_per_node = {node} is no multiple of dies_per_package = {package}"
    return [("dies_per_node", message)]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing if no known word is close."""
    close = difflib.get_close_matches(word[:64], list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
