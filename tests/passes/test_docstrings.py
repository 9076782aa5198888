"""What a pass's docstring shows before is turned into what it shows after, by the pass.

A block that is no program stands in one, of a large layer on two ranks with the buffers
of the standard flow; `{}` stands for the spec of a layer of eight tokens on one rank.
"""

from __future__ import annotations

import inspect
import re

import pytest

from passes.pipeline import PASSES
from tests.passes.support import from_spec, lower, parse, show

EXAMPLE = re.compile(
    r"^(Before|After|Before and after)([^\n]*(?:\n[^\n`]+)*):\n```mlir\n(.*?)\n```",
    re.MULTILINE | re.DOTALL,
)

SMALL = """layer small {
  tokens = 8 hidden = 64 intermediate = 32 experts = 2 top_k = 2
  activation = swiglu dtype = bf16
}
machine = ascend_a3
"""
LARGE = """layer large {
  tokens = 4096 hidden = 7168 intermediate = 2048 experts = 16 top_k = 8
  activation = swiglu dtype = bf16
}
parallel { ep = 2 }
machine = ascend_a3
"""


def examples(name: str) -> dict[str, tuple[str, str]]:
    """(rest of the line, block) of "Before" and, unless they are one, "After"."""
    doc = inspect.cleandoc(PASSES[name]().__doc__ or "")
    return {m[1].split()[0]: (m[2], m[3]) for m in EXAMPLE.finditer(doc)}


def small_spec() -> str:
    program = next(iter(from_spec(SMALL).ops))
    return str(program.properties["spec"])


def complete(block: str, policy: str) -> str:
    """The block as a module that the pass can work on."""
    if ".program" in block or "moe.layer" in block:
        return block.replace("{}", small_spec(), 1)
    kind = block.lstrip("%0123456789 =").split(".")[0]
    text = show(from_spec(LARGE, f"moe-tile{{policy={policy} groups=2}}"))
    header, *rest = text.splitlines()[1:]
    declared = set(re.findall(r"\.buffer (@\w+)", block))
    buffers = [
        line for line in rest if ".buffer" in line and line.split()[1] not in declared
    ]
    lines = [header, *buffers, block, "}"]
    return (
        "\n".join(lines)
        .replace("tile.program", f"{kind}.program")
        .replace("tile.buffer", f"{kind}.buffer")
    )


@pytest.mark.parametrize("name", PASSES)
def test_the_example_of_a_pass_is_what_it_does(name: str) -> None:
    found = examples(name)
    label, after = found.get("After", found["Before"])
    option = re.search(rf"`({name}\{{[^}}]*\}})`", label)
    policy = re.search(r"policy `(\w+)`", label)
    chosen = policy[1] if policy else "list"
    module = parse(complete(found["Before"][1], chosen))
    lower(module, option[1] if option else name)
    wanted = parse(complete(after, chosen))
    for program in wanted.ops:
        if option and "policy=" in option[1]:
            program.properties["policy"] = next(iter(module.ops)).properties["policy"]
    assert show(module) == show(wanted)
