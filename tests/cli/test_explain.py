"""`hpc check --explain` and what else `hpc check` says of a schedule."""

from __future__ import annotations

import json
from pathlib import Path

from hpc.schedule.check import CHECKS
from tests.cli.conftest import Hpc


def test_a_code_is_explained_by_an_example_and_its_fix(hpc: Hpc) -> None:
    outcome = hpc("check", "--explain", "race-put-read")
    assert outcome.status == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "race-put-read (check: races)"
    assert lines[1].startswith("rule: What other ranks put is read only when")
    assert any(line.startswith("    - queue 0[1] gmm recv[0,0]") for line in lines)
    assert any("error: [race-put-read] queue 0 instruction 0" in line for line in lines)
    assert lines[-1].startswith("fix: Wait for the signals of the put")


def test_an_explanation_as_json_has_the_same_parts(hpc: Hpc) -> None:
    found = json.loads(hpc("check", "--explain", "capacity", "--json").out)
    assert found["code"] == found["violation"]["code"] == "capacity"
    assert found["edits"] == ["buffer recv.capacity_rows: 8 -> 3"]
    assert found["fix"]


def test_an_unknown_code_is_misuse_with_a_suggestion(hpc: Hpc) -> None:
    outcome = hpc("check", "--explain", "race-put-reed")
    assert outcome.status == 2
    assert "did you mean 'race-put-read'?" in outcome.err
    outcome = hpc("check", "--explain", "qqq")
    assert outcome.status == 2
    assert "there are bad-layer, " in outcome.err


def test_a_file_or_a_code_but_not_both(hpc: Hpc, tiny: Path) -> None:
    assert hpc("check").status == 2
    assert hpc("check", tiny, "--explain", "capacity").status == 2


def test_a_check_states_the_order_of_sums_and_the_room(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc("check", tiny)
    assert "\nreduction order: sha256:" in outcome.out
    assert '\nroom: "recv" has 16 rows: room for routings that send' in outcome.out
    found = json.loads(hpc("check", tiny, "--policy", "paper", "--json").out)
    assert found["reduction_order"] in outcome.out
    assert list(found["checks"]) == [check.name for check in CHECKS]
    assert len(found["room"]) == 1
    assert any("f32 sum over slots" in line for line in found["sums"])


def test_relaxed_signals_are_safe_in_what_is_compiled(hpc: Hpc, tiny: Path) -> None:
    for policy in ("serial", "paper", "list"):
        outcome = hpc("check", tiny, "--policy", policy, "--relaxed")
        assert outcome.status == 0, outcome.out


def test_two_policies_sum_alike_and_another_layer_does_not(
    hpc: Hpc, tiny: Path, tmp_path: Path
) -> None:
    serial = tmp_path / "serial.ssc.json"
    assert hpc("compile", tiny, "--policy", "serial", "-o", serial).status == 0
    outcome = hpc("check", tiny, "--against", serial)
    assert outcome.status == 0
    assert outcome.out.splitlines()[-1].endswith("serial.ssc.json does")
    other = tmp_path / "other.moe"
    text = tiny.read_text()
    assert "top_k        = 2" in text
    other.write_text(text.replace("top_k        = 2", "top_k        = 1"))
    outcome = hpc("check", tiny, "--against", other)
    assert outcome.status == 1
    assert "only the first has: out = reduce(back, router)" in outcome.out
    found = json.loads(hpc("check", tiny, "--against", other, "--json").out)
    assert "slots 0..0" in found["against"]["difference"]
    assert hpc("check", tiny, "--against", tmp_path / "none.moe").status == 1
