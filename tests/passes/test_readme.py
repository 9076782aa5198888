"""passes/README.md shows the pipeline as it is."""

from __future__ import annotations

import re
from pathlib import Path

from passes.pipeline import PASSES, STEPS

FOLDER = Path(__file__).parents[2] / "passes"
ROW = re.compile(r"^\| `([a-z-]+)` \| \[(\w+)\.py\]", re.MULTILINE)


def test_the_table_lists_the_passes_in_processing_order() -> None:
    rows = ROW.findall((FOLDER / "README.md").read_text())
    assert [name for name, _ in rows] == list(PASSES)
    assert [file.replace("_", "-") for _, file in rows] == list(PASSES)
    assert all((FOLDER / f"{file}.py").exists() for _, file in rows)


def test_the_default_pipeline_runs_passes_in_the_order_of_the_table() -> None:
    names = [text.split("{")[0] for text, _ in STEPS]
    assert [name for name in PASSES if name in names] == names
    assert all(reason for _, reason in STEPS)
