"""Published points, run through the product: golden data with tolerances."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc.cli import main
from hpc.commands.validation import Validator
from hpc.machine.published import PointError, load_points
from hpc.machine.record import RECORDS, load_machine

A3 = load_machine("ascend_a3")
PUBLISHED = load_points()
POINTS = PUBLISHED.of("ascend_a3")
VALIDATOR = Validator("ascend_a3", A3, PUBLISHED)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.id)
def test_point_is_within_its_tolerance(point) -> None:
    """A known miss must still miss: a term that arrived is no longer missing."""
    outcome = VALIDATOR.outcome(point)
    if point.tolerance is None:
        assert abs(outcome.error) > 0.2
    else:
        assert outcome.ok, f"{outcome.simulated} instead of {point.value}"


def test_forward_table() -> None:
    """Six numbers within 3 % on average; serial grows with EP, paper hardly does."""
    rows = [VALIDATOR.outcome(p) for p in POINTS if p.id.startswith("forward")]
    assert len(rows) == 6
    assert sum(abs(row.error) for row in rows) / 6 <= 0.03
    serial, paper = (
        [r.simulated for r in rows if r.point.run["policy"] == policy]
        for policy in ("serial", "paper")
    )
    assert serial == sorted(serial)
    assert serial[-1] - serial[0] > 1.4
    assert max(paper) / min(paper) < 1.06


def test_interleaving_raises_the_hit_rate_several_fold() -> None:
    """Published: 5.2 % in turn, 25.4 % interleaved; an LRU cache loses all in turn."""
    rate = {
        p.run["interleaved"]: VALIDATOR.outcome(p).simulated
        for p in POINTS
        if p.id.startswith("L2 hits")
    }
    assert sorted(rate) == [0, 1]
    assert 0 <= rate[0] < 6
    assert 20 < rate[1] < 30


def test_a_constant_in_a_users_record_changes_the_result(tmp_path: Path) -> None:
    text = (RECORDS / "ascend_a3.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(
        text.replace("clock_ghz = { value = 1.80", "clock_ghz = { value = 0.9")
    )
    mine = Validator(str(path), load_machine(str(path)), PUBLISHED)
    point = next(p for p in POINTS if p.id == "forward, paper, EP 4")
    assert mine.outcome(point).simulated > 1.7 * VALIDATOR.outcome(point).simulated


def test_every_point_says_where_it_is_from() -> None:
    assert len(POINTS) > 40
    assert {point.role for point in POINTS} == {"fitted", "held out"}
    for point in PUBLISHED.points:
        assert len(point.source) > 10
        assert point.value > 0
        assert point.machines


def test_a_point_without_role_or_tolerance_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(
        '[[point]]\nid = "p"\nmachines = []\nsource = "s"\nrole = "guess"\n'
        'value = 1\nunit = "us"\nrun = {}\n'
    )
    with pytest.raises(PointError) as error:
        load_points(tmp_path)
    assert "needs either a tolerance or what is missing" in str(error.value)
    assert "bad.toml:5:1: error: point 'p': role must be one of" in str(error.value)


def test_show_lists_every_fact(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machine", "show", "ascend_a3", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [fact["key"] for fact in shown["facts"]] == [f.key for f in A3.facts]
    assert main(["machine", "show", "ascend_910b4"]) == 0
    text = capsys.readouterr().out
    assert "aic_cores" in text
    assert "platform inis" in text


def test_validate_names_machines_that_have_points(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["machine", "validate", "ascend_910b4"]) == 1
    assert "no published points for 'ascend_910b4'" in capsys.readouterr().err
    assert main(["machine", "validate", "ascend_a4"]) == 1
    assert "did you mean" in capsys.readouterr().err
