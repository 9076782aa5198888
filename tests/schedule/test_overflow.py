"""The counterexample overflows by one row, is a possible routing, and is the smallest.

The numbers of the memory formula come from a public report on a fixed communication
buffer (vllm-ascend issue 5287): 512 tokens, hidden 2048, 2 ranks, 64 local experts,
top-8; there, 609 MB.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hpc.schedule.capacity import layer_bytes, receive_bound, received_rows
from hpc.schedule.check import check_bytes
from hpc.schedule.overflow import most_rows, room, smallest_overflow
from tests.builders import small_layer, standard_schedule, with_buffer


@st.composite
def layers(draw):
    ep = draw(st.integers(1, 4))
    experts = draw(st.integers(ep, 9))
    return small_layer(
        ep=ep,
        experts=experts,
        tokens=tuple(draw(st.lists(st.integers(0, 6), min_size=ep, max_size=ep))),
        top_k=draw(st.integers(1, experts)),
        repeats=draw(st.booleans()),
    )


@given(layers(), st.data())
def test_the_counterexample_overflows_by_one_row_and_can_happen(layer, data):
    worst, _ = most_rows(layer)
    capacity = data.draw(st.integers(0, worst + 3))
    found = smallest_overflow(layer, capacity)
    assert (found is None) == (capacity >= worst)
    if found is None:
        return
    received = received_rows(layer, found.counts)
    assert received[found.rank] == found.rows == capacity + 1
    assert found.counts.sum() == capacity + 1
    by_token = layer.top_k if layer.repeats else 1
    for rank, tokens in enumerate(layer.tokens):
        assert found.counts[rank].sum() <= tokens * layer.top_k
        assert found.counts[rank].max() <= tokens * by_token


@given(layers())
def test_the_worst_case_is_never_above_the_declared_bound(layer):
    assert most_rows(layer)[0] <= receive_bound(layer).worst_rows


def test_the_counterexample_is_refused_by_the_check_and_one_row_less_is_not():
    layer = small_layer()
    s = with_buffer(standard_schedule(layer), "recv", capacity_rows=37)
    found = smallest_overflow(layer, 37)
    codes = {v.code for v in check_bytes(s, found.counts)}
    assert codes == {"capacity"}
    fewer = found.counts.copy()
    fewer[1].flat[fewer[1].argmax()] -= 1
    assert not check_bytes(s, fewer)


def test_the_words_name_tokens_and_experts():
    layer = small_layer()
    tight = with_buffer(standard_schedule(layer), "recv", capacity_rows=34)
    assert room(standard_schedule(layer)) == [
        '"recv" has 64 rows: room for every routing (32 tokens of all ranks * '
        "min(top_k 2, local experts 2) = 64)"
    ]
    assert room(tight) == [
        '"recv" has 34 rows: room for routings that send no rank more; the worst '
        "sends 64 (32 tokens of all ranks * min(top_k 2, local experts 2) = 64); the "
        "smallest that does not fit sends rank 0 35: tokens 0..15 of rank 0 choose "
        "experts 0..1, token 0 of rank 1 chooses experts 0..1, token 1 of rank 1 "
        "chooses expert 0"
    ]


def test_one_choice_suffices_where_there_is_no_room():
    found = smallest_overflow(small_layer(), 0)
    assert found.choices == "token 0 of rank 0 chooses expert 0"


def test_the_worst_case_by_term_where_a_fixed_formula_asks_for_609_mb():
    layer = small_layer(
        tokens=(512, 512), hidden=2048, intermediate=1024, experts=128, top_k=8
    )
    bound = receive_bound(layer)
    assert bound.rows == 512 * 2 * min(8, 64) == 8192
    terms = {term.term: term for term in layer_bytes(layer, bound)}
    assert terms["recv"].bytes == 8192 * 2048 * 2 == 33_554_432
    assert terms["back"].bytes == 512 * 8 * 2048 * 2 == 16_777_216
    assert "8192 received rows x 2048 columns x 2 bytes" in terms["recv"].formula
    assert "512 tokens x top_k 8 x 2048 columns" in terms["back"].formula
    symmetric = terms["recv"].bytes + terms["back"].bytes
    assert symmetric < 609e6 / 10
