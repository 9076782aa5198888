"""Places of keys in TOML, held against what tomllib reads."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.machine.places import find_places
from hpc.machine.published import FOLDER
from hpc.machine.record import RECORDS

TRICKY = '''\
a.b . "c = [" = [ 1, { x = 2, y.z = [3,
 4] } ] # d = [
d = 1979-05-27 07:32:00
s = """x
"y" = 3\\""""   # after it
"" = 'it"s'
[[p.q]]
\tk = 1
[p.q.r]
m = ""
[[p.q]]
[[p.q.t]]
n = {}
[ u . "v.w" ]
x = -inf
'''


def paths(data: object, above: tuple[str | int, ...] = ()) -> Iterator[tuple]:
    """Every key and index that has a value, from the top."""
    if isinstance(data, dict | list):
        items = data.items() if isinstance(data, dict) else enumerate(data)
        for key, value in items:
            yield (*above, key)
            yield from paths(value, (*above, key))


def test_lines_and_columns() -> None:
    places = find_places(TRICKY)
    assert places["a", "b", "c = ["] == (1, 1)
    assert places["a", "b", "c = [", 1, "y", "z", 1] == (2, 2)
    assert places["d",] == (3, 1)
    assert places["",] == (6, 1)
    assert places["p", "q", 0, "k"] == (8, 2)
    assert places["p", "q", 0, "r", "m"] == (10, 1)
    assert places["p", "q", 1] == (11, 1)
    assert places["p", "q", 1, "t", 0, "n"] == (13, 1)
    assert places["u", "v.w"] == (14, 1)
    assert places["u", "v.w", "x"] == (15, 1)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_value_has_a_place_and_nothing_else_has(end: str) -> None:
    shipped = [*FOLDER.glob("*.toml"), *RECORDS.glob("*.toml")]
    for text in [TRICKY, *(path.read_text() for path in shipped)]:
        ended = text.replace("\n", end)
        data, places = tomllib.loads(ended), find_places(ended)
        assert places.keys() == set(paths(data))


SCALARS = ["1", "-2.5e3", "true", "'a]'", '"b\\" = {"', "[]", "{}", "[1, [2]]", "inf"]
KEYS = st.lists(st.sampled_from(["a", "b", "'c.d'", '"e]"']), min_size=1, max_size=2)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(st.tuples(KEYS, st.sampled_from(SCALARS), st.booleans()), max_size=8))
def test_pairs_in_any_form_are_found(pairs: list) -> None:
    """As dotted keys, inside inline tables, and below headers."""
    lines: list[str] = []
    for number, (keys, value, inline) in enumerate(pairs):
        pair = f"{' . '.join(keys)} = {value} # = ["
        lines += [f"[[t{number}]]", f"i = {{ {pair[:-6]} }}" if inline else pair]
    text = "\n".join(lines)
    places = find_places(text)
    for number, (keys, _, inline) in enumerate(pairs):
        names = [key.strip("'\"") for key in keys]
        path = (f"t{number}", 0, *(["i"] if inline else []), *names)
        assert places[path] == (2 * number + 2, 7 if inline else 1)
    assert set(places) == set(paths(tomllib.loads(text)))
