"""The shape of the source tree: folders, import boundaries, sizes, no stray output."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOP = {"hpc", "dialects", "passes", "samples", "tests"}
TOP_FILES = {"pyproject.toml", "README.md", "LICENSE"}
PACKAGES = ("hpc", "dialects", "passes")
SOURCES = sorted(p for name in PACKAGES for p in (ROOT / name).rglob("*.py"))
PYTHON = sorted([*SOURCES, *(ROOT / "tests").rglob("*.py")])

MOST_FILE_LINES = 500
MOST_FUNCTION_LINES = 60

# Folder -> modules it must not import, whatever the reason (prefixes).
FORBIDDEN = {
    "hpc/machine": ("xdsl", "dialects", "passes", "hpc.spec", "rich", "lark"),
    "hpc/schedule": ("xdsl", "dialects", "passes", "hpc.spec", "rich", "lark"),
    "hpc/interp": ("xdsl", "dialects", "passes", "hpc.spec", "rich", "lark"),
    "hpc/report": ("xdsl", "dialects", "passes", "lark"),
    "dialects": ("passes", "lark", "rich", "hpc.commands", "hpc.driver", "hpc.report"),
    "passes": ("lark", "rich", "hpc.commands", "hpc.driver", "hpc.report"),
}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, module) of every import, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def tracked(path: str = ".") -> list[str]:
    """Files under version control; empty outside a git checkout."""
    run = subprocess.run(
        ["git", "ls-files", path], cwd=ROOT, check=False, capture_output=True, text=True
    )
    return run.stdout.split("\n")[:-1] if run.returncode == 0 else []


def test_top_level_holds_only_the_named_folders_and_files() -> None:
    names = {name.split("/")[0] for name in tracked()}
    visible = {name for name in names if not name.startswith(".")}
    assert visible <= TOP | TOP_FILES
    assert all((ROOT / name).is_dir() for name in TOP)


@pytest.mark.parametrize("folder", sorted(FORBIDDEN))
def test_import_boundaries(folder: str) -> None:
    found = [
        f"{relative(path)}:{line}: imports {module}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, module in imports(ast.parse(path.read_text()))
        if any(within(module, prefix) for prefix in FORBIDDEN[folder])
    ]
    assert found == []


def test_imports_are_absolute() -> None:
    found = [
        f"{relative(path)}:{line}"
        for path in PYTHON
        for line, module in imports(ast.parse(path.read_text()))
        if module.startswith(".")
    ]
    assert found == []


def test_the_product_needs_no_test_dependency() -> None:
    found = [
        f"{relative(path)}:{line}: imports {module}"
        for path in SOURCES
        for line, module in imports(ast.parse(path.read_text()))
        if module.split(".")[0] in {"tests", "pytest", "hypothesis", "simpy", "lit"}
    ]
    assert found == []


def test_files_are_short_enough_to_read() -> None:
    sizes = {relative(p): len(p.read_text().splitlines()) for p in PYTHON}
    assert {k: n for k, n in sizes.items() if n > MOST_FILE_LINES} == {}


def test_functions_are_short_enough_to_read() -> None:
    found = [
        f"{relative(path)}:{node.lineno}: {node.name} has {length} lines"
        for path in PYTHON
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > MOST_FUNCTION_LINES
    ]
    assert found == []


def test_library_code_does_not_print() -> None:
    """Results go through hpc/commands; a stray print would spoil `-o -` and --json."""
    found = [
        f"{relative(path)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"print", "breakpoint"}
    ]
    assert found == []


def test_options_are_arguments_not_environment_variables() -> None:
    found = [
        f"{relative(path)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}
    ]
    assert found == []


def folders() -> list[str]:
    """Every folder that holds source, except lit's inputs."""
    names = {p.parent for p in SOURCES if "__pycache__" not in p.parts}
    return sorted({relative(p) for p in names} | {"samples", "tests"})


@pytest.mark.parametrize("folder", folders())
def test_every_folder_says_what_lives_there(folder: str) -> None:
    readme = ROOT / folder / "README.md"
    assert readme.is_file(), f"{folder}/README.md is missing"
    assert len(readme.read_text().split()) > 20, "a README says more than its title"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not tree.body or ast.get_docstring(tree)
