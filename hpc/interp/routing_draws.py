"""Random choices of top_k experts a token, with and without replacement.

Both take log weights, so that very steep weights do not become zero.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]

_SPARE = 4
"""Draws beyond k in the first attempt at k different ones."""

_ENOUGH = 0.2
"""Least chance of a new expert per draw for which repeated draws beat one key each."""


def with_replacement(
    rng: np.random.Generator, log_weights: NDArray[np.float64], tokens: int, draws: int
) -> Places:
    """Independent draws, int64 [tokens, draws]: indices of `log_weights`."""
    edges = np.cumsum(_shares(log_weights))
    found = np.searchsorted(edges, rng.random((tokens, draws)), "right")
    return np.minimum(found, len(log_weights) - 1)


def without_replacement(
    rng: np.random.Generator, log_weights: NDArray[np.float64], tokens: int, k: int
) -> Places:
    """k different indices a token in order of drawing, int64 [tokens, k].

    Either way below draws one after the other, each time by weight among what is left.
    """
    heaviest = np.sort(_shares(log_weights))[len(log_weights) - k + 1 :]
    if 1 - heaviest.sum() < _ENOUGH:
        # Exponential clocks: the first k to ring are k such draws.
        rings = np.log(rng.standard_exponential((tokens, len(log_weights))))
        return smallest(rings - log_weights, k)
    draws = with_replacement(rng, log_weights, tokens, k + _SPARE)
    chosen = np.empty((tokens, k), dtype=np.int64)
    open_rows = np.arange(tokens)
    while len(open_rows):
        new = _first_of_each(draws)
        rank = np.cumsum(new, axis=1)
        done = rank[:, -1] >= k
        keep = new & (rank <= k)
        chosen[open_rows[done]] = draws[done][keep[done]].reshape(-1, k)
        open_rows, draws = open_rows[~done], draws[~done]
        more = with_replacement(rng, log_weights, len(open_rows), k)
        draws = np.concatenate([draws, more], axis=1)
    return chosen


def smallest(keys: NDArray[np.float64], k: int) -> Places:
    """Columns of the k smallest keys of every row, ascending by key."""
    tokens, n = keys.shape
    every = np.broadcast_to(np.arange(n, dtype=np.int64), (tokens, n))
    some = np.argpartition(keys, k - 1, axis=1)[:, :k] if k < n else every
    ranking = np.argsort(np.take_along_axis(keys, some, 1), axis=1, kind="stable")
    return np.take_along_axis(some, ranking, 1)


def _shares(log_weights: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def _first_of_each(draws: Places) -> NDArray[np.bool_]:
    """Where a row has a value for the first time."""
    order = np.argsort(draws, axis=1, kind="stable")
    ordered = np.take_along_axis(draws, order, 1)
    new = np.ones(draws.shape, dtype=np.bool_)
    np.put_along_axis(new, order[:, 1:], ordered[:, 1:] != ordered[:, :-1], 1)
    return new
