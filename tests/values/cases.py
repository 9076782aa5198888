"""Building blocks of the value tests: hand-made routings, one call that judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hpc.interp.data import Data, make_data
from hpc.interp.launch_steps import launch_steps
from hpc.interp.reference import reference
from hpc.interp.saved import launch_data
from hpc.interp.values import Result, execute
from hpc.interp.verdict import Verdict, compare
from hpc.schedule.layer import Layer
from hpc.schedule.model import Base, Buffer, Queue, Region, Schedule, Set, Task, Wait
from tests.builders import AIC, VEC, small_layer, standard_schedule

Ids = Sequence[npt.NDArray[Any]]
NARROW = Base(16, 16, 64)


def data_for(schedule: Schedule, ids: Ids) -> Data:
    """The data of seed 0, and what the forward pass saves of it."""
    if schedule.mode != "backward":
        return make_data(schedule.layer, schedule.buffers)
    return launch_data(schedule, launch_steps(schedule), ids)


def run(schedule: Schedule, ids: Ids, seed: int = 0) -> Result:
    """Executes on the data of seed 0."""
    data = data_for(schedule, ids)
    return execute(schedule, ids, seed=seed, data=data)


def judge(
    schedule: Schedule, ids: Ids, seed: int = 0, data: Data | None = None
) -> Verdict:
    """Executes, insists on every output being written once, and compares."""
    data = data or data_for(schedule, ids)
    result = execute(schedule, ids, seed=seed, data=data)
    assert result.writes_ok, result.faults
    names = list(result.outputs)
    expected = reference(schedule.layer, launch_steps(schedule), ids, data, names)
    return compare(result.outputs, expected)


def bits(result: Result) -> bytes:
    """All output bits."""
    return b"".join(a.tobytes() for arrays in result.outputs.values() for a in arrays)


def one_expert(rows: int, expert: int, **changes: Any) -> tuple[Layer, Ids]:
    """A top-1 layer of two ranks where rank 0 sends `rows` rows to one expert."""
    layer = small_layer(tokens=(rows, 3), top_k=1, **changes)
    ids = [np.full((rows, 1), expert), np.zeros((3, 1), np.int64)]
    return layer, ids


def random_ids(layer: Layer, seed: int, unsent: float = 0.0) -> Ids:
    """Different experts in random slot order; a share of the slots sends nothing."""
    rng = np.random.default_rng(seed)
    found: list[npt.NDArray[Any]] = []
    for tokens in layer.tokens:
        keys = rng.random((tokens, layer.experts))
        ids = keys.argsort(axis=1)[:, : layer.top_k]
        ids[rng.random(ids.shape) < unsent] = -1
        found.append(ids)
    return found


def without(schedule: Schedule, queue: int, index: int) -> Schedule:
    """The schedule with one instruction of one queue left out."""
    code = schedule.queues[queue].code
    return with_code(schedule, queue, code[:index] + code[index + 1 :])


def with_code(schedule: Schedule, queue: int, code: tuple[Any, ...]) -> Schedule:
    """The schedule with the code of one queue replaced."""
    queues = list(schedule.queues)
    queues[queue] = replace(queues[queue], code=code)
    return replace(schedule, queues=tuple(queues))


def with_teams(schedule: Schedule, size: int) -> Schedule:
    """The schedule with all teams of 24 cores, and what joins them, cut to `size`.

    Events that count the signals of puts stay as they are.
    """
    joins = {e.id for e in schedule.events if "done" in e.name}
    queues = list(schedule.queues)
    for index, queue in enumerate(queues):
        code = tuple(
            replace(c, need=size) if isinstance(c, Wait) and c.event in joins else c
            for c in queue.code
        )
        queues[index] = Queue(replace(queue.team, size=size), code)
    events = tuple(
        replace(e, need=size) if e.id in joins else e for e in schedule.events
    )
    return replace(schedule, events=events, queues=tuple(queues))


def add_then_swiglu(layer: Layer, m: int = 16, row_chunks: int = 2) -> Schedule:
    """The micro-benchmark flow sum = add(p, q); out = swiglu(sum), no communication."""
    wide = 2 * layer.hidden
    make = lambda name, cols, role: Buffer(  # noqa: E731
        name, "token", cols, layer.dtype, role, layer.max_tokens
    )
    base = standard_schedule(layer)
    first: list[Any] = []
    second: list[Any] = []
    for part in range(row_chunks):
        where = [Region(name, None, part) for name in ("p", "q", "sum", "out")]
        first += [Task("add", (where[0], where[1]), (where[2],), Base(m)), Set(part)]
        second += [
            Wait(part, AIC.size),
            Task("swiglu", (where[2],), (where[3],), Base(m)),
        ]
    return replace(
        base,
        row_chunks=row_chunks,
        buffers=(
            make("p", wide, "input"),
            make("q", wide, "input"),
            make("sum", wide, "workspace"),
            make("out", layer.hidden, "output"),
        ),
        events=base.events[:row_chunks],
        queues=(Queue(AIC, tuple(first)), Queue(VEC, tuple(second))),
    )
