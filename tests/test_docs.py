"""The documentation is right: its IR parses, its specs parse, its commands exist.

Fenced `mlir` blocks (docstrings of ops, attributes and passes, and every README) must
parse and verify; `moe` blocks must parse; in `sh` blocks, each `hpc` line must be
accepted by the command's own argument parser. Use `text` for sketches.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def markdown() -> Iterator[tuple[str, str]]:
    """(path, text) of every Markdown file of the project."""
    for folder in ("hpc", "dialects", "passes", "samples", "tests"):
        for path in sorted((ROOT / folder).rglob("*.md")):
            yield path.relative_to(ROOT).as_posix(), path.read_text()
    if (ROOT / "README.md").exists():
        yield "README.md", (ROOT / "README.md").read_text()


def docstrings() -> Iterator[tuple[str, str]]:
    """(name, docstring) of each module of dialects/ and passes/ and of its classes."""
    for package in ("dialects", "passes"):
        for info in pkgutil.iter_modules([str(ROOT / package)], f"{package}."):
            module = importlib.import_module(info.name)
            yield info.name, module.__doc__ or ""
            for name, member in sorted(vars(module).items()):
                if inspect.isclass(member) and member.__module__ == info.name:
                    yield f"{info.name}.{name}", member.__doc__ or ""


def blocks(language: str, *, code: bool = True) -> list[tuple[str, str]]:
    """(name:index, text) of all fenced blocks of a language."""
    texts = [*markdown(), *(docstrings() if code else ())]
    found = [
        (name, textwrap.dedent(match[3]))
        for name, text in texts
        for match in FENCE.finditer(inspect.cleandoc(text))
        if match[2] == language
    ]
    return [(f"{name}:{index}", text) for index, (name, text) in enumerate(found)]


def ids(cases: list[tuple[str, str]]) -> list[str]:
    return [name for name, _ in cases]


MLIR = blocks("mlir")
MOE = blocks("moe")
SHELL = blocks("sh", code=False)


@pytest.mark.parametrize(("name", "text"), MLIR, ids=ids(MLIR))
def test_ir_in_the_documentation_parses_and_verifies(name: str, text: str) -> None:
    from xdsl.context import Context
    from xdsl.parser import Parser
    from xdsl.universe import Universe

    context = Context()
    for dialect, factory in Universe.get_multiverse().all_dialects.items():
        context.register_dialect(dialect, factory)
    Parser(context, text, name).parse_module().verify()


@pytest.mark.parametrize(("name", "text"), MOE, ids=ids(MOE))
def test_specs_in_the_documentation_parse(name: str, text: str) -> None:
    from hpc.spec.parser import parse_spec

    parse_spec(text.encode(), str(ROOT / "samples" / "documentation.moe"))


@pytest.mark.parametrize(("name", "text"), SHELL, ids=ids(SHELL))
def test_commands_in_the_documentation_exist(name: str, text: str) -> None:
    from hpc.cli import parse_arguments

    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        words = words[: words.index("|")] if "|" in words else words
        if words[:1] != ["hpc"]:
            continue
        parse_arguments([word for word in words[1:] if word != "2>&1"])
        missing = [
            word
            for word in words
            if word.startswith("samples/") and not (ROOT / word).exists()
        ]
        assert missing == [], f"{name}: no such sample"


def test_every_op_and_pass_is_documented_with_an_example() -> None:
    """An op shows itself; a pass shows the IR before and after."""
    from xdsl.ir import Dialect
    from xdsl.passes import ModulePass

    lacking: list[str] = []
    for package in ("dialects", "passes"):
        for info in pkgutil.iter_modules([str(ROOT / package)], f"{package}."):
            module = importlib.import_module(info.name)
            for member in vars(module).values():
                classes = list(member.operations) if isinstance(member, Dialect) else []
                if (
                    inspect.isclass(member)
                    and issubclass(member, ModulePass)
                    and member.__module__ == info.name
                ):
                    classes.append(member)
                lacking += [c.__name__ for c in classes if not has_example(c)]
    assert lacking == []


def has_example(documented: type) -> bool:
    return "```mlir" in (documented.__doc__ or "")


def test_the_readme_and_the_pipeline_share_one_test_command() -> None:
    command = (
        "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]'"
        " && .venv/bin/python -m pytest"
    )
    assert command in (ROOT / "README.md").read_text()
    assert command in (ROOT / ".ci/run").read_text()
