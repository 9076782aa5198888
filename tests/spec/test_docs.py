"""The language reference says what the tables of the code say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hpc.spec
from hpc.schedule.layer import ACTIVATIONS
from hpc.spec.layer_block import LAYER, PARALLEL
from hpc.spec.operators import OPERATORS
from hpc.spec.parser import BLOCKS, SETTINGS
from hpc.spec.routing_block import FORMS
from hpc.spec.schedule_block import SCHEDULE
from hpc.spec.syntax import MAX_BYTES
from tests.spec.test_flow import flow_of
from tests.spec.texts import parse, text

README = (Path(hpc.spec.__file__).parent / "README.md").read_text()
NAMES = [
    *(field.name for field in (*LAYER, *PARALLEL, *SCHEDULE)),
    *BLOCKS,
    *SETTINGS,
    *FORMS,
    *ACTIVATIONS,
    *(name for name in OPERATORS if name not in ACTIVATIONS),
]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_language_is_documented(name: str) -> None:
    assert f"`{name}`" in README or f"`{name}(" in README


def test_the_documented_standard_flow_is_the_default() -> None:
    start = README.index("    flow {\n")
    written = README[start : README.index("    }\n", start) + 6]
    assert flow_of(parse(text(written))) == flow_of(parse(text()))


def test_the_documented_size_limit() -> None:
    assert f"at most {MAX_BYTES // 1024} KiB" in README


@pytest.mark.parametrize(
    "module", ["hpc.interp.routing", "hpc.interp.routing_file", "hpc.schedule.capacity"]
)
def test_routing_and_capacity_need_neither_language_nor_compiler(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = run.stdout.split()
    assert module in loaded
    unwanted = ("xdsl", "lark", "rich", "ml_dtypes", "hpc.spec", "passes", "dialects")
    assert not [m for m in loaded if m.startswith(unwanted)]
