"""`hpc machine validate`: interrupts, and records of a user's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hpc.commands.validation import Validator
from hpc.interp.engine import Stopped
from hpc.machine.published import Point
from hpc.machine.record import RECORDS
from tests.cli.conftest import Hpc

POINT = """\
[[point]]
id = "p{number}"
source = "s"
role = "held out"
value = 1.0
unit = "us"
tolerance = 0.1
run = {{ kind = "gmm", rows = 64, n = 32, k = 32, groups = 2, dtype = "bf16" }}
"""
LAYER = (
    '{ kind = "layer", spec = "deepseek_v3", policy = "paper", ep = 4, experts = 4 }'
)


@pytest.fixture
def points(tmp_path: Path) -> str:
    """A file of three points, each of which misses."""
    text = "".join(POINT.format(number=number) for number in range(3))
    (tmp_path / "points.toml").write_text(text)
    return "points.toml"


def interrupt_point(number: int, how: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the point of that number; a simulation says how far it was."""
    real = Validator.outcome

    def outcome(self: Validator, point: Point) -> object:
        if point.id == f"p{number}":
            raise how(0.25, 12.5) if how is Stopped else how
        return real(self, point)

    monkeypatch.setattr(Validator, "outcome", outcome)


def test_an_interrupt_keeps_the_finished_points(
    hpc: Hpc, points: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_point(2, Stopped, monkeypatch)
    outcome = hpc("machine", "validate", "ascend_a3", "--points", points)
    assert outcome.status == 130
    assert [line[:2] for line in outcome.out.splitlines()[2:4]] == ["p0", "p1"]
    assert "p2" not in outcome.out
    assert "mean absolute error" in outcome.out
    assert outcome.err == (
        "ascend_a3: interrupted: 2 of 3 points were run; the next one stopped at "
        "12.5 us of simulated time; 25 % of all steps were done\n"
    )


def test_an_interrupted_validation_as_json(
    hpc: Hpc, points: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("machine", "validate", "ascend_a3", "--points", points, "--json")
    assert "interrupted" not in json.loads(hpc(*words).out)
    interrupt_point(1, KeyboardInterrupt, monkeypatch)
    outcome = hpc(*words)
    assert outcome.status == 130
    report = json.loads(outcome.out)
    assert [point["point"] for point in report["points"]] == ["p0"]
    assert report["interrupted"] == {"run": 1, "planned": 3}
    assert outcome.err == "ascend_a3: interrupted: 1 of 3 points were run\n"


def test_an_interrupt_before_the_first_point_shows_no_table(
    hpc: Hpc, points: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_point(0, KeyboardInterrupt, monkeypatch)
    outcome = hpc("machine", "validate", "ascend_a3", "--points", points)
    assert (outcome.status, outcome.out) == (130, "")
    assert outcome.err == "ascend_a3: interrupted: 0 of 3 points were run\n"


def test_a_record_from_a_file_is_not_taken_for_the_one_that_ships(
    hpc: Hpc, points: str
) -> None:
    """A copy still has the name of the original inside."""
    shutil.copy(RECORDS / "ascend_a3.toml", "mine.toml")
    words = ("machine", "validate", "mine.toml", "--points", points)
    assert hpc(*words).out.startswith("ascend_a3 of mine.toml, points of points.toml")
    assert json.loads(hpc(*words, "--json").out)["record"] == "mine.toml"
    assert hpc("machine", "show", "mine.toml").out.startswith("ascend_a3 of mine.toml:")
    assert hpc("machine", "show", "ascend_a3").out.startswith("ascend_a3: ")


@pytest.mark.parametrize("folder", ['a"b', "a\nb"])
def test_a_layer_cannot_name_a_record_in_such_a_folder(
    folder: str, hpc: Hpc, tmp_path: Path
) -> None:
    """Strings of the language have no escapes. Other points run there."""
    place = tmp_path / folder
    place.mkdir()
    record = str(place / "mine.toml")
    shutil.copy(RECORDS / "ascend_a3.toml", record)
    gmm, layer = tmp_path / "gmm.toml", tmp_path / "layer.toml"
    gmm.write_text(POINT.format(number=0))
    lines = POINT.format(number=0).splitlines()
    layer.write_text("\n".join([*lines[:-1], f"run = {LAYER}", ""]))
    assert hpc("machine", "validate", record, "--points", gmm).out
    outcome = hpc("machine", "validate", record, "--points", layer)
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err == (
        f"{record}: error: a layer cannot name this record: its path {record!r} "
        "holds a quotation mark, or what cannot be printed\n"
    )
