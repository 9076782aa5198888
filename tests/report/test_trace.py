"""Recorded simulations as Chrome trace events."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

from hpc.report.trace import Rate, Span, write_trace
from tests.builders import small_layer, standard_schedule

SCHEDULE = standard_schedule(small_layer())


def trace(spans: list[Span], rates: list[Rate]) -> list[dict[str, Any]]:
    stream = StringIO()
    write_trace(stream, SCHEDULE, spans, rates)
    return json.loads(stream.getvalue())["traceEvents"]


def span(**changes: Any) -> Span:
    values: dict[str, Any] = {
        "rank": 1,
        "unit": "aic",
        "core": 3,
        "queue": 0,
        "index": 0,
        "start_us": 1.5,
        "end_us": 4.0,
    }
    return Span(**{**values, **changes})


def test_processes_are_ranks_and_tracks_are_cores() -> None:
    events = trace([], [])
    names = {(e["pid"], e.get("tid")): e["args"] for e in events if "name" in e["args"]}
    assert names[0, None] == {"name": "rank 0"}
    assert names[1, 0] == {"name": "aic 0"}
    assert names[1, 1047] == {"name": "aiv 47"}
    assert len(names) == 2 * (1 + 24 + 48)


def test_a_wait_names_what_it_waits_for_and_has_its_own_colour() -> None:
    events = trace([span(), span(index=1)], [])
    wait, gmm = [e for e in events if e["ph"] == "X"]
    assert wait["name"] == "wait arrived[0,0]"
    assert gmm["name"] == "gmm h[0,0]"
    assert wait["cname"] != gmm["cname"]
    assert wait["cat"] == "wait"
    assert (wait["pid"], wait["tid"], wait["ts"], wait["dur"]) == (1, 3, 1.5, 2.5)
    assert wait["args"]["source"] == "hand.moe:1:1"


def test_spans_that_take_no_time_are_left_out() -> None:
    assert [e for e in trace([span(end_us=1.5)], []) if e["ph"] == "X"] == []


def test_counters_show_the_sum_of_concurrent_rates() -> None:
    rates = [Rate(0, "egress", 0.0, 4.0, 10.0), Rate(0, "egress", 1.0, 2.0, 5.0)]
    steps = [(e["ts"], e["args"]["GB/s"]) for e in trace([], rates) if e["ph"] == "C"]
    assert steps == [(0.0, 10.0), (1.0, 15.0), (2.0, 10.0), (4.0, 0.0)]


def test_counters_of_ranks_and_resources_are_apart() -> None:
    rates = [Rate(1, "hbm", 0.0, 1.0, 1.0), Rate(0, "egress", 0.0, 1.0, 2.0)]
    counters = [e for e in trace([], rates) if e["ph"] == "C"]
    assert [(e["pid"], e["name"]) for e in counters[::2]] == [(0, "egress"), (1, "hbm")]
