"""Disturbed runs: what is disturbed, by how much, and what the verdict says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpc.interp import sensitivity as module
from hpc.interp.engine import simulate
from hpc.interp.expand import expand
from hpc.interp.sensitivity import Disturbance, Sensitivity, scaled, sensitivity
from hpc.machine.fields import BY_KEY
from hpc.machine.record import load_machine
from hpc.report.sensitivity import sensitivity_json, sensitivity_text
from tests.timing.test_whole_runs import medium, random_counts

A3 = load_machine("ascend_a3")
EVEN = np.full((4, 8), 75)
SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def found() -> Sensitivity:
    return sensitivity({"a": medium()}, EVEN, A3, seeds=SEEDS)


def test_the_undisturbed_latency_is_that_of_a_run(found: Sensitivity) -> None:
    assert found.base["a"] == simulate(medium(), EVEN, A3).latency_us


def test_jitter_moves_the_latency_by_less_than_itself(found: Sensitivity) -> None:
    low, high = found.change("a", "jitter")
    assert low < high
    assert max(abs(low), abs(high)) < 0.05
    moved = [
        us
        for us, what in zip(found.moved["a"], found.disturbances, strict=True)
        if what.kind == "jitter"
    ]
    assert len(set(moved)) == len(SEEDS)


def test_other_tie_orders_move_nothing_where_all_share_equally(
    found: Sensitivity,
) -> None:
    """Renumbering identical cores changes who goes first, not what happens."""
    low, high = found.change("a", "ties")
    assert (low, high) == (pytest.approx(0, abs=1e-9), pytest.approx(0, abs=1e-9))


def test_every_assumed_constant_is_changed_both_ways(found: Sensitivity) -> None:
    assumed = [f.key for f in A3.facts if f.confidence == "assumed"]
    assert assumed
    assert [*found.constants] == assumed
    factors = {d.factor for d in found.disturbances if d.kind == "constant"}
    assert factors == {0.8, 1.2}


def test_a_constant_that_matters_moves_the_latency_by_its_share() -> None:
    """Only the launch is assumed: 20 % of it, and nothing else."""
    facts = tuple(
        replace(f, confidence="assumed" if f.key == "kernel_launch_us" else "spec")
        for f in A3.facts
    )
    found = sensitivity({"a": medium()}, EVEN, replace(A3, facts=facts), seeds=())
    moved = 0.2 * A3.kernel_launch_us
    less, more = found.moved["a"]
    assert less == pytest.approx(found.base["a"] - moved)
    assert more == pytest.approx(found.base["a"] + moved)


@pytest.mark.parametrize("key", [k for k in BY_KEY if BY_KEY[k].kind != "dtypes"])
def test_scaled_figures_keep_their_kind_and_range(key: str) -> None:
    field, value = BY_KEY[key], getattr(A3, key)
    for factor in (0.8, 1.2):
        changed = getattr(scaled(A3, key, factor), key)
        assert type(changed) is type(value) or field.kind == "float"
        parts = changed if isinstance(changed, tuple) else (changed,)
        assert all(field.low <= part <= field.high for part in parts)


def test_uneven_routings_are_disturbed_too() -> None:
    schedule = medium()
    counts = random_counts(schedule, 1)
    one, two = (sensitivity({"a": schedule}, counts, A3, seeds=(7,)) for _ in "ab")
    assert one == two
    assert one.change("a", "jitter") != (0.0, 0.0)


def test_large_symmetric_runs_draw_jitter_for_one_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ONE_RANK_FROM", 1)
    found = sensitivity({"a": medium()}, EVEN, A3, seeds=(0,))
    assert found.one_rank
    assert "the same on all ranks" in sensitivity_text(found, color=False)
    assert sensitivity_json(found)["jitter_on"] == "one rank for all"


def verdict_of(slower: tuple[float, float]) -> Sensitivity:
    """Policy a takes 100 us and 101 in two disturbed runs; b takes 102 us."""
    disturbances = (Disturbance("jitter", "0"), Disturbance("constant", "vmax", 1.2))
    moved = {"a": (101.0, 101.0), "b": slower}
    return Sensitivity({"b": 102.0, "a": 100.0}, disturbances, moved, False, 2)


def test_a_ranking_that_never_flips_is_decided() -> None:
    found = verdict_of((103.0, 102.0))
    assert found.ranking == ("a", "b")
    assert found.pairs[0].decided
    text = sensitivity_text(found, color=False)
    assert "a is faster than b (1.020x) in all 2 runs" in text


@pytest.mark.parametrize("equal_or_faster", [101.0, 99.0])
def test_a_ranking_that_flips_once_is_undecided(equal_or_faster: float) -> None:
    found = verdict_of((103.0, equal_or_faster))
    (pair,) = found.pairs
    assert pair.flips == ("vmax +20%",)
    text = sensitivity_text(found, color=False)
    assert "undecided: a against b (1.020x), not faster with vmax +20%" in text
    pairs = sensitivity_json(found)["pairs"]
    assert pairs[0]["verdict"] == "undecided"  # type: ignore[index]


def test_equal_latencies_decide_nothing() -> None:
    found = Sensitivity({"a": 1.0, "b": 1.0}, (), {"a": (), "b": ()}, False, 0)
    assert found.pairs[0].flips == ("undisturbed",)


def test_constants_that_move_nothing_share_a_line(found: Sensitivity) -> None:
    text = sensitivity_text(found, color=False)
    quiet = [
        name
        for name in found.constants
        if max(map(abs, found.change("a", "constant", name))) < 5e-4
    ]
    for name in found.constants:
        assert (f"{name} +-20%" in text) == (name not in quiet)


def test_an_interrupt_leaves_what_all_policies_have_been_through() -> None:
    def tell(text: str) -> None:
        if text.startswith("disturbance 3 "):
            raise KeyboardInterrupt

    schedules = {"a": medium(), "b": medium(chunks=1)}
    found = sensitivity(schedules, EVEN, A3, seeds=SEEDS, tell=tell)
    assert not found.complete
    assert [len(moved) for moved in found.moved.values()] == [2, 2]
    text = sensitivity_text(found, color=False)
    assert f"only 2 of {found.planned} runs were made" in text
    assert sensitivity_json(found)["complete"] is False


def test_jitter_is_five_percent_of_every_share_and_every_put() -> None:
    plain, jittered = (expand(medium(), EVEN, A3) for _ in "ab")
    module._jitter(jittered, seed=3)
    names = ("bytes", "work_us", "busy_us", "fetched", "stored")
    pairs = [
        (getattr(plain.puts, name), getattr(jittered.puts, name)) for name in names
    ]
    for before, after in zip(plain.queues, jittered.queues, strict=True):
        pairs += [(before.work_us, after.work_us), (before.hbm_bytes, after.hbm_bytes)]
    for before, after in pairs:
        some = before > 0
        if not some.any():
            continue
        ratio = after[some] / before[some]
        assert (np.abs(ratio - 1) <= 0.05 + 1e-4).all()
        assert ratio.std() > 0.02
        assert ratio.min() < 1 < ratio.max()
    assert np.array_equal(jittered.puts.bytes, np.rint(jittered.puts.bytes))


def test_cores_in_another_order_keep_their_own_work() -> None:
    plain, turned = (expand(medium(), random_counts(medium(), 2), A3) for _ in "ab")
    module._renumber(turned, seed=1)
    for before, after in zip(plain.queues, turned.queues, strict=True):
        assert after.members is not None
        assert sorted(after.members) == [*range(before.work_us.shape[1])]
        for place, core in enumerate(after.members):
            assert np.array_equal(after.work_us[:, place], before.work_us[:, core])
            assert np.array_equal(after.hbm_bytes[:, place], before.hbm_bytes[:, core])
