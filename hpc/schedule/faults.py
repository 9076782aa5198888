"""A fault in a file: the path of the value, what was expected, what is there."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, TypeGuard

_SHOWN = 40
_LONGEST_WORD = 200

Json = Any
Where = tuple[Any, ...]
"""Path of a value as a linked list: () or (parent, key)."""


class Fault(Exception):
    """`detail` is wrong with the value at path `where`."""

    def __init__(self, where: Where, detail: str) -> None:
        super().__init__(detail)
        self.where = where
        self.detail = detail


class Odd:
    """A JSON value that no shape takes: a number too large, NaN, a repeated key."""

    def __init__(self, text: str) -> None:
        self.text = text


def is_object(value: Json) -> TypeGuard[dict[str, Json]]:
    return isinstance(value, dict)


def is_list(value: Json) -> TypeGuard[list[Json]]:
    return isinstance(value, list)


def path_text(where: Where) -> str:
    """`$.queues[0].code[12].event` for a linked path."""
    keys: list[str] = []
    while where:
        where, key = where
        if isinstance(key, str) and key.isascii() and key.isidentifier():
            keys.append(f".{key}")
        else:
            keys.append(f"[{key if isinstance(key, int) else quoted(key)}]")
    return "$" + "".join(reversed(keys))


def quoted(text: str) -> str:
    """A string of the file as messages show it: short, in printable ASCII."""
    return json.dumps(text[:_SHOWN]) + ("..." if len(text) > _SHOWN else "")


def shown(value: Json) -> str:
    """A JSON value as an error message names it."""
    if isinstance(value, Odd):
        return value.text
    if is_object(value):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return quoted(value) if isinstance(value, str) else json.dumps(value)


def nearest(word: str, known: Collection[str]) -> str:
    """`; did you mean "x"?` or nothing."""
    if len(word) > _LONGEST_WORD:
        return ""
    # Only files with faults come here; others need not load it.
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {quoted(close[0])}?" if close else ""


def expected(what: str, value: Json, where: Where) -> Fault:
    return Fault(where, f"expected {what}, got {shown(value)}")
