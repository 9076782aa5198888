"""Which expert every token chooses: generators, tables, checks, load figures.

`routing_counts` and `routing_ids` agree exactly: the counts are those of the ids.
Everything is a pure function of layer and routing; random kinds take their numbers
from one generator per (seed, rank).

Kinds:
- balanced: choices are dealt like cards: choice number j of the whole layer (rank by
  rank, token by token, slot by slot) goes to position j mod experts of the
  deal order, in which neighbours belong to different ranks. So experts, also per
  source, differ by at most one row.
- uniform(seed): top_k different experts, all sets equally likely.
- zipf(s, seed): the expert at place i of a seeded order has weight i^-s; a token draws
  top_k times without replacement.
- hot(n, share, seed): the first n experts of a seeded order are hot; on each rank
  round(share * rows) of the rows go to hot experts, spread evenly over the tokens;
  which hot (and which cold) experts a token gets is uniform.
- one_rank(r): everything goes to rank r's experts, dealt like cards.
- counts, ids: tables from a file or the spec.
With `repeats` the draws of one token are independent (with replacement).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpc.interp.routing_check import RoutingError, check_routing
from hpc.interp.routing_draws import with_replacement, without_replacement
from hpc.schedule.capacity import received_rows
from hpc.schedule.layer import Layer, Routing, experts_of

__all__ = [
    "LoadReport",
    "RoutingError",
    "check_routing",
    "load_report",
    "routing_counts",
    "routing_ids",
]

Ids = NDArray[np.int32]
Counts = NDArray[np.int64]

_CHUNK = 1 << 19
"""Random numbers drawn at once (4 MiB), so that memory does not grow with tokens."""

_ORDER, _DRAW, _SHUFFLE = 1, 2, 3
"""First seed words of the three random streams: expert order, draws, slot order."""


def routing_counts(layer: Layer, routing: Routing) -> Counts:
    """Rows by source and expert, int64 [ranks, experts].

    Raises `RoutingError` if the routing does not fit the layer.
    """
    _require_valid(layer, routing)
    if (counts := _closed_form(layer, routing)) is not None:
        return counts
    counts = np.zeros((layer.ep, layer.experts), dtype=np.int64)
    for rank in range(layer.ep):
        for ids in _draw(layer, routing, rank):
            counts[rank] += np.bincount(ids.ravel(), minlength=layer.experts)
    return counts


def routing_ids(layer: Layer, routing: Routing) -> list[Ids]:
    """The expert of every (token, slot), int32 [tokens of rank, top_k] per rank.

    -1 means that the slot sends nothing (kind "ids" only). Slot order is arbitrary but
    fixed. Raises `RoutingError` if the routing does not fit the layer.
    """
    _require_valid(layer, routing)
    if routing.kind == "ids":
        return [
            np.array(rows, dtype=np.int32).reshape(-1, layer.top_k)
            for rows in routing.ids
        ]
    return [_rank_ids(layer, routing, rank) for rank in range(layer.ep)]


def _require_valid(layer: Layer, routing: Routing) -> None:
    problems = check_routing(layer, routing)
    if problems:
        raise RoutingError(problems)


def _closed_form(layer: Layer, routing: Routing) -> Counts | None:
    if routing.kind == "counts":
        return np.array(routing.counts, dtype=np.int64)
    if routing.kind == "ids":
        return _count_ids(layer, routing)
    deal = _deal_order(layer, routing)
    if deal is None:
        return None
    counts = np.zeros((layer.ep, layer.experts), dtype=np.int64)
    ends = np.cumsum(layer.tokens, dtype=np.int64) * layer.top_k
    starts = ends - np.array(layer.tokens, dtype=np.int64) * layer.top_k
    place = np.arange(len(deal))
    until = [(x[:, None] + len(deal) - 1 - place) // len(deal) for x in (starts, ends)]
    counts[:, deal] = until[1] - until[0]
    return counts


def _count_ids(layer: Layer, routing: Routing) -> Counts:
    counts = np.zeros((layer.ep, layer.experts), dtype=np.int64)
    for rank, rows in enumerate(routing.ids):
        ids = np.array(rows, dtype=np.int64).ravel()
        counts[rank] = np.bincount(ids[ids >= 0], minlength=layer.experts)
    return counts


def _deal_order(layer: Layer, routing: Routing) -> NDArray[np.int64] | None:
    """Experts in the order of dealing, neighbours on different ranks if possible."""
    if routing.kind == "one_rank":
        rank = int(_number(routing, "r"))
        return np.array(experts_of(rank, layer.experts, layer.ep), dtype=np.int64)
    if routing.kind != "balanced":
        return None
    owned = [experts_of(r, layer.experts, layer.ep) for r in range(layer.ep)]
    order = [
        mine[local]
        for local in range(layer.local_experts)
        for mine in owned
        if local < len(mine)
    ]
    return np.array(order, dtype=np.int64)


def _rank_ids(layer: Layer, routing: Routing, rank: int) -> Ids:
    shape = (layer.tokens[rank], layer.top_k)
    if routing.kind == "counts":
        row = np.array(routing.counts[rank], dtype=np.int64)
        return _shuffled(_fill(row, *shape), rank)
    deal = _deal_order(layer, routing)
    if deal is not None:
        start = sum(layer.tokens[:rank]) * layer.top_k
        places = (start + np.arange(shape[0] * shape[1])) % len(deal)
        return _shuffled(deal[places].reshape(shape), rank)
    parts = list(_draw(layer, routing, rank))
    return np.concatenate(parts) if parts else np.zeros(shape, dtype=np.int32)


def _fill(counts: NDArray[np.int64], tokens: int, top_k: int) -> NDArray[np.int64]:
    """Ids with these counts: entry i of the sorted list goes to token i mod tokens.

    One expert's entries are neighbours in that list, so no token gets an expert twice
    as long as no count exceeds `tokens`.
    """
    return np.repeat(np.arange(len(counts)), counts).reshape(top_k, tokens).T


def _shuffled(ids: NDArray[np.int64], rank: int) -> Ids:
    """Every token's slots in a fixed random order: dealing alone would sort them."""
    rng = np.random.default_rng((_SHUFFLE, rank))
    return rng.permuted(ids, axis=1).astype(np.int32)


