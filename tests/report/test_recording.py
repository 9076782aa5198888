"""What a trace shows is what the engine counted."""

from __future__ import annotations

import numpy as np
import pytest

from hpc.interp.engine import simulate
from hpc.interp.expand import expand
from hpc.interp.routing import routing_counts
from hpc.machine.record import load_machine
from hpc.report.recording import EGRESS, HBM, INGRESS, rates, spans
from hpc.schedule.layer import Routing
from tests.builders import small_layer, standard_schedule

MACHINE = load_machine("ascend_a3")
ROUTING = Routing("zipf", (("s", 1.2), ("seed", 3.0)))
SCHEDULE = standard_schedule(
    small_layer(hidden=512, intermediate=256, tokens=(300, 200, 0), ep=3, experts=7),
    groups=((0,), (1, 2)),
    chunks=2,
    routing=ROUTING,
)
COUNTS = routing_counts(SCHEDULE.layer, ROUTING)
TIMING = simulate(SCHEDULE, COUNTS, MACHINE, record=True)
assert TIMING.trace is not None
TRACE = TIMING.trace
RATES = list(rates(SCHEDULE, TRACE, expand(SCHEDULE, COUNTS, MACHINE)))


def moved_bytes(resource: str) -> np.ndarray:
    """Integral of the rates of a resource, per rank."""
    total = np.zeros(SCHEDULE.layer.ep)
    for rate in RATES:
        if rate.resource == resource:
            total[rate.rank] += rate.gbps * 1e3 * (rate.end_us - rate.start_us)
    return total


@pytest.mark.parametrize(
    ("resource", "counted"),
    [
        (EGRESS, TIMING.egress_bytes),
        (INGRESS, TIMING.ingress_bytes),
        (HBM, TIMING.hbm_bytes),
    ],
    ids=[EGRESS, INGRESS, HBM],
)
def test_counter_tracks_add_up_to_the_bytes_moved(
    resource: str, counted: np.ndarray
) -> None:
    assert moved_bytes(resource) == pytest.approx(counted, rel=1e-9)


def test_spans_of_a_core_do_not_overlap() -> None:
    ends: dict[tuple[int, str, int], float] = {}
    for span in spans(TRACE):
        key = (span.rank, span.unit, span.core)
        assert span.start_us >= ends.get(key, 0.0) - 1e-9
        assert span.end_us > span.start_us
        ends[key] = span.end_us
    assert max(ends.values()) <= TIMING.layer_us


def test_busy_time_is_the_length_of_the_working_spans() -> None:
    busy = {unit: np.zeros(SCHEDULE.layer.ep) for unit in ("aic", "aiv")}
    for kind, span in zip(TRACE.kind.tolist(), spans(TRACE), strict=True):
        if kind == 0:
            busy[span.unit][span.rank] += span.end_us - span.start_us
    for unit, expected in TIMING.busy_us.items():
        assert busy[unit] == pytest.approx(expected, rel=1e-9)
