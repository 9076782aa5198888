"""`--dispatch`: the same schedules with tasks that are handed out at run time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc.machine.record import RECORDS, load_machine
from tests.cli.conftest import Hpc

A3 = load_machine("ascend_a3")
DYNAMIC = ("--dispatch", "dynamic")
LINE = "dynamic dispatch, 2.36 us a task"


def report(hpc: Hpc, *words: object) -> dict:
    outcome = hpc(*words, "--json")
    assert (outcome.status, outcome.err) == (0, "")
    return json.loads(outcome.out)


def test_a_run_pays_for_every_fetch_and_says_so(hpc: Hpc, tiny: Path) -> None:
    """The chain of operators fetches at least twice, and the bound once."""
    words = ("run", tiny, "--values", "off")
    static, dynamic = report(hpc, *words), report(hpc, *words, *DYNAMIC)
    assert (static["dispatch"], static["task_fetch_us"]) == ("static", 0.1)
    assert (dynamic["dispatch"], dynamic["task_fetch_us"]) == ("dynamic", 2.36)
    assert static == report(hpc, *words, "--dispatch", "static")
    more = A3.dynamic_fetch_us - A3.task_fetch_us
    assert dynamic["latency_us"] >= static["latency_us"] + 2 * more - 1e-3
    assert dynamic["bound_us"] == pytest.approx(static["bound_us"] + more, abs=2e-3)


def test_only_a_dynamic_run_has_a_line_about_it(hpc: Hpc, tiny: Path) -> None:
    assert f"tasks     {LINE}\n" in hpc("run", tiny, "--values", "off", *DYNAMIC).out
    assert f"tasks     {LINE}\n" in hpc("compare", tiny, *DYNAMIC).out
    assert "us a task" not in hpc("compare", tiny).out


def test_compare_has_the_latencies_of_run(hpc: Hpc, tiny: Path) -> None:
    compared = report(hpc, "compare", tiny, *DYNAMIC)
    assert (compared["dispatch"], compared["task_fetch_us"]) == ("dynamic", 2.36)
    options = ("--values", "off", "--policy", "all")
    ran = report(hpc, "run", tiny, *options, *DYNAMIC)
    for policy, one in compared["policies"].items():
        assert one["latency_us"] == ran["policies"][policy]["latency_us"]
        assert 0 < one["bound_us"] <= one["latency_us"]


def test_sensitivity_starts_from_the_dynamic_run(hpc: Hpc, tiny: Path) -> None:
    ran = report(hpc, "run", tiny, "--values", "off", "--policy", "paper", *DYNAMIC)
    words = ("run", tiny, "--sensitivity", "--policy", "paper", *DYNAMIC)
    found = report(hpc, *words)
    assert found["base_us"] == {"paper": ran["latency_us"]}
    assert (found["dispatch"], found["task_fetch_us"]) == ("dynamic", 2.36)
    assert hpc(*words).out.startswith(f"{LINE}\n")


@pytest.mark.parametrize("dispatch", ["static", "dynamic"])
def test_sensitivity_changes_the_fetch_that_is_used(
    dispatch: str, hpc: Hpc, tiny: Path, tmp_path: Path
) -> None:
    """With both prices assumed, each matters to its own dispatch only."""
    text = (RECORDS / "ascend_a3.toml").read_text().splitlines(keepends=True)
    guess = [
        line.replace('"measured"', '"assumed"') if "fetch_us" in line else line
        for line in text
    ]
    (tmp_path / "mine.toml").write_text("".join(guess))
    layer = tmp_path / "mine.moe"
    layer.write_text(tiny.read_text().replace("ascend_a3", '"mine.toml"'))
    words = ("run", layer, "--sensitivity", "--policy", "paper")
    found = report(hpc, *words, "--dispatch", dispatch)
    (base,) = found["base_us"].values()
    moves = {
        run["name"] for run in found["runs"]
        if run["kind"] == "constant" and run["latency_us"]["paper"] != base
    }  # fmt: skip
    used = {"static": "task_fetch_us", "dynamic": "dynamic_fetch_us"}
    assert {name for name in moves if "fetch" in name} == {used[dispatch]}


def test_faults_and_traces_are_those_of_the_dynamic_run(hpc: Hpc, tiny: Path) -> None:
    ran = report(hpc, "run", tiny, "--values", "off", *DYNAMIC)
    fault = ("--inject", "slow-core:aic:0:4")
    found = report(hpc, "run", tiny, *fault, *DYNAMIC)
    (one,) = found["policies"].values()
    assert round(one["latency_us"], 3) == ran["latency_us"]
    assert one["with_faults"]["latency_us"] > one["latency_us"]
    assert (found["dispatch"], found["task_fetch_us"]) == ("dynamic", 2.36)
    assert f"{LINE}\n" in hpc("run", tiny, *fault, *DYNAMIC).out

    hpc("run", tiny, "--values", "off", "--trace", "t.json", *DYNAMIC)
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    ends = [event["ts"] + event["dur"] for event in events if event["ph"] == "X"]
    assert max(ends) == pytest.approx(ran["layer_us"], abs=0.01)


def test_another_word_is_refused(hpc: Hpc, tiny: Path) -> None:
    for command in ("run", "compare"):
        outcome = hpc(command, tiny, "--dispatch", "dynamc")
        assert outcome.status == 2
        assert "invalid choice: 'dynamc'" in outcome.err


def test_every_report_names_the_assumed_values(hpc: Hpc, tiny: Path) -> None:
    """Each number of them depends on guesses of the record."""
    assumed = ["vmax", "host_launch_us"]
    fault = ("--inject", "slow-core:aic:0:4")
    for words in (("compare",), ("run",), ("run", "--sensitivity"), ("run", *fault)):
        command, *options = words
        assert report(hpc, command, tiny, *options)["machine_assumed"] == assumed
        text = hpc(command, tiny, *options).out
        assert all(name in text for name in assumed)


def test_an_assumed_value_that_sensitivity_cannot_scale_is_named(
    hpc: Hpc, tiny: Path, tmp_path: Path
) -> None:
    text = (RECORDS / "ascend_a3.toml").read_text().splitlines(keepends=True)
    (at,) = (n for n, line in enumerate(text) if line.startswith("dtypes"))
    text[at] = text[at].replace('"spec"', '"assumed"')
    assert '"assumed"' in text[at]
    (tmp_path / "mine.toml").write_text("".join(text))
    layer = tmp_path / "mine.moe"
    layer.write_text(tiny.read_text().replace("ascend_a3", '"mine.toml"'))
    out = hpc("run", layer, "--sensitivity", "--policy", "paper").out
    assert out.startswith("assumed and not changed: dtypes\n")
