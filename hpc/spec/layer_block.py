"""The blocks `layer` and `parallel`: fields, limits, and what must fit together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hpc.schedule.layer import (
    ACTIVATIONS,
    DTYPE_BYTES,
    Activation,
    Layer,
)
from hpc.spec.diagnostics import Report
from hpc.spec.model import Loc
from hpc.spec.nodes import Block, Call, Items, Node, Word
from hpc.spec.values import (
    Field,
    Param,
    Read,
    bind,
    boolean,
    choice,
    integer,
    integers,
    read_fields,
    read_integer,
    real,
    settings_of,
)

MAX_COLS = 1 << 20
"""Most columns of a matrix: 50 times the widest published model."""

MAX_EXPERTS = 1 << 16
MAX_RANKS = 4096

MAX_ROWS = 1 << 31
"""Most rows over all ranks: row numbers are 32-bit integers on the device."""

MAX_PAIRS = 1 << 24
"""Most (rank, expert) pairs: the table of counts takes 128 MiB then."""

OAI_PARAMS = (
    Param("alpha", real(0, 1e6, open_low=True), 1.702),
    Param("limit", real(0, 1e6, open_low=True), 7.0),
)
ACTIVATION_PARAMS = {name: OAI_PARAMS * (name == "swiglu_oai") for name in ACTIVATIONS}


def _tokens(report: Report, node: Node) -> int | tuple[int, ...] | None:
    if isinstance(node, Items):
        return integers(0, MAX_ROWS - 1)(report, node)
    return read_integer(report, node, 1, MAX_ROWS - 1)


def _activation(report: Report, node: Node) -> Activation | None:
    name = node.name if isinstance(node, Call) else node
    if not isinstance(name, Word) or name.text not in ACTIVATIONS:
        choice(ACTIVATIONS, "activation")(report, name)
        return None
    call = node if isinstance(node, Call) else Call(name, (), 1)
    params = bind(report, call, ACTIVATION_PARAMS[name.text], "activation")
    return None if params is None else Activation(name.text, **dict(params))


LAYER = (
    Field("tokens", _tokens, required=True),
    Field("hidden", integer(1, MAX_COLS), required=True),
    Field("intermediate", integer(1, MAX_COLS), required=True),
    Field("experts", integer(1, MAX_EXPERTS), required=True),
    Field("top_k", integer(1, MAX_EXPERTS), required=True),
    Field("activation", _activation, required=True),
    Field("dtype", choice(tuple(DTYPE_BYTES), "dtype"), "bf16"),
    Field("weights_at", choice(("output", "input"), "place"), "output"),
    Field("repeats", boolean, False),
)
PARALLEL = (Field("ep", integer(1, MAX_RANKS), 1),)

ROUTED_ONLY = ("intermediate", "experts", "top_k", "activation")
"""Fields that a flow without routed rows does not need."""


@dataclass(frozen=True, slots=True)
class LayerParts:
    """What could be read of the layer; None where a field was wrong or missing.

    `routed` has sizes good enough to check a routing against, `layer` is whole.
    """

    name: str
    loc: Loc
    fields: Mapping[str, Read]
    ep: int | None
    hidden: int | None
    intermediate: int | None
    activation: Activation | None
    dtype: str | None
    routed: Layer | None
    layer: Layer | None

    def place(self, field: str) -> Loc:
        """Where a field was set, or the layer's own place."""
        return self.fields[field].loc if field in self.fields else self.loc

    def layer_with_tokens(self, routed: Layer | None) -> Layer | None:
        """The whole layer with the tokens of `routed` (a routing file's)."""
        if self.layer is None or routed is None:
            return None
        return replace(self.layer, tokens=routed.tokens)


