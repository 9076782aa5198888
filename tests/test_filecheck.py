"""Run the lit tests from pytest, so that `pytest` alone checks everything.

lit runs once for all selected files (it is parallel, and start-up dominates); each
file is still its own test here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent / "filecheck"
CASES = sorted(
    path
    for path in ROOT.rglob("*")
    if path.suffix in {".mlir", ".moe"} and "inputs" not in path.parts
)
DIRECTIVE = re.compile(r"^\s*(?://|#)\s*([A-Z][A-Z_]+)(?:-[A-Z]+)*(?:\{.*\})?:")
PREFIX = re.compile(r"--check-prefix(?:es)?[= ]([A-Z_,]+)")
WORDS = {"RUN", "REQUIRES", "UNSUPPORTED", "CHECK", "COM"}


def case_id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(scope="session")
def lit_results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """Result of every selected file by name: `code` (PASS, ...) and `output`."""
    selected = sorted(
        {
            str(item.callspec.params["path"])
            for item in request.session.items
            if isinstance(item, pytest.Function) and item.name.startswith("test_lit[")
        }
    )
    report = tmp_path_factory.mktemp("lit") / "report.json"
    # `python -m lit.main` does nothing: the module has no main guard.
    lit = [sys.executable, "-c", "from lit.main import main; main()"]
    command = [*lit, "-q", "--output", str(report)]
    run = subprocess.run(
        [*command, *selected], check=False, capture_output=True, text=True
    )
    assert report.exists(), f"lit itself failed:\n{run.stdout}{run.stderr}"
    tests = json.loads(report.read_text())["tests"]
    return {test["name"].split(" :: ", 1)[1]: test for test in tests}


@pytest.mark.parametrize("path", CASES, ids=case_id)
def test_lit(path: Path, lit_results: dict[str, dict[str, Any]]) -> None:
    result = lit_results[case_id(path)]
    if result["code"] == "UNSUPPORTED":
        pytest.skip("needs mlir-opt (Debian: mlir-22-tools, or set XDSL_MLIR_OPT)")
    assert result["code"] == "PASS", result["output"]


@pytest.mark.parametrize("path", CASES, ids=case_id)
def test_every_directive_is_known(path: Path) -> None:
    """filecheck ignores a misspelt `CHEKC:`, and the test would pass for ever."""
    lines = path.read_text().splitlines()
    known = set(WORDS)
    for line in lines:
        for prefixes in PREFIX.findall(line):
            known.update(prefixes.split(","))
    if any("%generic" in line for line in lines):
        known.add("GENERIC")
    used = {m[1] for line in lines if (m := DIRECTIVE.match(line))}
    assert used <= known, f"unknown directives {sorted(used - known)}"
