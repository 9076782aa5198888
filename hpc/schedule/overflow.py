"""Which routings a receive buffer has room for, and the smallest that it has not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpc.schedule.layer import Layer, experts_of
from hpc.schedule.layout import Ints
from hpc.schedule.model import Buffer, Schedule


@dataclass(frozen=True)
class Overflow:
    """A routing that sends `rows` rows to `rank`: one row more than there is room for.

    `counts` [ranks, experts]; `choices` says in words which tokens choose what.
    """

    rank: int
    rows: int
    counts: Ints
    choices: str


def most_rows(layer: Layer) -> tuple[int, str]:
    """Most rows that any routing sends to one rank, and the arithmetic.

    Every token of every rank chooses as many experts of that rank as it can.
    """
    most, why = _most_choices(layer)
    tokens = sum(layer.tokens)
    return tokens * most, f"{tokens} tokens of all ranks * {why} = {tokens * most}"


def smallest_overflow(layer: Layer, capacity: int) -> Overflow | None:
    """The fewest choices that overflow a buffer of `capacity` rows, None if none can.

    Rank 0 has as many experts as any, so what overflows any rank can overflow it.
    """
    worst, _ = most_rows(layer)
    if capacity >= worst:
        return None
    each, _ = _most_choices(layer)
    owned = experts_of(0, layer.experts, layer.ep)
    # With repeats a token may choose one expert again and again.
    chosen = [owned[i % len(owned)] for i in range(each)]
    counts = np.zeros((layer.ep, layer.experts), dtype=np.int64)
    texts: list[str] = []
    left = capacity + 1
    for rank, tokens in enumerate(layer.tokens):
        full = min(tokens, left // each)
        np.add.at(counts[rank], chosen, full)
        left -= full * each
        if full:
            texts.append(f"{_tokens(0, full, rank)} {_list(chosen)}")
        if 0 < left < each and full < tokens:
            np.add.at(counts[rank], chosen[:left], 1)
            texts.append(f"{_tokens(full, 1, rank)} {_list(chosen[:left])}")
            left = 0
        if not left:
            break
    return Overflow(0, capacity + 1, counts, _short(texts))


def room(s: Schedule) -> list[str]:
    """One line for each receive buffer: for which routings it has room."""
    return [_line(s.layer, b) for b in s.buffers if b.space == "routed" and b.symmetric]


def _line(layer: Layer, buffer: Buffer) -> str:
    worst, why = most_rows(layer)
    head = f'"{buffer.name}" has {buffer.capacity_rows} rows'
    found = smallest_overflow(layer, buffer.capacity_rows)
    if found is None:
        return f"{head}: room for every routing ({why})"
    return (
        f"{head}: room for routings that send no rank more; the worst sends {worst} "
        f"({why}); the smallest that does not fit sends rank {found.rank} "
        f"{found.rows}: {found.choices}"
    )


def _most_choices(layer: Layer) -> tuple[int, str]:
    if layer.repeats:
        return layer.top_k, f"top_k {layer.top_k}"
    most = min(layer.top_k, layer.local_experts)
    return most, f"min(top_k {layer.top_k}, local experts {layer.local_experts})"


def _tokens(first: int, count: int, rank: int) -> str:
    if count == 1:
        return f"token {first} of rank {rank} chooses"
    return f"tokens {first}..{first + count - 1} of rank {rank} choose"


def _list(experts: list[int]) -> str:
    if len(experts) == 1:
        return f"expert {experts[0]}"
    if experts == list(range(experts[0], experts[0] + len(experts))):
        return f"experts {experts[0]}..{experts[-1]}"
    return "experts " + ", ".join(map(str, experts))


def _short(texts: list[str]) -> str:
    """Whole ranks in between are counted, not listed."""
    if len(texts) <= 3:
        return ", ".join(texts)
    return f"{texts[0]}, and so on for {len(texts) - 2} more, {texts[-1]}"
