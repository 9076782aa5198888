"""The setting `routing`: forms, tables and files, each checked against the layer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc.schedule.layer import Routing
from hpc.spec.model import Spec
from tests.spec.texts import messages, only, parse, pointed, text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("balanced", Routing("balanced")),
        ("balanced()", Routing("balanced")),
        ("uniform", Routing("uniform", (("seed", 0.0),))),
        ("uniform(seed = 7)", Routing("uniform", (("seed", 7.0),))),
        ("zipf(1.2, seed = 7)", Routing("zipf", (("s", 1.2), ("seed", 7.0)))),
        ("zipf(s = .5)", Routing("zipf", (("s", 0.5), ("seed", 0.0)))),
        (
            "hot(2, 0.7, 3)",
            Routing("hot", (("n", 2.0), ("share", 0.7), ("seed", 3.0))),
        ),
        ("one_rank(1)", Routing("one_rank", (("r", 1.0),))),
        (
            "table [[2, 2, 2, 2], [4, 0, 1, 3]]",
            Routing("counts", counts=((2, 2, 2, 2), (4, 0, 1, 3))),
        ),
    ],
)
def test_every_form(value: str, expected: Routing) -> None:
    assert parse(text(f"routing = {value}\n")).routing == expected


@pytest.mark.parametrize(
    ("value", "place", "message"),
    [
        ("balancd", "balancd", "unknown routing 'balancd'"),
        ("balanced(3)", "3", "takes no arguments, got 1"),
        ("zipf", "zipf", "routing 'zipf' needs (s, seed=0): no 's'"),
        ("zipf(-1)", "-1", "expected a number from 0 to 100"),
        ("zipf(nan)", "nan", "expected a number, got the name 'nan'"),
        ("zipf(1, sed = 3)", "sed", "has no argument 'sed'"),
        ("zipf(1, 2, 3)", "3", "takes 2 arguments, got 3"),
        ("zipf(s = 1, 2)", "2", "cannot follow a named one"),
        ("uniform(seed = 1, seed = 2)", "seed = 2", "'seed' is given twice"),
        ("uniform(seed = 1.5)", "1.5", "expected an integer"),
        ("hot(5, 0.1)", "hot", "hot needs 1 to 4 experts, got 5"),
        ("hot(1, 0)", "0", "expected a number above 0 to 1"),
        ("hot(1, 0.7)", "hot", "1 hot experts of 4 take 0 to 0.5 of the rows"),
        ("hot(3, 0.2)", "hot", "3 hot experts of 4 take 0.5 to 1 of the rows"),
        ("one_rank(2)", "one_rank", "rank 2 does not exist: ranks are 0 to 1"),
        ("table", "table", "expected table [[...], ...]"),
        ("table [1]", "1", "expected a list of integers, got '1'"),
        ("table [[x]]", "x", "expected an integer, got the name 'x'"),
        ("[[2, 2, 2, 2]]", "[", "expected a routing such as balanced, got a list"),
        ("table [[2, 2, 2, 2]]", "table", "counts has 1 ranks, the layer 2"),
        (
            "table [[2, 2, 2], [2, 2, 2, 2]]",
            "table",
            "counts of rank 0 has 3 experts, the layer 4",
        ),
        (
            "table [[2, 2, 2, 2], [2, 2, 3, 2]]",
            "table",
            "counts of rank 1 sum to 9, but tokens * top_k = 4 * 2 = 8",
        ),
        (
            "table [[2, 2, 2, 2], [5, 1, 1, 1]]",
            "table",
            "counts[1][0] = 5 exceeds the 4 tokens of rank 1",
        ),
        ("table [[-2, 6, 2, 2], [2, 2, 2, 2]]", "-2", "-2 is out of range"),
        ("file", "file", 'expected file("PATH")'),
        ("file()", "file", 'expected one argument: file("PATH")'),
        ("file(counts)", "counts", "expected a quoted file name"),
        ('file("none.json")', '"none', "routing file 'none.json': No such file"),
        ('file(".")', '"."', "routing file '.': Is a directory"),
    ],
)
def test_a_wrong_routing_is_refused_where_it_stands(
    value: str, place: str, message: str
) -> None:
    found = only(text(f"routing = {value}\n"))
    assert message in found.message
    assert pointed(found, len(place)) == place


def test_one_rank_needs_top_k_experts_there() -> None:
    source = text("routing = one_rank(0)\n", top_k=3)
    assert "top_k 3 exceeds the 2 experts of rank 0" in only(source).message
    assert parse(source.replace("top_k = 3", "top_k = 3 repeats = true"))


def test_repeats_allow_more_rows_of_an_expert_than_tokens() -> None:
    value = "routing = table [[2, 2, 2, 2], [5, 1, 1, 1]]\n"
    assert parse(text(value, repeats="true")).routing.counts[1][0] == 5


def read_file(tmp_path: Path, content: object, **fields: object) -> Spec:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (tmp_path / "r.json").write_bytes(data)
    source = text('routing = file("r.json")\n', **fields)  # type: ignore[arg-type]
    return parse(source, str(tmp_path / "t.moe"))


def refusals(tmp_path: Path, content: object, **fields: object) -> list[str]:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (tmp_path / "r.json").write_bytes(data)
    source = text('routing = file("r.json")\n', **fields)  # type: ignore[arg-type]
    prefix = "routing file 'r.json': "
    return [m.removeprefix(prefix) for m in messages(source, str(tmp_path / "t.moe"))]


def test_a_file_of_counts_is_relative_to_the_spec(tmp_path: Path) -> None:
    spec = read_file(tmp_path, {"counts": [[2, 2, 2, 2], [4, 0, 1, 3]]})
    assert spec.routing == Routing(
        "counts", counts=((2, 2, 2, 2), (4, 0, 1, 3)), origin="r.json"
    )


def test_tokens_per_rank_of_a_file_may_be_lower(tmp_path: Path) -> None:
    """Also zero: the rank sends nothing, but exists."""
    content = {"tokens_per_rank": [4, 0], "counts": [[2, 2, 2, 2], [0, 0, 0, 0]]}
    assert read_file(tmp_path, content).layer.tokens == (4, 0)


def test_tokens_per_rank_above_the_spec_name_rank_and_both_numbers(
    tmp_path: Path,
) -> None:
    content = {"tokens_per_rank": [4, 7], "counts": [[2, 2, 2, 2], [4, 4, 4, 2]]}
    assert refusals(tmp_path, content) == [
        "tokens_per_rank: rank 1 has 7 tokens, the layer at most 4"
    ]


def test_a_file_of_ids(tmp_path: Path) -> None:
    ids = [[[0, 1], [2, -1], [3, 0]], []]
    spec = read_file(tmp_path, {"topk_ids": ids})
    assert spec.routing.kind == "ids"
    assert spec.routing.ids == (((0, 1), (2, -1), (3, 0)), ())
    assert spec.layer.tokens == (3, 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON: Expecting value at line 1 column 1"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not UTF-8 text (byte 0)"),
        (b"[" * 100_000, "is not"),
        (b'{"counts": [[' + b"9" * 5000 + b"]]}", "has an absurdly long number"),
        ([], "is not a JSON object with 'counts' or 'topk_ids'"),
        ({}, "needs one of 'counts' and 'topk_ids', has 0"),
        ({"counts": [], "topk_ids": []}, "needs one of"),
        ({"cuonts": []}, "unknown key 'cuonts'"),
        ({"counts": 3}, "counts is not a list"),
        ({"counts": [[1, 2], 3]}, "counts[1] is not a list"),
        ({"counts": [[2, 2, 2, 2.0]]}, "counts[0][3] is not an integer: 2.0"),
        ({"counts": [[True, 2, 2, 2]]}, "counts[0][0] is not an integer: True"),
        (b'{"counts": [[NaN, 2]]}', "counts[0][0] is not an integer: nan"),
        ({"counts": [[2, -2, 2, 2]]}, "counts[0][1] is negative: -2"),
        ({"counts": [[2, 1 << 40, 2, 2]]}, "counts[0][1] is beyond 2^31"),
        ({"counts": [[2, 2, 2, 2]]}, "counts has 1 ranks, the layer 2"),
        ({"counts": [[2, 2, 2, 2], [8]]}, "counts of rank 1 has 1 experts"),
        (
            {"counts": [[2, 2, 2, 2], [2, 2, 2, 1]]},
            "counts of rank 1 sum to 7, but tokens * top_k = 4 * 2 = 8",
        ),
        (
            {"experts": 8, "counts": [[2, 2, 2, 2]]},
            "the file states experts = 8, the layer has 4",
        ),
        (
            {"ranks": 3, "top_k": 1, "counts": []},
            "the file states top_k = 1, the layer has 2",
        ),
        ({"top_k": "2", "counts": []}, "top_k is not an integer: 2"),
        (
            {"tokens_per_rank": [4], "counts": [[2, 2, 2, 2], [2, 2, 2, 2]]},
            "tokens_per_rank has 1 ranks, the layer 2",
        ),
        (
            {"tokens_per_rank": [0, 0], "counts": [[0] * 4, [0] * 4]},
            "no rank has a token",
        ),
        (
            {"topk_ids": [[[0, 4]], [[0, 1]]]},
            "topk_ids: rank 0, token 0, slot 1: expert id 4 is outside 0 to 3",
        ),
        (
            {"topk_ids": [[[0, 1]], [[0, 1], [-2, 1]]]},
            "topk_ids: rank 1, token 1, slot 0: expert id -2 is outside 0 to 3",
        ),
        (
            {"topk_ids": [[[3, 3]], []]},
            "topk_ids: rank 0, token 0 has expert 3 twice, in slots 0 and 1",
        ),
        ({"topk_ids": [[[0]], []]}, "rank 0, token 0 has 1 slots, top_k is 2"),
        ({"topk_ids": [[0, 1], []]}, "topk_ids[0][0] is not a list"),
    ],
)
def test_a_broken_file_says_where(
    tmp_path: Path, content: object, message: str
) -> None:
    assert any(message in found for found in refusals(tmp_path, content))


def test_an_expert_twice_is_fine_with_repeats(tmp_path: Path) -> None:
    content = {"topk_ids": [[[3, 3]], []]}
    spec = read_file(tmp_path, content, repeats="true")
    assert spec.routing.ids == (((3, 3),), ())


def test_a_file_wrong_everywhere_is_summed_up(tmp_path: Path) -> None:
    content = {"topk_ids": [[[9, 9]] * 4, [[9, 9]] * 4]}
    found = refusals(tmp_path, content)
    assert len(found) == 9
    assert found[-1] == "and 8 more of this kind"


def test_a_file_is_read_even_if_the_layer_is_wrong(tmp_path: Path) -> None:
    found = refusals(tmp_path, {"counts": [[-1]]}, top_k=9)
    assert found == ["top_k = 9 exceeds experts = 4", "counts[0][0] is negative: -1"]
