"""What a point's `run` may say: one table of kinds and settings that the loader, the
checks and the docs share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from hpc.machine.cost import ceil_div
from hpc.machine.ops import OP_COSTS
from hpc.machine.record import Machine, did_you_mean
from hpc.machine.toml_file import shorten
from hpc.schedule.layer import (
    DTYPE_BYTES,
    GATED_ACTIVATIONS,
    PLAIN_ACTIVATIONS,
)

Setting = str | int | float
Run = dict[str, Setting]

Fault = tuple[str, str]
"""A setting of a run ("" for the run itself) and what is wrong with it."""

Relation = tuple[tuple[str, ...], Callable[[Run], Iterable[Fault]]]
"""Settings, and what is wrong between them; asked if each is right in itself."""

MAX_ROWS = (1 << 31) - 1
"""Row numbers are 32-bit integers on the device."""

MAX_COLS = 1 << 20
MAX_RANKS = 4096
MAX_EXPERTS = 1 << 16

MAX_TASKS = 1 << 16
"""Most tasks of a run; the simulation looks at each of them on every core."""

MAX_PUTS = 1 << 22
"""Most puts of all ranks; where ranks differ, each is an event of the simulation."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One setting of a run; without a `default` it must be given.

    A number is whole and in `low` .. `high`; a word is one of `words`, or any if
    there are none.
    """

    name: str
    doc: str
    low: int = 0
    high: int = 0
    words: tuple[str, ...] | None = None
    default: Setting | None = None


VECTOR_OPS = tuple(
    op
    for op, cost in OP_COSTS.items()
    if cost.unit == "aiv"
    and not cost.scalar
    and op not in ("dispatch", "combine", "dot", "reduce_dot")
)
"""Operators that read token rows and write token rows, nothing else."""

DTYPE = Parameter("dtype", "element type", words=tuple(DTYPE_BYTES))
ROWS = Parameter("rows", "rows, of one die", 1, MAX_ROWS)


def _flag(name: str, doc: str, default: int | None = 0) -> Parameter:
    return Parameter(name, doc, 0, 1, default=default)


KINDS: dict[str, tuple[Parameter, ...]] = {
    "layer": (
        Parameter("spec", "name of a `.moe` text in [specs]", words=()),
        Parameter("policy", "policy to compile with", words=()),
    ),
    "gmm": (
        Parameter("rows", "rows of all groups, dealt evenly", 1, MAX_ROWS),
        Parameter("n", "columns of the result", 1, MAX_COLS),
        Parameter("k", "depth", 1, MAX_COLS),
        Parameter("groups", "matrices", 1, MAX_EXPERTS),
        DTYPE,
    ),
    "vector": (
        Parameter("op", "operator", words=VECTOR_OPS),
        ROWS,
        Parameter("read_cols", "columns read, of all operands", 1, MAX_COLS),
        Parameter("write_cols", "columns written", 1, MAX_COLS),
        DTYPE,
        Parameter(
            "tile_rows", "rows of a tile; 0: a tile a core", 0, MAX_ROWS, default=0
        ),
        Parameter("passes", "times that each block is worked on", 1, 1024, default=1),
        Parameter("blocks", "parts, one after the other", 1, MAX_EXPERTS, default=1),
    ),
    "pair": (
        ROWS,
        Parameter("cols", "columns that SwiGLU and Add write", 1, MAX_COLS),
        DTYPE,
        Parameter("blocks", "parts of the rows, an event each", 1, MAX_EXPERTS),
        _flag("interleaved", "1: each block's Add follows the next one's SwiGLU", None),
    ),
    "exchange": (
        Parameter("which", "direction", words=("dispatch", "combine")),
        Parameter("tokens", "tokens of each rank", 1, MAX_ROWS),
        Parameter("cols", "columns of a row", 1, MAX_COLS),
        DTYPE,
        Parameter("ep", "ranks", 1, MAX_RANKS),
        Parameter("experts", "experts of all ranks", 1, MAX_EXPERTS),
        Parameter("top_k", "experts of a token", 1, MAX_EXPERTS),
        Parameter("rows_per_put", "rows of one put, for the mean", 1, MAX_ROWS),
        _flag("window", "1: a dispatch of rows, then flags, then a copy out"),
        _flag("counted", "1: a dispatch that sums all counts first, for dense rows"),
    ),
}
"""Settings of each kind of run; those of a layer also fill its spec's placeholders."""

COMMON: tuple[Parameter, ...] = (
    Parameter("dispatch", "how tasks are fetched", words=("static", "dynamic"),
          default="static"),
    _flag("repeated", "1: an identical run came before, as in a benchmark's loop"),
    Parameter("payload_bytes", "bytes that a GB/s counts", 1, 1 << 50, default=0),
)  # fmt: skip
"""Settings of every kind."""

READ_PER_WRITE: dict[str, tuple[int, int]] = {
    **dict.fromkeys(GATED_ACTIVATIONS, (2, 1)),
    **dict.fromkeys(PLAIN_ACTIVATIONS, (1, 1)),
    **{f"{op}_grad": (3, 2) for op in GATED_ACTIVATIONS},
    **{f"{op}_grad": (2, 1) for op in PLAIN_ACTIVATIONS},
    "add": (2, 1),
    "copy": (1, 1),
    "scale": (1, 1),
}
"""Columns read for columns written, where the operator leaves no choice."""


def run_faults(run: Mapping[str, object]) -> list[Fault]:
    """What is wrong with a run on any machine; a layer's spec is not looked at."""
    kind = run.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        known = f"kinds: {', '.join(KINDS)}"
        if kind is None:
            return [("", f"missing 'kind'; {known}")]
        guess = did_you_mean(str(kind), KINDS)
        return [("kind", f"unknown kind {shorten(kind)}{guess or f'; {known}'}")]
    fields = {field.name: field for field in (*KINDS[kind], *COMMON)}
    faults = [
        ("", f"kind '{kind}' needs '{field.name}' ({field.doc})")
        for field in fields.values()
        if field.default is None and field.name not in run
    ]
    for key, value in run.items():
        if key in fields:
            faults += [(key, fault) for fault in _value_faults(fields[key], value)]
        elif key != "kind" and kind != "layer":
            guess = did_you_mean(key, fields) or f"; it has {', '.join(fields)}"
            faults.append((key, f"kind '{kind}' has no setting '{key}'{guess}"))
    wrong = {key for key, _ in faults} | (fields.keys() - _given(run, fields.values()))
    for names, relation in _RELATIONS.get(kind, ()):
        if not wrong.intersection(names):
            faults += relation(cast(Run, run))
    return faults


def _given(run: Mapping[str, object], fields: Iterable[Parameter]) -> set[str]:
    """Settings that a run has, by itself or by default."""
    return {f.name for f in fields if f.name in run or f.default is not None}


def _value_faults(field: Parameter, value: object) -> list[str]:
    name = field.name
    if field.words is not None:
        return _word_faults(name, value, field.words)
    if isinstance(value, bool) or not isinstance(value, int):
        return [f"{name} must be a whole number, got {shorten(value)}"]
    if field.low <= value <= field.high:
        return []
    return [f"{name} = {shorten(value)} is outside {field.low} .. {field.high}"]


def _word_faults(name: str, value: object, words: tuple[str, ...]) -> list[str]:
    if not isinstance(value, str) or not value:
        return [f"{name} must be a string, got {shorten(value)}"]
    if not words or value in words:
        return []
    guess = did_you_mean(value, words) or f"; expected one of {', '.join(words)}"
    return [f"unknown {name} {shorten(value)}{guess}"]


def _column_faults(run: Run) -> Iterable[Fault]:
    op, read, write = str(run["op"]), _int(run, "read_cols"), _int(run, "write_cols")
    got = f"got read_cols = {read}, write_cols = {write}"
    reads, writes = READ_PER_WRITE.get(op, (0, 0))
    if read * writes != write * reads:
        yield "read_cols", f"{op} reads {reads} columns for {writes} written; {got}"
    if op == "reduce" and read % write:
        yield "read_cols", f"reduce reads whole slots of write_cols; {got}"


def _block_faults(run: Run) -> Iterable[Fault]:
    rows, blocks = _int(run, "rows"), _int(run, "blocks", 1)
    if blocks > rows:
        yield "blocks", f"blocks = {blocks} exceeds rows = {rows}"


def _task_faults(run: Run) -> Iterable[Fault]:
    tasks = _int(run, "blocks", 1) * _int(run, "passes", 1)
    if tasks > MAX_TASKS:
        yield "passes", f"blocks x passes = {tasks} tasks, more than {MAX_TASKS}"


def _expert_faults(run: Run) -> Iterable[Fault]:
    ep, experts = _int(run, "ep"), _int(run, "experts")
    if experts < ep:
        yield "experts", f"experts = {experts} are fewer than ep = {ep}"


def _choice_faults(run: Run) -> Iterable[Fault]:
    experts, top_k = _int(run, "experts"), _int(run, "top_k")
    if top_k > experts:
        yield "top_k", f"top_k = {top_k} exceeds experts = {experts}"


