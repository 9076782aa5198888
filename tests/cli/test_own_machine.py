"""A schedule made for a user's own record finds it from anywhere, or says why not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpc.machine.record import RECORDS
from tests.cli.conftest import Hpc


@pytest.fixture
def layer(tiny: Path, tmp_path: Path) -> Path:
    """`src/mine.moe` with its record `src/records/mine.toml`, seen from `tmp_path`."""
    folder = tmp_path / "src" / "records"
    folder.mkdir(parents=True)
    shutil.copy(RECORDS / "ascend_a3.toml", folder / "mine.toml")
    text = tiny.read_text().replace("ascend_a3", '"records/mine.toml"')
    (tmp_path / "src" / "mine.moe").write_text(text)
    return Path("src", "mine.moe")


def machine_of(path: Path) -> str:
    return json.loads(path.read_text())["machine"]


@pytest.mark.parametrize("output", ["a.ssc.json", "src/a.ssc.json", "out/a.ssc.json"])
def test_it_is_found_from_any_working_directory(
    output: str, hpc: Hpc, layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    assert hpc("compile", layer, "-o", output).status == 0
    assert not Path(machine_of(Path(output))).is_absolute()
    for place in (".", "src", "out"):
        monkeypatch.chdir(tmp_path / place)
        file = os.path.relpath(tmp_path / output)
        for command in ("check", "run"):
            outcome = hpc(command, file)
            assert (outcome.status, outcome.err) == (0, "")


def test_schedule_and_record_can_be_moved_together(
    hpc: Hpc, layer: Path, tmp_path: Path
) -> None:
    hpc("compile", layer, "-o", "src/a.ssc.json")
    assert machine_of(Path("src/a.ssc.json")) == "records/mine.toml"
    (tmp_path / "src").rename(tmp_path / "moved")
    assert hpc("check", "moved/a.ssc.json").status == 0


def test_a_dump_is_read_from_its_folder(hpc: Hpc, layer: Path, tmp_path: Path) -> None:
    hpc("compile", layer, "-o", os.devnull, "--dump-ir", "dump")
    (result,) = Path("dump").glob("*.ssc.json")
    assert machine_of(result) == "../src/records/mine.toml"
    assert hpc("check", result).status == 0


@pytest.mark.parametrize("output", ["-", "/dev/stdout"])
def test_on_stdout_the_path_is_seen_from_here(
    output: str, layer: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "hpc.cli", "compile", str(layer), "-o", output]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    text = run.stdout[: run.stdout.rindex("}") + 1]
    assert json.loads(text)["machine"] == "src/records/mine.toml"


def test_the_folder_of_the_schedule_comes_first(
    hpc: Hpc, layer: Path, tmp_path: Path
) -> None:
    """A record of the same path in the working directory is not taken."""
    hpc("compile", layer, "-o", "src/a.ssc.json")
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "mine.toml").write_text("wrong = 1\n")
    assert hpc("check", "src/a.ssc.json").status == 0
    (tmp_path / "src" / "records" / "mine.toml").unlink()
    outcome = hpc("check", "src/a.ssc.json")
    assert "records/mine.toml:1:1: error: unknown section or key 'wrong'" in outcome.err


def test_a_missing_record_names_both_places(hpc: Hpc, layer: Path) -> None:
    hpc("compile", layer, "-o", "src/a.ssc.json")
    Path("src/records/mine.toml").unlink()
    for command in ("check", "run"):
        outcome = hpc(command, "src/a.ssc.json")
        assert outcome.status == 1
        assert outcome.err == (
            "src/a.ssc.json: error: its machine record is missing: "
            "no 'src/records/mine.toml' and no 'records/mine.toml'\n"
        )


def test_an_absolute_path_stays_and_is_the_only_place(
    hpc: Hpc, layer: Path, tmp_path: Path
) -> None:
    record = tmp_path / "src" / "records" / "mine.toml"
    layer.write_text(layer.read_text().replace("records/mine.toml", str(record)))
    hpc("compile", layer, "-o", "src/a.ssc.json")
    assert machine_of(Path("src/a.ssc.json")) == str(record)
    record.unlink()
    outcome = hpc("check", "src/a.ssc.json")
    assert outcome.err.endswith(f"its machine record is missing: no '{record}'\n")
