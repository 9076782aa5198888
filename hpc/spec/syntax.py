"""Text to syntax nodes: the Lark grammar, decoding, and readable syntax errors.

Nodes are built while parsing, bottom up, so no depth of nesting can exhaust the
Python stack; `MAX_DEPTH` bounds it for what walks the nodes later.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any, NoReturn

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from hpc.spec.diagnostics import Diagnostic, Report, SpecError
from hpc.spec.model import Loc

MAX_BYTES = 256 * 1024
"""Largest `.moe` file; real ones are under 2 KiB, the rest is room for a table."""

MAX_DEPTH = 64
"""Deepest nesting of calls and lists."""


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    loc: Loc

    def __str__(self) -> str:
        return f"the name '{self.text[:40]}'"


@dataclass(frozen=True, slots=True)
class Number:
    text: str
    loc: Loc

    def __str__(self) -> str:
        return f"'{self.text[:40]}'"


@dataclass(frozen=True, slots=True)
class String:
    text: str
    loc: Loc

    def __str__(self) -> str:
        return f'the string "{self.text[:40]}"'


@dataclass(frozen=True, slots=True)
class Keyword:
    name: Word
    value: Node

    @property
    def loc(self) -> Loc:
        return self.name.loc


@dataclass(frozen=True, slots=True)
class Call:
    """`name(args)`; `args` are values and keywords as written."""

    name: Word
    args: tuple[Node | Keyword, ...]
    depth: int

    @property
    def loc(self) -> Loc:
        return self.name.loc

    def __str__(self) -> str:
        return f"the call '{self.name.text[:40]}(...)'"


@dataclass(frozen=True, slots=True)
class Items:
    """`[a, b, ...]`; `name` is the word before it in `table [[...]]`."""

    items: tuple[Node, ...]
    loc: Loc
    depth: int
    name: Word | None = None

    def __str__(self) -> str:
        return "a list" if self.name is None else f"'{self.name.text[:40]} [...]'"


@dataclass(frozen=True, slots=True)
class Product:
    factor: Number
    word: Word

    @property
    def loc(self) -> Loc:
        return self.factor.loc

    def __str__(self) -> str:
        return "a product"


Node = Word | Number | String | Call | Items | Product


@dataclass(frozen=True, slots=True)
class Setting:
    """`name = value`."""

    name: Word
    value: Node


@dataclass(frozen=True, slots=True)
class Input:
    """`input name : space x cols`; `keyword` and `by` should be `input` and `x`."""

    keyword: Word
    name: Word
    space: Word
    by: Word
    cols: Node


@dataclass(frozen=True, slots=True)
class Block:
    """`kind [name] { body }`."""

    kind: Word
    name: Word | None
    body: tuple[Setting | Input, ...]


def decode(data: bytes, filename: str) -> str:
    """The text of a `.moe` file: UTF-8, BOM dropped, line ends made `\\n`.

    Raises `SpecError` for a file that is too large or not text.
    """
    if len(data) > MAX_BYTES:
        _refuse(
            Loc(filename, 1, 1),
            f"the file has {len(data):,} bytes, a .moe file at most {MAX_BYTES:,}",
            'a large routing table belongs in a file: routing = file("counts.json")',
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig", "replace")
        where = _place(filename, _unix_lines(before))
        _refuse(where, f"byte 0x{data[error.start]:02x} is not UTF-8 text")
    text = _unix_lines(text)
    if (at := text.find("\0")) >= 0:
        _refuse(_place(filename, text[:at]), "a zero byte: this is not a text file")
    return text


def parse(report: Report) -> tuple[Block | Setting, ...]:
    """Blocks and settings of the file in `report`, in order.

    Raises `SpecError` at the first syntax error.
    """
    builder = _Builder(report.file)
    try:
        return _parser(builder).parse("\n".join(report.lines))  # type: ignore[return-value]
    except UnexpectedCharacters as error:
        loc = Loc(report.file, error.line, error.column)
        report.error(loc, *_bad_character(str(error.char)))
    except UnexpectedToken as error:
        _explain(report, error)
    except _TooDeep as error:
        report.error(error.loc, f"nested more than {MAX_DEPTH} levels deep")
    raise SpecError(report.found)


def _parser(builder: _Builder) -> Lark:
    grammar = files("hpc.spec").joinpath("moe.lark").read_text("utf-8")
    return Lark(
        grammar,
        parser="lalr",
        lexer="contextual",
        maybe_placeholders=False,
        transformer=builder,
    )


class _TooDeep(Exception):
    def __init__(self, loc: Loc) -> None:
        super().__init__()
        self.loc = loc


class _Builder(Transformer[Token, Any]):
    """One method a grammar rule; tokens become nodes here."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def loc(self, token: Any) -> Loc:
        return Loc(self.file, token.line or 1, token.column or 1)

    def name(self, token: Token) -> Word:
        return Word(str(token), self.loc(token))

    def start(self, children: list[Any]) -> tuple[Any, ...]:
        return tuple(children)

    def block(self, children: list[Any]) -> Block:
        names = [self.name(c) for c in children[:2] if isinstance(c, Token)]
        body = tuple(children[len(names) :])
        return Block(names[0], names[1] if len(names) > 1 else None, body)

    def setting(self, children: list[Any]) -> Setting:
        return Setting(self.name(children[0]), children[1])

    def input(self, children: list[Any]) -> Input:
        keyword, name, space, by = (self.name(c) for c in children[:4])
        return Input(keyword, name, space, by, children[4])

    def keyword(self, children: list[Any]) -> Keyword:
        return Keyword(self.name(children[0]), children[1])

    def number(self, children: list[Any]) -> Number:
        return Number(str(children[0]), self.loc(children[0]))

    def string(self, children: list[Any]) -> String:
        return String(str(children[0])[1:-1], self.loc(children[0]))

    def word(self, children: list[Any]) -> Word:
        return self.name(children[0])

    def product(self, children: list[Any]) -> Product:
        return Product(self.number(children[:1]), self.name(children[1]))

    def call(self, children: list[Any]) -> Call:
        name, args = self.name(children[0]), tuple(children[1:])
        return Call(name, args, self.depth(args, name.loc))

    def list(self, children: list[Any]) -> Items:
        loc, items = self.loc(children[0]), tuple(children[1:])
        return Items(items, loc, self.depth(items, loc))

    def table(self, children: list[Any]) -> Items:
        name, items = self.name(children[0]), tuple(children[2:])
        return Items(items, name.loc, self.depth(items, name.loc), name)

    def depth(self, children: Any, loc: Loc) -> int:
        values = (c.value if isinstance(c, Keyword) else c for c in children)
        depth = 1 + max((getattr(v, "depth", 0) for v in values), default=0)
        if depth > MAX_DEPTH:
            raise _TooDeep(loc)
        return depth


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


def _explain(report: Report, error: UnexpectedToken) -> None:
    """Say what stands where what was expected, and guess the slip."""
    token = error.token
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
    last = max(1, len(report.lines))
    loc = Loc(report.file, last, len(report.lines[-1]) + 1 if report.lines else 1)
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


def _bad_character(char: str) -> tuple[str, str]:
    if char == '"':
        return "a string without its closing '\"'", "a string ends on its own line"
    shown = f"'{char}'" if char.isprintable() else f"U+{ord(char):04X}"
    if char in "-./+":
        return f"unexpected character {shown}", "names are letters, digits and '_'"
    if char == ";":
        return f"unexpected character {shown}", "settings end with white space"
    return f"unexpected character {shown}", ""


def _unix_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _place(filename: str, before: str) -> Loc:
    return Loc(filename, before.count("\n") + 1, len(before) - before.rfind("\n"))


def _refuse(loc: Loc, message: str, help: str = "") -> NoReturn:
    raise SpecError([Diagnostic(loc, message, "", help)])
