"""A user's own pass, through the whole command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import SAMPLES, Hpc

PASS = """\
from dataclasses import dataclass
from xdsl.passes import ModulePass

@dataclass(frozen=True)
class Mine(ModulePass):
    "Say nothing, change nothing. More text."
    name = "test-mine"
    depth: int = 3

    def apply(self, ctx, op):
        pass
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(PASS)
    return file


def test_a_loaded_pass_runs_wherever_the_option_stands(hpc: Hpc, mine: Path) -> None:
    pipeline = "test-mine{depth=4}"
    Path("a.mlir").write_text('"test.op"() : () -> ()')
    for arguments in (
        ["--load", mine, "opt", "a.mlir", "-p", pipeline],
        [f"--load={mine}", "opt", "a.mlir", "-p", pipeline],
        ["opt", "a.mlir", "--load", mine, "-p", pipeline],
    ):
        outcome = hpc(*arguments)
        assert outcome.status == 0
        assert "test.op" in outcome.out
        forget()


def forget() -> None:
    from hpc.universe import HPC_UNIVERSE

    del HPC_UNIVERSE.all_passes["test-mine"]


def test_a_loaded_pass_joins_the_pipeline_of_compile(
    hpc: Hpc, mine: Path, tiny: Path
) -> None:
    from passes.pipeline import default_pipeline

    pipeline = "test-mine," + default_pipeline("list")
    arguments = ["compile", tiny, "-o", "-", "-p", pipeline, "--load", mine]
    outcome = hpc(*arguments)
    assert outcome.status == 0
    assert json.loads(outcome.out)["pipeline"].startswith("test-mine,")


def test_a_loaded_pass_is_listed_with_its_options(hpc: Hpc, mine: Path) -> None:
    rows = json.loads(hpc("--load", mine, "list", "passes", "--json").out)["passes"]
    assert rows[-1] == {
        "pass": "test-mine",
        "options": {"depth": "3"},
        "does": "Say nothing, change nothing",
    }


@pytest.mark.parametrize("command", ["opt", "compile", "run", "check"])
def test_a_fault_in_the_pass_is_reported_at_its_line(
    hpc: Hpc, mine: Path, tiny: Path, command: str
) -> None:
    mine.write_text(PASS.replace("pass\n", "op.nothing\n"))
    outcome = hpc("--load", mine, command, tiny, "-p", "test-mine")
    assert outcome.status == 1
    assert outcome.err.startswith(f"{mine}:11: error: AttributeError: ")
    assert len(outcome.err.splitlines()) == 1


def test_a_faulty_file_is_reported_before_anything_else(hpc: Hpc, mine: Path) -> None:
    mine.write_text("def")
    outcome = hpc("--load", mine, "compile", "none.moe")
    assert outcome.status == 1
    assert outcome.err.startswith(f"{mine}:1: error: SyntaxError: ")


def test_the_sample_pass_works(hpc: Hpc, tiny: Path) -> None:
    rows = hpc("--load", SAMPLES / "my_pass.py", "list", "passes", "--json").out
    (name,) = [
        row["pass"]
        for row in json.loads(rows)["passes"]
        if not row["pass"].startswith(("moe-", "tile-", "npu-"))
    ]
    assert name in rows
