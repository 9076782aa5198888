"""Errors and warnings with a place, and how they are shown to a user."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field

from hpc.spec.model import Loc

MOST_ERRORS = 100
"""After so many findings the rest of a file is not looked at."""

_WINDOW = 100
"""Most characters of a source line that are shown; longer lines are cut."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `source` is the text of the line `loc` points at."""

    loc: Loc
    message: str
    source: str = ""
    help: str = ""
    severity: str = "error"

    def render(self) -> str:
        """`file:line:col: error: message`, the source line, a caret and the help."""
        lines = [printable(f"{self.loc}: {self.severity}: {self.message}")]
        if self.source.strip():
            lines += _excerpt(self.source, self.loc.col)
        if self.help:
            lines.append(printable(f"help: {self.help}"))
        return "\n".join(lines)


class SpecError(Exception):
    """A `.moe` file that cannot be used; `diagnostics` is sorted by position."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(sorted(diagnostics, key=_position))
        super().__init__(self.render())

    def render(self) -> str:
        """All diagnostics as text, one after the other."""
        return "\n".join(d.render() for d in self.diagnostics)


@dataclass
class Report:
    """Collects the findings of one file, so that one run shows them all."""

    file: str
    lines: list[str]
    found: list[Diagnostic] = field(default_factory=list[Diagnostic])

    def error(self, loc: Loc, message: str, help: str = "") -> None:
        """Add an error at `loc`, once."""
        self._add(Diagnostic(loc, message, self._line(loc), help))

    def warning(self, loc: Loc, message: str, help: str = "") -> None:
        """Add a warning at `loc`, once."""
        self._add(Diagnostic(loc, message, self._line(loc), help, "warning"))

    @property
    def failed(self) -> bool:
        return any(d.severity == "error" for d in self.found)

    def warnings(self) -> tuple[Diagnostic, ...]:
        """The warnings, sorted by position."""
        found = (d for d in self.found if d.severity == "warning")
        return tuple(sorted(found, key=_position))

    def raise_if_failed(self) -> None:
        """Raise `SpecError` with everything found, if there is an error."""
        if self.failed:
            raise SpecError(self.found)

    def _line(self, loc: Loc) -> str:
        return self.lines[loc.line - 1] if loc.line <= len(self.lines) else ""

    def _add(self, diagnostic: Diagnostic) -> None:
        if diagnostic in self.found:
            return
        self.found.append(diagnostic)
        if len(self.found) >= MOST_ERRORS:
            message = f"too many errors, stopped after {len(self.found)}"
            raise SpecError([*self.found, Diagnostic(diagnostic.loc, message)])


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Help text naming the closest known word, or listing all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(word[:64], names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(names)}" if names else ""


def printable(text: str) -> str:
    """`text` without characters that would move a terminal's cursor."""
    return "".join(
        c if c == "\t" or c.isprintable() else "\N{MIDDLE DOT}" for c in text
    )


def _position(diagnostic: Diagnostic) -> tuple[int, int]:
    return diagnostic.loc.line, diagnostic.loc.col


def _excerpt(source: str, col: int) -> list[str]:
    """The source line and a caret line below it, cut around the column."""
    start = max(0, col - 1 - _WINDOW // 2)
    shown = printable(source[start : start + _WINDOW])
    before = shown[: col - 1 - start]
    left = "..." if start else ""
    right = "..." if start + _WINDOW < len(source) else ""
    indent = " " * len(left) + "".join(_blank(c) for c in before)
    return [f"  {left}{shown}{right}".rstrip(), f"  {indent}^"]


def _blank(char: str) -> str:
    """Blank of the width of `char`: tabs stay tabs, wide characters count twice."""
    if char == "\t":
        return char
    if unicodedata.combining(char):
        return ""
    return "  " if unicodedata.east_asian_width(char) in "WF" else " "
