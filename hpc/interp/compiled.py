"""The event loop compiled by numba: the same functions, taken from their modules as
they stand (`SOURCES`), over numpy arrays. Results are the same to the last bit.

Needs the optional dependency numba (`pip install 'hpc-moe[fast]'`). The first run on a
machine compiles, which takes some seconds; later ones load that from numba's cache.
"""

from __future__ import annotations

from array import array
from collections import namedtuple
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any, cast
from zlib import crc32

import numpy as np
import numpy.typing as npt

from hpc.interp import bandwidth, events, heaps, sharing, turns, walk
from hpc.interp.state import State

Flat = namedtuple("Flat", State.__slots__)  # pyright: ignore[reportUntypedNamedTuple]
"""`State` with arrays for lists: what compiled functions can read."""

FLOATS = ("delay_us", "poll_us", "open_at", "done_us", "clock", "pools")
"""Lists of `State` that hold floats; all others hold integers."""
SOURCES = (bandwidth, walk, turns, sharing, events, heaps)
"""Modules whose functions are compiled; names of later ones replace earlier."""
APART = ("empty", "bandwidth", "dyadic")
"""Functions that make what the loop works on: they are not part of it."""
RESULTS = ("pos", "left", "done_us", "pools", "clock")
"""Lists of `State` that a run leaves something in."""


INSTALL = "pip install 'hpc-moe[fast]'"


def available() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


def run_compiled(state: State, limit: int, tell: Callable[[], None]) -> None:
    """Runs `state` from its pending events to its end; `tell` comes every `limit`.

    `state` is up to date then, and when this returns or is interrupted.
    """
    if not available():
        raise ModuleNotFoundError(f"numba is not installed: {INSTALL}", name="numba")
    run_events = functions()["run_events"]
    flat = _flatten(state)
    try:
        while run_events(flat, limit) == limit:
            _save(flat, state)
            tell()
    finally:
        _save(flat, state)


@cache
def functions() -> dict[str, Any]:
    """The functions of the event loop by name, compiled on their first call.

    They share one namespace, in which they find each other and the array heaps.
    """
    njit: Any = import_module("numba").njit
    space: dict[str, Any] = {}
    for module in SOURCES:
        space.update(vars(module))
    version = _version()
    for module in SOURCES:
        for name, function in vars(module).items():
            if not isinstance(function, FunctionType) or name in APART:
                continue
            # A copy, because a function sees the namespace it was made with. The
            # state is dozens of arrays: passed on by value if a call is not inlined.
            copy = FunctionType(function.__code__, space, name)
            copy.__qualname__ = f"{name}_{version}"
            inner = name != "run_events"
            space[name] = njit(
                cache=True, forceinline=inner, error_model="numpy", _nrt=False
            )(copy)
    return space


def _version() -> str:
    """Changes with the sources, so that numba's cache never serves an older one."""
    sources = (Path(str(module.__file__)) for module in SOURCES)
    return f"{crc32(b''.join(path.read_bytes() for path in sources)):08x}"


def _flatten(state: State) -> Any:
    values = {name: _flat(name, getattr(state, name)) for name in State.__slots__}
    pending = sorted(state.events)
    values["events"] = heaps.empty(1, _most_events(state), 2)[0]
    # Sorted items are a heap.
    values["events"][0] = len(pending)
    values["events"][1 : 1 + 2 * len(pending)] = np.array(pending).ravel()
    values["flows"] = heaps.empty(len(state.pools), _most_flows(state), 3)
    return Flat(**values)


def _save(flat: Any, state: State) -> None:
    """Copies what `state` does not share with the arrays."""
    for name in RESULTS:
        setattr(state, name, getattr(flat, name).tolist())


def _flat(name: str, value: Any) -> Any:
    if name in ("events", "flows"):
        return None
    if isinstance(value, list):
        kind = np.float64 if name in FLOATS else np.int64
        items = cast(list[Any], value)
        # "safe": no float is cut to an integer.
        return (
            np.array(items).astype(kind, casting="safe") if items else np.zeros(0, kind)
        )
    if isinstance(value, array):
        flat = cast("array[float]", value)
        return np.frombuffer(flat, dtype=flat.typecode)
    if isinstance(value, memoryview):
        return np.asarray(cast("memoryview[float]", value))
    return np.frombuffer(value, np.uint8) if isinstance(value, bytearray) else value


def _most_events(state: State) -> int:
    """Every core, put and bandwidth has one event at most, but for wake-ups that have
    become stale: at most one for each transfer that joins (four for a put)."""
    moving: npt.NDArray[np.bool_] = np.frombuffer(state.hbm_bytes) > 0
    once = state.cores + len(state.pools) + len(state.put_bytes)
    return once + int(np.count_nonzero(moving)) + 4 * len(state.put_bytes)


def _most_flows(state: State) -> int:
    """Transfers of a rank's own cores, and all puts that it can receive."""
    return state.cores // state.ranks + len(state.shift)
