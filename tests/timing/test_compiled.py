"""The compiled loop against the plain one: the same bits. Skipped without numba."""

from __future__ import annotations

import builtins
import sys
from dataclasses import replace

import numpy as np
import pytest

from hpc.interp import events, heaps, sharing, walk
from hpc.interp.compiled import RESULTS, available, run_compiled
from hpc.interp.engine import simulate
from hpc.interp.expand import expand
from hpc.interp.program import build_program
from hpc.interp.state import State
from hpc.machine.record import load_machine
from hpc.schedule.model import Schedule
from tests.builders import small_layer, train_schedule
from tests.timing.policies import deepseek, paper_schedule, serial_schedule
from tests.timing.test_whole_runs import medium, random_counts

A3 = load_machine("ascend_a3")
numba = pytest.mark.skipif(not available(), reason="numba is not installed")
SCHEDULES = {
    "standard": medium(),
    "paper": paper_schedule(replace(deepseek(4), hidden=512, intermediate=256)),
    "serial": serial_schedule(replace(deepseek(4), hidden=512, intermediate=256)),
    "train": train_schedule(small_layer(tokens=(300, 200), hidden=512), None, 3),
}


def started(schedule: Schedule, counts: np.ndarray, shared: bool) -> State:
    work = expand(schedule, counts, A3)
    program = build_program(schedule, work, A3)
    state = State(schedule, work, program, A3, shared=shared)
    walk.launch(state)
    return state


def left_behind(state: State) -> dict[str, object]:
    names = ("arrive", "start", "end", "began", "sent_at", "delivered", "put_core")
    return {name: list(getattr(state, name)) for name in (*names, *RESULTS)}


@numba
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_time_stamp_is_the_same(name: str, shared: bool) -> None:
    schedule = SCHEDULES[name]
    for seed in range(3):
        counts = random_counts(schedule, seed)
        plain, fast = (started(schedule, counts, shared) for _ in "ab")
        while events.run_events(plain, 1000) == 1000:
            pass
        run_compiled(fast, 1000, lambda: None)
        assert left_behind(plain) == left_behind(fast)


@numba
@pytest.mark.parametrize("fold", [True, False])
def test_the_engine_does_not_matter_to_the_result(fold: bool) -> None:
    schedule, counts = medium(), np.full((4, 8), 75)
    one, two = (
        simulate(schedule, counts, A3, fold=fold, engine=engine)
        for engine in ("plain", "fast")
    )
    assert one.latency_us == two.latency_us
    assert np.array_equal(one.rank_layer_us, two.rank_layer_us)


def test_heaps_give_back_what_heapq_gives_back() -> None:
    """Times repeat, so that the second number has to decide."""
    rng = np.random.default_rng(0)
    flows = heaps.empty(1, 400, 3)[0]
    queue: list[tuple[float, int, float]] = []
    assert heaps.is_empty(flows)
    for key in rng.permutation(400).tolist():
        item = (float(rng.integers(0, 40)), key, float(key) / 8)
        heaps.push_flow(flows, item)
        sharing.push_flow(queue, item)
        assert heaps.head(flows) == sharing.head(queue)
        if key % 3 == 0:
            assert heaps.pop_flow(flows) == sharing.pop_flow(queue)
    while queue:
        assert heaps.pop_flow(flows) == sharing.pop_flow(queue)
    assert heaps.head(flows) == sharing.head(queue) == walk.INFINITY


def test_without_numba_the_fast_engine_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hpc.interp.compiled.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'hpc-moe\[fast\]'"):
        simulate(medium(), np.full((4, 8), 75), A3, engine="fast")


def test_small_runs_do_not_load_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def watched(name: str, *rest: object) -> object:
        assert not name.startswith("numba")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", watched)
    monkeypatch.delitem(sys.modules, "hpc.interp.compiled", raising=False)
    assert simulate(medium(), np.full((4, 8), 75), A3).latency_us > 0
    assert "hpc.interp.compiled" not in sys.modules


def test_unknown_engine() -> None:
    with pytest.raises(ValueError, match="auto, plain, fast"):
        simulate(medium(), np.full((4, 8), 75), A3, engine="slow")
