"""Syntax nodes of a `.moe` file. `str(node)` says in words what was found."""

from __future__ import annotations

from dataclasses import dataclass

from hpc.spec.model import Loc


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
