"""`--load`: a user's file of passes; its faults are reported at its own lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc.commands.errors import InputError
from hpc.commands.loading import blame_loaded_file, load_passes
from hpc.commands.pipelines import available_passes, options_of

GOOD = """\
from dataclasses import dataclass
from xdsl.passes import ModulePass

@dataclass(frozen=True)
class Mine(ModulePass):
    "Does nothing."
    name = "test-mine"
    depth: int = 3
    def apply(self, ctx, op):
        pass
"""


def load(tmp_path: Path, text: str, name: str = "mine.py") -> Path:
    file = tmp_path / name
    file.write_text(text)
    load_passes([str(file)])
    return file


def test_a_loaded_pass_is_available_with_its_options(tmp_path: Path) -> None:
    load(tmp_path, GOOD)
    assert options_of(available_passes()["test-mine"]()) == [("depth", "int", "3")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "error: defines no pass"),
        ("def f(:\n", ":1: error: SyntaxError: "),
        ("\n1 / 0\n", ":2: error: ZeroDivisionError: division by zero"),
        ("import no_such_module\n", ":1: error: ModuleNotFoundError: "),
        ("raise SystemExit(3)\n", ":1: error: SystemExit: 3"),
        (
            GOOD.replace('name = "test-mine"', "pass"),
            ":4: error: pass Mine has no name",
        ),
        (GOOD.replace("test-mine", "a b"), "the name 'a b' is not usable in -p"),
        (GOOD.replace("test-mine", "canonicalize"), "already a pass 'canonicalize'"),
        (GOOD + GOOD.replace("Mine", "Other"), "two passes are named 'test-mine'"),
    ],
)
def test_a_faulty_file_is_reported_by_line(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InputError) as error:
        load(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path}/mine.py:")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_innermost_line_of_the_users_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r":3: error: ValueError: no"):
        load(tmp_path, "import json\ndef f():\n    raise ValueError('no')\nf()\n")


@pytest.mark.parametrize("name", ["missing.py", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"no such file|is a directory"):
        load_passes([str(tmp_path / name)])


def test_a_file_that_is_not_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a Python file"):
        load(tmp_path, GOOD, name="mine.txt")


def test_a_binary_file_is_refused_by_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes(b"\0\xff")
    with pytest.raises(
        InputError, match=r"mine.py(:1)?: error: (SyntaxError|ValueError)"
    ):
        load_passes([str(file)])


def test_a_fault_while_the_pass_runs_is_the_files_fault(tmp_path: Path) -> None:
    file = load(tmp_path, GOOD.replace("pass\n", "op.nothing\n"))
    defined = available_passes()["test-mine"]()
    with pytest.raises(AttributeError) as error:
        defined().apply(None, None)  # type: ignore[arg-type]
    blamed = blame_loaded_file(error.value)
    assert blamed is not None
    assert blamed.startswith(f"{file}:10: error: AttributeError: ")
    assert blame_loaded_file(ValueError("ours")) is None
