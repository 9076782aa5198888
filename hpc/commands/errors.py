"""Errors a user can cause, and the exit status each of them gives."""

from __future__ import annotations

OK = 0
FAILED = 1
MISUSE = 2
INTERNAL = 70
INTERRUPTED = 130
BROKEN_PIPE = 141


class InputError(Exception):
    """The user's input is wrong or a file cannot be used; exit status 1.

    The message is complete: it is written to stderr as it is.
    """


class UsageError(Exception):
    """The command itself is misused (options that exclude each other, an unknown
    pass, ...); exit status 2."""


def file_error(path: object, error: OSError) -> InputError:
    """One line for a file that could not be opened, read or written."""
    reason = (error.strerror or str(error)).lower()
    return InputError(f"{path}: error: {reason}")


def suggestion(word: str, known: list[str]) -> str:
    """`; did you mean 'x'?`, or nothing if no known word is close."""
    from difflib import get_close_matches

    close = get_close_matches(word, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
