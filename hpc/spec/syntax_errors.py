"""Syntax errors in a user's words: what stands where what was expected."""

from __future__ import annotations

from typing import Any, cast

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from hpc.spec.diagnostics import Report
from hpc.spec.model import Loc

_TERMINALS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "EQUAL": "'='",
    "COMMA": "','",
    "COLON": "':'",
    "STAR": "'*'",
    "$END": "the end of the file",
}
_VALUE = {"NAME", "NUMBER", "STRING", "LSQB"}
_OPENERS = {"LBRACE": "{", "LPAR": "(", "LSQB": "["}


def explain_token(report: Report, error: UnexpectedToken) -> None:
    """Say what stands where what was expected, and guess the slip."""
    token: Any = error.token
    expected = _expected(set(error.accepts or error.expected))
    stack = [t for t in _stack(error) if isinstance(t, Token)]
    if token.type == "$END":
        _explain_end(report, stack, expected)
        return
    loc = Loc(report.file, token.line or 1, token.column or 1)
    if token.type == "EQUAL" and _forgot_value(_stack(error)):
        name = _stack(error)[-3]
        report.error(
            Loc(report.file, name.line, name.column), f"'{name}' has no value after '='"
        )
        return
    message = f"unexpected {_describe(token)}, expected {expected}"
    report.error(loc, message, _guess(token, stack))


def _explain_end(report: Report, stack: list[Token], expected: str) -> None:
    filled = [n for n, line in enumerate(report.lines, 1) if line.strip()]
    last = filled[-1] if filled else 1
    loc = Loc(report.file, last, len(report.lines[last - 1].rstrip()) + 1)
    opened = next((t for t in reversed(stack) if t.type in _OPENERS), None)
    if opened is None:
        report.error(loc, f"the file ends where {expected} was expected")
        return
    where = f"{opened.line}:{opened.column}"
    report.error(loc, f"the file ends inside the '{opened}' opened at {where}")


def _forgot_value(stack: list[Any]) -> bool:
    kinds = [getattr(t, "type", "") for t in stack[-3:]]
    return kinds == ["NAME", "EQUAL", "NAME"] and stack[-1].line > stack[-2].line


def _guess(token: Token, stack: list[Token]) -> str:
    opened = next((t for t in reversed(stack) if t.type in _OPENERS), None)
    if token.type == "LBRACE" and opened is not None:
        return (
            f"is the '}}' of the block opened at {opened.line}:{opened.column} missing?"
        )
    if token.type == "COMMA":
        return "settings are separated by white space, without commas"
    if token.type == "COLON":
        return "a setting is written NAME = VALUE"
    return ""


def _expected(terminals: set[str]) -> str:
    if terminals >= _VALUE:
        terminals = terminals - _VALUE | {"a value"}
    names = sorted(_TERMINALS.get(t, t) for t in terminals)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _describe(token: Token) -> str:
    kind = {"NAME": "name ", "NUMBER": "number ", "STRING": "string "}
    return f"{kind.get(token.type, '')}'{str(token)[:40]}'"


def _stack(error: UnexpectedToken) -> list[Any]:
    interactive: Any = error.interactive_parser
    return list(interactive.parser_state.value_stack)


def explain_character(report: Report, error: UnexpectedCharacters) -> None:
    """Say which character no token starts with, and guess the slip."""
    char = str(cast(Any, error).char)
    report.error(Loc(report.file, error.line, error.column), *_bad_character(char))


def _bad_character(char: str) -> tuple[str, str]:
    if char == '"':
        return "a string without its closing '\"'", "a string ends on its own line"
    shown = f"'{char}'" if char.isprintable() else f"U+{ord(char):04X}"
    if char in "-./+":
        return f"unexpected character {shown}", "names are letters, digits and '_'"
    if char == ";":
        return f"unexpected character {shown}", "settings end with white space"
    return f"unexpected character {shown}", ""
