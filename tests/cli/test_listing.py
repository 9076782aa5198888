"""`hpc list`: everything that can be named, with one line each."""

from __future__ import annotations

import json

import pytest

from hpc.commands.arguments import LISTS
from hpc.commands.listing import LISTERS, first_sentence
from hpc.machine.record import machine_names
from hpc.schedule.policy import POLICIES
from passes.pipeline import PASSES
from tests.cli.conftest import SAMPLES, Hpc

NAMES = {
    "passes": list(PASSES),
    "machines": list(machine_names()),
    "samples": [f"samples/{path.name}" for path in sorted(SAMPLES.glob("*.moe"))],
    "policies": list(POLICIES),
}


def test_every_list_has_a_lister() -> None:
    assert tuple(LISTERS) == LISTS


@pytest.mark.parametrize("what", LISTS)
def test_lists_as_text_and_json_name_the_same(hpc: Hpc, what: str) -> None:
    rows = json.loads(hpc("list", what, "--json").out)[what]
    names = [next(iter(row.values())) for row in rows]
    lines = hpc("list", what).out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == names
    assert names == NAMES.get(what, names)
    assert names


def test_every_pass_and_sample_is_described(hpc: Hpc) -> None:
    for what, key in (("passes", "does"), ("samples", "about")):
        rows = json.loads(hpc("list", what, "--json").out)[what]
        assert all(row[key] for row in rows)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ""),
        ("One.", "One"),
        ("One\nand more. Two.", "One and more"),
        ("No stop\n\nNext paragraph.", "No stop"),
        ("Version 1.5 is. Two.", "Version 1.5 is"),
    ],
)
def test_first_sentence(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence
