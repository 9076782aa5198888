"""The samples that ship: they load, say what they claim, and keep their sources."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hpc.spec.model import Loc, Spec
from hpc.spec.parser import load_spec, parse_spec
from tests.spec.texts import SAMPLES

FILES = sorted(SAMPLES.glob("*.moe"))

PUBLISHED = {
    "deepseek_v3_ep4": (4096, 7168, 2048, 32, 8, "swiglu", 4),
    "deepseek_v3_ep8": (4096, 7168, 2048, 64, 8, "swiglu", 8),
    "deepseek_v3_ep16": (4096, 7168, 2048, 128, 8, "swiglu", 16),
    "mixtral_8x7b_ep8": (128, 4096, 14336, 8, 2, "swiglu", 8),
    "qwen3_30b_ep8": (128, 2048, 768, 128, 8, "swiglu", 8),
    "qwen15_moe_ep8": (None, 2048, 1408, 60, 4, "swiglu", 8),
    "gpt_oss_120b_ep8": (None, 2880, 2880, 128, 4, "swiglu_oai", 8),
    "switch_base_ep8": (None, 768, 3072, 64, 1, "relu", 8),
}
"""tokens per rank where the source states them, then the shape of the model."""


def without_places(spec: Spec) -> Spec:
    nowhere = Loc("", 0, 0)
    return replace(
        spec,
        inputs=tuple(replace(v, loc=nowhere) for v in spec.inputs),
        flow=tuple(replace(op, loc=nowhere) for op in spec.flow),
        loc=nowhere,
    )


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_sample_loads(path: Path) -> None:
    spec = load_spec(path)
    assert spec.flow[-1].result == "out"
    assert not spec.warnings


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_sample_has_the_published_shape(name: str) -> None:
    layer = load_spec(SAMPLES / f"{name}.moe").layer
    tokens, *shape = PUBLISHED[name]
    assert [
        layer.hidden,
        layer.intermediate,
        layer.experts,
        layer.top_k,
        layer.activation.name,
        layer.ep,
    ] == shape
    assert tokens in (None, layer.max_tokens)


def test_gpt_oss_is_clamped_as_published() -> None:
    activation = load_spec(SAMPLES / "gpt_oss_120b_ep8.moe").layer.activation
    assert (activation.alpha, activation.limit) == (1.702, 7.0)


def test_the_flow_of_tiny_is_the_standard_one() -> None:
    path = SAMPLES / "tiny.moe"
    source = path.read_text()
    start = source.index("flow {")
    bare = parse_spec(source[:start].encode(), str(path))
    assert without_places(bare) == without_places(load_spec(path))


def test_the_micro_benchmark_has_no_communication() -> None:
    spec = load_spec(SAMPLES / "swiglu_add.moe")
    assert [(op.op, op.space, op.cols) for op in spec.flow] == [
        ("add", "token", 4096),
        ("swiglu", "token", 2048),
    ]
    assert spec.layer.tokens == (32768,)


@pytest.mark.parametrize(
    "path", sorted((SAMPLES / "routing").glob("*.json")), ids=lambda p: p.name
)
def test_routing_data_names_its_source_and_adds_up(path: Path) -> None:
    data = json.loads(path.read_text())
    assert data["source"].startswith("stanford-ppl/step_artifact@")
    assert data["source"].split(" ")[0] in (SAMPLES / "README.md").read_text()
    for tokens, row in zip(data["tokens_per_rank"], data["counts"], strict=True):
        assert sum(row) == tokens * data["top_k"]
