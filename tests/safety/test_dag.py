"""Random legal schedules are accepted, end, and always compute the same bits."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.interp.data import make_data
from hpc.interp.engine import simulate
from hpc.interp.values import execute
from hpc.machine.record import load_machine
from hpc.schedule.check import check_schedule
from hpc.schedule.model import Schedule
from tests.safety.dag import random_schedule
from tests.safety.oracle import Oracle, make_tables
from tests.safety.rows import Ids
from tests.safety.suite import limits_of

MACHINE = load_machine("ascend_a3")
SEEDS = st.integers(0, 2**32 - 1)


def random_ids(s: Schedule, seed: int) -> Ids:
    """Random choices, some of them "not sent"."""
    rng, layer = Random(seed), s.layer
    return [
        [
            [
                e if rng.random() < 0.9 else -1
                for e in rng.sample(range(layer.experts), layer.top_k)
            ]
            for _ in range(tokens)
        ]
        for tokens in layer.tokens
    ]


def counts_of(s: Schedule, ids: Ids) -> np.ndarray:
    counts = np.zeros((s.layer.ep, s.layer.experts), dtype=np.int64)
    for rank, table in enumerate(ids):
        for slots in table:
            for expert in slots:
                if expert >= 0:
                    counts[rank, expert] += 1
    return counts


@settings(max_examples=60)
@given(SEEDS)
def test_legal_schedules_are_accepted(seed: int) -> None:
    s = random_schedule(seed)
    counts = counts_of(s, random_ids(s, seed))
    report = check_schedule(s, limits_of(MACHINE), counts)
    assert report.ok, [v.render() for v in report.violations]


@settings(max_examples=25)
@given(SEEDS)
def test_legal_schedules_run_to_the_same_bits_under_every_seed(seed: int) -> None:
    s = random_schedule(seed)
    ids = random_ids(s, seed)
    tables = [np.array(t, dtype=int).reshape(-1, s.layer.top_k) for t in ids]
    data = make_data(s.layer, s.buffers)
    seen: set[bytes] = set()
    for order in range(4):
        result = execute(s, tables, seed=order, data=data)
        assert result.writes_ok, result.faults
        outputs = [a for arrays in result.outputs.values() for a in arrays]
        assert all(np.isfinite(a.astype(np.float32)).all() for a in outputs)
        seen.add(b"".join(a.tobytes() for a in outputs))
    assert len(seen) == 1


@settings(max_examples=25)
@given(SEEDS)
def test_legal_schedules_are_safe_and_end_in_time(seed: int) -> None:
    s = random_schedule(seed)
    ids = random_ids(s, seed)
    Oracle(s, make_tables(s.layer, ids, seed)[:4])
    assert simulate(s, counts_of(s, ids), MACHINE).layer_us > 0
