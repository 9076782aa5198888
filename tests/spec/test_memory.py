"""Buffers larger than the machine's memory are refused with the arithmetic."""

from __future__ import annotations

import pytest

from tests.spec.texts import messages, only, parse, text

HBM = 64 * 1024**3
"""Memory of an A3 die."""


def large(rest: str, tokens: int, **fields: object) -> str:
    sizes = {"hidden": 7168, "intermediate": 2048, "experts": 512, "top_k": 8}
    return text(rest, tokens=tokens, ep=64, **{**sizes, **fields})  # type: ignore[arg-type]


def test_symmetric_buffers_beyond_the_memory() -> None:
    """One rank receives the worst case: 8 local experts, all eight choices."""
    found = only(large("routing = one_rank(3)\n", 12_000))
    rows = 12_000 * 64 * 8
    needed = rows * 7168 * 2 + 12_000 * 8 * 7168 * 2
    assert needed > HBM
    assert found.message == (
        f"the symmetric buffers of a rank need {needed:,} bytes, "
        f"ascend_a3 has {HBM:,} bytes of HBM"
    )
    assert f"recv = {rows} received rows x 7168 columns x 2 bytes" in found.help
    arithmetic = "max tokens 12000 * ep 64 * min(top_k 8, local experts 8) = 6144000"
    assert arithmetic in found.help
    assert (found.loc.line, found.loc.col) == (2, 12)


def test_all_buffers_together_beyond_the_memory() -> None:
    found = messages(large("routing = one_rank(3)\n", 4096))
    assert len(found) == 1
    assert found[0].startswith("the buffers of a rank need ")


@pytest.mark.parametrize("routing", ["balanced", "uniform(seed = 1)", "zipf(0.2)"])
def test_the_worst_case_may_exceed_the_memory_if_the_routing_does_not(
    routing: str,
) -> None:
    assert parse(large(f"routing = {routing}\n", 4096))


def test_the_largest_receiver_of_the_routing_is_named() -> None:
    found = only(large("routing = hot(8, 1)\n", 4096, hidden=65536))
    assert "largest receiver of the routing table, rank " in found.help


def test_a_flow_counts_only_the_buffers_it_has() -> None:
    """x, r and two results of 2^20 rows: 4 x 16 GiB is one byte row too many."""
    flow = "flow {{ input r : tokens x hidden\n a = add(x, r) o = relu(a) }}\n"
    fields = {
        "hidden": 8192,
        "intermediate": None,
        "experts": None,
        "top_k": None,
        "activation": None,
        "ep": None,
    }
    fits, exceeds = 1 << 20, (1 << 20) + 1
    assert parse(text(flow.format(), tokens=fits, **fields))
    assert messages(text(flow.format(), tokens=exceeds, **fields)) == [
        f"the buffers of a rank need {4 * exceeds * 8192 * 2:,} bytes, "
        f"ascend_a3 has {HBM:,} bytes of HBM"
    ]
