"""The verdict that `hpc run` prints."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpc.interp import verify
from hpc.interp.footprint import available_bytes
from hpc.interp.steps import Step
from hpc.interp.values import Result
from hpc.interp.verify import same_bits, verify_policies, verify_values
from hpc.schedule.layer import Layer, Routing
from hpc.schedule.model import Base, Buffer, Schedule
from tests.builders import small_layer, standard_schedule
from tests.values.cases import add_then_swiglu

WIDE: Layer = small_layer(hidden=512, intermediate=256, tokens=(40, 9))


def schedules() -> dict[str, Schedule]:
    return {
        "one": standard_schedule(WIDE),
        "fine": standard_schedule(WIDE, ((0,), (1,)), 3, base=Base(16, 64, 64)),
        "odd": standard_schedule(WIDE, m=7, base=Base(32, 96, 16)),
    }


@pytest.mark.parametrize("mode", ["full", "shrunk"])
def test_policies_agree_bit_for_bit(mode: str) -> None:
    reports = verify_policies(schedules(), mode=mode)
    assert all(report.ok for report in reports.values())
    assert same_bits(reports)
    assert {report.what for report in reports.values()} == {mode}


def test_a_small_layer_is_not_shrunk() -> None:
    assert verify_values(standard_schedule(small_layer())).what == "full"


def test_inputs_and_reference_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("launch_data", "reference", "routing_ids"):
        made = getattr(verify, name)
        monkeypatch.setattr(
            verify,
            name,
            lambda *a, made=made, name=name: calls.append(name) or made(*a),
        )
    verify_policies(schedules())
    assert sorted(calls) == ["launch_data", "reference", "routing_ids"]


def test_different_layers_have_different_bits() -> None:
    other = standard_schedule(replace(WIDE, weights_at="input"))
    assert not same_bits(verify_policies({**schedules(), "other": other}))


def test_seeds_that_differ_are_not_identical(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor whose last bit depends on the order would be found out."""
    real = verify.execute

    def wobbly(*args: object, seed: int, **more: object) -> Result:
        result = real(*args, seed=seed, **more)  # type: ignore[arg-type]
        if seed == 1:
            bits = result.outputs["out"][0].view(np.uint16)
            bits[0, 0] ^= 1
        return result

    monkeypatch.setattr(verify, "execute", wobbly)
    report = verify_values(standard_schedule(WIDE), seeds=(0, 1, 2))
    assert report.max_rel_err is not None
    assert report.max_rel_err <= report.bound
    assert not report.bit_identical
    assert not report.ok


def test_steps_of_the_spec_catch_a_wrong_compiler() -> None:
    """The spec says relu, the schedule does swiglu_oai's work: values differ."""
    layer = small_layer()
    schedule = standard_schedule(layer)
    steps = (
        Step("dispatch", "recv", ("x",)),
        Step("gmm", "h", ("recv", "w_up")),
        Step("geglu", "a", ("h",)),
        Step("gmm", "y", ("a", "w_down")),
        Step("combine", "back", ("y",)),
        Step("reduce", "out", ("back",)),
    )
    assert verify_values(schedule).ok
    report = verify_values(schedule, steps=steps)
    assert not report.ok
    assert report.max_rel_err is not None


def test_an_output_that_no_step_computes() -> None:
    steps = (Step("dispatch", "recv", ("x",)),)
    report = verify_values(standard_schedule(small_layer()), steps=steps)
    assert not report.ok
    assert report.faults == ("no operator computes out",)


@pytest.mark.parametrize(("last", "space"), [("y", "routed"), ("back", "slot")])
def test_flows_that_end_early(last: str, space: str) -> None:
    """A routed or slot result is compared by slot, whatever the groups."""
    reports = verify_policies(
        {name: ending_with(last, s) for name, s in schedules().items()}
    )
    assert all(report.ok for report in reports.values()), space
    assert same_bits(reports)


def ending_with(last: str, schedule: Schedule) -> Schedule:
    """The schedule without what comes after `last`, which becomes the output."""

    def changed(buffer: Buffer) -> Buffer:
        return replace(buffer, role="output") if buffer.name == last else buffer

    kept = tuple(changed(b) for b in schedule.buffers if b.name != "out")
    aic, comm, vec = schedule.queues
    return replace(
        schedule,
        buffers=kept,
        queues=(aic, comm, replace(vec, code=vec.code[:-1])),
    )


def test_values_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is allocated, with both numbers. GiB: x and out 16 each, recv, y
    and back 32 each, pairs of f64 128 each for out and one rank's slots, weights 0.4.
    """
    monkeypatch.setattr(verify, "available_bytes", lambda: 3 << 30)
    layer = small_layer(hidden=1 << 20, tokens=(4096, 4096))
    report = verify_values(standard_schedule(layer), mode="full")
    assert not report.ok
    assert report.faults[0].startswith("values need about 384.4 GiB")
    assert "3.0 GiB are available" in report.faults[0]
    monkeypatch.setattr(verify, "available_bytes", lambda: None)
    assert verify_values(standard_schedule(small_layer())).ok


def test_memory_that_is_free_is_known_here_or_not_at_all() -> None:
    free = available_bytes()
    assert free is None or free > 1 << 20


def test_a_flow_without_communication() -> None:
    report = verify_values(add_then_swiglu(small_layer(hidden=640)))
    assert report.ok
    assert report.what == "shrunk"


def test_ids_with_slots_that_send_nothing() -> None:
    layer = small_layer(tokens=(3, 0))
    table = (((0, -1), (-1, -1), (2, 3)), ())
    assert verify_values(standard_schedule(layer, routing=Routing("ids", ids=table))).ok


def test_misuse_is_a_value_error() -> None:
    schedule = standard_schedule(small_layer())
    with pytest.raises(ValueError, match='"full" or "shrunk"'):
        verify_values(schedule, mode="off")
    with pytest.raises(ValueError, match="seed"):
        verify_values(schedule, seeds=())
