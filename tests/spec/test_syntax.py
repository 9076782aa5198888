"""Text that is no spec at all, odd encodings, and how an error is shown."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hpc.spec.diagnostics import SpecError
from hpc.spec.parser import load_spec, parse_spec
from tests.spec.texts import findings, messages, only, parse, text


@pytest.mark.parametrize(
    "source", ["", "\n\n", "  \t\n", "# only a comment\n", "\ufeff"]
)
def test_an_empty_file(source: str) -> None:
    found = only(source)
    assert found.message == "the file is empty"
    assert (found.loc.line, found.loc.col) == (1, 1)


@pytest.mark.parametrize(
    ("source", "place", "message"),
    [
        ("tokens", (1, 7), "the file ends where '=', '{' or a name was expected"),
        ("layer a {\n  tokens = 4\n", (2, 13), "inside the '{' opened at 1:9"),
        ("layer a {\n  tokens =\n  hidden = 4\n}", (2, 3), "'tokens' has no value"),
        ("layer a { tokens = }", (1, 20), "unexpected '}', expected a value"),
        ("a = f(1", (1, 8), "inside the '(' opened at 1:6"),
        ("a = [1, [2]", (1, 12), "inside the '[' opened at 1:5"),
        ("a = 3, b = 4", (1, 6), "unexpected ','"),
        ("a : 4", (1, 3), "unexpected ':'"),
        ("a = 3;", (1, 6), "unexpected character ';'"),
        ("a-b = 3", (1, 2), "unexpected character '-'"),
        ('a = "b\n', (1, 5), "a string without its closing '\"'"),
        ("a = é", (1, 5), "unexpected character 'é'"),
        ("a = \x07", (1, 5), "unexpected character U+0007"),
        ("((((((", (1, 1), "unexpected '('"),
        ("}", (1, 1), "unexpected '}'"),
        ("layer a { b = 1\nparallel { ep = 2 }", (2, 10), "unexpected '{'"),
    ],
)
def test_a_syntax_error(source: str, place: tuple[int, int], message: str) -> None:
    found = only(source)
    assert message in found.message
    assert (found.loc.line, found.loc.col) == place


def test_a_missing_brace_is_guessed() -> None:
    found = only("layer a {\n  b = 1\nparallel { ep = 2 }\n")
    assert found.help == "is the '}' of the block opened at 1:9 missing?"


@pytest.mark.parametrize(
    ("data", "place", "message"),
    [
        (b"\x7fELF\x02\x01\x01\x00", (1, 8), "a zero byte: this is not a text file"),
        (b"a = 4\r\nb = \xff", (2, 5), "byte 0xff is not UTF-8 text"),
        (b"\xef\xbb\xbfa = \xc3", (1, 5), "byte 0xc3 is not UTF-8 text"),
        ("a = 1".encode("utf-16"), (1, 1), "byte 0xff is not UTF-8 text"),
    ],
)
def test_a_file_that_is_not_text(
    data: bytes, place: tuple[int, int], message: str
) -> None:
    found = only(data)
    assert found.message == message
    assert (found.loc.line, found.loc.col) == place


@pytest.mark.parametrize("unit", [b"\x00", b"a", b"(", b"a = f(\n", b"\xff", b"#\n"])
def test_ten_megabytes_of_garbage_are_refused_at_once(unit: bytes) -> None:
    data = unit * (10_000_000 // len(unit))
    start = time.process_time()
    assert "more than 131,072 bytes" in only(data).message
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    "unit", ["(", "a = f(", "[", "{", "a ", "a = ", "f(1,", "a=1 "]
)
def test_garbage_just_below_the_size_limit_takes_little_time(unit: str) -> None:
    start = time.process_time()
    assert findings(unit * (131_000 // len(unit)))
    assert time.process_time() - start < 5


@pytest.mark.parametrize(("left", "right"), [("f(", ")"), ("[", "]"), ("f(a=", ")")])
def test_deep_nesting_is_refused_not_a_recursion_error(left: str, right: str) -> None:
    source = f"a = {left * 5000}1{right * 5000}"
    assert only(source).message == "nested more than 64 levels deep"
    shallow = messages(f"a = {left * 60}1{right * 60}")
    assert not any("nested" in message for message in shallow)


def test_line_ends_bom_and_foreign_comments_change_nothing() -> None:
    source = text("mode = forward  # Modus: vorwärts 前向\n")
    plain = parse(source)
    assert parse(source.replace("\n", "\r\n")) == plain
    assert parse(source.replace("\n", "\r")) == plain
    assert parse(b"\xef\xbb\xbf" + source.encode()) == plain


def test_places_are_the_same_with_crlf_and_bom() -> None:
    source = text(hidden="wide")
    expected = only(source).loc
    assert only(source.replace("\n", "\r\n")).loc == expected
    assert only(b"\xef\xbb\xbf" + source.encode()).loc == expected


def test_an_error_shows_line_caret_and_help() -> None:
    with pytest.raises(SpecError) as caught:
        parse(text(activation="swigul"))
    assert caught.value.render() == (
        "t.moe:7:16: error: unknown activation 'swigul'\n"
        "    activation = swigul\n"
        "                 ^\n"
        "help: did you mean 'swiglu'?"
    )


def test_the_caret_stands_below_its_character_after_tabs_and_wide_letters() -> None:
    lines = only("\t\ta = é").render().split("\n")
    assert lines[1:] == ["  \t\ta = é", "  \t\t    ^"]
    lines = only('a = f("前", é)').render().split("\n")
    assert lines[1:] == ['  a = f("前", é)', "  " + " " * 12 + "^"]


def test_a_long_line_is_cut_around_the_caret() -> None:
    found = only("a = " + "b" * 3000 + " é " + "c" * 3000)
    _, shown, caret = found.render().split("\n")
    assert len(shown) < 120
    assert shown[caret.index("^")] == "é"


def test_control_characters_are_not_sent_to_the_terminal() -> None:
    assert "\x1b" not in only("a = \x1b[31m").render()
    assert "\x1b" not in only(text(hidden='"\x1b[31m"')).render()


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.moe", tmp_path, Path("a\0b")):
        with pytest.raises(SpecError, match="cannot read the file"):
            load_spec(path)


def test_load_spec_names_the_file_as_given(tmp_path: Path) -> None:
    path = tmp_path / "a.moe"
    path.write_bytes(text().encode())
    assert load_spec(path) == parse_spec(text().encode(), str(path))
