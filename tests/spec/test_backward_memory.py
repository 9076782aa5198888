"""Memory of backward and training programs, before anything is compiled."""

from __future__ import annotations

from collections import Counter

import pytest

from hpc.driver import compile_text
from hpc.interp.lifetimes import buffer_bytes, saved_buffers
from hpc.interp.routing import routing_counts
from hpc.schedule.capacity import receive_bound, shape_bytes
from hpc.spec.memory import program_buffers
from tests.spec.test_memory import HBM, large
from tests.spec.texts import messages, only, parse, text

NO_EXPERTS = dict.fromkeys(("intermediate", "experts", "top_k", "activation", "ep"))
FLOWS = {
    "standard": text(),
    "weights at the input": text(weights_at="input"),
    "plain activation": text(activation="relu2"),
    "no second product": text(
        "flow { o = reduce(combine(swiglu(gmm(dispatch(x), w_up)))) }\n",
        hidden=64,
        intermediate=64,
    ),
    "a residual connection": text(
        "flow { y = reduce(combine(gmm(swiglu(gmm(dispatch(x), w_up)), w_down)))\n"
        "  o = add(y, x) }\n"
    ),
    "local sum": text(
        "flow { input r : tokens x hidden\n s = add(x, r) o = relu(s) }\n", **NO_EXPERTS
    ),
    "sum of the output": text(
        "flow { input r : tokens x hidden\n a = relu(x) o = add(a, r) }\n", **NO_EXPERTS
    ),
}


@pytest.mark.parametrize("mode", ["forward", "backward", "train"])
@pytest.mark.parametrize("flow", FLOWS)
def test_bytes_are_those_of_the_compiled_buffers(flow: str, mode: str) -> None:
    source = f"mode = {mode}\n{FLOWS[flow]}"
    spec = parse(source)
    schedule = compile_text(source.encode(), "t.moe").schedule
    buffers = program_buffers(spec.layer, spec.inputs, spec.flow, mode)
    bound = receive_bound(spec.layer, routing_counts(spec.layer, spec.routing))
    terms = shape_bytes(spec.layer, bound, buffers.shapes)
    compiled = {buffer.name: buffer_bytes(buffer) for buffer in schedule.buffers}
    assert Counter(t.bytes for t in terms) == Counter(compiled.values())
    assert buffers.saved == saved_buffers(schedule)
    symmetric = [t.bytes for t in terms if t.term in buffers.symmetric]
    real = [compiled[b.name] for b in schedule.buffers if b.symmetric]
    assert Counter(symmetric) == Counter(real)


def test_saved_tensors_beyond_the_memory_name_the_largest() -> None:
    """recv, h, a and back; the symmetric buffers dy and dback alone would fit."""
    sizes = {"hidden": 2048, "intermediate": 512, "experts": 64, "ep": 64, "top_k": 8}
    tokens = 800_000
    found = only(text("routing = balanced\nmode = backward\n", tokens=tokens, **sizes))
    rows = tokens * 8
    saved = rows * (2048 + 1024 + 512 + 2048) * 2
    assert 2 * rows * 2048 * 2 < HBM < saved
    assert found.message == (
        f"the saved tensors of a rank need {saved:,} bytes, "
        f"ascend_a3 has {HBM:,} bytes of HBM"
    )
    assert f"recv = {rows} received rows x 2048 columns x 2 bytes" in found.help
    assert (
        "the largest saved tensor is recv: computing it again in backward, "
        f"dispatch(x), would save {rows * 4096:,} bytes, and the other "
    ) in found.help
    assert found.help.count("would still not fit") == 1
    assert (found.loc.line, found.loc.col) == (2, 12)


def test_what_recomputing_would_be_enough_for() -> None:
    """A step that fits in no way but without its largest saved tensor."""
    sizes = {"hidden": 1024, "intermediate": 2048, "experts": 64, "ep": 64, "top_k": 8}
    found = only(text("mode = train\n", tokens=250_000, **sizes))
    assert found.message.startswith("the buffers of a rank need ")
    saved = 8 * 250_000 * 4096 * 2
    assert f"gmm(recv, w_up), would save {saved:,} bytes" in found.help
    assert "bytes would fit" in found.help


def test_forward_may_fit_where_backward_does_not() -> None:
    sizes = {"hidden": 1024, "intermediate": 2048, "experts": 64, "ep": 64, "top_k": 8}
    assert parse(text("mode = forward\n", tokens=250_000, **sizes))
    assert parse(text("mode = train\n", tokens=200_000, **sizes))


def test_symmetric_buffers_of_a_training_step_are_those_of_both_parts() -> None:
    source = large("routing = one_rank(3)\n", 6_500)
    assert parse(source.replace("one_rank(3)", "balanced"))
    (message,) = messages(f"mode = train\n{source}")
    both = 2 * (6_500 * 64 * 8 + 6_500 * 8) * 7168 * 2
    assert message.startswith(f"the symmetric buffers of a rank need {both:,} bytes")
