"""Strings in MLIR text, checked before xDSL's lexer sees them.

xDSL 0.75 matches a string with nested repetition: one that is not closed, or has a
wrong escape, costs time exponential in its length.
"""

from __future__ import annotations

import re

STRING = r'"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*"'
SKIPPED = re.compile(rf"{STRING}|//[^\n]*")


def find_bad_string(text: str) -> tuple[int, int] | None:
    """(line, column) of the first string that does not end or has a wrong escape,
    counted from 1; None if all are well formed."""
    for number, line in enumerate(text.split("\n"), start=1):
        if '"' not in line:
            continue
        blanked = SKIPPED.sub(lambda match: " " * len(match[0]), line)
        if (column := blanked.find('"')) >= 0:
            return number, column + 1
    return None
