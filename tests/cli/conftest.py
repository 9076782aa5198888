"""Running the command inside the test process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpc.cli import main
from hpc.universe import HPC_UNIVERSE

SAMPLES = Path(__file__).parents[2] / "samples"


@dataclass(frozen=True)
class Outcome:
    """What a command did: exit status, stdout, stderr."""

    status: int
    out: str
    err: str


Hpc = Callable[..., Outcome]


@pytest.fixture
def hpc(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Hpc:
    """`hpc(*arguments)` in an empty current directory."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Outcome(status, captured.out, captured.err)

    return call


@pytest.fixture(autouse=True)
def restore_passes() -> Iterator[None]:
    """Passes loaded by a test are gone after it."""
    before = dict(HPC_UNIVERSE.all_passes)
    yield
    HPC_UNIVERSE.all_passes.clear()
    HPC_UNIVERSE.all_passes.update(before)


@pytest.fixture(scope="session")
def tiny() -> Path:
    return SAMPLES / "tiny.moe"
