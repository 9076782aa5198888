"""TOML files of users: read whole, and able to say where each of their keys is."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from hpc.machine.places import KeyPath, Spot, find_places

_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


class TomlError(Exception):
    """A file that cannot be read as TOML; the message is `file:...: error: ...`."""


@dataclass(frozen=True)
class TomlFile:
    """A parsed file: `name` as the user gave it, and the places of its keys."""

    name: str
    text: str
    data: dict[str, object]
    places: dict[KeyPath, Spot]

    def where(self, path: KeyPath) -> str:
        """`file:line:col` of a key, or of the nearest table around it."""
        line, col = self.spot(path)
        return f"{self.name}:{line}:{col}" if line else self.name

    def spot(self, path: KeyPath) -> Spot:
        """As `where`, without the file; (0, 0) if nothing around it has a place."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return 0, 0


def is_path(text: str) -> bool:
    """Whether what a user wrote is a file, not the name of something that ships."""
    return text.endswith(".toml") or "/" in text


def read_toml(path: str) -> TomlFile:
    """The file at `path`; TomlError, of one line, if it is not there or not TOML."""
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise TomlError(f"{path}: error: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TomlError(f"{path}: error: not UTF-8 text") from None
    except ValueError:
        raise TomlError(f"{path!r}: error: not a file name") from None
    try:
        data = tomllib.loads(text)
        return TomlFile(path, text, data, find_places(text))
    except RecursionError:
        raise TomlError(f"{path}: error: not valid TOML: nested too deeply") from None
    except ValueError as error:
        raise TomlError(_syntax_error(path, text, str(error))) from None


def _syntax_error(path: str, text: str, message: str) -> str:
    """tomllib's message with the place in front."""
    found = _AT.search(message)
    if found is None:
        return f"{path}: error: not valid TOML: {message}"
    line, col = found[1], found[2]
    if line is None:
        lines = text.rstrip().split("\n")
        line, col = str(len(lines)), str(len(lines[-1]) + 1)
    return f"{path}:{line}:{col}: error: not valid TOML: {message[: found.start()]}"


def shorten(value: object) -> str:
    """A value as an error shows it; a huge one is cut."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no whole number of more than 4300 digits
        return "a huge number"
    return text if len(text) <= 60 else f"{text[:57]}..."
