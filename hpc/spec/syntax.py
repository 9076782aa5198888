"""Text to syntax nodes: the Lark grammar, decoding, and readable syntax errors.

Nodes are built while parsing, bottom up, so no depth of nesting can exhaust the
Python stack; `MAX_DEPTH` bounds it for what walks the nodes later.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from functools import lru_cache
from importlib.resources import files
from typing import Any, NoReturn

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from hpc.spec.diagnostics import Diagnostic, Report, SpecError
from hpc.spec.model import Loc
from hpc.spec.nodes import (
    Block,
    Call,
    Input,
    Items,
    Keyword,
    Number,
    Product,
    Setting,
    String,
    Word,
)
from hpc.spec.syntax_errors import explain_character, explain_token

MAX_BYTES = 128 * 1024
"""Largest `.moe` file; real ones are under 2 KiB, the rest is room for a table."""

MAX_DEPTH = 64
"""Deepest nesting of calls and lists."""


def decode(data: bytes, filename: str) -> str:
    """The text of a `.moe` file: UTF-8, BOM dropped, line ends made `\\n`.

    Raises `SpecError` for a file that is too large or not text.
    """
    if len(data) > MAX_BYTES:
        _refuse(
            Loc(filename, 1, 1),
            f"the file has more than {MAX_BYTES:,} bytes, the most of a .moe file",
            'a large routing table belongs in a file: routing = file("counts.json")',
        )
    data = data.removeprefix(BOM_UTF8)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
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
    try:
        return _parser(report.file).parse("\n".join(report.lines))  # type: ignore[return-value]
    except UnexpectedCharacters as error:
        explain_character(report, error)
    except UnexpectedToken as error:
        explain_token(report, error)
    except _TooDeep as error:
        report.error(error.loc, f"nested more than {MAX_DEPTH} levels deep")
    raise SpecError(report.found)


@lru_cache(maxsize=8)
def _parser(file: str) -> Lark:
    """The parser for a file of this name; building one takes most of a small parse."""
    grammar = files("hpc.spec").joinpath("moe.lark").read_text("utf-8")
    return Lark(
        grammar,
        parser="lalr",
        lexer="contextual",
        maybe_placeholders=False,
        transformer=_Builder(file),
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


def _unix_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _place(filename: str, before: str) -> Loc:
    return Loc(filename, before.count("\n") + 1, len(before) - before.rfind("\n"))


def _refuse(loc: Loc, message: str, help: str = "") -> NoReturn:
    raise SpecError([Diagnostic(loc, message, "", help)])
