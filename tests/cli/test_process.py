"""The command as a process: pipes, interrupts, colour, faults of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpc import cli
from tests.cli.conftest import Hpc

COMMAND = [sys.executable, "-m", "hpc.cli"]


def test_a_reader_that_goes_away_is_no_error(tiny: Path) -> None:
    """As in `hpc compile ... -o - | head -1`."""
    command = [*COMMAND, "compile", str(tiny), "-o", "-"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode == 141
    assert err == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [["list", "machines"], ["opt", "-p", ""]])
def test_a_full_disk_behind_stdout_is_one_line(tiny: Path, words: list[str]) -> None:
    if words[0] == "opt":
        words = [*words, str(tiny)]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        process = subprocess.run(
            [*COMMAND, *words], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert process.stderr == b"stdout: error: no space left on device\n"
    assert process.returncode == 1


def test_an_interrupt_is_one_line(tmp_path: Path) -> None:
    """The pass announces itself, then waits for the interrupt."""
    slow = tmp_path / "slow.py"
    slow.write_text(f"""\
import pathlib, time
from xdsl.passes import ModulePass
pathlib.Path({str(tmp_path / "ready")!r}).touch()
time.sleep(60)
""")
    process = subprocess.Popen(
        [*COMMAND, "--load", str(slow), "list", "passes"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "ready").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert (out, err) == ("", "hpc: interrupted\n")


@pytest.mark.parametrize(
    "module", ["argparse", "hpc.commands.arguments", "hpc.commands.listing"]
)
def test_an_interrupt_during_the_imports_is_one_line(module: str) -> None:
    """The first tenth of a second goes to them."""
    code = f"""
import sys

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from hpc.cli import main
sys.exit(main(["list", "machines"]))
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (process.stdout, process.stderr) == ("", "hpc: interrupted\n")
    assert process.returncode == 130


def test_an_internal_error_is_one_line_and_asks_for_a_report(
    hpc: Hpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> int:
        raise KeyError("lost")

    monkeypatch.setattr(cli, "_dispatch", fail)
    outcome = hpc("list", "passes")
    assert outcome.status == 70
    assert outcome.err.startswith("hpc: internal error: KeyError: 'lost'\n")
    assert "--debug" in outcome.err


def test_debug_shows_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> int:
        raise KeyError("lost")

    monkeypatch.setattr(cli, "_dispatch", fail)
    assert cli.main(["--debug", "list", "passes"]) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_nothing_but_the_result_on_stdout_without_a_terminal(tiny: Path) -> None:
    for name in ("passes", "machines", "ops", "policies"):
        run = subprocess.run(
            [*COMMAND, "list", name],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "10"},
        )
        assert "\x1b" not in run.stdout
        assert "…" not in run.stdout
        assert run.stderr == ""


def test_compile_imports_no_more_than_it_needs(tiny: Path) -> None:
    """Start-up is most of the time of `hpc compile`."""
    code = f"""
import sys
from hpc.cli import main
main(["compile", {str(tiny)!r}, "-o", "/dev/null"])
unwanted = ["rich", "ml_dtypes", "hpc.interp.engine", "hpc.interp.values", "pytest"]
print(*[name for name in unwanted if name in sys.modules])
"""
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert run.stdout.splitlines()[-1] == ""
