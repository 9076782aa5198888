"""The checker survives anything that a file can hold, and misses no fault class."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.schedule.check import CHECKS, RULES, Limits, check_schedule
from hpc.schedule.model import Region
from tests.builders import edited, serial_schedule, small_layer, standard_schedule
from tests.schedule.strategies import schedules

LIMITS = Limits(64, 24, 48, ("bf16",))


@settings(max_examples=80)
@given(schedules())
def test_any_schedule_gets_a_verdict(s):
    counts = np.ones((s.layer.ep, s.layer.experts), dtype=int)
    report = check_schedule(s, LIMITS, counts)
    assert set(report.checks) | set(report.unchecked) == {c.name for c in CHECKS}
    for violation in report.violations:
        assert violation.code in RULES
        assert report.checks[violation.check] is False
        assert violation.render()
    assert report.ok == (not report.violations)


BASES = [
    build(small_layer(**changes), groups)
    for build in (standard_schedule, serial_schedule)
    for changes, groups in (
        ({}, ((0, 1),)),
        ({"weights_at": "input"}, ((0,), (1,))),
        ({"ep": 3, "experts": 7, "tokens": (4, 0, 9)}, ((0, 2), (1,))),
    )
]


@settings(max_examples=120)
@given(st.integers(0, 2**32 - 1))
def test_any_field_of_any_instruction_set_to_anything_gets_a_verdict(seed):
    rng = random.Random(seed)
    s = rng.choice(BASES)
    values = [-1, 0, 1, 2, 99, 2**40, None, Region("h"), Region("y", 9, 9), Region("q")]
    for _ in range(rng.randint(1, 3)):
        q = rng.randrange(len(s.queues))
        i = rng.randrange(len(s.queues[q].code))
        instr = s.queues[q].code[i]
        field = rng.choice(type(instr).__slots__)
        old = getattr(instr, field)
        same = [value for value in values if type(value) is type(old)]
        if field == "event":
            same = [-1, 0, 3, 99]
        if same:
            s = edited(s, q, i, **{field: rng.choice(same)})
    counts = np.ones((s.layer.ep, s.layer.experts), dtype=int)
    report = check_schedule(s, LIMITS, counts)
    assert report.ok == (not report.violations)


def test_single_faults_in_what_an_instruction_does_are_all_found():
    """Every event, expert, group, part and operand, one at a time, off by one."""
    for s in BASES:
        counts = np.ones((s.layer.ep, s.layer.experts), dtype=int)
        assert check_schedule(s, LIMITS, counts).ok
        for q, queue in enumerate(s.queues):
            for i, instr in enumerate(queue.code):
                for field in type(instr).__slots__:
                    old = getattr(instr, field)
                    for value in _others(old, field):
                        if value == old:
                            continue
                        bad = edited(s, q, i, **{field: value})
                        report = check_schedule(bad, LIMITS, counts)
                        assert not report.ok, (instr, field, value)


def _others(value, field):
    """Values near a field's own that change what the instruction does."""
    if field in ("event", "need", "expert", "group") and type(value) is int:
        yield from (value + 1, value - 1)
    elif field == "scale":
        yield not value
    elif field == "scope":
        yield "rank"
    elif isinstance(value, Region):
        yield from _regions(value)
    elif field in ("reads", "writes"):
        yield value[:-1]
        for i, region in enumerate(value):
            for other in _regions(region):
                yield (*value[:i], other, *value[i + 1 :])


def _regions(region):
    if region.expert is not None:
        yield Region(region.buffer, region.expert + 1, region.part)
        yield Region(region.buffer, None, region.part)
    if region.part is not None:
        yield Region(region.buffer, region.expert, region.part + 1)
    # A buffer of another shape, which no instruction of the flow could mean.
    yield Region("router", region.expert, region.part)