def _row_faults(run: Run) -> Iterable[Fault]:
    rows = _chosen(run) * _int(run, "ep")
    if rows > MAX_ROWS:
        yield "tokens", f"tokens x top_k x ep = {rows} rows exceed {MAX_ROWS}"


def _flag_faults(name: str) -> Relation:
    """A flag that only a dispatch has."""

    def faults(run: Run) -> Iterable[Fault]:
        if run.get(name) and run["which"] != "dispatch":
            yield name, f"{name} is for a dispatch, a combine has none"

    return ("which", name), faults


def _exclusion_faults(run: Run) -> Iterable[Fault]:
    if run.get("window") and run.get("counted"):
        yield "counted", "counted excludes window: its rows have fixed places"


def _share_faults(run: Run) -> Iterable[Fault]:
    experts, ep = _int(run, "experts"), _int(run, "ep")
    if run.get("window") and experts % ep:
        yield "window", f"window needs experts = {experts} divisible by ep = {ep}"


def _place_faults(run: Run) -> Iterable[Fault]:
    chosen, experts = _chosen(run), _int(run, "experts")
    if run.get("window") and chosen % experts:
        got = f"{chosen} and {experts}"
        yield "window", f"window needs tokens x top_k divisible by experts; got {got}"


def _put_faults(run: Run) -> Iterable[Fault]:
    experts = _int(run, "experts")
    pieces = max(1, ceil_div(_chosen(run) // experts, _int(run, "rows_per_put")))
    puts = pieces * experts * _int(run, "ep")
    if puts > MAX_PUTS:
        yield "rows_per_put", f"the exchange has {puts} puts, more than {MAX_PUTS}"


def _chosen(run: Run) -> int:
    """Rows that each rank sends."""
    return _int(run, "tokens") * _int(run, "top_k")


_BLOCKS: Relation = (("rows", "blocks"), _block_faults)

_RELATIONS: dict[str, tuple[Relation, ...]] = {
    "vector": (
        (("op", "read_cols", "write_cols"), _column_faults),
        _BLOCKS,
        (("blocks", "passes"), _task_faults),
    ),
    "pair": (_BLOCKS,),
    "exchange": (
        (("ep", "experts"), _expert_faults),
        (("experts", "top_k"), _choice_faults),
        (("tokens", "top_k", "ep"), _row_faults),
        _flag_faults("window"),
        _flag_faults("counted"),
        (("window", "counted"), _exclusion_faults),
        (("window", "experts", "ep"), _share_faults),
        (("window", "tokens", "top_k", "experts"), _place_faults),
        (("tokens", "top_k", "experts", "rows_per_put", "ep"), _put_faults),
    ),
}
"""What must hold between settings, by kind of run."""


def machine_faults(machine: Machine, run: Run) -> list[Fault]:
    """Why a run that is right in itself cannot be had on `machine`; not for layers,
    which are compiled."""
    if run["kind"] == "layer":
        return []
    dtype = str(run["dtype"])
    if dtype not in machine.dtypes:
        known = ", ".join(machine.dtypes)
        return [("dtype", f"{machine.name} has no {dtype}, it has: {known}")]
    faults: list[Fault] = []
    need = _elements(run) * DTYPE_BYTES[dtype]
    if need > machine.hbm_bytes:
        have = f"{machine.name} has {machine.hbm_bytes:,} bytes of HBM"
        faults.append(("", f"its buffers take {need:,} bytes of a rank, {have}"))
    blocks = run.get("blocks", 1)
    if run["kind"] == "pair" and _int(run, "blocks") > machine.max_events:
        have = f"{machine.name} has {machine.max_events}"
        faults.append(("blocks", f"{blocks} blocks take an event each, {have}"))
    return faults


def _elements(run: Run) -> int:
    """Elements of all buffers of a rank."""
    match run["kind"]:
        case "gmm":
            rows, n, k, groups = (
                _int(run, key) for key in ("rows", "n", "k", "groups")
            )
            return rows * (n + k) + groups * n * k
        case "vector":
            return _int(run, "rows") * (
                _int(run, "read_cols") + _int(run, "write_cols")
            )
        case "pair":
            return _int(run, "rows") * _int(run, "cols") * 5
        case _:
            sent = _int(run, "tokens") * _int(run, "top_k")
            copies = 2 if run["which"] == "combine" or run.get("window") else 1
            return (_int(run, "tokens") + copies * sent) * _int(run, "cols")


def _int(run: Run, key: str, default: int = 0) -> int:
    return cast(int, run.get(key, default))
