"""Routing files: JSON with `counts[rank][expert]` or `topk_ids[rank][token][slot]`.

    {"name": "...", "source": "where the numbers come from",
     "ranks": 2, "experts": 4, "top_k": 1, "tokens_per_rank": [3, 2],
     "counts": [[1, 0, 2, 0], [0, 1, 0, 1]]}

All keys but one of the two tables are optional; what is stated must agree with the
layer. `tokens_per_rank` may be below the layer's tokens: those ranks have fewer then.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, cast

from hpc.interp.routing_check import RoutingError, check_routing, few
from hpc.schedule.layer import Layer, Routing

MAX_BYTES = 256 * 1024 * 1024
"""Largest routing file; ids of 256 ranks x 4096 tokens x 8 slots take 40 MB."""

_MOST = 1 << 31
_TABLES = ("counts", "topk_ids")
_STATED = ("ranks", "experts", "top_k")
_KEYS = ("name", "source", "tokens_per_rank", *_STATED, *_TABLES)


@dataclass(frozen=True, slots=True)
class RoutingFile:
    """A well-formed file; whether it fits a layer is for `fit_layer`."""

    routing: Routing
    tokens: tuple[int, ...] | None
    stated: tuple[tuple[str, int], ...]


def read_routing(data: bytes, origin: str) -> RoutingFile:
    """The tables of a routing file. Raises `RoutingError` with all its faults.

    `origin` becomes `Routing.origin`.
    """
    content = _load(data)
    problems: list[str] = []
    unknown = [key for key in content if key not in _KEYS]
    problems += [
        f"unknown key '{key[:40]}', known: {', '.join(_KEYS)}" for key in unknown
    ]
    stated: list[tuple[str, int]] = []
    for key in _STATED:
        if key in content:
            problems += _problems(content[key], 0, key)
            stated.append((key, content[key]))
    tables = [key for key in _TABLES if key in content]
    if len(tables) != 1:
        problems.append(f"needs one of 'counts' and 'topk_ids', has {len(tables)}")
    depth = {"tokens_per_rank": 1, "counts": 2, "topk_ids": 3}
    for key, levels in depth.items():
        if key in content:
            problems += _problems(content[key], levels, key)
    if problems:
        raise RoutingError(few(problems))
    return RoutingFile(_routing(content, origin), _tokens(content), tuple(stated))


def fit_layer(file: RoutingFile, layer: Layer) -> tuple[Layer, tuple[str, ...]]:
    """The layer with the file's tokens per rank, and why the two do not fit."""
    sizes = {"ranks": layer.ep, "experts": layer.experts, "top_k": layer.top_k}
    problems = [
        f"the file states {key} = {value}, the layer has {sizes[key]}"
        for key, value in file.stated
        if value != sizes[key]
    ]
    if problems:
        return layer, tuple(problems)
    if file.tokens is not None:
        problems = _token_problems(file.tokens, layer)
        if problems:
            return layer, few(problems)
        layer = replace(layer, tokens=file.tokens)
    return layer, check_routing(layer, file.routing)


def _token_problems(tokens: tuple[int, ...], layer: Layer) -> list[str]:
    if len(tokens) != layer.ep:
        return [f"tokens_per_rank has {len(tokens)} ranks, the layer {layer.ep}"]
    if not any(tokens):
        return ["no rank has a token"]
    return [
        f"tokens_per_rank: rank {rank} has {have} tokens, the layer at most {most}"
        for rank, (have, most) in enumerate(zip(tokens, layer.tokens, strict=True))
        if have > most
    ]


def _load(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        raise RoutingError([f"has more than {MAX_BYTES:,} bytes"])
    try:
        content: object = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise RoutingError([f"is not UTF-8 text (byte {error.start})"]) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise RoutingError([f"is not JSON: {error.msg} at {where}"]) from None
    except RecursionError:
        raise RoutingError(["is not a routing table: nested too deeply"]) from None
    except ValueError:  # an integer of more digits than Python converts
        raise RoutingError(["has an absurdly long number"]) from None
    if not isinstance(content, dict):
        raise RoutingError(["is not a JSON object with 'counts' or 'topk_ids'"])
    return cast(dict[str, Any], content)


def _problems(value: Any, levels: int, path: str) -> list[str]:
    """Where `value` is not a list of lists ... of integers, `levels` deep."""
    if levels:
        if not isinstance(value, list):
            return [f"{path} is not a list"]
        items = cast(list[Any], value)
        if levels == 1 and _plain(items, path):
            return []
        found: list[str] = []
        for index, item in enumerate(items):
            found += _problems(item, levels - 1, f"{path}[{index}]")
        return found
    if type(value) is not int:
        return [f"{path} is not an integer: {str(value)[:40]}"]
    if value < 0 and not path.startswith("topk_ids"):
        return [f"{path} is negative: {str(value)[:40]}"]
    return [f"{path} is beyond 2^31"] if abs(value) > _MOST else []


def _plain(items: list[Any], path: str) -> bool:
    """Quickly: are these integers in range? (Big tables have millions.)"""
    if not items:
        return True
    if set(map(type, items)) != {int}:
        return False
    least = -_MOST if path.startswith("topk_ids") else 0
    return min(items) >= least and max(items) <= _MOST


def _routing(content: dict[str, Any], origin: str) -> Routing:
    if "counts" in content:
        counts = tuple(tuple(row) for row in content["counts"])
        return Routing("counts", counts=counts, origin=origin)
    ids = tuple(tuple(tuple(t) for t in rank) for rank in content["topk_ids"])
    return Routing("ids", ids=ids, origin=origin)


def _tokens(content: dict[str, Any]) -> tuple[int, ...] | None:
    """Tokens per rank as stated; a table of ids states them by its lengths."""
    if "tokens_per_rank" in content:
        return tuple(content["tokens_per_rank"])
    if "topk_ids" in content:
        return tuple(len(rank) for rank in content["topk_ids"])
    return None
