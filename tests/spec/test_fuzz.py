"""Whatever the bytes, the reader answers with a spec or with `SpecError`."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.spec.diagnostics import SpecError
from hpc.spec.model import Spec
from hpc.spec.parser import parse_spec
from tests.spec.texts import SAMPLES, text

FUZZ = settings(max_examples=150, deadline=None, derandomize=True)

TEXTS = [p.read_bytes() for p in sorted(SAMPLES.glob("*.moe"))] + [
    text("schedule { groups = 2 base_tile = 128x256x64 }\n").encode(),
    text("routing = table [[2, 2, 2, 2], [4, 0, 1, 3]]\n").encode(),
]
NAMES = b"layer flow input tokens hidden experts ep table file zipf gmm add x w_up"
SIGNS = b'{ } ( ) [ ] = , : * " # 0 -1 1e999 nan 99999999999999999999 \\ \x00 \xff'
BLANKS = [b"\n", b"\t", b"\r", b"\xef\xbb\xbf", b"\xe5\x89\x8d"]
WORDS = [*NAMES.split(), *SIGNS.split(), *BLANKS]


def outcome(data: bytes) -> Spec | None:
    """The spec, or None for a refusal whose text can be shown."""
    try:
        return parse_spec(data, str(SAMPLES / "fuzz.moe"))
    except SpecError as error:
        refusal = error
    lines = data.count(b"\n") + data.count(b"\r") + 1
    assert refusal.diagnostics
    for found in refusal.diagnostics:
        assert 1 <= found.loc.line <= lines
        assert found.loc.col >= 1
        assert found.message
    assert refusal.render()
    return None


@FUZZ
@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    outcome(data)


@FUZZ
@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_random_words(words: list[bytes]) -> None:
    outcome(b" ".join(words))


@FUZZ
@given(st.data())
def test_mutated_samples(data: st.DataObject) -> None:
    source = bytearray(data.draw(st.sampled_from(TEXTS)))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(source)))
        length = data.draw(st.integers(0, 12))
        source[start : start + length] = data.draw(
            st.sampled_from(WORDS) | st.binary(max_size=4)
        )
    outcome(bytes(source))


@FUZZ
@given(st.data())
def test_truncated_samples(data: st.DataObject) -> None:
    source = data.draw(st.sampled_from(TEXTS))
    outcome(source[: data.draw(st.integers(0, len(source)))])


@FUZZ
@given(
    st.integers(-5, 5000) | st.integers(1 << 28, 1 << 40),
    st.integers(1, 600),
    st.integers(1, 64),
    st.integers(1, 1 << 21),
    st.sampled_from(["balanced", "uniform", "hot(3, 0.5)", "one_rank(1)"]),
)
def test_a_spec_that_is_accepted_obeys_its_limits(
    tokens: int, experts: int, ep: int, hidden: int, routing: str
) -> None:
    source = text(
        f"routing = {routing}\n", tokens=tokens, experts=experts, ep=ep, hidden=hidden
    )
    spec = outcome(source.encode())
    if spec is None:
        return
    layer = spec.layer
    assert 0 < sum(layer.tokens) * layer.top_k <= 1 << 31
    assert layer.ep <= layer.experts
    assert layer.top_k <= layer.experts
    assert 1 <= layer.hidden <= 1 << 20
