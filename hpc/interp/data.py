"""Inputs, weights and router weights of a layer: random, reproducible, lazy.

Every array comes from its own generator, seeded by (seed, name, rank or expert), so
that no array depends on which others were made before, nor on the schedule. Values are
normal, hence of both signs. Rows of an input differ in magnitude too (a factor from
0.5 to 1.5), so that a row in another's place shows. Weights have variance 1/K:
activations then stay of order one at any depth.

What a backward program finds saved is set with `save`: by (token, slot), as it was at
home, since where it lies at an expert depends on the schedule. A saved buffer that
nothing is known of is random like an input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from hpc.interp.numerics import F32, Array, numpy_dtype, round_to
from hpc.schedule.layer import Layer
from hpc.schedule.model import Buffer

ROUTER = "router"
"""Name of the slot buffer that holds the router weights."""


@dataclass
class Data:
    """What a launch starts from; see the methods for shapes. Made by `make_data`."""

    layer: Layer
    buffers: dict[str, Buffer]
    seed: int
    _inputs: dict[tuple[str, int], Array] = field(default_factory=dict[Any, Array])
    _weights: dict[tuple[str, int], Array] = field(default_factory=dict[Any, Array])

    def input(self, name: str, rank: int) -> Array:
        """Input or saved buffer `name` of `rank`: [tokens, cols], or [tokens * top_k,
        cols] for slot and routed ones, in the buffer's dtype. KeyError for an unknown
        name."""
        if name == ROUTER:
            return self.router(rank).reshape(-1, 1)
        key = (name, rank)
        if key not in self._inputs:
            self._inputs[key] = self._make_input(self.buffers[name], rank)
        return self._inputs[key]

    def router(self, rank: int) -> F32:
        """Router weights f32 [tokens, top_k]: positive, a token's sum to one."""
        key = (ROUTER, rank)
        if key not in self._inputs:
            self._inputs[key] = self._make_router(rank)
        return self._inputs[key]

    def save(self, name: str, rank: int, values: Array) -> None:
        """Sets what saved buffer `name` holds, as `input` returns it."""
        self._inputs[name, rank] = values

    def weight(self, name: str, expert: int) -> Array:
        """Matrix [rows, cols] of global `expert`, in the buffer's dtype."""
        key = (name, expert)
        if key not in self._weights:
            self._weights[key] = self._make_weight(self.buffers[name], expert)
        return self._weights[key]

    def _make_weight(self, buffer: Buffer, expert: int) -> Array:
        shape = (buffer.rows, buffer.cols)
        values = self._rng(buffer.name, expert).standard_normal(shape, dtype=np.float32)
        values *= np.float32(1 / np.sqrt(max(buffer.rows, 1)))
        return round_to(values, numpy_dtype(buffer.dtype))

    def _rng(self, name: str, index: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, crc32(name.encode()), index))

    def _make_input(self, buffer: Buffer, rank: int) -> Array:
        rows = self.layer.tokens[rank]
        if buffer.space in ("slot", "routed"):
            rows *= self.layer.top_k
        rng = self._rng(buffer.name, rank)
        values = rng.standard_normal((rows, buffer.cols), dtype=np.float32)
        values *= rng.uniform(0.5, 1.5, (rows, 1)).astype(np.float32)
        return round_to(values, numpy_dtype(buffer.dtype))

    def _make_router(self, rank: int) -> F32:
        shape = (self.layer.tokens[rank], self.layer.top_k)
        values = self._rng(ROUTER, rank).uniform(0.25, 1.0, shape)
        values /= values.sum(axis=1, keepdims=True)
        return values.astype(np.float32)


def make_data(layer: Layer, buffers: Iterable[Buffer], seed: int = 0) -> Data:
    """Data for `layer`; `buffers` describe inputs, weights and what is saved."""
    wanted = {b.name: b for b in buffers if b.role in ("input", "weight", "saved")}
    return Data(layer, wanted, seed)
