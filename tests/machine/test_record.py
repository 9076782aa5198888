"""Records load whole or are refused with every fault at once."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hpc.machine.fields import CONFIDENCES, FIELDS
from hpc.machine.record import (
    RECORDS,
    Machine,
    MachineError,
    load_machine,
    machine_names,
)

A3 = (RECORDS / "ascend_a3.toml").read_text()
AIC_LINE = next(line for line in A3.splitlines() if line.startswith("aic_cores"))


def test_shipped_records_load_with_a_source_for_every_value() -> None:
    assert machine_names() == ("ascend_910b4", "ascend_a2", "ascend_a3")
    for name in machine_names():
        machine = load_machine(name)
        assert machine.name == name
        assert [fact.key for fact in machine.facts] == [f.key for f in FIELDS]
        for fact in machine.facts:
            assert fact.value == getattr(machine, fact.key)
            assert fact.confidence in CONFIDENCES
            assert len(fact.source) > 5


def test_attributes_and_field_table_list_the_same_keys() -> None:
    attributes = {field.name for field in dataclasses.fields(Machine)}
    assert attributes - {"name", "summary", "facts"} == {f.key for f in FIELDS}


def test_unknown_name_lists_machines_and_guesses() -> None:
    with pytest.raises(MachineError) as error:
        load_machine("ascend_a4")
    assert "did you mean 'ascend_a3'?" in str(error.value)
    assert "ascend_910b4, ascend_a2, ascend_a3" in str(error.value)


def test_users_own_record_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(A3.replace("value = 24, unit", "value = 20, unit"))
    assert load_machine(str(path)).aic_cores == 20


FAULTS: dict[str, tuple[Callable[[str], str], str]] = {
    "unit": (
        lambda text: text.replace('unit = "GHz"', 'unit = "MHz"'),
        "cores.clock_ghz: unit must be 'GHz', got 'MHz'",
    ),
    "range": (
        lambda text: text.replace("value = 1.80, ", "value = 1800, "),
        "cores.clock_ghz: value 1800 is outside 0.05 .. 10 GHz",
    ),
    "negative": (
        lambda text: text.replace("value = 24, unit", "value = -24, unit"),
        "cores.aic_cores: value -24 is outside 1 .. 1024 cores",
    ),
    "nan": (
        lambda text: text.replace("value = 1.80, ", "value = nan, "),
        "cores.clock_ghz: value nan is outside",
    ),
    "infinite": (
        lambda text: text.replace("value = 1.80, ", "value = inf, "),
        "cores.clock_ghz: value inf is outside",
    ),
    "fraction of a core": (
        lambda text: text.replace("value = 24, unit", "value = 24.5, unit"),
        "cores.aic_cores: value must be a whole number, got 24.5",
    ),
    "truth value": (
        lambda text: text.replace("value = 24, unit", "value = true, unit"),
        "cores.aic_cores: value must be a whole number, got True",
    ),
    "text for a number": (
        lambda text: text.replace("value = 1.80, ", 'value = "1.80", '),
        "cores.clock_ghz: value must be a number, got '1.80'",
    ),
    "huge": (
        lambda text: text.replace("value = 24, unit", f"value = {'9' * 400}, unit"),
        "cores.aic_cores: value 999",
    ),
    "confidence": (
        lambda text: text.replace('"assumed"', '"sure"'),
        "confidence must be one of spec, measured, derived, assumed, got 'sure'",
    ),
    "source": (
        lambda text: text.replace('source = "64 GB per die"', 'source = " "'),
        "memory.hbm_bytes: source must say where the value is from",
    ),
    "misspelt key": (
        lambda text: text.replace("aic_cores", "aic_core"),
        "unknown key cores.aic_core; did you mean 'aic_cores'?",
    ),
    "misspelt section": (
        lambda text: text.replace("[links]", "[link]"),
        "unknown section or key 'link'; did you mean 'links'?",
    ),
    "misspelt entry key": (
        lambda text: text.replace('confidence = "assumed"', 'confidense = "assumed"'),
        "unknown key 'confidense'; did you mean 'confidence'?",
    ),
    "missing key": (
        lambda text: text.replace(AIC_LINE, ""),
        "missing cores.aic_cores (matrix cores of a die, cores)",
    ),
    "key without a section": (
        lambda text: "hbm_gbps = 3\n" + text,
        "unknown section or key 'hbm_gbps'",
    ),
    "wrong section": (
        lambda text: text.replace(AIC_LINE, "").replace(
            "[links]", "[links]\n" + AIC_LINE
        ),
        "links.aic_cores: belongs to [cores]",
    ),
    "bare number": (
        lambda text: text.replace(AIC_LINE, "aic_cores = 24"),
        "cores.aic_cores: expected { value, unit, confidence, source }, got 24",
    ),
    "two cycle numbers": (
        lambda text: text.replace("[10, 2, 15]", "[10, 2]"),
        "vector.vmul: value must be [head, slope, tail], got [10, 2]",
    ),
    "unknown dtype": (
        lambda text: text.replace('"fp32"]', '"fp33"]'),
        "cores.dtypes: value must be a list of bf16, fp16, fp32",
    ),
    "no name": (
        lambda text: text.replace('name = "ascend_a3"', ""),
        'missing name = "..."',
    ),
    "numbers that exclude each other": (
        lambda text: text.replace("value = 5.7,", "value = 500,"),
        "put_core_gbps = 500.0 exceeds link_gbps = 137.0",
    ),
    "packages that no node can be filled with": (
        lambda text: text.replace(
            "dies_per_package = { value = 2", "dies_per_package = { value = 3"
        ),
        "dies_per_node = 16 is no multiple of dies_per_package = 3",
    ),
    "a node smaller than a package": (
        lambda text: text.replace(
            "dies_per_package = { value = 2", "dies_per_package = { value = 32"
        ),
        "dies_per_package = 32 exceeds dies_per_node = 16",
    ),
    "number that Python will not print": (
        lambda text: text.replace("value = 24, unit", f"value = 0x{'f' * 6000}, unit"),
        "cores.aic_cores: value a huge number is outside 1 .. 1024 cores",
    ),
    "not TOML": (lambda text: text + "\n[broken", "not valid TOML:"),
    "duplicate key": (
        lambda text: text.replace(AIC_LINE, AIC_LINE + "\n" + AIC_LINE),
        "not valid TOML:",
    ),
    "nesting": (lambda text: "a = " + "[" * 5000 + "]" * 5000, "not valid TOML:"),
    "empty": (lambda text: "", "missing links.hop_us"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_record_is_refused(fault: str, tmp_path: Path) -> None:
    change, expected = FAULTS[fault]
    changed = change(A3)
    assert changed != A3
    path = tmp_path / "bad.toml"
    path.write_text(changed)
    with pytest.raises(MachineError) as error:
        load_machine(str(path))
    lines = str(error.value).splitlines()
    place = rf"{re.escape(str(path))}(:\d+:\d+)?: error: "
    assert all(re.match(place, line) for line in lines)
    assert any(expected in line for line in lines)


def test_all_faults_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    text = A3.replace('unit = "GHz"', 'unit = "MHz"').replace("\nhop_us", "\nhop_ns")
    path.write_text(text)
    with pytest.raises(MachineError) as error:
        load_machine(str(path))
    # The wrong unit, the unknown key, and the key that is missing because of it.
    assert len(str(error.value).splitlines()) == 3


def test_a_missing_value_is_told_at_its_section_if_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    text = A3.replace(AIC_LINE, "")
    path.write_text(text)
    with pytest.raises(MachineError) as error:
        load_machine(str(path))
    line = text.splitlines().index("[cores]") + 1
    assert str(error.value).startswith(f"{path}:{line}:1: error: missing cores.aic_cor")


def test_a_fault_is_told_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    lines = A3.replace("value = 24, unit", "value = 0, unit").splitlines()
    place = next(i for i, line in enumerate(lines, 1) if line.startswith("aic_cores"))
    path.write_text("\n".join(lines))
    with pytest.raises(MachineError) as error:
        load_machine(str(path))
    assert f"{path}:{place}:1: error: cores.aic_cores: value 0" in str(error.value)


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "No such file"), (b"\xff\xfe\x00", "not UTF-8"), ("dir", "directory")],
)
def test_unreadable_file(content: bytes | str | None, expected: str, tmp_path: Path):
    path = tmp_path / "x.toml"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "dir":
        path.mkdir()
    with pytest.raises(MachineError, match=expected):
        load_machine(str(path))
