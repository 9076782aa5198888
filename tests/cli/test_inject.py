"""`hpc run --inject`: faults in a simulated run, what they cost, why it hangs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc.schedule.model import Wait
from hpc.schedule.reader import read_schedule
from hpc.schedule.writer import dump_schedule
from tests.builders import moved
from tests.cli.conftest import Hpc


def hang_of(hpc: Hpc, file: Path, *faults: str) -> dict:
    """The JSON of the hang of the one policy run."""
    options = [word for fault in faults for word in ("--inject", fault)]
    outcome = hpc("run", file, "--json", *options)
    assert outcome.status == 1
    report = json.loads(outcome.out)
    assert report["ok"] is False
    assert report["faults"] == list(faults)
    return report["policies"]["list"]["hang"]


def test_a_dropped_signal_is_the_root_cause(hpc: Hpc, tiny: Path) -> None:
    hang = hang_of(hpc, tiny, "drop-signal:h_ready[1,0]@1")
    assert hang["root_causes"] == [
        "a signal to h_ready[1,0] of rank 1 was dropped (injected)"
    ]
    short = [b for b in hang["blocked"] if b["waits_for"] == "h_ready[1,0]"]
    assert [(b["rank"], b["have"], b["need"], b["missing"]) for b in short] == [
        (1, 23, 24, [])
    ]
    # Rank 0 waits for what rank 1 would return: the chain crosses ranks.
    away = next(b for b in hang["blocked"] if b["rank"] == 0)
    assert away["waits_for"].startswith("back_ready")
    assert "of rank 1 queue 1" in away["missing"][0]


def test_a_dead_rank_is_named_and_blocks_the_others(hpc: Hpc, tiny: Path) -> None:
    hang = hang_of(hpc, tiny, "dead-rank:1")
    assert hang["root_causes"] == ["rank 1 is dead (injected): its cores never start"]
    assert {b["rank"] for b in hang["blocked"]} == {0, 1}
    first = hang["blocked"][0]
    assert (first["waits_for"], first["have"], first["need"]) == (
        "recv_ready[0,0]", 4, 8,
    )  # fmt: skip
    assert first["missing"][0].endswith("which is dead")
    assert first["loc"].endswith("tiny.moe:23:10")


def test_text_of_a_hang_ends_with_the_root_cause(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc("run", tiny, "--inject", "dead-rank:0")
    assert outcome.status == 1
    lines = outcome.out.splitlines()
    assert lines[1].startswith("assumed values of the record: ")
    assert lines[2].startswith("policy list: nothing moves after ")
    assert lines[3] == "deadlock: 144 cores wait for ever"
    assert lines[-1] == ("root cause: rank 0 is dead (injected): its cores never start")
    assert "hangs with these faults: policy list" in outcome.err


def test_serial_schedules_hang_at_their_barriers(hpc: Hpc, tiny: Path) -> None:
    options = ("--policy", "serial", "--json", "--inject", "dead-rank:1")
    outcome = hpc("run", tiny, *options)
    hang = json.loads(outcome.out)["policies"]["serial"]["hang"]
    assert outcome.status == 1
    assert {b["waits_for"] for b in hang["blocked"]} == {"world barrier 0", ""}


def test_a_delay_on_the_critical_path_costs_its_length(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc("run", tiny, "--json", "--inject", "delay:1:0:12.5")
    assert outcome.status == 0
    report = json.loads(outcome.out)["policies"]["list"]
    more = report["with_faults"]["latency_us"] - report["latency_us"]
    assert more == pytest.approx(12.5, abs=0.5)
    assert report["hang"] is None


def test_a_delay_on_one_rank_and_none_at_all(hpc: Hpc, tiny: Path) -> None:
    """A delay of nothing changes nothing; faults add up."""
    outcome = hpc("run", tiny, "--inject", "delay:1:0:0@0")
    assert "(+0.000 us, +0.0 %)" in outcome.out
    twice = hpc(
        "run", tiny, "--json", "--inject", "delay:1:0:5", "--inject", "delay:1:0:5"
    )
    report = json.loads(twice.out)["policies"]["list"]
    more = report["with_faults"]["latency_us"] - report["latency_us"]
    assert more == pytest.approx(10, abs=0.5)


def test_a_slow_core_slows_the_layer(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc("run", tiny, "--json", "--inject", "slow-core:aic:0:40")
    report = json.loads(outcome.out)["policies"]["list"]
    assert report["with_faults"]["latency_us"] > report["latency_us"] + 1
    same = hpc("run", tiny, "--json", "--inject", "slow-core:aic:0:1")
    report = json.loads(same.out)["policies"]["list"]
    assert report["with_faults"]["latency_us"] == report["latency_us"]


def test_all_policies_with_one_fault(hpc: Hpc, tiny: Path) -> None:
    options = ("--policy", "all", "--json", "--inject", "slow-core:aic:0:2")
    outcome = hpc("run", tiny, *options)
    assert outcome.status == 0
    assert list(json.loads(outcome.out)["policies"]) == ["serial", "paper", "list"]


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("bogus", "no fault is called 'bogus'"),
        ("dead-rnk:1", "did you mean 'dead-rank'?"),
        ("dead-rank:", "rank '' is not an integer"),
        ("dead-rank:-1", "rank '-1' is not an integer"),
        ("dead-rank:1@0", "rank '1@0' is not an integer"),
        ("drop-signal:", "needs the name of an event"),
        ("drop-signal:h@x", "rank 'x' is not an integer"),
        ("delay:0:1", "delay is written delay:QUEUE:INDEX:US"),
        ("delay:0:1:-3", "delay '-3' is not a number"),
        ("delay:0:1:nan", "delay 'nan' is not a number"),
        ("delay:0:1:1e9", "delay '1e9' is not a number"),
        ("delay:²:1:1", "queue '²' is not an integer"),
        ("slow-core:gpu:0:2", "'gpu' is no unit; units are aic and aiv"),
        ("slow-core:aic:0:0.5", "would make the core faster"),
        ("slow-core:aic:0:" + "9" * 400, "is not a number"),
        ("", "no fault is called ''"),
    ],
)
def test_bad_syntax_shows_the_grammar(
    hpc: Hpc, tiny: Path, fault: str, complaint: str
) -> None:
    outcome = hpc("run", tiny, "--inject", fault)
    assert outcome.status == 2
    assert complaint in outcome.err
    assert "drop-signal:EVENT[@RANK]" in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("dead-rank:2", "no rank 2; the last of 2 is 1"),
        ("drop-signal:h_redy[0,0]", "did you mean 'h_ready[0,0]'?"),
        ("delay:3:0:1", "no queue 3; the last is 2"),
        ("delay:0:99:1", "no instruction 99"),
        ("delay:0:0:1", "instruction 0 is a wait; only tasks and puts are delayed"),
        ("slow-core:aiv:48:2", "no queue runs on that core"),
    ],
)
def test_a_fault_that_does_not_fit_is_refused(
    hpc: Hpc, tiny: Path, fault: str, complaint: str
) -> None:
    outcome = hpc("run", tiny, "--inject", fault)
    assert outcome.status == 2
    assert complaint in outcome.err


def test_events_of_a_serial_schedule(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc("run", tiny, "--policy", "serial", "--inject", "drop-signal:e")
    assert outcome.status == 2
    assert "this schedule has barriers instead of events" in outcome.err


def blocked_events(path: Path) -> list[dict]:
    """Slices of waits that never end."""
    events = json.loads(path.read_text())["traceEvents"]
    return [e for e in events if "blocked" in e.get("args", {})]


def test_the_trace_shows_blocked_cores_until_the_end(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc(
        "run", tiny, "--trace", "t.json", "--json",
        "--inject", "drop-signal:recv_ready[0,0]@1",
    )  # fmt: skip
    hang = json.loads(outcome.out)["policies"]["list"]["hang"]
    blocked = blocked_events(Path("t.json"))
    assert len(blocked) == sum(b["cores"] for b in hang["blocked"])
    ends = {round(e["ts"] + e["dur"], 3) for e in blocked}
    assert ends == {round(hang["until_us"], 3)}
    waits = [e for e in blocked if e["name"] == "blocked: wait recv_ready[0,0]"]
    assert {e["pid"] for e in waits} == {1}
    assert waits[0]["args"]["blocked"].startswith("waiting for recv_ready[0,0], have 7")


def test_a_trace_shows_one_policy(hpc: Hpc, tiny: Path) -> None:
    options = ("--policy", "all", "--trace", "t.json", "--inject", "dead-rank:1")
    outcome = hpc("run", tiny, *options)
    assert outcome.status == 2
    assert "--trace with --inject shows one policy" in outcome.err


@pytest.fixture
def hanging(hpc: Hpc, tiny: Path) -> Path:
    """A schedule in which the matrix team waits for what it has not made possible."""
    hpc("compile", tiny)
    path = Path("tiny.ssc.json")
    schedule = read_schedule(path)
    names = {event.id: event.name for event in schedule.events}
    waits = [
        i
        for i, instr in enumerate(schedule.queues[0].code)
        if isinstance(instr, Wait) and names[instr.event] == "a_ready[0,0]"
    ]
    path.write_text(dump_schedule(moved(schedule, 0, waits[0], 0)))
    return path


def test_a_schedule_that_hangs_is_explained_too(hpc: Hpc, hanging: Path) -> None:
    """Refused by the checks; simulated only to show where it comes to."""
    outcome = hpc("run", hanging, "--trace", "t.json")
    assert outcome.status == 1
    assert "not run, because a check failed" in outcome.err
    _, _, simulated = outcome.out.partition("simulated, nothing moves after ")
    assert "root cause: a cycle of waits: rank 0 queue 0 instruction 0" in simulated
    assert "(wait a_ready[0,0] >= 24) <- rank 0 queue 2" in simulated
    assert blocked_events(Path("t.json"))


def test_no_fault_is_injected_into_an_unsafe_schedule(hpc: Hpc, hanging: Path) -> None:
    outcome = hpc("run", hanging, "--inject", "dead-rank:1")
    assert outcome.status == 1
    assert "not run, because a check failed" in outcome.err
