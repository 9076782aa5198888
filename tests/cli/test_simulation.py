"""How `hpc run` simulates: folding, engines, interrupts, sensitivity."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc.interp import engine
from hpc.interp.state import State
from tests.cli.conftest import Hpc


def result(hpc: Hpc, file: Path, *options: str) -> dict[str, object]:
    outcome = hpc("run", file, "--values", "off", "--json", *options)
    assert outcome.status == 0
    return json.loads(outcome.out)


def test_a_balanced_layer_simulates_one_rank_unless_told_not_to(
    hpc: Hpc, tiny: Path
) -> None:
    folded, full = result(hpc, tiny), result(hpc, tiny, "--no-fold")
    assert (folded.pop("ranks_simulated"), full.pop("ranks_simulated")) == (1, 2)
    del folded["policies"], full["policies"]
    assert folded == full


def test_the_fast_engine_without_numba_is_replaced_by_the_plain_one(
    hpc: Hpc, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpc.interp.compiled.find_spec", lambda name: None)
    outcome = hpc("run", tiny, "--values", "off", "--json", "--engine", "fast")
    assert outcome.status == 0
    assert outcome.err == (
        "note: the fast engine needs numba (pip install 'hpc-moe[fast]'); "
        "the plain one is used\n"
    )
    assert json.loads(outcome.out) == result(hpc, tiny)


def interrupt_run(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of the so many-th simulation."""
    real, starts = engine.run_events, [0]

    def interrupted(state: State, limit: int) -> int:
        starts[0] += 1
        if starts[0] == number:
            real(state, 100)
            raise KeyboardInterrupt
        return real(state, limit)

    monkeypatch.setattr(engine, "run_events", interrupted)


def test_an_interrupt_reports_what_is_finished(
    hpc: Hpc, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_run(2, monkeypatch)
    options = ("--policy", "serial", "--policy", "paper", "--policy", "list")
    outcome = hpc("run", tiny, "--values", "off", "--json", *options)
    assert outcome.status == 130
    report = json.loads(outcome.out)
    assert list(report["policies"]) == ["serial"]
    partial = report["interrupted"]
    assert partial["not_measured"] == ["paper", "list"]
    assert 0 < partial["share_of_steps"] < 1
    assert partial["simulated_us"] > 0
    assert "no latency for policy paper, list; paper stopped at" in outcome.err
    assert outcome.err.count("\n") == 1


def test_an_interrupt_in_the_first_simulation_says_how_far_it_came(
    hpc: Hpc, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_run(1, monkeypatch)
    outcome = hpc("run", tiny, "--values", "off", "--policy", "list")
    assert (outcome.status, outcome.out) == (130, "")
    assert "us of simulated time;" in outcome.err


def test_a_table_of_the_finished_policies_is_shown_after_an_interrupt(
    hpc: Hpc, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_run(2, monkeypatch)
    outcome = hpc("run", tiny, "--values", "off", "--policy", "all")
    assert outcome.status == 130
    assert "dispatch to combine, us" in outcome.out
    assert "paper" not in outcome.out


def test_sensitivity_compares_all_policies(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc("run", tiny, "--sensitivity", "--json")
    assert outcome.status == 0
    found = json.loads(outcome.out)
    assert set(found["base_us"]) == {"serial", "paper", "list"}
    assert len(found["pairs"]) == 3
    kinds = {run["kind"] for run in found["runs"]}
    assert kinds == {"jitter", "ties", "constant"}


def test_sensitivity_of_one_policy_and_as_text(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc("run", tiny, "--sensitivity", "--policy", "serial")
    assert outcome.status == 0
    assert outcome.out.splitlines()[0].split() == ["serial"]
    assert "faster" not in outcome.out


def test_sensitivity_and_a_trace_exclude_each_other(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc("run", tiny, "--sensitivity", "--trace", "t.json")
    assert outcome.status == 2
    assert not Path("t.json").exists()


def test_the_report_says_that_one_rank_stood_for_all(hpc: Hpc, tiny: Path) -> None:
    line = "simulated rank 0 for all 2, which do the same\n"
    assert line in hpc("run", tiny, "--values", "off").out
    assert line in hpc("compare", tiny).out
    assert line not in hpc("run", tiny, "--values", "off", "--no-fold").out