def read_layer(
    report: Report, block: Block, parallel: Block | None, needed: frozenset[str]
) -> LayerParts:
    """Reads both blocks; `needed` are the fields of `ROUTED_ONLY` the flow needs."""
    fields = read_fields(report, "field", settings_of(report, block), LAYER)
    if parallel is not None:
        fields |= read_fields(report, "field", settings_of(report, parallel), PARALLEL)
    if block.name is None:
        report.error(block.kind.loc, "the layer has no name", "layer NAME { ... }")
    optional = frozenset(ROUTED_ONLY) - needed
    wanted = [f.name for f in LAYER if f.required and f.name not in optional]
    missing = [name for name in wanted if name not in fields]
    for name in missing:
        report.error(block.kind.loc, f"the layer has no '{name}'")
    values = _values(fields, missing)
    parts = LayerParts(
        name=block.name.text if block.name else "",
        loc=block.kind.loc,
        fields=fields,
        ep=values["ep"],
        hidden=values["hidden"],
        intermediate=values["intermediate"],
        activation=values["activation"],
        dtype=values["dtype"],
        routed=None,
        layer=None,
    )
    return _with_layers(report, parts, values)


def _values(fields: Mapping[str, Read], missing: list[str]) -> dict[str, Any]:
    """Every field's value or default; None for wrong or missing ones."""
    values: dict[str, Any] = {f.name: f.default for f in (*LAYER, *PARALLEL)}
    values |= {"top_k": 1, "activation": Activation("swiglu")}
    values |= {name: read.value for name, read in fields.items()}
    if "experts" not in fields:
        values["experts"] = values["ep"]
    if "intermediate" not in fields:
        values["intermediate"] = values["hidden"]
    values |= dict.fromkeys(missing)
    if isinstance(values["tokens"], int) and values["ep"] is not None:
        values["tokens"] = (values["tokens"],) * values["ep"]
    return values


def _with_layers(
    report: Report, parts: LayerParts, values: dict[str, Any]
) -> LayerParts:
    """Adds `routed` and `layer` as far as the values allow."""
    sizes = [values[k] for k in ("ep", "tokens", "experts", "top_k", "repeats")]
    if None in sizes or not _fits_together(report, parts, *sizes):
        return parts
    harmless: dict[str, Any] = {
        "hidden": 1,
        "intermediate": 1,
        "activation": Activation("swiglu"),
        "dtype": "bf16",
        "weights_at": "output",
    }
    rest = {name: values[name] for name in harmless}
    sure = {k: values[k] for k in ("ep", "tokens", "experts", "top_k", "repeats")}
    routed = Layer(parts.name, **sure, **harmless)
    layer = None if None in rest.values() else Layer(parts.name, **sure, **rest)
    return replace(parts, routed=routed, layer=layer)


def _fits_together(
    report: Report,
    parts: LayerParts,
    ep: int,
    tokens: tuple[int, ...],
    experts: int,
    top_k: int,
    repeats: bool,
) -> bool:
    """Limits across fields, each reported at the field that breaks it."""
    before = len(report.found)
    if top_k > experts and not repeats:
        message = f"top_k = {top_k} exceeds experts = {experts}"
        report.error(parts.place("top_k"), message)
    if experts < ep:
        place = parts.place("ep" if "ep" in parts.fields else "experts")
        message = (
            f"experts = {experts} are fewer than ep = {ep}: a rank would have none"
        )
        report.error(place, message)
    if ep * experts > MAX_PAIRS:
        message = f"ep * experts = {ep} * {experts} exceeds {MAX_PAIRS}"
        report.error(parts.place("experts"), message)
    if len(tokens) != ep:
        message = f"tokens has {len(tokens)} entries, but ep = {ep} ranks"
        report.error(parts.place("tokens"), message, "one number serves all ranks")
    elif not any(tokens):
        report.error(parts.place("tokens"), "no rank has a token")
    if (rows := sum(tokens) * top_k) > MAX_ROWS:
        message = (
            f"{sum(tokens)} tokens over all ranks * top_k {top_k} = {rows} rows, "
            f"more than {MAX_ROWS} (2^31)"
        )
        report.error(parts.place("tokens"), message)
    return len(report.found) == before
