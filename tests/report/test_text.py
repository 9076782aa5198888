"""A run as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpc.report.summary import OutputError
from hpc.report.tables import render_table
from hpc.report.text import compare_text, describe_routing, run_text
from hpc.schedule.layer import Routing
from tests.report.reports import VALUES, failing, policy_report, run_report


def row(text: str, label: str) -> list[str]:
    """Cells of the row that starts with `label`."""
    (line,) = [x for x in text.splitlines() if x.strip().startswith(label)]
    return line.strip().removeprefix(label).split()


def test_the_heading_says_how_the_machine_is_known() -> None:
    text = run_text(run_report(), color=False)
    assert "ascend_a3, whose figures are 30 measured, 2 assumed\n" in text
    assert "2 ranks x 16 tokens, hidden 32, intermediate 16 (swiglu)" in text
    assert "list: 1 group, 3 queues, " in text


def test_every_row_says_what_kind_of_number_it_holds() -> None:
    text = run_text(run_report(), color=False)
    assert row(text, "dispatch to combine, us") == ["200.0", "simulated"]
    assert row(text, "whole layer, us") == ["211.2", "simulated"]
    assert row(text, "lower bound, us") == ["100.0", "bound"]
    assert row(text, "latency / bound") == ["2.00", "simulated", "/", "bound"]
    assert row(text, "communication hidden") == ["75.0", "%", "simulated"]
    assert row(text, "AIC utilization") == ["45.0", "%", "simulated"]
    assert row(text, "waiting: arrived") == ["25.0", "%", "simulated"]
    assert row(text, "check: deadlock") == ["ok", "checked"]
    assert row(text, "check: bytes")[:3] == ["-", "not", "checked:"]
    assert row(text, "values: largest relative error")[0] == "1.50e-03"


def test_with_gradients_the_latency_ends_with_the_last_of_them() -> None:
    policy = policy_report()
    train = replace(policy, schedule=replace(policy.schedule, mode="train"))
    text = run_text(run_report(train), color=False)
    assert row(text, "dispatch to last gradient, us") == ["200.0", "simulated"]
    assert "last gradient: the last combine has arrived" in text
    assert "last gradient" not in run_text(run_report(), color=False)


def test_policies_stand_side_by_side() -> None:
    report = run_report(policy_report("serial", 300.0), policy_report("list", 150.0))
    text = compare_text(report, color=False)
    assert row(text, "dispatch to combine, us") == ["300.0", "150.0", "simulated"]
    assert row(text, "speed-up over serial") == ["1.00", "2.00", "simulated"]


def test_a_failed_check_stands_out() -> None:
    text = run_text(run_report(failing(policy_report())), color=False)
    assert row(text, "check: deadlock") == ["FAILED", "checked"]


def test_an_error_that_is_no_number_is_called_so() -> None:
    values = replace(VALUES, max_rel_err=None, ok=False)
    text = run_text(run_report(replace(policy_report(), values=values)), color=False)
    assert row(text, "values: largest relative error")[:3] == ["not", "a", "number"]


def test_each_of_several_outputs_has_its_error_and_its_bound() -> None:
    outputs = (OutputError("dx", 2e-3, 3e-2), OutputError("dw_up", None, 4e-2))
    values = replace(VALUES, max_rel_err=None, ok=False, outputs=outputs)
    text = run_text(run_report(replace(policy_report(), values=values)), color=False)
    assert row(text, "values: largest relative error")[:2] == ["computed,", "shrunk,"]
    assert row(text, "dx") == ["2.00e-03", "allowed", "3.00e-02"]
    assert row(text, "dw_up") == ["not", "a", "number", "allowed", "4.00e-02"]
    assert "  allowed " not in text.split("values:")[1].split("dx")[0]


def test_an_output_that_another_policy_does_not_have() -> None:
    outputs = (OutputError("dx", 2e-3, 3e-2), OutputError("dw", 2e-3, 3e-2))
    full, none = (
        replace(policy_report(name), values=replace(VALUES, outputs=found))
        for name, found in (("list", outputs), ("paper", ()))
    )
    text = run_text(run_report(full, none), color=False)
    assert row(text, "dx") == ["2.00e-03", "-", "allowed", "3.00e-02"]


def test_without_values_there_are_no_rows_for_them() -> None:
    text = run_text(run_report(replace(policy_report(), values=None)), color=False)
    assert "values:" not in text


@pytest.mark.parametrize("columns", ["20", "80"])
def test_numbers_are_never_cut(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """rich would end cells that do not fit with an ellipsis."""
    monkeypatch.setenv("COLUMNS", columns)
    cells = ["123456789.123"] * 8
    text = render_table("", list("abcdefgh"), [cells], left=(), color=False)
    assert text.count(cells[0]) == 8


def test_colour_only_where_asked_for_and_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [["x", "FAILED"]]
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" not in render_table("", ["a", "b"], rows, left=(), color=False)
    assert "\x1b[1;31m" in render_table("", ["a", "b"], rows, left=(), color=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in render_table("", ["a", "b"], rows, left=(), color=True)


def test_text_is_not_taken_for_markup() -> None:
    assert "[bold]x" in render_table("", ["[a]"], [["[bold]x"]], left=(), color=False)


def test_routing_is_described_with_its_parameters_and_origin() -> None:
    zipf = Routing("zipf", (("s", 1.2), ("seed", 7.0)))
    assert describe_routing(zipf) == "zipf(s=1.2, seed=7)"
    assert describe_routing(Routing("counts", origin="a.json")) == "counts from a.json"
