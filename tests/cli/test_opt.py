"""`hpc opt`: xdsl-opt with errors to read and statuses to trust."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Hpc

GOOD = '"test.op"() : () -> ()\n'


def test_a_layer_is_read_and_a_pass_is_run(hpc: Hpc, tiny: Path) -> None:
    assert "moe.layer @tiny" in hpc("opt", tiny).out
    outcome = hpc("opt", tiny, "-p", "moe-tile")
    assert outcome.status == 0
    assert "tile.program @tiny" in outcome.out
    assert outcome.err == ""


def test_the_schedule_target_gives_what_compile_gives(hpc: Hpc, tiny: Path) -> None:
    from passes.pipeline import default_pipeline

    outcome = hpc("opt", tiny, "-p", default_pipeline("list"), "-t", "ssc")
    assert outcome.status == 0
    assert json.loads(outcome.out)["layer"]["name"] == "tiny"


def test_stdin_is_read_with_and_without_a_dash(
    hpc: Hpc, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in (["-"], [], ["-", "-f", "mlir"]):
        stdin = io.TextIOWrapper(io.BytesIO(GOOD.encode()))
        monkeypatch.setattr(sys, "stdin", stdin)
        assert '"test.op"() : () -> ()' in hpc("opt", *arguments).out
    stdin = io.TextIOWrapper(io.BytesIO(tiny.read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert "moe.layer @tiny" in hpc("opt", "-f", "moe").out


def test_the_frontend_can_be_named_for_a_file_of_another_kind(
    hpc: Hpc, tiny: Path
) -> None:
    Path("tiny.txt").write_bytes(tiny.read_bytes())
    assert "moe.layer @tiny" in hpc("opt", "tiny.txt", "-f", "moe").out
    outcome = hpc("opt", "tiny.txt")
    assert outcome.status == 1
    assert outcome.err.startswith("tiny.txt: error: cannot tell what this file is")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%x = ", "bad.mlir:1:6: error: "),
        ("foo.bar", "error: Operation foo.bar is not registered"),
        ('"no.op"() : () -> ()', "no.op"),
        ('"moe.return"() : () -> ()', "error: "),
        ("builtin.module {", "bad.mlir:1:17: error: "),
        ("module attributes {a = #x.y} {}", "error: "),
        ('"' + "a" * 60, "bad.mlir:1:1: error: string is not closed"),
        ('"a//b" "' + "a" * 60 + '\\q"', "bad.mlir:1:8: error: string is not closed"),
    ],
)
def test_wrong_ir_is_status_1_and_shown(hpc: Hpc, text: str, message: str) -> None:
    Path("bad.mlir").write_text(text)
    outcome = hpc("opt", "bad.mlir")
    assert outcome.status == 1
    assert message in outcome.err
    assert outcome.out == ""


def test_an_error_of_a_pass_is_called_one_once(hpc: Hpc, tiny: Path) -> None:
    """With its line in front if the pass knows it, as `hpc compile` shows it."""
    pipeline = "moe-tile,tile-place{aic=99}"
    outcome = hpc("opt", tiny, "-p", pipeline)
    expected = "aic must be 1 to the 24 cores of ascend_a3, got 99"
    assert outcome.err == f"{tiny}:4:1: error: {expected}\n"
    assert outcome.status == 1
    compiled = hpc("compile", tiny, "-p", pipeline)
    assert compiled.err.startswith(outcome.err)


def test_an_error_without_a_line_is_called_one_too(hpc: Hpc, tiny: Path) -> None:
    """Also if it speaks of errors further on."""
    assert hpc("opt", tiny, "-p", "npu-check").err.startswith("error: npu-check works")
    Path("mine.py").write_text("""\
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

class Mine(ModulePass):
    name = "mine"

    def apply(self, ctx, op):
        raise PassFailedException("found one\\nerror: here")
""")
    outcome = hpc("--load", "mine.py", "opt", tiny, "-p", "mine")
    assert outcome.err == "error: found one\nerror: here\n"
    again = hpc("compile", tiny, "-p", "mine")
    assert again.err.startswith("error: found one\nerror: here\n")


def test_an_integer_too_large_for_its_type_is_refused(hpc: Hpc, tiny: Path) -> None:
    text = hpc("opt", tiny, "-p", "moe-tile,tile-select-gmm").out
    assert "base [16, " in text
    Path("bad.mlir").write_text(text.replace("base [16, ", f"base [{10**30}, "))
    outcome = hpc("opt", "bad.mlir")
    assert outcome.status == 1
    assert outcome.err.startswith("bad.mlir: error: ")


def test_a_parse_error_shows_the_line_and_a_caret(hpc: Hpc) -> None:
    Path("bad.mlir").write_text("%x = ?\n")
    lines = hpc("opt", "bad.mlir").err.splitlines()
    assert lines[1:3] == ["%x = ?", "     ^"]


def test_a_binary_file_is_refused(hpc: Hpc) -> None:
    Path("bad.mlir").write_bytes(b"\xff\xfe")
    outcome = hpc("opt", "bad.mlir")
    assert outcome.status == 1
    assert outcome.err.startswith("bad.mlir: error: not text in UTF-8")


def test_all_errors_of_a_layer_are_shown_as_hpc_compile_shows_them(hpc: Hpc) -> None:
    Path("bad.moe").write_text("layer a { tokenz = 1 }\nmachin = b\n")
    assert hpc("opt", "bad.moe").err == hpc("compile", "bad.moe").err


def test_a_pass_on_the_wrong_level_says_what_it_needs(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc("opt", tiny, "-p", "npu-prune-flags")
    assert outcome.status == 1
    assert outcome.err.startswith("error: npu-prune-flags works on npu.program")


def test_a_failed_run_leaves_the_output_file_alone(hpc: Hpc, tiny: Path) -> None:
    Path("out.mlir").write_text("old")
    assert hpc("opt", tiny, "-p", "npu-prune-flags", "-o", "out.mlir").status == 1
    assert Path("out.mlir").read_text() == "old"
    assert hpc("opt", tiny, "-o", "out.mlir").status == 0
    assert "moe.layer @tiny" in Path("out.mlir").read_text()
    assert os.listdir() == ["out.mlir"]


def test_files_split_into_parts_are_processed_part_by_part(hpc: Hpc) -> None:
    Path("two.mlir").write_text(GOOD + "// -----\n" + GOOD)
    outcome = hpc("opt", "two.mlir", "--split-input-file")
    assert outcome.out.count('"test.op"') == 2
