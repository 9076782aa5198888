"""The numbers of a run as JSON, and what counts as a good run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hpc.report.summary import NUMBERS, OutputError, compare_json
from tests.report.reports import VALUES, failing, policy_report, run_report


def test_the_json_of_a_run_has_the_promised_keys_in_order() -> None:
    keys = list(run_report().to_json())
    assert keys == [
        "layer", "source", "machine", "mode", "ranks", "dispatch",
        "task_fetch_us", "policy", "latency_us", "layer_us", "bound_us", "bound_by",
        "bound_rank", "layer_bound_us",
        "latency_over_bound", "comm_hidden", "utilization", "cores", "tasks",
        "ranks_simulated", "checks", "not_checked", "l2_hits", "memory", "values",
        "machine_figures", "machine_assumed", "numbers", "policies",
    ]  # fmt: skip
    assert set(NUMBERS) <= set(keys)


def test_the_json_is_strict() -> None:
    """NaN and infinity are not JSON; an error that is no number is null."""
    values = replace(VALUES, max_rel_err=None, ok=False)
    report = run_report(replace(policy_report(), values=values, comm_hidden=None))
    text = json.dumps(report.to_json(), allow_nan=False)
    assert json.loads(text)["values"]["max_rel_err"] is None


def test_the_fastest_policy_is_on_top_and_the_first_of_equals() -> None:
    slow, fast = policy_report("serial", 300.0), policy_report("paper", 150.0)
    report = run_report(slow, fast, policy_report("list", 150.0))
    assert report.to_json()["policy"] == "paper"
    assert list(report.to_json()["policies"]) == ["serial", "paper", "list"]  # type: ignore[call-overload]


def test_a_check_that_is_not_there_yet_is_not_called_true() -> None:
    written = run_report().to_json()
    assert written["checks"] == {"structure": True, "deadlock": True}
    assert written["not_checked"] == {
        "bytes": "not checked: no routing table was given"
    }


def test_one_failed_check_makes_the_run_fail() -> None:
    assert run_report().ok
    assert not run_report(policy_report("paper"), failing(policy_report())).ok


@pytest.mark.parametrize(
    "change", [{"ok": False}, {"bit_identical": False}], ids=["error", "bits"]
)
def test_wrong_values_make_the_run_fail(change: dict[str, bool]) -> None:
    values = replace(VALUES, **change)
    assert not run_report(replace(policy_report(), values=values)).ok


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"max_rel_err": None}, "not a number at out, rank 1"),
        ({"max_rel_err": 0.5}, "relative error 5.00e-01 > 4.00e-03 at out, rank 1"),
        ({"faults": ("row 3 twice",)}, "row 3 twice"),
        ({"bit_identical": False}, "the interleavings differ in bits"),
    ],
)
def test_what_is_wrong_with_values_is_said(
    change: dict[str, object], complaint: str
) -> None:
    values = replace(VALUES, ok=False, worst="out, rank 1", **change)  # type: ignore[arg-type]
    report = run_report(replace(policy_report(), values=values))
    assert report.complaints[0] == f"policy list: wrong values: {complaint}"


def test_the_error_of_every_output_is_in_the_json() -> None:
    outputs = (OutputError("dx", 5e-2, 3e-2), OutputError("dw", None, 4e-2))
    values = replace(VALUES, ok=False, worst="dx, rank 1", outputs=outputs)
    report = run_report(replace(policy_report(), values=values))
    written = json.loads(json.dumps(report.to_json(), allow_nan=False))["values"]
    assert written["worst"] == "dx, rank 1"
    assert written["outputs"] == {
        "dx": {"max_rel_err": 5e-2, "allowed": 3e-2, "ok": False},
        "dw": {"max_rel_err": None, "allowed": 4e-2, "ok": False},
    }


def test_every_wrong_output_is_named() -> None:
    """The worst one with its place; one within its bound is not named."""
    outputs = (
        OutputError("dx", 0.5, 4e-3),
        OutputError("dw", None, 4e-2),
        OutputError("out", 1e-3, 4e-2),
    )
    values = replace(
        VALUES, ok=False, max_rel_err=0.5, worst="dx, rank 1", outputs=outputs
    )
    report = run_report(replace(policy_report(), values=values))
    assert report.complaints == (
        "policy list: wrong values: relative error 5.00e-01 > 4.00e-03 at dx, rank 1",
        "policy list: wrong values: dw is wrong too",
    )


def test_values_that_were_not_computed_are_not_called_wrong() -> None:
    """Nor are they said to differ in bits."""
    values = replace(
        VALUES, ok=False, bit_identical=False, digest="", faults=("too little memory",)
    )
    report = run_report(replace(policy_report(), values=values))
    assert report.complaints == ("policy list: no values: too little memory",)


def test_bits_that_differ_between_policies_make_the_run_fail() -> None:
    other = replace(policy_report("paper"), values=replace(VALUES, digest="other"))
    report = run_report(policy_report(), other)
    assert not report.ok
    assert report.to_json()["values"]["bit_identical"] is False  # type: ignore[index]


def test_a_run_without_values_is_judged_by_its_checks() -> None:
    report = run_report(replace(policy_report(), values=None))
    assert report.ok
    assert report.to_json()["values"] is None


def test_comparison_counts_speed_up_from_serial() -> None:
    report = run_report(policy_report("serial", 300.0), policy_report("list", 200.0))
    policies = compare_json(report)["policies"]
    assert policies["serial"]["speedup_vs_serial"] == 1.0  # type: ignore[index]
    assert policies["list"]["speedup_vs_serial"] == 1.5  # type: ignore[index]
