"""Writing results: stdout as it is, files and folders completely or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import IO

from hpc.commands.errors import InputError, file_error

DUMPED = re.compile(r"\d\d+_.+\.(mlir|ssc\.json)")
"""Names of the files that a dump folder may hold."""


def show(text: str) -> None:
    """A result, to stdout."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def note(text: str) -> None:
    """A diagnostic, to stderr."""
    sys.stderr.write(text if text.endswith("\n") else text + "\n")


def show_json(value: object) -> None:
    """A report as JSON, to stdout; keys stay in the order they were built in."""
    import json

    show(json.dumps(value, indent=2, allow_nan=False))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table, to stdout, columns of numbers set right.

    In colour only on a terminal; rich honours NO_COLOR.
    """
    from hpc.report.tables import render_table

    left = [
        index
        for index in range(len(columns))
        if not all(row[index].isdigit() for row in rows)
    ]
    show(render_table("", columns, rows, left=left, color=sys.stdout.isatty()))


@contextlib.contextmanager
def replacing(path: str | Path) -> Generator[IO[str]]:
    """A text stream that becomes the file `path` only if the block succeeds.

    A special file such as /dev/stdout or a pipe is written directly. Raises InputError
    if the folder is missing or the file cannot be written.
    """
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{path}: error: is a directory, not a file to write to")
    if not target.parent.is_dir():
        raise InputError(f"{path}: error: there is no directory '{target.parent}'")
    try:
        if target.exists() and not target.is_file():
            with target.open("w", encoding="utf-8") as stream:
                yield stream
            return
        yield from _replacing_regular(target)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise file_error(path, error) from error


def _replacing_regular(target: Path) -> Generator[IO[str]]:
    """Write beside the target (same file system), then rename over it."""
    target = target.resolve()
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as stream:
            yield stream
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _mode(target: Path) -> int:
    """Permissions of the file that is replaced, or the usual ones for a new file."""
    if target.exists():
        return target.stat().st_mode & 0o7777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def write_text(path: str | Path, text: str) -> None:
    """Write a whole file, or leave what was there; see `replacing`."""
    with replacing(path) as stream:
        stream.write(text)


class Folder:
    """Numbered files that appear together as the folder `path` on `publish`.

    An existing folder is replaced only if it holds nothing but an earlier dump.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.count = 0
        _check_replaceable(self.path)
        parent = self.path.resolve().parent
        try:
            self.scratch = Path(tempfile.mkdtemp(dir=parent, prefix=".hpc-dump."))
        except OSError as error:
            raise file_error(path, error) from error

    def add(self, name: str, text: str) -> None:
        """Add the next file: `00_input.mlir`, `01_moe-tile.mlir`, ..."""
        file = self.scratch / f"{self.count:02d}_{_file_name(name)}"
        self.count += 1
        try:
            file.write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise file_error(file, error) from error

    def publish(self) -> None:
        """Put the finished folder in place of the old one."""
        target = self.path.resolve()
        try:
            self.scratch.chmod(_mode(target) if target.exists() else _mode_of_folder())
            if target.exists():
                old = Path(tempfile.mkdtemp(dir=target.parent, prefix=".hpc-old."))
                os.replace(target, old / "dump")
                os.replace(self.scratch, target)
                shutil.rmtree(old)
            else:
                os.replace(self.scratch, target)
        except OSError as error:
            raise file_error(self.path, error) from error

    def discard(self) -> None:
        """Drop what was not published."""
        shutil.rmtree(self.scratch, ignore_errors=True)


def _mode_of_folder() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return 0o777 & ~umask


def _file_name(name: str) -> str:
    """A pass's name without its options, safe in a file name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name.split("{")[0])


def _check_replaceable(path: Path) -> None:
    if not path.resolve().parent.is_dir():
        raise InputError(f"{path}: error: there is no directory '{path.parent}'")
    if not path.exists():
        return
    if not path.is_dir():
        raise InputError(f"{path}: error: exists and is not a directory")
    try:
        other = sorted(
            item.name
            for item in path.iterdir()
            if not item.is_file() or not DUMPED.fullmatch(item.name)
        )
    except OSError as error:
        raise file_error(path, error) from error
    if other:
        raise InputError(
            f"{path}: error: holds other files ('{other[0]}'); "
            "name a new directory, or one that holds an earlier dump only"
        )
