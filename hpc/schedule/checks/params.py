"""Numbers of operators: its own ones only, and of one operator the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator

from hpc.schedule.checks.index import Index, Place, Violation
from hpc.schedule.checks.operators import OPERATORS
from hpc.schedule.layer import ACTIVATIONS
from hpc.schedule.model import Task

CHECK = "structure"
RULES = {
    "wrong-params": "An operator has its own numbers, the same in every part and in "
    "its gradient.",
}

_GRADIENT = "_grad"

_Params = tuple[tuple[str, float], ...]


def check_params(index: Index) -> list[Violation]:
    """All numbers that an operator does not have, or not everywhere; references must
    be sound."""
    tasks = [(p, i) for p, i in index.places() if isinstance(i, Task)]
    # Where no task has numbers, as with most activations, they cannot differ.
    if not any(task.params for _, task in tasks):
        return []
    found = [*_unknown(tasks), *_parts(tasks), *_gradients(tasks)]
    return [
        index.violation(CHECK, "wrong-params", text, place) for text, place in found
    ]


_Tasks = list[tuple[Place, Task]]
_Found = Iterator[tuple[str, Place]]


def _unknown(tasks: _Tasks) -> _Found:
    for place, task in tasks:
        own = OPERATORS[task.op].params
        for name, _ in task.params:
            if name not in own:
                known = " and ".join(own) or "none"
                yield f'"{name}" is no number of {task.op}, which has {known}', place


def _parts(tasks: _Tasks) -> _Found:
    """Tasks of one operator from and to the same buffers are parts of one operator."""
    first: dict[tuple[str, ...], _Params] = {}
    for place, task in tasks:
        names = [region.buffer for region in (*task.reads, *task.writes)]
        params = first.setdefault((task.op, *names), task.params)
        if task.params != params:
            yield (
                f"{task.op} has {_text(task.params)} here, {_text(params)} in another "
                "part",
                place,
            )


def _gradients(tasks: _Tasks) -> _Found:
    """In one program with its activation, a gradient has the numbers of one that reads
    the same rows."""
    values: dict[tuple[str, str], set[_Params]] = {}
    for _, task in tasks:
        if task.op in ACTIVATIONS and task.reads:
            key = (task.op, task.reads[0].buffer)
            values.setdefault(key, set()).add(task.params)
    for place, task in tasks:
        if not (task.op.endswith(_GRADIENT) and task.reads):
            continue
        op, rows = task.op.removesuffix(_GRADIENT), task.reads[0].buffer
        known = values.get((op, rows), {task.params})
        if task.params not in known:
            own = " or ".join(sorted(_text(params) for params in known))
            message = f'{task.op} has {_text(task.params)}, {op} of "{rows}" has {own}'
            yield message, place


def _text(params: _Params) -> str:
    numbers = ", ".join(f"{name} {value:g}" for name, value in params)
    return numbers or "no numbers of its own"
