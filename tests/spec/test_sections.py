"""Sections, machine, mode and the pins of the schedule block."""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from pathlib import Path

import pytest

from tests.spec.texts import findings, messages, only, parse, pointed, text


def test_an_unknown_section_gets_a_suggestion() -> None:
    found = only(text("machin = ascend_a3\n"))
    assert (found.message, found.help) == (
        "unknown section 'machin'",
        "did you mean 'machine'?",
    )


def test_a_duplicate_section_cites_the_first() -> None:
    found = only(text("mode = forward\nmode = forward\n"))
    assert found.message == "duplicate section 'mode', first set at 10:1"


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("machine { }", "'machine' is written machine = VALUE"),
        ("flow = 3", "'flow' is written flow { ... }"),
        ("schedule list { }", "'schedule' takes no name"),
        ("flow f { y = add(x, x) }", "'flow' takes no name"),
        ("schedule { input r : tokens x 3 }", "holds settings NAME = VALUE only"),
    ],
)
def test_a_section_of_the_wrong_form(rest: str, message: str) -> None:
    assert message in only(text(rest)).message


def test_a_file_without_layer_says_what_it_needs() -> None:
    found = only("machine = ascend_a3\n")
    assert found.message == "the file has no layer"
    assert "layer NAME" in found.help


def test_an_unknown_machine_lists_the_known_ones() -> None:
    found = only(text("machine = ascend_a4\n"))
    assert "ascend_a2, ascend_a3" in found.message
    assert found.help.startswith("did you mean 'ascend_a")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("3", "expected a machine's name, got '3'"),
        ('"a3.json"', "expected a file name ending in .toml"),
        ('"none.toml"', "none.toml"),
    ],
)
def test_a_machine_that_is_none(value: str, message: str) -> None:
    assert message in only(text(f"machine = {value}\n")).message


def test_a_machine_record_is_found_beside_the_spec(tmp_path: Path) -> None:
    shipped = files("hpc.machine").joinpath("records", "ascend_a3.toml")
    shutil.copy(str(shipped), tmp_path / "mine.toml")
    spec = parse(text('machine = "mine.toml"\n'), str(tmp_path / "t.moe"))
    assert spec.machine == str(tmp_path / "mine.toml")


@pytest.mark.parametrize("mode", ["forward", "backward", "train"])
def test_the_modes(mode: str) -> None:
    assert parse(text(f"mode = {mode}\n")).mode == mode


@pytest.mark.parametrize("mode", ["backward", "train"])
def test_gradients_need_every_slot(mode: str, tmp_path: Path) -> None:
    """A slot that was not sent has no row whose gradient could come back."""
    ids = [[[0, -1]], [[1, 2]]]
    (tmp_path / "r.json").write_text(json.dumps({"topk_ids": ids}))
    source = text(f'mode = {mode}\nrouting = file("r.json")\n', tokens=1, top_k=2)
    found = only(source, str(tmp_path / "t.moe"))
    assert found.message == (
        f"mode {mode} needs every slot sent, and the routing drops some (-1)"
    )
    assert pointed(found, 4) == "file"


def test_an_unknown_mode_gets_a_suggestion() -> None:
    assert only(text("mode = forwrd\n")).help == "did you mean 'forward'?"


def test_pins_are_read_with_their_places() -> None:
    pins = parse(
        text(
            "schedule {\n  policy = paper\n  groups = 2\n  row_chunks = 3\n"
            "  base_tile = 128x256x64\n  aic = 20\n  comm_aiv = 8\n"
            "  vector_aiv = 40\n}\n"
        )
    ).pins
    assert (pins.policy, pins.groups, pins.row_chunks) == ("paper", 2, 3)
    assert pins.base_tile == (128, 256, 64)
    assert (pins.aic, pins.comm_aiv, pins.vector_aiv) == (20, 8, 40)
    assert str(dict(pins.locs)["groups"]) == "t.moe:12:12"


@pytest.mark.parametrize(
    ("pin", "place", "message"),
    [
        ("policy = lst", "lst", "unknown policy 'lst'"),
        ("groups = 3", "3", "groups = 3 exceeds the 2 ranks (ep)"),
        ("groups = 0", "0", "expected an integer from 1"),
        ("row_chunks = 0", "0", "expected an integer from 1 to 4096"),
        ("row_chunks = 5000", "5000", "expected an integer from 1 to 4096"),
        ("base_tile = 128x256", "128x256", "expected a tile MxNxK"),
        ("base_tile = 100x256x64", "100x256x64", "multiple of 16"),
        ("base_tile = 1024x256x64", "1024x256x64", "L0A"),
        ("base_tile = 0x256x64", "0x256x64", "every size must be from 1"),
        ("aic = 25", "25", "aic = 25 exceeds the 24 AIC cores of ascend_a3"),
        ("comm_aiv = 49", "49", "exceeds the 48 AIV cores"),
        (
            "comm_aiv = 24 vector_aiv = 25",
            "25",
            "comm_aiv + vector_aiv = 24 + 25 = 49 exceeds the 48 AIV cores",
        ),
        ("grups = 1", "grups", "unknown pin 'grups'"),
    ],
)
def test_a_pin_that_cannot_be_honoured_names_the_limit(
    pin: str, place: str, message: str
) -> None:
    found = only(text(f"schedule {{ {pin} }}\n"))
    assert message in found.message
    assert pointed(found, len(place)) == place


def test_groups_beyond_the_events_of_the_machine() -> None:
    source = text("schedule { groups = 16 }\n", experts=512, ep=16, tokens=64)
    assert messages(source) == [
        "groups = 16 needs 16 groups * 32 local experts * 4 + 1 = 2049 events, "
        "ascend_a3 has 1024"
    ]


def test_every_bad_pin_is_reported() -> None:
    source = text("schedule { policy = x groups = 9 aic = 99 base_tile = 8x8x8 }\n")
    assert len(findings(source)) == 4


def test_dtype_must_be_one_of_the_machine(tmp_path: Path) -> None:
    record = files("hpc.machine").joinpath("records", "ascend_a3.toml").read_text()
    changed = record.replace(', "fp32"', "")
    assert changed != record
    (tmp_path / "mine.toml").write_text(changed)
    source = text('machine = "mine.toml"\n', dtype="fp32")
    found = messages(source, str(tmp_path / "t.moe"))
    assert len(found) == 1
    assert "fp32" in found[0]


def test_every_fault_of_a_machine_record_is_reported(tmp_path: Path) -> None:
    record = files("hpc.machine").joinpath("records", "ascend_a3.toml").read_text()
    changed = record.replace("\nhbm_bytes", "\nhbm_bites")
    assert changed != record
    (tmp_path / "mine.toml").write_text(changed)
    found = messages(text('machine = "mine.toml"\n'), str(tmp_path / "t.moe"))
    assert any("hbm_bites" in message for message in found)
    assert any("hbm_bytes" in message for message in found)
    assert all("mine.toml" in message for message in found)


def test_more_row_chunks_than_tokens_are_refused_at_the_pin() -> None:
    found = only(text("schedule { row_chunks = 5 }\n", tokens=2))
    assert found.message == "row_chunks = 5 exceeds the 2 tokens of a rank"
    assert pointed(found) == "5"
