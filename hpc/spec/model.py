"""What a `.moe` file means, as frozen data: the reader's result.

`Spec` is everything the compiler starts from. Shapes are in `Spec.layer`; the operators
are in `Spec.flow`, in order, with canonical result names, whether they were written out
or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpc.schedule.layer import Layer, Routing

if TYPE_CHECKING:
    from hpc.spec.diagnostics import Diagnostic


@dataclass(frozen=True, slots=True)
class Loc:
    """A place in a `.moe` file; line and col count from 1, a tab is one column."""

    file: str
    line: int
    col: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}"


@dataclass(frozen=True, slots=True)
class Value:
    """An input of the flow: `x`, or one declared by `input`."""

    name: str
    space: str
    cols: int
    dtype: str
    loc: Loc


@dataclass(frozen=True, slots=True)
class FlowOp:
    """One operator: `result = op(args, params)`; the shape is that of the result.

    `op` is dispatch, gmm, combine, reduce, add or the name of an activation. `args`
    name inputs, earlier results or the weights w_up and w_down. `space` is token,
    routed or slot (see `hpc.schedule.model`).
    """

    op: str
    result: str
    args: tuple[str, ...]
    params: tuple[tuple[str, float], ...]
    space: str
    cols: int
    loc: Loc


@dataclass(frozen=True, slots=True)
class Pins:
    """Choices the user made for the compiler; None means "choose".

    `groups` counts source groups, `row_chunks` row parts per (expert, group) put;
    `base_tile` is m, n, k of every GMM; `aic`, `comm_aiv` and `vector_aiv` are cores
    per team. `locs` has the place of each pin that is set.
    """

    policy: str | None = None
    groups: int | None = None
    row_chunks: int | None = None
    base_tile: tuple[int, int, int] | None = None
    aic: int | None = None
    comm_aiv: int | None = None
    vector_aiv: int | None = None
    locs: tuple[tuple[str, Loc], ...] = ()


@dataclass(frozen=True, slots=True)
class Spec:
    """A checked `.moe` file. `loc` is the layer's place, `file` the name as given."""

    layer: Layer
    machine: str
    mode: str
    routing: Routing
    inputs: tuple[Value, ...]
    flow: tuple[FlowOp, ...]
    pins: Pins
    file: str
    loc: Loc
    warnings: tuple[Diagnostic, ...] = ()
