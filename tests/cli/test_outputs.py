"""Files and folders appear completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

import pytest

from hpc.commands.errors import InputError
from hpc.commands.outputs import Folder, replacing, write_text


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("old")

    def fail(stream: IO[str]) -> None:
        stream.write("half")
        raise RuntimeError

    with pytest.raises(RuntimeError), replacing(target) as stream:
        fail(stream)
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.json"]


def test_permissions_of_a_replaced_file_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("old")
    target.chmod(0o640)
    write_text(target, "new")
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_symbolic_link_is_written_through(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write_text(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_special_files_are_written_directly() -> None:
    write_text("/dev/null", "text")
    assert Path("/dev/null").is_char_device()


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no directory '.*/nowhere'"):
        write_text(tmp_path / "nowhere" / "out.json", "")


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        write_text(tmp_path, "")


def dump(path: Path, *names: str) -> None:
    folder = Folder(str(path))
    for name in names:
        folder.add(name, name)
    folder.publish()


def test_dumped_files_are_numbered_and_named(tmp_path: Path) -> None:
    dump(tmp_path / "ir", "input.mlir", "moe-tile{a=1}", "result.ssc.json")
    assert sorted(os.listdir(tmp_path / "ir")) == [
        "00_input.mlir",
        "01_moe-tile",
        "02_result.ssc.json",
    ]


def test_an_earlier_dump_is_replaced_whole(tmp_path: Path) -> None:
    dump(tmp_path / "ir", "input.mlir", "a.mlir", "b.mlir")
    dump(tmp_path / "ir", "input.mlir")
    assert os.listdir(tmp_path / "ir") == ["00_input.mlir"]
    assert os.listdir(tmp_path) == ["ir"]


def test_an_empty_directory_is_used(tmp_path: Path) -> None:
    (tmp_path / "ir").mkdir()
    dump(tmp_path / "ir", "input.mlir")
    assert os.listdir(tmp_path / "ir") == ["00_input.mlir"]


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds other files \('notes.txt'\)"):
        Folder(str(tmp_path))
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_dump_folder_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "ir").write_text("")
    with pytest.raises(InputError, match="is not a directory"):
        Folder(str(tmp_path / "ir"))


def test_a_discarded_dump_leaves_no_trace(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "ir"))
    folder.add("input.mlir", "")
    folder.discard()
    assert os.listdir(tmp_path) == []
