"""Verifier errors name the place in the `.moe` file, wherever the location has it."""

from __future__ import annotations

import pytest
from xdsl.utils.exceptions import VerifyException

from dialects.base import source_line
from tests.passes.support import parse

PLACES = [
    ('loc("a.moe":3:7)', "a.moe:3:7"),
    ('loc("named"("a.moe":3:7))', "a.moe:3:7"),
    ('loc(fused["a", "a.moe":3:7, "b.moe":1:1])', "a.moe:3:7"),
    ('loc(callsite("a.moe":3:7 at "b.moe":1:1))', "a.moe:3:7"),
    ('loc("named")', None),
    ("loc(unknown)", None),
]


@pytest.mark.parametrize(("location", "line"), PLACES)
def test_the_first_place_inside_a_location_is_found(
    location: str, line: str | None
) -> None:
    module = parse(f'"test.op"() : () -> () {location}')
    assert source_line(next(iter(module.ops)).location) == line


def test_a_verifier_error_begins_with_its_place_once() -> None:
    with pytest.raises(VerifyException) as caught:
        parse('npu.barrier node on aic[0:1] loc("a.moe":3:7)')
    message = "a.moe:3:7: error: scope must be one of rank, world, got node"
    assert str(caught.value) == message


def test_without_a_place_the_error_is_the_message_alone() -> None:
    with pytest.raises(VerifyException) as caught:
        parse("npu.barrier node on aic[0:1]")
    assert str(caught.value) == "scope must be one of rank, world, got node"
