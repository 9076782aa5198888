"""`hpc compile`: the schedule file, the IR after each pass."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.parser import Parser

from hpc.commands.compile import print_ir
from hpc.schedule.reader import read_schedule
from hpc.schedule.writer import dump_schedule
from hpc.universe import HPC_UNIVERSE
from tests.cli.conftest import Hpc


def parse_back(path: Path) -> str:
    """The module in the file, printed again."""
    context = Context()
    context.load_dialect(Builtin)
    for name, get in HPC_UNIVERSE.all_dialects.items():
        context.register_dialect(name, get)
    module = Parser(context, path.read_text(), str(path)).parse_module()
    module.verify()
    return print_ir(module, locations=False)


def test_the_schedule_lands_beside_us_with_one_line_of_summary(
    hpc: Hpc, tiny: Path
) -> None:
    outcome = hpc("compile", tiny)
    assert outcome.status == 0
    assert outcome.out.startswith("tiny.ssc.json: layer tiny, policy list, 2 ranks, ")
    assert outcome.err == ""
    assert os.listdir() == ["tiny.ssc.json"]
    text = Path("tiny.ssc.json").read_text()
    assert dump_schedule(read_schedule("tiny.ssc.json")) == text


def test_the_schedule_goes_where_o_says(hpc: Hpc, tiny: Path) -> None:
    hpc("compile", tiny, "-o", "a.ssc.json")
    outcome = hpc("compile", tiny, "-o", "-")
    assert outcome.out == Path("a.ssc.json").read_text()
    assert os.listdir() == ["a.ssc.json"]


def test_the_summary_as_json(hpc: Hpc, tiny: Path) -> None:
    summary = json.loads(hpc("compile", tiny, "--policy", "paper", "--json").out)
    assert summary["policy"] == "paper"
    assert summary["output"] == "tiny.ssc.json"
    assert summary["ranks"] == 2


def test_dumped_ir_is_numbered_complete_and_parses_back(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc("compile", tiny, "--dump-ir", "ir")
    assert outcome.status == 0
    names = sorted(os.listdir("ir"))
    assert names[0] == "00_input.mlir"
    assert names[1:3] == ["01_moe-derive-backward.mlir", "02_moe-tile.mlir"]
    assert names[-2].endswith("_npu-check.mlir")
    assert names[-1].endswith("_result.ssc.json")
    assert [name[:2] for name in names] == [f"{i:02d}" for i in range(len(names))]
    for name in names[:-1]:
        path = Path("ir", name)
        assert parse_back(path) == path.read_text()
    assert Path("ir", names[-1]).read_text() == Path("tiny.ssc.json").read_text()


def test_dumped_ir_has_locations_if_asked_for(hpc: Hpc, tiny: Path) -> None:
    hpc("compile", tiny, "--dump-ir", "ir", "--print-debuginfo")
    for name in sorted(os.listdir("ir"))[:-1]:
        assert f'loc("{tiny}":' in Path("ir", name).read_text(), name


def test_ir_after_each_pass_goes_to_stderr(hpc: Hpc, tiny: Path) -> None:
    outcome = hpc("compile", tiny, "--print-ir-after-all", "-o", "-")
    headers = [x for x in outcome.err.splitlines() if x.startswith("// -----// IR ")]
    assert headers[0] == "// -----// IR as read //----- //"
    assert headers[2].startswith("// -----// IR after moe-tile")
    assert headers[-1] == "// -----// IR after npu-check //----- //"
    assert json.loads(outcome.out)["format"] == "hpc-ssc"


def test_ir_up_to_a_failing_pass_is_dumped(hpc: Hpc, tiny: Path) -> None:
    """To see what the failing pass was given."""
    outcome = hpc("compile", tiny, "-p", "moe-tile,npu-prune-flags", "--dump-ir", "ir")
    assert outcome.status == 1
    assert "npu-prune-flags works on" in outcome.err
    assert sorted(os.listdir("ir")) == ["00_input.mlir", "01_moe-tile.mlir"]
    assert os.listdir() == ["ir"]


def test_a_layer_that_is_refused_leaves_no_dump(hpc: Hpc) -> None:
    Path("wrong.moe").write_text("layer {")
    assert hpc("compile", "wrong.moe", "--dump-ir", "ir").status == 1
    assert os.listdir() == ["wrong.moe"]


def test_a_pipeline_that_ends_early_names_the_command_for_that(
    hpc: Hpc, tiny: Path
) -> None:
    outcome = hpc("compile", tiny, "-p", "moe-tile")
    assert outcome.status == 1
    assert "hpc opt" in outcome.err
    assert os.listdir() == []


@pytest.mark.parametrize("policy", ["serial", "paper", "list"])
def test_the_same_input_gives_the_same_bytes(hpc: Hpc, tiny: Path, policy: str) -> None:
    first = hpc("compile", tiny, "-o", "-", "--policy", policy).out
    assert hpc("compile", tiny, "-o", "-", "--policy", policy).out == first
    assert json.loads(first)["policy"] == policy
