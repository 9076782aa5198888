"""Where the keys and values of a TOML text are: tomllib does not say.

The text has been read by tomllib before, so that only its shape matters here.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from dataclasses import dataclass

KeyPath = tuple[str | int, ...]
"""Keys and indices from the top of the document, as `data["point"][0]["id"]`."""

Spot = tuple[int, int]
"""Line and column, both from 1; a column is one character."""

_TOKEN = re.compile(
    r"""
      (?P<string> \"\"\"(?:\\.|[^\\])*?\"{3,5} | '''.*?'{3,5}
                | "(?:\\.|[^"\\])*" | '[^']*' )
    | (?P<comment> \#[^\n]* )
    | (?P<mark> [\[\]{}=,\n] )
    | (?P<space> [ \t\r]+ )
    | (?P<bare> [^\s\[\]{}=,\#"']+ )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


def find_places(text: str) -> dict[KeyPath, Spot]:
    """Where every key, table and element of an array of a valid TOML text begins.

    A table has the place of its header, or of the first key that names it.
    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.places


class _Scanner:
    def __init__(self, text: str) -> None:
        self.places: dict[KeyPath, Spot] = {}
        self._tokens = [
            _Token(match.lastgroup or "", match[0], match.start())
            for match in _TOKEN.finditer(text)
            if match.lastgroup not in ("space", "comment")
        ]
        self._tokens.append(_Token("mark", "", len(text)))
        self._next = 0
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self._tables: dict[KeyPath, int] = {}

    def document(self) -> None:
        """Statements to the end: headers, and keys below the last of them."""
        table: KeyPath = ()
        while self._peek():
            start = self._here()
            if self._skip("\n"):
                continue
            if not self._skip("["):
                self._pair(table)
                continue
            several = self._skip("[")
            table = self._header(self._key(), several=several)
            self._note(table, start)
            while not self._skip("\n") and self._peek():
                self._next += 1

    def _header(self, keys: list[str], *, several: bool) -> KeyPath:
        """The table of a header; the last one of an array of tables stands for it."""
        path: KeyPath = ()
        for index, key in enumerate(keys):
            path = (*path, key)
            if several and index == len(keys) - 1:
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
        return path

    def _pair(self, table: KeyPath) -> None:
        key = self._here()
        path = (*table, *self._key())
        self._skip("=")
        self._value(path, key)

    def _value(self, path: KeyPath, key: Spot) -> None:
        self._note(path, key)
        if self._skip("["):
            index = 0
            while not self._skip("]"):
                if not self._skip("\n") and not self._skip(","):
                    self._value((*path, index), self._here())
                    index += 1
        elif self._skip("{"):
            while not self._skip("}"):
                if not self._skip("\n") and not self._skip(","):
                    self._pair(path)
        else:
            # A date and its time may be two words.
            while self._peek() not in ("", "\n", ",", "]", "}"):
                self._next += 1

    def _note(self, path: KeyPath, spot: Spot) -> None:
        """The place of a path, and of tables that only a longer path has named."""
        for length in range(1, len(path) + 1):
            self.places.setdefault(path[:length], spot)

    def _key(self) -> list[str]:
        """The parts of a dotted key; stops in front of `=` or `]`."""
        parts: list[str] = []
        while self._peek() not in ("", "\n", "=", "]"):
            token = self._tokens[self._next]
            self._next += 1
            if token.kind == "string":
                parts.append(tomllib.loads(f"key = {token.text}")["key"])
            else:
                parts += [part for part in token.text.split(".") if part]
        return parts

    def _peek(self) -> str:
        return self._tokens[self._next].text

    def _skip(self, mark: str) -> bool:
        if self._peek() != mark:
            return False
        self._next += 1
        return True

    def _here(self) -> Spot:
        start = self._tokens[self._next].start
        line = bisect_right(self._lines, start)
        return line, start - self._lines[line - 1] + 1
