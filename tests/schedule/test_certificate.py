"""Schedules of one layer share their certificate; what changes bits changes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpc.schedule.certificate import certify, first_difference
from hpc.schedule.layer import Activation
from hpc.schedule.model import Base, Region
from tests.builders import (
    edited,
    serial_schedule,
    small_layer,
    standard_schedule,
    with_buffer,
    with_team,
)
from tests.schedule.broken import ACT, AIC_Q, COMM_Q, DOWN, GROUPS, REDUCE, VEC_Q, S

LAYER = small_layer()


@pytest.mark.parametrize(
    "s",
    [
        standard_schedule(LAYER),
        standard_schedule(LAYER, GROUPS, chunks=3),
        standard_schedule(LAYER, GROUPS, m=7, base=Base(16, 32, 16)),
        serial_schedule(LAYER),
        serial_schedule(LAYER, GROUPS),
        with_team(S, VEC_Q, replace(S.queues[VEC_Q].team, size=3)),
    ],
)
def test_groups_chunks_tiles_teams_and_barriers_have_no_say(s):
    assert certify(s) == certify(S)
    assert certify(s).digest == certify(S).digest
    assert first_difference(certify(s), certify(S)) is None


def test_the_lines_say_order_and_precision():
    assert certify(S).lines == (
        "a[e] = swiglu(h[e]): in f32, to bf16",
        "back[e] = combine(y[e]): copied",
        "h[e] = gmm(recv[e], w_up[e]): f32 sum over k = 0..31 of bf16 products, "
        "to bf16",
        "out = reduce(back, router): f32 sum over slots 0..1 times router weight, "
        "to bf16",
        "recv[e] = dispatch(x): copied",
        "y[e] = gmm(a[e], w_down[e]): f32 sum over k = 0..15 of bf16 products, to bf16",
    )


@pytest.mark.parametrize(
    ("s", "difference"),
    [
        (with_buffer(S, "h", dtype="fp32"), "products, to fp32"),
        (edited(S, VEC_Q, ACT, op="geglu"), "geglu"),
        (edited(S, VEC_Q, REDUCE, reads=(Region("back"),)), "reduce(back)"),
        (edited(S, COMM_Q, 0, scale=True), "copied for (expert, part) (0, 1), (1, 0)"),
        (
            edited(S, AIC_Q, DOWN, reads=(Region("a", 0, 0), Region("w_down", 1))),
            "w_down[1]",
        ),
        (standard_schedule(small_layer(top_k=1), GROUPS), "slots 0..0"),
        (standard_schedule(small_layer(hidden=64), GROUPS), "k = 0..63"),
        (
            standard_schedule(
                small_layer(activation=Activation("swiglu_oai", limit=6.0)), GROUPS
            ),
            "limit 6",
        ),
    ],
)
def test_what_changes_bits_is_the_first_difference(s, difference):
    mine, other = certify(S), certify(s)
    assert mine.digest != other.digest
    assert difference in first_difference(mine, other)
    assert difference in first_difference(other, mine)


def test_a_missing_line_is_a_difference():
    fewer = replace(S, queues=S.queues[:2])
    text = first_difference(certify(S), certify(fewer))
    assert text == "only the first has: a[e] = swiglu(h[e]): in f32, to bf16"
