"""Types of the `moe` dialect, and how operators on them may be split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    IntAttr,
    TensorType,
)
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import AnyOf, base, irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa


class Space(StrEnum):
    """How the rows of a value are cut; see `hpc/schedule/model.py`."""

    TOKEN = "token"
    ROUTED = "routed"
    SLOT = "slot"
    WEIGHT = "weight"


class Access(StrEnum):
    """Which part of an operand a tile of the result needs."""

    ALIGNED = "aligned"  # the same part as the tile
    EXPERT = "expert"  # everything of the tile's expert
    WHOLE = "whole"  # all parts


@dataclass(frozen=True)
class SplitSpec:
    """How an operator may be split (the paper's SplitSpec).

    The parts of the first result, in space `space`, are independent tiles;
    `operands[i]` says what a tile reads of operand i and `results[i]` what it writes of
    result i. `unit` is where it runs: "aic" or "aiv". `exchange` marks an all-to-all
    between the ranks: "dispatch" or "combine".
    """

    space: Space
    operands: tuple[Access, ...]
    unit: str = "aiv"
    exchange: str | None = None
    results: tuple[Access, ...] = (Access.ALIGNED,)


def _shape_text(dims: Sequence[int]) -> str:
    return "x".join("?" if d == DYNAMIC_INDEX else str(d) for d in dims)


def _print_shape(printer: Printer, dims: Sequence[int], element: Attribute) -> None:
    with printer.in_angle_brackets():
        printer.print_string(f"{_shape_text(dims)}x")
        printer.print_attribute(element)


def _parse_shape(parser: AttrParser, rank: int) -> tuple[list[int], Attribute]:
    with parser.in_angle_brackets():
        position = parser.pos
        dims, element = parser.parse_ranked_shape()
    if len(dims) != rank:
        parser.raise_error(f"expected {rank} dimensions, got {len(dims)}", position)
    return dims, element


def _expect_sizes(*sizes: IntAttr) -> None:
    if min(size.data for size in sizes) < 1:
        found = _shape_text([size.data for size in sizes])
        raise VerifyException(f"sizes must be at least 1, got {found}")


@irdl_attr_definition
class RoutedType(ParametrizedAttribute, TypeAttribute):
    """Rows received by a rank, by local expert; their number is known at run time.

    `!moe.routed<8x?x7168xbf16>`: 8 local experts, rows of 7168 elements.
    """

    name = "moe.routed"

    experts: IntAttr
    cols: IntAttr
    element: AnyFloat

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        position = parser.pos
        dims, element = _parse_shape(parser, 3)
        if dims[1] != DYNAMIC_INDEX:
            parser.raise_error("the rows of a routed type are always '?'", position)
        return IntAttr(dims[0]), IntAttr(dims[2]), element

    def verify(self) -> None:
        _expect_sizes(self.experts, self.cols)

    def print_parameters(self, printer: Printer) -> None:
        dims = (self.experts.data, DYNAMIC_INDEX, self.cols.data)
        _print_shape(printer, dims, self.element)


@irdl_attr_definition
class SlotsType(ParametrizedAttribute, TypeAttribute):
    """One row for every (token, slot) of a rank: `!moe.slots<4096x8x7168xbf16>`."""

    name = "moe.slots"

    tokens: IntAttr
    top_k: IntAttr
    cols: IntAttr
    element: AnyFloat

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        dims, element = _parse_shape(parser, 3)
        return *(IntAttr(d) for d in dims), element

    def verify(self) -> None:
        _expect_sizes(self.tokens, self.top_k, self.cols)

    def print_parameters(self, printer: Printer) -> None:
        dims = (self.tokens.data, self.top_k.data, self.cols.data)
        _print_shape(printer, dims, self.element)


AnyRowsConstr = AnyOf((base(TensorType[AnyFloat]), base(RoutedType)))
"""Rows that row-wise operators take: of tokens, or routed."""

AnyValueConstr = AnyOf((base(TensorType[AnyFloat]), base(RoutedType), base(SlotsType)))
"""Every value of a layer."""


def as_tensor(type_: Attribute) -> TensorType[AnyFloat]:
    """The tensor type; the verifier of every operator allows no other here."""
    assert isa(type_, TensorType[AnyFloat])
    return type_


def cols_of(type_: Attribute) -> int:
    """Elements of a row of any of the row types."""
    if isinstance(type_, RoutedType | SlotsType):
        return type_.cols.data
    return as_tensor(type_).get_shape()[-1]


def element_of(type_: Attribute) -> Attribute:
    """Element type of any of the row types."""
    if isinstance(type_, RoutedType | SlotsType):
        return type_.element
    return as_tensor(type_).element_type


def space_of(type_: Attribute) -> Space:
    """The space a value's rows live in."""
    if isinstance(type_, RoutedType):
        return Space.ROUTED
    if isinstance(type_, SlotsType):
        return Space.SLOT
    return Space.WEIGHT if len(as_tensor(type_).get_shape()) == 3 else Space.TOKEN


def expect_matrix(name: str, type_: Attribute, ranks: Sequence[int]) -> None:
    """Raise a VerifyException unless it is a tensor of known shape and such a rank."""
    if isinstance(type_, RoutedType | SlotsType):
        return
    shape = as_tensor(type_).get_shape()
    if len(shape) not in ranks or min(shape) < 1:
        wanted = " or ".join(map(str, ranks))
        raise VerifyException(
            f"{name} must have {wanted} dimensions of known size, got {type_}"
        )


def slots_of(type_: Attribute) -> tuple[int, int]:
    """(tokens, top_k) of a slots type."""
    assert isinstance(type_, SlotsType)
    return type_.tokens.data, type_.top_k.data


def expect_same(name: str, expected: object, got: object) -> None:
    """Raise a VerifyException that says both if they differ."""
    if expected != got:
        raise VerifyException(f"{name} must be {expected}, got {got}")


def with_cols(type_: Attribute, cols: int) -> Attribute:
    """The same rows with another number of columns."""
    match type_:
        case RoutedType():
            return RoutedType(type_.experts, IntAttr(cols), type_.element)
        case SlotsType():
            return SlotsType(type_.tokens, type_.top_k, IntAttr(cols), type_.element)
        case _:
            tensor = as_tensor(type_)
            return TensorType(tensor.element_type, [*tensor.get_shape()[:-1], cols])


def with_element(type_: Attribute, element: AnyFloat) -> Attribute:
    """The same shape with elements of another type."""
    match type_:
        case RoutedType():
            return RoutedType(type_.experts, type_.cols, element)
        case SlotsType():
            return SlotsType(type_.tokens, type_.top_k, type_.cols, element)
        case _:
            return TensorType(element, as_tensor(type_).get_shape())
