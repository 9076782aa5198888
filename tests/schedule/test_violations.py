"""Every violation code: the one fault that causes it, and what is said."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hpc.schedule import check
from hpc.schedule.check import CHECKS, RULES, Limits, check_schedule
from hpc.schedule.checks.operators import OPERATORS
from hpc.schedule.layer import Activation
from hpc.schedule.model import (
    Base,
    Buffer,
    Event,
    Put,
    Queue,
    Region,
    Set,
    Task,
    Team,
    Wait,
)
from tests.builders import (
    COMM,
    VEC,
    dropped,
    edited,
    inserted,
    small_layer,
    standard_schedule,
    with_buffer,
    with_team,
)
from tests.schedule.broken import (
    ACT,
    AIC_Q,
    COMM_Q,
    COUNTS,
    FAULTS,
    GROUPS,
    LIMITS,
    MORE,
    SERIAL,
    UP,
    VEC_Q,
    S,
    with_buffers,
)
from tests.schedule.racy import RACY


def report(s, limits=LIMITS, counts=COUNTS, programs=None):
    return check_schedule(s, limits, counts, programs)


def codes(s, **more):
    return {violation.code for violation in report(s, **more).violations}


def programs_of(code):
    """The programs argument that the last two codes need."""
    if code == "program-count":
        return [S]
    if code == "program-differs":
        return [S, replace(S, machine="ascend_a2")]
    return None


def test_the_schedules_that_the_faults_start_from_are_safe():
    for s in (S, SERIAL):
        result = report(s)
        assert result.violations == ()
        assert result.checks == dict.fromkeys([check.name for check in CHECKS], True)
        assert result.unchecked == {}
        assert result.ok


def test_every_code_has_a_fault_here():
    assert set(FAULTS) | set(RACY) == set(RULES)
    assert not set(FAULTS) & set(RACY)


@pytest.mark.parametrize("code", [*FAULTS, *RACY])
def test_a_fault_is_found_and_told(code):
    s, message = FAULTS[code] if code in FAULTS else RACY[code]
    limits = replace(LIMITS, max_tasks=12) if code == "task-count" else LIMITS
    result = report(s, limits, programs=programs_of(code))
    mine = [each for each in result.violations if each.code == code]
    assert mine, [each.code for each in result.violations]
    assert any(re.search(message, each.message) for each in mine), mine
    assert result.checks[mine[0].check] is False
    assert not result.ok
    for each in mine:
        assert f"error: [{code}] " in str(each)


def test_a_violation_names_queue_instruction_and_source():
    (violation,) = report(edited(S, VEC_Q, ACT, op="swish")).violations
    assert (violation.queue, violation.index) == (VEC_Q, ACT)
    assert violation.loc == "hand.moe:1:1"
    assert violation.render().splitlines() == [
        'hand.moe:1:1: error: [unknown-op] "swish" is not one of '
        + ", ".join(sorted(OPERATORS)),
        "    queue 2 aiv[24:48] instruction 1 at hand.moe:1:1: "
        "swish h[0,0] -> a[0,0] base 128",
    ]


def test_all_violations_are_collected_not_the_first_only():
    s = S
    for index in (0, 3, 6, 9):
        s = edited(s, VEC_Q, index, need=23)
    found = report(s).violations
    assert [each.index for each in found if each.code == "wait-need"] == [0, 3, 6, 9]


def test_dangling_references_stop_the_checks_that_need_them():
    result = report(edited(S, AIC_Q, 2, event=99))
    assert result.checks == {"structure": False}
    reason = "not checked: the structure has dangling references"
    assert [result.unchecked[name] for name in ("deadlock", "bytes")] == [reason] * 2


def test_bytes_need_a_routing_table():
    result = check_schedule(S, LIMITS)
    assert "bytes" not in result.checks
    assert result.unchecked["bytes"] == "not checked: no routing table was given"


def test_the_table_in_the_file_serves_the_check_of_bytes():
    routing = replace(S.routing, kind="counts", counts=((32, 0, 0, 0), (0, 0, 0, 32)))
    tight = with_buffer(replace(S, routing=routing), "y", capacity_rows=20)
    result = check_schedule(tight, LIMITS)
    assert result.checks["bytes"] is False
    assert result.violations[0].message == 'rank 0 receives 32 > 20 rows of "y"'


def test_the_list_of_checks_is_documented():
    text = (Path(check.__file__).parent / "README.md").read_text()
    for each in CHECKS:
        assert f"| `{each.name}` | {each.doc}" in text


def test_limits_come_from_a_machine_record():
    from hpc.machine.record import load_machine

    machine = load_machine("ascend_a3")
    limits = Limits.of(machine)
    assert limits.cores("aic") == machine.aic_cores == 24
    assert limits.cores("aiv") == machine.aiv_cores == 48
    assert limits.max_events == machine.max_events
    assert limits.max_tasks == machine.max_tasks
    assert limits.l0_bytes == (machine.l0a_bytes, machine.l0b_bytes, machine.l0c_bytes)
    assert limits.l1_bytes == machine.l1_bytes
    assert limits.fractal == 16


def test_equal_programs_of_all_ranks_are_the_one_program():
    assert report(S, programs=[S, S]) == report(S)


def test_a_fault_in_the_program_of_one_rank_names_the_rank():
    """Rank 1 forgets a signal: its own numbers no longer agree, and it hangs."""
    result = report(S, programs=[S, dropped(S, AIC_Q, 2)])
    assert {(each.code, each.rank) for each in result.violations} == {
        ("event-unsignalled", 1),
        ("deadlock-signal", 1),
        ("program-differs", 1),
    }
    assert result.checks["structure"] is False
    assert result.checks["deadlock"] is False
    assert result.checks["coverage"] is True


def test_dangling_references_of_one_rank_stop_the_replay():
    result = report(S, programs=[S, edited(S, AIC_Q, 2, event=99)])
    assert {(each.code, each.rank) for each in result.violations} == {
        ("unknown-event", 1),
        ("program-differs", 1),
    }
    assert "deadlock" not in result.checks


@pytest.mark.parametrize(("code", "s"), MORE)
def test_other_ways_to_break_a_rule(code, s):
    assert code in codes(s)


def test_a_machine_that_cannot_multiply_the_dtype():
    limits = replace(LIMITS, dtypes=("fp16",))
    messages = {v.message for v in report(S, limits=limits).violations}
    assert messages == {"the machine multiplies fp16, not bf16"}


@pytest.mark.parametrize(
    ("base", "message"),
    [
        (Base(512, 16, 64), "512x16x64 needs 131072 bytes of L0A, there are 65536"),
        (Base(16, 512, 80), "16x512x80 needs 163840 bytes of L0B, there are 65536"),
        (Base(256, 256, 16), "256x256x16 needs 262144 bytes of L0C, there are 131072"),
    ],
)
def test_a_base_tile_must_fit_l0(base, message):
    """Two of each operand for double buffering, one fp32 result."""
    limits = replace(LIMITS, l0_bytes=(65536, 65536, 131072))
    found = report(edited(S, AIC_Q, UP, base=base), limits=limits).violations
    assert ("bad-tile", f"base tile {message}") in {(v.code, v.message) for v in found}
    assert report(S, limits=limits).ok


def test_plain_activations_take_rows_of_the_same_width():
    layer = small_layer(activation=Activation("relu"))
    assert codes(standard_schedule(layer, GROUPS)) == set()


def test_weights_at_the_input_scale_rows_in_the_dispatch():
    layer = small_layer(weights_at="input")
    s = standard_schedule(layer, GROUPS)
    assert codes(s) == set()
    assert codes(edited(s, COMM_Q, 0, scale=False)) == {"router-weight"}


def test_whole_regions_cover_all_parts():
    """One GMM over all experts and groups, as a grouped kernel does it."""
    s = SERIAL
    code = list(s.queues[0].code)
    reads = (Region("recv"), Region("w_up"))
    grouped = Task("gmm", reads, (Region("h"),), Base(128, 256, 64))
    code[1:5] = [grouped]
    queues = (Queue(s.queues[0].team, tuple(code)), s.queues[1])
    assert codes(replace(s, queues=queues)) == set()
    twice = inserted(replace(s, queues=queues), 0, 2, s.queues[0].code[1])
    assert codes(twice) == {"race-write-write"}


def test_one_counter_may_join_related_or_single_waits():
    """ "returned" joins the combines of all experts; a lone wait may join anything."""
    assert "event-shared" not in codes(S)
    two = (Wait(0, 48), Set(1))
    team = (Team("aiv", 0, 24), Team("aiv", 24, 24))
    add = Task("add", (Region("x"), Region("x")), (Region("out"),), Base(1))
    work = Task("add", (Region("x"), Region("x")), (Region("more"),), Base(1))
    s = replace(
        with_buffers(S, Buffer("more", "token", 32, "bf16", "workspace", 16)),
        events=(Event(0, "both", 48), Event(1, "end", 24)),
        queues=(
            Queue(team[0], (add, Set(0), *two, Wait(1, 24))),
            Queue(team[1], (work, Set(0))),
        ),
    )
    assert "event-shared" not in codes(s)
    again = inserted(s, 1, 2, Wait(0, 48))
    assert "event-shared" in codes(again)


def test_a_put_to_a_team_of_one_core_is_legal():
    assert COMM.size == VEC.size
    assert isinstance(S.queues[COMM_Q].code[0], Put)
    one = with_team(S, COMM_Q, Team("aiv", 0, 1))
    assert codes(one) == set()


def test_the_readme_lists_every_code_with_its_rule():
    text = (Path(check.__file__).parent / "checks" / "README.md").read_text()
    for code, rule in RULES.items():
        assert re.search(rf"\| `{code}` \| \w+ \| {re.escape(rule)} \|", text), code
