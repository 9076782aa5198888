"""The README shows what the commands really print.

A `console` block holds one `$ command` line and its output. Running
`python -m tests.test_readme` rewrites the outputs; read the difference.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"^```console\n\$ ([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(command: str) -> str:
    """What the command prints on a terminal of 100 columns, without colours."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    result = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return result.stdout


BLOCKS = BLOCK.findall(README.read_text())


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[c[:50] for c, _ in BLOCKS])
def test_readme_shows_the_real_output(command: str, shown: str) -> None:
    assert run(command) == shown


def test_readme_has_examples() -> None:
    """A change of the block syntax must not silence the test above."""
    assert len(BLOCKS) >= 8


if __name__ == "__main__":
    text = BLOCK.sub(
        lambda m: f"```console\n$ {m[1]}\n{run(m[1])}```", README.read_text()
    )
    README.write_text(text)
