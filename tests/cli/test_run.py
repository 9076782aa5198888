"""`hpc run`, `compare` and `check`: what is reported, and the exit status."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hpc.interp.bound import lower_bound
from hpc.interp.verify import verify_policies
from hpc.schedule.check import CHECKS
from hpc.schedule.model import Schedule
from hpc.schedule.policy import POLICIES
from hpc.schedule.reader import read_schedule
from hpc.schedule.writer import dump_schedule
from tests.cli.conftest import SAMPLES, Hpc


@pytest.fixture
def compiled(hpc: Hpc, tiny: Path) -> Path:
    hpc("compile", tiny)
    return Path("tiny.ssc.json")


def rewrite(path: Path, **changes: object) -> Schedule:
    """Change fields of a schedule file, as one would in an editor."""
    changed = replace(read_schedule(path), **changes)  # type: ignore[arg-type]
    path.write_text(dump_schedule(changed))
    return changed


def ask_for_one_signal_more(path: Path) -> None:
    """Raise the first event's threshold to more than ever arrives."""
    schedule = read_schedule(path)
    event = schedule.events[0]
    raised = replace(event, need=event.need + 1)
    rewrite(path, events=(raised, *schedule.events[1:]))


def test_the_json_of_one_policy(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc("run", tiny, "--policy", "paper", "--json")
    assert outcome.status == 0
    report = json.loads(outcome.out)
    assert (report["layer"], report["policy"], report["ranks"]) == ("tiny", "paper", 2)
    assert (report["machine"], report["mode"]) == ("ascend_a3", "forward")
    assert 0 < report["bound_us"] <= report["latency_us"] <= report["layer_us"]
    assert set(report["utilization"]) == {"aic", "aiv"}
    assert 0 <= report["comm_hidden"] <= 1
    assert report["tasks"] > 0
    assert report["checks"] == {c.name: True for c in CHECKS if c.run}
    assert report["values"]["bit_identical"] is True
    assert 0 < report["values"]["max_rel_err"] < report["values"]["allowed"]
    assert list(report["policies"]) == ["paper"]
    for cores in report["cores"].values():
        total = cores["busy"] + cores["idle"] + sum(cores["waiting"].values())
        assert total == pytest.approx(1, abs=1e-3)


def test_all_policies_give_the_same_bits_and_the_fastest_is_on_top(
    hpc: Hpc, tiny: Path
) -> None:
    report = json.loads(hpc("run", tiny, "--policy", "all", "--json").out)
    assert list(report["policies"]) == list(POLICIES)
    latencies = {p: r["latency_us"] for p, r in report["policies"].items()}
    assert report["latency_us"] == min(latencies.values())
    assert report["values"]["bit_identical"] is True


def test_policies_are_reported_in_the_order_asked_for(hpc: Hpc, tiny: Path) -> None:
    arguments = ["--policy", "list", "--policy", "serial", "--policy", "list"]
    report = json.loads(hpc("run", tiny, *arguments, "--json").out)
    assert list(report["policies"]) == ["list", "serial"]


def test_the_spec_chooses_the_policy_unless_asked(hpc: Hpc, tiny: Path) -> None:
    pinned = tiny.read_text() + "\nschedule { policy = serial }\n"
    Path("pinned.moe").write_text(pinned)
    arguments = ["--values", "off", "--json"]
    assert json.loads(hpc("run", "pinned.moe", *arguments).out)["policy"] == "serial"
    arguments += ["--policy", "paper"]
    assert json.loads(hpc("run", "pinned.moe", *arguments).out)["policy"] == "paper"


@pytest.mark.parametrize("values", ["full", "shrunk", "off"])
def test_values_run_as_asked(hpc: Hpc, tiny: Path, values: str) -> None:
    outcome = hpc("run", tiny, "--values", values, "--seed", "7", "--json")
    assert outcome.status == 0
    found = json.loads(outcome.out)["values"]
    if values == "off":
        assert found is None
        return
    assert found["seeds"] == [7, 8]
    assert found["ok"] is True


def test_a_schedule_file_runs_like_its_layer(
    hpc: Hpc, tiny: Path, compiled: Path
) -> None:
    from_file = json.loads(hpc("run", compiled, "--json").out)
    from_layer = json.loads(hpc("run", tiny, "--policy", "list", "--json").out)
    for report in (from_file, from_layer):
        del report["source"]
        for found in (report, *report["policies"].values()):
            found["values"].pop("against")
    assert from_file == from_layer


def test_the_report_is_the_same_every_time(hpc: Hpc, tiny: Path) -> None:
    assert hpc("run", tiny, "--json").out == hpc("run", tiny, "--json").out


def test_the_text_names_everything_once(hpc: Hpc, tiny: Path) -> None:
    text = hpc("run", tiny).out
    for label in (
        "dispatch to combine, us",
        "whole layer, us",
        "lower bound, us",
        "communication hidden",
        "AIC utilization",
        "check: deadlock",
        "values: largest relative error",
    ):
        assert text.count(label) == 1


def test_an_unsafe_schedule_is_refused_with_its_witness(
    hpc: Hpc, compiled: Path
) -> None:
    ask_for_one_signal_more(compiled)
    for command in ("run", "check"):
        outcome = hpc(command, compiled)
        assert outcome.status == 1
        assert "FAILED" in outcome.out
        assert "error: [event-need]" in outcome.out
    assert "not run, because a check failed" in hpc("run", compiled).err


def test_violations_as_json(hpc: Hpc, compiled: Path) -> None:
    ask_for_one_signal_more(compiled)
    outcome = hpc("check", compiled, "--json")
    report = json.loads(outcome.out)
    assert outcome.status == 1
    assert report["ok"] is False
    assert report["checks"]["structure"] is False
    assert report["violations"][0]["code"] == "event-need"
    assert report["violations"][0]["witness"]


def test_check_compiles_a_layer_first(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc("check", tiny, "--policy", "serial")
    assert outcome.status == 0
    assert outcome.out.endswith("tiny.moe: 0 violations\n")
    assert "not checked" not in outcome.out


def test_a_file_alone_is_held_against_its_own_operators(
    hpc: Hpc, tiny: Path, compiled: Path
) -> None:
    """Nothing else says what it should compute, and the report tells."""
    text = "the reference computes the file's own operators"
    assert text in hpc("run", compiled).out
    assert text not in hpc("run", tiny).out
    for path, against in ((compiled, "file"), (tiny, "spec")):
        report = json.loads(hpc("run", path, "--json").out)
        assert report["values"]["against"] == against


def test_an_edited_file_is_said_to_be_edited(hpc: Hpc, compiled: Path) -> None:
    assert hpc("check", compiled).err == ""
    compiled.write_text(compiled.read_text().replace('"recv"', '"received"'))
    outcome = hpc("check", compiled)
    assert outcome.err == "tiny.ssc.json: note: edited since it was compiled\n"
    assert outcome.status == 0


def test_an_unknown_machine_is_named(hpc: Hpc, compiled: Path) -> None:
    rewrite(compiled, machine="ascend_a9")
    outcome = hpc("run", compiled)
    assert outcome.status == 1
    assert "ascend_a9: error: unknown machine" in outcome.err


def test_wrong_values_fail_the_run(
    hpc: Hpc, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoilt(*args: object, **options: object) -> object:
        return {
            name: replace(report, ok=False, max_rel_err=None, faults=("row 3 twice",))
            for name, report in verify_policies(*args, **options).items()  # type: ignore[arg-type]
        }

    monkeypatch.setattr("hpc.interp.verify.verify_policies", spoilt)
    outcome = hpc("run", tiny)
    assert outcome.status == 1
    assert "not a number" in outcome.out
    assert "error: policy list: wrong values: row 3 twice\n" in outcome.err


@pytest.mark.parametrize(
    ("name", "mode", "outputs"),
    [
        ("tiny.moe", "forward", {"out"}),
        ("tiny_train.moe", "backward", {"drouter", "dw_down", "dw_up", "dx"}),
        ("tiny_train.moe", "train", {"out", "drouter", "dw_down", "dw_up", "dx"}),
    ],
)
def test_every_output_has_an_error_and_a_bound_of_its_own(
    name: str, mode: str, outputs: set[str], hpc: Hpc, tmp_path: Path
) -> None:
    """The error on top is that of the output that comes nearest to its bound."""
    source = (SAMPLES / name).read_text()
    (tmp_path / name).write_text(re.sub(r"mode *= *\w+", f"mode = {mode}", source))
    values = json.loads(hpc("run", name, "--json").out)["values"]
    assert set(values["outputs"]) == outputs
    for one in values["outputs"].values():
        assert 0 < one["max_rel_err"] <= one["allowed"]
        assert one["ok"] is True
    nearest = max(
        values["outputs"].values(), key=lambda one: one["max_rel_err"] / one["allowed"]
    )
    assert values["max_rel_err"] == nearest["max_rel_err"]
    assert values["allowed"] == nearest["allowed"]
    text = hpc("run", name).out.split("values: ")[1]
    for output in outputs if len(outputs) > 1 else ():
        error = f"{values['outputs'][output]['max_rel_err']:.2e}"
        assert re.search(rf"^  {output} +{error} +allowed ", text, re.MULTILINE)


def test_a_latency_below_the_bound_is_an_internal_error(
    hpc: Hpc, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_high(*args: object) -> object:
        return replace(lower_bound(*args), bound_us=1e9)  # type: ignore[arg-type]

    monkeypatch.setattr("hpc.interp.bound.lower_bound", too_high)
    outcome = hpc("run", tiny)
    assert outcome.status == 70
    assert "is below its bound 1000000000.0 us" in outcome.err


def test_compare_has_the_policies_side_by_side(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc("compare", tiny, "--json")
    assert outcome.status == 0
    policies = json.loads(outcome.out)["policies"]
    assert list(policies) == list(POLICIES)
    serial = policies["serial"]
    assert serial["speedup_vs_serial"] == 1
    for policy in policies.values():
        assert 0 < policy["bound_us"] <= policy["latency_us"]
        speedup = serial["latency_us"] / policy["latency_us"]
        assert policy["speedup_vs_serial"] == pytest.approx(speedup, abs=1e-3)
    assert "speed-up over serial" in hpc("compare", tiny).out


def test_the_trace_covers_the_whole_layer(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc("run", tiny, "--trace", "trace.json", "--json")
    report = json.loads(outcome.out)
    assert "trace.json: timeline of policy list" in outcome.err
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert {event["pid"] for event in slices} == {0, 1}
    end = max(event["ts"] + event["dur"] for event in slices)
    assert end == pytest.approx(report["layer_us"], rel=0.1)
    assert any(event["name"].startswith("wait ") for event in slices)
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert counters == {"HBM", "link in", "link out"}
    Path("again.json").touch()
    hpc("run", tiny, "--trace", "again.json")
    assert Path("again.json").read_text() == Path("trace.json").read_text()


def test_a_trace_that_cannot_be_written_is_named(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc("run", tiny, "--trace", "no/trace.json")
    assert outcome.status == 1
    assert outcome.err.startswith("no/trace.json: error: there is no directory 'no'")
    assert os.listdir() == []
