"""Does a routing fit a layer? Every problem in words, with the numbers. No numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from hpc.schedule.layer import Layer, Routing, experts_of

MOST_PROBLEMS = 8
"""Problems of one routing that are spelt out; a broken table has thousands."""

MAX_DRAWN_ROWS = 1 << 26
"""Most rows of a random routing: seconds of drawing, and eight times the rows of
DeepSeek-V3 with 4096 tokens on each of 256 ranks."""


class RoutingError(ValueError):
    """A routing that does not fit its layer; `problems` says why, one text each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


def check_routing(layer: Layer, routing: Routing) -> tuple[str, ...]:
    """Why the routing cannot be used with the layer; empty if it can."""
    check = _CHECKS.get(routing.kind)
    if check is None:
        return (f"unknown routing '{routing.kind}', known: {', '.join(_CHECKS)}",)
    return few(_check_params(routing)) or few(check(layer, routing))


def few(problems: Iterable[str]) -> tuple[str, ...]:
    """The first problems, and how many more there are."""
    found = iter(problems)
    shown = list(islice(found, MOST_PROBLEMS))
    more = sum(1 for _ in found)
    return tuple([*shown, f"and {more} more of this kind"] if more else shown)


def _check_params(routing: Routing) -> Iterator[str]:
    """A `.moe` file cannot name wrong ones, a schedule edited by hand can."""
    ranges = _PARAMS.get(routing.kind, {})
    for name, value in routing.params:
        most = ranges.get(name)
        if most is None:
            yield f"{routing.kind} has no parameter '{name}'"
        elif not 0 <= value <= most or (name == "seed" and value != int(value)):
            whole = " a whole number from" if name == "seed" else ""
            yield f"{routing.kind}: {name} is{whole} 0 to {most:.10g}, got {value:.10g}"
    for name in sorted(ranges.keys() - dict(routing.params).keys() - {"seed"}):
        yield f"{routing.kind} needs the parameter '{name}'"


def _fits(layer: Layer, routing: Routing) -> Iterator[str]:
    if layer.top_k > layer.experts and not layer.repeats:
        yield f"top_k {layer.top_k} exceeds experts {layer.experts}"


def _drawn(layer: Layer, routing: Routing) -> Iterator[str]:
    yield from _fits(layer, routing)
    rows = sum(layer.tokens) * layer.top_k
    if rows > MAX_DRAWN_ROWS:
        yield (
            f"{routing.kind} would draw {rows} rows, at most {MAX_DRAWN_ROWS} are "
            "drawn: use balanced, one_rank or a table"
        )


def _check_hot(layer: Layer, routing: Routing) -> Iterator[str]:
    params = dict(routing.params)
    n, share = params["n"], params["share"]
    if not 1 <= n <= layer.experts or n != int(n):
        yield f"hot needs 1 to {layer.experts} experts, got {n:g}"
        return
    yield from _drawn(layer, routing)
    k, cold = layer.top_k, layer.experts - int(n)
    most = 1.0 if layer.repeats else min(int(n), k) / k
    least = (0.0 if cold else 1.0) if layer.repeats else max(0, k - cold) / k
    if not least <= share <= most:
        yield (
            f"share {share:g} cannot be met: {int(n)} hot experts of {layer.experts} "
            f"take {least:g} to {most:g} of the rows when a token has {k} choices"
        )


def _check_one_rank(layer: Layer, routing: Routing) -> Iterator[str]:
    rank = dict(routing.params)["r"]
    if not 0 <= rank < layer.ep or rank != int(rank):
        yield f"rank {rank:g} does not exist: ranks are 0 to {layer.ep - 1}"
        return
    local = len(experts_of(int(rank), layer.experts, layer.ep))
    if layer.top_k > local and not layer.repeats:
        yield (
            f"top_k {layer.top_k} exceeds the {local} experts of rank {int(rank)}: "
            "a token would choose one expert twice"
        )


def _check_counts(layer: Layer, routing: Routing) -> Iterator[str]:
    if len(routing.counts) != layer.ep:
        yield f"counts has {len(routing.counts)} ranks, the layer {layer.ep}"
        return
    for rank, row in enumerate(routing.counts):
        if len(row) != layer.experts:
            yield (
                f"counts of rank {rank} has {len(row)} experts, "
                f"the layer {layer.experts}"
            )
        else:
            yield from _check_row(layer, rank, row)


def _check_row(layer: Layer, rank: int, row: tuple[int, ...]) -> Iterator[str]:
    tokens, k = layer.tokens[rank], layer.top_k
    negative = [expert for expert, n in enumerate(row) if n < 0]
    for expert in negative:
        yield f"counts[{rank}][{expert}] is negative: {row[expert]}"
    if negative:
        return
    if sum(row) != tokens * k:
        yield (
            f"counts of rank {rank} sum to {sum(row)}, "
            f"but tokens * top_k = {tokens} * {k} = {tokens * k}"
        )
        return
    for expert, n in enumerate(row):
        if n > tokens and not layer.repeats:
            yield (
                f"counts[{rank}][{expert}] = {n} exceeds the {tokens} tokens of "
                f"rank {rank}: a token would choose expert {expert} twice"
            )


def _check_ids(layer: Layer, routing: Routing) -> Iterator[str]:
    if len(routing.ids) != layer.ep:
        yield f"topk_ids has {len(routing.ids)} ranks, the layer {layer.ep}"
        return
    for rank, rows in enumerate(routing.ids):
        if len(rows) != layer.tokens[rank]:
            yield (
                f"topk_ids of rank {rank} has {len(rows)} tokens, "
                f"the layer {layer.tokens[rank]}"
            )
            continue
        for token, slots in enumerate(rows):
            yield from _check_token(layer, rank, token, slots)


def _check_token(
    layer: Layer, rank: int, token: int, slots: tuple[int, ...]
) -> Iterator[str]:
    where = f"rank {rank}, token {token}"
    if len(slots) != layer.top_k:
        yield f"topk_ids: {where} has {len(slots)} slots, top_k is {layer.top_k}"
        return
    seen: dict[int, int] = {}
    for slot, expert in enumerate(slots):
        if expert == -1:
            continue
        if not 0 <= expert < layer.experts:
            yield (
                f"topk_ids: {where}, slot {slot}: expert id {expert} is outside "
                f"0 to {layer.experts - 1} (-1 means not sent)"
            )
        elif expert in seen and not layer.repeats:
            yield (
                f"topk_ids: {where} has expert {expert} twice, "
                f"in slots {seen[expert]} and {slot}"
            )
        seen.setdefault(expert, slot)


_SEED: dict[str, float] = {"seed": (1 << 32) - 1}
_PARAMS: dict[str, dict[str, float]] = {
    "uniform": _SEED,
    "zipf": {"s": 100, **_SEED},
    "hot": {"n": math.inf, "share": 1, **_SEED},
    "one_rank": {"r": math.inf},
}
"""Parameters of the generators and the most that each may be; only a seed has a
default. The checks of the kinds below narrow the infinite ones."""

_CHECKS: dict[str, Callable[[Layer, Routing], Iterator[str]]] = {
    "balanced": _fits,
    "uniform": _drawn,
    "zipf": _drawn,
    "hot": _check_hot,
    "one_rank": _check_one_rank,
    "counts": _check_counts,
    "ids": _check_ids,
}
