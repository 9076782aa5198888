"""`--load FILE.py`: a user's own passes, without packaging them."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from hpc.commands.errors import InputError

if TYPE_CHECKING:
    from xdsl.passes import ModulePass

MODULE_PREFIX = "hpc_loaded_"
PASS_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")

_loaded: dict[str, str] = {}
"""Absolute path of each loaded file -> as the user named it, for messages."""


def load_passes(files: list[str]) -> None:
    """Import each file and make its passes available by name in `-p`.

    Raises InputError (`file:line: error: ...`) for a file that cannot be read, fails
    while it is imported, defines no pass, or reuses the name of a pass.
    """
    for file in files:
        _load_file(file)


def _load_file(file: str) -> None:
    from hpc.universe import HPC_UNIVERSE

    module = _import_file(file)
    found = _passes_of(file, module)
    taken = _known_passes()
    for name, defined in found.items():
        if name in taken:
            raise InputError(
                f"{file}:{_line_of(defined)}: error: there is already a pass '{name}'"
            )
        HPC_UNIVERSE.all_passes[name] = lambda defined=defined: defined


def _known_passes() -> set[str]:
    from xdsl.transforms import get_all_passes

    from hpc.universe import HPC_UNIVERSE

    return {*HPC_UNIVERSE.all_passes, *get_all_passes()}


def _import_file(file: str) -> ModuleType:
    """Execute the file as a module; its own errors are reported at its own line."""
    path = Path(file)
    if not path.exists():
        raise InputError(f"{file}: error: no such file")
    if path.is_dir():
        raise InputError(f"{file}: error: is a directory")
    name = MODULE_PREFIX + re.sub(r"\W", "_", path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    if path.suffix != ".py" or spec is None or spec.loader is None:
        raise InputError(f"{file}: error: not a Python file (its name ends in .py)")
    _loaded[str(path.resolve())] = file
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[name]
        where = _place(error) or f"{file}: error: "
        raise InputError(f"{where}{_describe(error)}") from error
    return module


def _passes_of(file: str, module: ModuleType) -> dict[str, type[ModulePass]]:
    from xdsl.passes import ModulePass

    found: dict[str, type[ModulePass]] = {}
    for member in vars(module).values():
        if not isinstance(member, type) or not issubclass(member, ModulePass):
            continue
        if member.__module__ != module.__name__:
            continue
        name = _name_of(file, member)
        if name in found and found[name] is not member:
            raise InputError(
                f"{file}:{_line_of(member)}: error: two passes are named '{name}'"
            )
        found[name] = member
    if not found:
        raise InputError(
            f"{file}: error: defines no pass "
            "(a subclass of xdsl.passes.ModulePass with a `name`)"
        )
    return found


def _name_of(file: str, defined: type[ModulePass]) -> str:
    name: object = getattr(defined, "name", None)
    where = f"{file}:{_line_of(defined)}: error: pass {defined.__name__}"
    if not isinstance(name, str):
        raise InputError(f'{where} has no name; add name = "my-pass" to the class')
    if not PASS_NAME.fullmatch(name):
        raise InputError(
            f"{where}: the name {name!r} is not usable in -p; use letters, digits and -"
        )
    return name


def _line_of(defined: type) -> int:
    import inspect

    try:
        return inspect.getsourcelines(defined)[1]
    except (OSError, TypeError):
        return 1


def blame_loaded_file(error: BaseException) -> str | None:
    """`file:line: error: ...` if the error was raised inside a loaded file."""
    where = _place(error)
    return f"{where}{_describe(error)}" if where else None


def _place(error: BaseException) -> str | None:
    """`file:line: error: ` of the innermost frame that lies in a loaded file."""
    if isinstance(error, SyntaxError) and error.filename:
        file = _loaded.get(str(Path(error.filename).resolve()))
        if file is not None:
            return f"{file}:{error.lineno or 1}: error: "
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = _loaded.get(str(Path(frame.filename).resolve()))
        if file is not None:
            return f"{file}:{frame.lineno or 1}: error: "
    return None


def _describe(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    lines = text.strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
