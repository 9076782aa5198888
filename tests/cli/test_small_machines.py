"""Records of machines with hardly anything: messages that say what is too little."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc.machine.record import RECORDS
from tests.cli.conftest import Hpc

A3 = (RECORDS / "ascend_a3.toml").read_text()
DEFAULTS = {
    "aic_cores": "24",
    "aiv_cores": "48",
    "max_tasks": "25600",
    "max_events": "1024",
}


@pytest.fixture
def layer(tiny: Path, tmp_path: Path):
    """`layer(aiv_cores=1)`: the tiny layer on such a machine, as a file."""

    def make(**values: int) -> Path:
        text = A3
        for key, value in values.items():
            old, new = (f"{key} = {{ value = {v}," for v in (DEFAULTS[key], value))
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "small.toml").write_text(text)
        path = tmp_path / "small.moe"
        path.write_text(tiny.read_text().replace("ascend_a3", '"small.toml"'))
        return path

    return make


@pytest.mark.parametrize("policy", ["serial", "paper"])
def test_one_core_of_each_kind_will_do(policy: str, hpc: Hpc, layer) -> None:
    outcome = hpc("run", layer(aic_cores=1, aiv_cores=1), "--policy", policy)
    assert outcome.status == 0, outcome.err


def test_two_teams_need_two_cores(hpc: Hpc, layer) -> None:
    outcome = hpc("compile", layer(aiv_cores=1), "--policy", "list")
    assert outcome.status == 1
    assert outcome.err.endswith(
        "policy list needs an AIV core for communication and another one for vector "
        "work, ascend_a3 has 1; use policy serial or paper\n"
    )
    assert hpc("run", layer(aiv_cores=2), "--policy", "list").status == 0


@pytest.mark.parametrize("policy", ["serial", "paper", "list"])
def test_too_few_tasks(policy: str, hpc: Hpc, layer) -> None:
    outcome = hpc("compile", layer(max_tasks=1), "--policy", policy)
    assert outcome.status == 1
    expected = "11 tasks and puts on a rank, the machine takes 1 (max_tasks of its"
    assert expected in outcome.err


@pytest.mark.parametrize("policy", ["paper", "list"])
def test_too_few_events(policy: str, hpc: Hpc, layer) -> None:
    outcome = hpc("compile", layer(max_events=1), "--policy", policy)
    assert outcome.status == 1
    assert "needs 9 events" in outcome.err
    assert hpc("compile", layer(max_events=1), "--policy", "serial").status == 0
