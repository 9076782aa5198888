"""The layer, its routing and the user's pins as one dictionary attribute, and back.

It rides on `moe.layer`, `tile.program` and `npu.program`, so that every level knows the
whole specification and a pass can run alone on printed IR.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import cast

from xdsl.dialects.builtin import (
    I64,
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    StringAttr,
)
from xdsl.ir import Attribute
from xdsl.utils.exceptions import PassFailedException

from dialects.base import int_attr, ints_attr
from hpc.schedule.layer import (
    ACTIVATIONS,
    DTYPE_BYTES,
    Activation,
    Layer,
    Routing,
)


@dataclass(frozen=True, slots=True)
class PlanPins:
    """Choices pinned by the user, None where the compiler chooses.

    `base_tile` is (m, n, k); the others count groups, row chunks and cores.
    """

    policy: str | None = None
    groups: int | None = None
    row_chunks: int | None = None
    base_tile: tuple[int, ...] | None = None
    aic: int | None = None
    comm_aiv: int | None = None
    vector_aiv: int | None = None


def _to_attr(value: object) -> Attribute:
    match value:
        case bool():
            return StringAttr("true" if value else "false")
        case int():
            return int_attr(value)
        case float():
            return FloatAttr(value, 64)
        case str():
            return StringAttr(value)
        case tuple():
            return _sequence_attr(cast("tuple[object, ...]", value))
        case _:
            raise TypeError(f"no attribute for {value!r}")


def _sequence_attr(values: tuple[object, ...]) -> Attribute:
    if all(type(v) is int for v in values):
        return ints_attr(cast("Sequence[int]", values))
    return ArrayAttr(_to_attr(v) for v in values)


def _from_attr(attr: Attribute) -> object:
    match attr:
        case IntegerAttr():
            return attr.value.data
        case FloatAttr():
            return attr.value.data
        case StringAttr():
            return attr.data
        case DenseArrayBase():
            return tuple(cast("DenseArrayBase[I64]", attr).get_values())
        case ArrayAttr():
            return tuple(_from_attr(a) for a in attr)
        case _:
            raise PassFailedException(f"unexpected attribute in the spec: {attr}")


def params_attr(params: Iterable[tuple[str, float]]) -> DictionaryAttr | None:
    """Named numbers as a dictionary; None if there are none."""
    entries = {name: FloatAttr(float(value), 64) for name, value in params}
    return DictionaryAttr(entries) if entries else None


def params_of(attr: DictionaryAttr | None) -> tuple[tuple[str, float], ...]:
    """The inverse of `params_attr`."""
    if attr is None:
        return ()
    pairs = ((name, cast(float, _from_attr(v))) for name, v in attr.data.items())
    return tuple((name, float(value)) for name, value in pairs)


def spec_attr(layer: Layer, routing: Routing, pins: PlanPins) -> DictionaryAttr:
    """Everything about the layer that later passes and the schedule file need."""
    entries: dict[str, Attribute] = {
        "tokens": ints_attr(layer.tokens),
        "hidden": int_attr(layer.hidden),
        "intermediate": int_attr(layer.intermediate),
        "experts": int_attr(layer.experts),
        "top_k": int_attr(layer.top_k),
        "activation": StringAttr(layer.activation.name),
        "alpha": FloatAttr(layer.activation.alpha, 64),
        "limit": FloatAttr(layer.activation.limit, 64),
        "dtype": StringAttr(layer.dtype),
        "weights_at": StringAttr(layer.weights_at),
        "repeats": _to_attr(layer.repeats),
        "routing": _routing_attr(routing),
    }
    chosen = {f.name: getattr(pins, f.name) for f in fields(pins)}
    pinned = {k: _to_attr(v) for k, v in chosen.items() if v is not None}
    if pinned:
        entries["pins"] = DictionaryAttr(pinned)
    return DictionaryAttr(entries)


def _routing_attr(routing: Routing) -> DictionaryAttr:
    entries: dict[str, Attribute] = {"kind": StringAttr(routing.kind)}
    params = params_attr(routing.params)
    if params is not None:
        entries["params"] = params
    tables = {"counts": routing.counts, "ids": routing.ids}
    entries |= {name: _to_attr(table) for name, table in tables.items() if table}
    if routing.origin:
        entries["origin"] = StringAttr(routing.origin)
    return DictionaryAttr(entries)


def _values(attr: DictionaryAttr) -> Mapping[str, Attribute]:
    return attr.data


def _get(spec: DictionaryAttr, name: str, kind: type[object]) -> object:
    attr = _values(spec).get(name)
    if attr is None:
        raise PassFailedException(f"the spec of the program lacks '{name}'")
    value = _from_attr(attr)
    if not isinstance(value, kind):
        raise PassFailedException(
            f"'{name}' in the spec must be {kind.__name__}, got {attr}"
        )
    return value


def layer_of(name: str, spec: DictionaryAttr) -> Layer:
    """The layer that `spec_attr` recorded; a PassFailedException says what lacks or
    cannot be."""
    activation = Activation(
        cast(str, _get(spec, "activation", str)),
        cast(float, _get(spec, "alpha", float)),
        cast(float, _get(spec, "limit", float)),
    )
    tokens = cast("tuple[int, ...]", _get(spec, "tokens", tuple))
    number = {
        key: cast(int, _get(spec, key, int))
        for key in ("hidden", "intermediate", "experts", "top_k")
    }
    layer = Layer(
        name=name,
        tokens=tokens,
        **number,
        activation=activation,
        dtype=cast(str, _get(spec, "dtype", str)),
        ep=len(tokens),
        weights_at=cast(str, _get(spec, "weights_at", str)),
        repeats=_get(spec, "repeats", str) == "true",
    )
    fault = _layer_fault(layer)
    if fault is not None:
        raise PassFailedException(f"the spec of the program: {fault}")
    return layer


def _layer_fault(layer: Layer) -> str | None:
    """What no layer can have; the reader of `.moe` files refuses it with more words."""
    sizes = {
        "hidden": layer.hidden,
        "intermediate": layer.intermediate,
        "experts": layer.experts,
        "top_k": layer.top_k,
    }
    small = [f"{name} = {size}" for name, size in sizes.items() if size < 1]
    words = (
        ("dtype", layer.dtype, tuple(DTYPE_BYTES)),
        ("activation", layer.activation.name, ACTIVATIONS),
        ("weights_at", layer.weights_at, ("output", "input")),
    )
    wrong = [
        f"{name} must be one of {', '.join(allowed)}, got {value}"
        for name, value, allowed in words
        if value not in allowed
    ]
    if not layer.tokens or not all(type(t) is int and t >= 0 for t in layer.tokens):
        return f"tokens must be a count for every rank, got {list(layer.tokens)}"
    if small:
        return f"{small[0]}, and every size is at least 1"
    if wrong:
        return wrong[0]
    if layer.experts < layer.ep:
        return f"{layer.experts} experts are fewer than the {layer.ep} ranks"
    if layer.top_k > layer.experts and not layer.repeats:
        return f"top_k = {layer.top_k} exceeds the {layer.experts} experts"
    return None


def routing_of(spec: DictionaryAttr) -> Routing:
    """The routing that `spec_attr` recorded."""
    attr = _values(spec).get("routing")
    if not isinstance(attr, DictionaryAttr):
        raise PassFailedException("the spec of the program lacks 'routing'")
    found = _values(attr)
    counts = _table(found, "counts", depth=2)
    ids = _table(found, "ids", depth=3)
    params = found.get("params")
    origin = found.get("origin")
    return Routing(
        kind=cast(str, _get(attr, "kind", str)),
        params=params_of(params if isinstance(params, DictionaryAttr) else None),
        counts=cast("tuple[tuple[int, ...], ...]", counts),
        ids=cast("tuple[tuple[tuple[int, ...], ...], ...]", ids),
        origin=origin.data if isinstance(origin, StringAttr) else "",
    )


def _table(found: Mapping[str, Attribute], name: str, depth: int) -> object:
    """A table of integers nested `depth` deep, or nothing."""
    value = _from_attr(found[name]) if name in found else ()
    if not _is_table(value, depth):
        raise PassFailedException(f"'{name}' in the routing is no table of integers")
    return value


def _is_table(value: object, depth: int) -> bool:
    if depth == 0:
        return type(value) is int
    if not isinstance(value, tuple):
        return False
    return all(_is_table(item, depth - 1) for item in cast("tuple[object]", value))


def pins_of(spec: DictionaryAttr) -> PlanPins:
    """The pins that `spec_attr` recorded; a PassFailedException for any other."""
    attr = _values(spec).get("pins")
    if attr is None:
        return PlanPins()
    if not isinstance(attr, DictionaryAttr):
        raise PassFailedException(f"'pins' in the spec is no dictionary: {attr}")
    found = {name: _from_attr(value) for name, value in attr.data.items()}
    for name, value in found.items():
        _check_pin(name, value)
    return PlanPins(**found)  # type: ignore[arg-type]


def _check_pin(name: str, value: object) -> None:
    known = [f.name for f in fields(PlanPins)]
    if name not in known:
        raise PassFailedException(
            f"unknown pin '{name}' in the spec; there are {', '.join(known)}"
        )
    if name == "policy":
        good = isinstance(value, str)
    elif name == "base_tile":
        good = _is_table(value, 1)
    else:
        good = type(value) is int and value >= 1
    if not good:
        raise PassFailedException(f"the pin '{name}' in the spec cannot be {value}")
