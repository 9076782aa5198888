"""A small valid `.moe` text, ways to change it, and what its checks found."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc.spec.diagnostics import Diagnostic, SpecError
from hpc.spec.model import Spec
from hpc.spec.parser import parse_spec

FIELDS = {
    "tokens": "4",
    "hidden": "64",
    "intermediate": "32",
    "experts": "4",
    "top_k": "2",
    "activation": "swiglu",
}
SAMPLES = Path(__file__).parents[2] / "samples"


def text(rest: str = "", ep: int | str | None = 2, **fields: object) -> str:
    """A layer with one field a line (tokens on line 2), then `rest`."""
    shown = {**FIELDS, **{name: str(value) for name, value in fields.items()}}
    body = "".join(f"  {n} = {v}\n" for n, v in shown.items() if v != "None")
    parallel = "" if ep is None else f"parallel {{ ep = {ep} }}\n"
    return f"layer small {{\n{body}}}\n{parallel}{rest}"


def parse(source: str | bytes, filename: str = "t.moe") -> Spec:
    data = source.encode() if isinstance(source, str) else source
    return parse_spec(data, filename)


def findings(source: str | bytes, filename: str = "t.moe") -> list[Diagnostic]:
    """The diagnostics of a text that must be refused."""
    with pytest.raises(SpecError) as caught:
        parse(source, filename)
    assert caught.value.diagnostics
    return list(caught.value.diagnostics)


def messages(source: str | bytes, filename: str = "t.moe") -> list[str]:
    return [d.message for d in findings(source, filename)]


def only(source: str | bytes, filename: str = "t.moe") -> Diagnostic:
    """The single diagnostic of a text with one fault."""
    found = findings(source, filename)
    assert len(found) == 1, [str(d) for d in found]
    return found[0]


def pointed(diagnostic: Diagnostic, length: int = 1) -> str:
    """The source characters that the caret points at."""
    start = diagnostic.loc.col - 1
    return diagnostic.source[start : start + length]