def _draw(layer: Layer, routing: Routing, rank: int) -> Iterator[Ids]:
    """Ids of one rank in chunks of tokens, from its own random stream."""
    seed = int(_number(routing, "seed"))
    order = np.random.default_rng((_ORDER, seed)).permutation(layer.experts)
    rng = np.random.default_rng((_DRAW, seed, rank))
    tokens = layer.tokens[rank]
    step = max(1, _CHUNK // max(layer.experts, layer.top_k))
    for first in range(0, tokens, step):
        places = np.arange(first, min(tokens, first + step))
        if routing.kind == "hot":
            chosen = _hot(layer, routing, rng, places, tokens)
        else:
            chosen = _weighted(layer, _number(routing, "s"), rng, len(places))
        yield order[chosen].astype(np.int32)


def _weighted(
    layer: Layer, s: float, rng: np.random.Generator, tokens: int
) -> NDArray[np.int64]:
    """Places [tokens, top_k] in the weight order, place i with weight (i + 1)^-s."""
    log_weights = -s * np.log(np.arange(1, layer.experts + 1))
    draw = with_replacement if layer.repeats else without_replacement
    return draw(rng, log_weights, tokens, layer.top_k)


def _hot(
    layer: Layer,
    routing: Routing,
    rng: np.random.Generator,
    places: NDArray[np.int64],
    tokens: int,
) -> NDArray[np.int64]:
    """Places in the seeded order for these tokens; those below n are hot."""
    n, k = int(_number(routing, "n")), layer.top_k
    total = round(_number(routing, "share") * tokens * k)
    hot = (places + 1) * total // tokens - places * total // tokens
    first = _choose(layer, rng, len(places), n, 0)
    then = _choose(layer, rng, len(places), layer.experts - n, n)
    slot = np.arange(k)[None, :]
    is_hot = slot < hot[:, None]
    chosen = np.where(
        is_hot,
        np.take_along_axis(first, np.minimum(slot, first.shape[1] - 1), 1),
        np.take_along_axis(then, np.clip(slot - hot[:, None], 0, then.shape[1] - 1), 1),
    )
    return rng.permuted(chosen, axis=1)


def _choose(
    layer: Layer, rng: np.random.Generator, tokens: int, among: int, offset: int
) -> NDArray[np.int64]:
    """Up to top_k of `among` places from `offset` on, in random order per token."""
    if among == 0:
        return np.zeros((tokens, 1), dtype=np.int64)
    even = np.zeros(among)
    if layer.repeats:
        return offset + with_replacement(rng, even, tokens, layer.top_k)
    return offset + without_replacement(rng, even, tokens, min(layer.top_k, among))


def _number(routing: Routing, name: str) -> float:
    """A parameter by name; seeds and the uniform kind's exponent default to 0."""
    return dict(routing.params).get(name, 0.0)


@dataclass(frozen=True, slots=True)
class LoadReport:
    """How evenly rows spread; `rank_rows[r]` is what rank r receives.

    Both imbalance figures in use are here, each under its own name: `max_over_mean`
    is >= 1 and 1 when even, `mean_over_max` is its inverse (often "balancedness").
    """

    rank_rows: tuple[int, ...]
    expert_rows: tuple[int, ...]
    max_over_mean: float
    mean_over_max: float
    expert_max_over_mean: float
    idle_ranks: tuple[int, ...]

    def lines(self) -> list[str]:
        """The report as text, formulas with their numbers."""
        most = max(self.rank_rows)
        mean = sum(self.rank_rows) / len(self.rank_rows)
        rows = f"rows received per rank: {', '.join(map(str, self.rank_rows))}"
        if not most:
            return [rows, "max/mean = 1.000 (no rows)", "mean/max = 1.000 (no rows)"]
        return [
            rows,
            f"max/mean = {most} / {mean:g} = {self.max_over_mean:.3f}",
            f"mean/max = {mean:g} / {most} = {self.mean_over_max:.3f}",
            f"max/mean over experts = {self.expert_max_over_mean:.3f}",
        ]


def load_report(layer: Layer, counts: Counts) -> LoadReport:
    """Load by rank and expert from counts [source rank, expert].

    Without any row both figures are 1: nothing is uneven.
    """
    ranks = received_rows(layer, counts)
    experts = counts.sum(axis=0)
    imbalance = _max_over_mean(ranks)
    return LoadReport(
        rank_rows=tuple(int(n) for n in ranks),
        expert_rows=tuple(int(n) for n in experts),
        max_over_mean=imbalance,
        mean_over_max=1 / imbalance,
        expert_max_over_mean=_max_over_mean(experts),
        idle_ranks=tuple(int(r) for r in np.flatnonzero(ranks == 0)),
    )


def _max_over_mean(rows: NDArray[np.int64]) -> float:
    return float(rows.max() / rows.mean()) if rows.any() else 1.0
