"""Wrong use of the command: status 2, one line that says what to do; never a traceback.

Wrong input is status 1.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Hpc


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage: hpc"),
        (["compil"], "invalid choice: 'compil'"),
        (["compile"], "required: FILE.moe"),
        (["compile", "a.moe", "b.moe"], "unrecognized arguments: b.moe"),
        (["compile", "a.moe", "--polcy", "list"], "unrecognized arguments: --polcy"),
        (["compile", "a.moe", "--policy", "fast"], "invalid choice: 'fast'"),
        (["compile", "a.moe", "--policy", "list", "-p", "x"], "not allowed with"),
        (["run", "a.moe", "--values", "some"], "invalid choice: 'some'"),
        (["run", "a.moe", "--seed", "-1"], "argument --seed: "),
        (["run", "a.moe", "--seed", "1e3"], "'1e3' is not in 0 .. 999999999"),
        (
            ["run", "a.moe", "--sensitivity", "--inject", "dead-rank:0"],
            "--inject and --sensitivity exclude each other",
        ),
        (["list"], "required: WHAT"),
        (["list", "cats"], "invalid choice: 'cats'"),
        (["compile", "a.ssc.json"], "is a schedule already"),
        (["compare", "a.ssc.json"], "is compiled already"),
        (["run", "a.ssc.json", "--policy", "list"], "is compiled already"),
        (["check", "a.ssc.json", "-p", "moe-tile"], "is compiled already"),
        (["opt", "--no-such-option"], "unrecognized arguments"),
        (["opt", "-t", "pdf"], "invalid choice: 'pdf'"),
        (["opt", "-t", "{"], "Expected"),
    ],
)
def test_misuse_is_status_2(hpc: Hpc, arguments: list[str], message: str) -> None:
    outcome = hpc(*arguments)
    assert outcome.status == 2
    assert message in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize("command", ["compile", "run", "check", "opt"])
@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ("moe-tyle", "unknown pass 'moe-tyle'; did you mean 'moe-tile'?"),
        ("nothing-like-it", "unknown pass 'nothing-like-it'"),
        ("moe-tile{polcy=list}", "pass 'moe-tile': no option 'polcy'; did you mean"),
        ("npu-prune-flags{x=1}", "pass 'npu-prune-flags': no option 'x'; it has none"),
        ("npu-allocate-events{limit=many}", "pass 'npu-allocate-events': "),
        (
            "moe-tile{",
            "cannot read the pipeline: Expected argument name here\n    moe-tile{\n",
        ),
        (
            "moe-tile;",
            "cannot read the pipeline: Unknown token\n    moe-tile;\n            ^",
        ),
    ],
)
def test_a_wrong_pipeline_is_misuse(
    hpc: Hpc, tiny: Path, command: str, pipeline: str, message: str
) -> None:
    outcome = hpc(command, tiny, "-p", pipeline)
    assert outcome.status == 2
    assert f"hpc {command}: error: " in outcome.err
    assert message in outcome.err
    assert os.listdir() == []


@pytest.mark.parametrize("command", ["compile", "run", "check", "compare", "opt"])
def test_a_file_that_cannot_be_read_is_named(hpc: Hpc, command: str) -> None:
    assert hpc(command, "none.moe").err == (
        "none.moe: error: no such file or directory\n"
    )
    Path("folder.moe").mkdir()
    outcome = hpc(command, "folder.moe")
    assert outcome.status == 1
    assert outcome.err == "folder.moe: error: is a directory\n"


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 300])
def test_impossible_file_names(hpc: Hpc, name: str) -> None:
    outcome = hpc("compile", name)
    assert outcome.status == 1
    assert "error: " in outcome.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_an_unreadable_file_is_named(hpc: Hpc) -> None:
    path = Path("secret.moe")
    path.write_text("")
    path.chmod(stat.S_IWUSR)
    assert hpc("compile", path).err == "secret.moe: error: permission denied\n"


@pytest.mark.parametrize("command", ["compile", "run", "check", "compare", "opt"])
@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe\0\0", b"layer {", b"}" * 1000], ids=str
)
def test_a_wrong_layer_is_status_1(hpc: Hpc, command: str, data: bytes) -> None:
    Path("wrong.moe").write_bytes(data)
    outcome = hpc(command, "wrong.moe")
    assert outcome.status == 1
    assert outcome.err.startswith("wrong.moe:")
    assert "error: " in outcome.err
    assert outcome.out == ""
    assert os.listdir() == ["wrong.moe"]


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize("data", [b"", b"\xff", b"{", b"[]", b'{"format": 1}'], ids=str)
def test_a_wrong_schedule_is_status_1(hpc: Hpc, command: str, data: bytes) -> None:
    Path("wrong.ssc.json").write_bytes(data)
    outcome = hpc(command, "wrong.ssc.json")
    assert outcome.status == 1
    assert outcome.err.startswith("wrong.ssc.json:")
    assert "error: " in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize(
    "arguments", [["-o", "no/x"], ["-o", "."], ["--dump-ir", "no/x"]], ids=str
)
def test_an_output_that_cannot_be_written_is_named(
    hpc: Hpc, tiny: Path, arguments: list[str]
) -> None:
    outcome = hpc("compile", tiny, *arguments)
    assert outcome.status == 1
    assert outcome.err.startswith(f"{arguments[1]}: error: ")
    assert os.listdir() == []


def test_every_command_has_short_help(hpc: Hpc) -> None:
    for command in ([], ["compile"], ["run"], ["check"], ["compare"], ["list"]):
        outcome = hpc(*command, "--help")
        assert outcome.status == 0
        assert len(outcome.out.splitlines()) < 50
    assert "hpc list passes" in hpc("opt", "--help").out


def test_the_version_is_that_of_the_package(hpc: Hpc) -> None:
    outcome = hpc("--version")
    assert outcome.status == 0
    assert outcome.out.startswith("hpc 0.")
