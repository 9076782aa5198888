"""Real compiled schedules, scaled down: small layers on teams of one to three cores.

Tiles are made as small as the rows are few, so that the cores of a team share every
instruction as they do at full size. For the same reason the communication team has
three cores: no put has as many tiles, so that one core does not do the same tile of two
puts, which would order them by luck.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from hpc.commands.measure import spec_steps
from hpc.driver import Compiled, compile_file
from hpc.interp.routing import routing_ids
from hpc.interp.steps import Step, steps_of
from hpc.schedule.model import Instr, Schedule, Task
from tests.safety.dag import random_schedule
from tests.safety.oracle import Oracle, make_tables
from tests.safety.rows import Ids

LAYER = """\
layer {name} {{
  tokens       = {tokens}
  hidden       = 32
  intermediate = 16
  experts      = {experts}
  top_k        = {top_k}
  activation   = {activation}
  dtype        = bf16
  {more}
}}
parallel {{ ep = {ep} }}
machine = {machine}
routing = {routing}
mode    = {mode}
{flow}
schedule {{
  policy = {policy}  base_tile = 16x16x16  {pins}
  aic = {aic}  comm_aiv = {comm}  vector_aiv = {vector}
}}
"""

ROWS_ONLY = """\
layer {name} {{
  tokens = 12
  hidden = 32
  dtype  = bf16
}}
machine = {machine}
mode    = forward
flow {{
  input r : tokens x hidden
  s = add(x, r)
  t = relu(s)
  out = add(t, x)
}}
schedule {{ policy = {policy} {pins} comm_aiv = {comm}  vector_aiv = {vector} }}
"""

NO_REDUCE = """\
flow {
  recv = dispatch(x)
  h = gmm(recv, w_up)
  a = act(h)
  y = gmm(a, w_down)
  back = combine(y)
}
"""


@dataclass(frozen=True)
class Base:
    """A `.moe` text by its parts; fields not given are those of the smallest layer."""

    name: str
    policy: str = "list"
    tokens: int = 4
    experts: int = 4
    top_k: int = 2
    activation: str = "swiglu"
    more: str = ""
    ep: int = 2
    machine: str = "ascend_a3"
    routing: str = "uniform(seed=1)"
    flow: str = ""
    mode: str = "forward"
    pins: str = ""
    aic: int = 2
    comm: int = 3
    vector: int = 2
    template: str = LAYER

    @property
    def text(self) -> str:
        """The `.moe` file."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return self.template.format(**fields)


def _variants() -> list[Base]:
    bases: list[Base] = []
    for policy in ("serial", "paper", "list"):
        bases += [
            Base(f"{policy}_plain", policy),
            Base(f"{policy}_groups", policy, pins="groups = 2"),
            Base(f"{policy}_uneven", policy, experts=5, ep=3, pins="groups = 3"),
            Base(f"{policy}_input", policy, more="weights_at = input"),
            Base(f"{policy}_relu_a2", policy, activation="relu", machine="ascend_a2"),
            Base(f"{policy}_chunks", policy, pins="row_chunks = 2", vector=1),
            Base(f"{policy}_slots", policy, flow=NO_REDUCE, pins="groups = 2"),
            Base(f"{policy}_backward", policy, mode="backward", pins="groups = 2"),
            Base(f"{policy}_train", policy, mode="train"),
        ]
    rows = [
        Base(f"{policy}_rows", policy, ep=1, template=ROWS_ONLY)
        for policy in ("serial", "list")
    ]
    return [
        *bases,
        *rows,
        Base("list_one_rank", ep=1, experts=2, pins="groups = 1"),
        Base("list_three", ep=3, experts=3, pins="groups = 2", aic=3, comm=1),
        Base("paper_three", "paper", ep=3, experts=3, routing="zipf(1.2, seed=2)"),
        Base("list_back_input", mode="backward", more="weights_at = input"),
        Base("list_back_relu", mode="backward", activation="relu", experts=3, ep=3),
        Base("list_train_groups", mode="train", pins="groups = 2", top_k=1),
        Base("list_hot", routing="hot(1, 0.4)", pins="groups = 2", aic=1, vector=1),
    ]


BASES = {base.name: base for base in _variants()}

RANDOM = tuple(f"random_{seed}" for seed in range(16))
"""Legal by construction rather than compiled: flows and orders no policy makes."""


@dataclass(frozen=True)
class Twin:
    """A base of small size; the oracle that knows what it computes, and the operators
    of its spec."""

    name: str
    schedule: Schedule
    oracle: Oracle
    steps: tuple[Step, ...]


@cache
def compiled(name: str) -> Compiled:
    """Spec and schedule as the compiler makes them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.moe"
        path.write_text(BASES[name].text)
        return compile_file(path)


@cache
def twin(name: str) -> Twin:
    """The base called so, ready for mutation."""
    if name in RANDOM:
        s = random_schedule(RANDOM.index(name), full=True)
        steps = steps_of(s)
    else:
        made = compiled(name)
        s, steps = scaled(made.schedule), spec_steps(made.spec)
    oracle = Oracle(s, make_tables(s.layer, own_table(s), seed=len(name)))
    return Twin(name, s, oracle, steps)


@cache
def relaxed_oracle(name: str) -> Oracle:
    """The oracle of a base where signals of puts may overtake data of earlier ones."""
    known = twin(name)
    return Oracle(known.schedule, known.oracle.tables, relaxed=True)


def own_table(s: Schedule) -> Ids:
    """The choices that the routing of the schedule makes."""
    return [table.tolist() for table in routing_ids(s.layer, s.routing)]


def scaled(s: Schedule) -> Schedule:
    """Tiles of two rows: at full size every part has more tiles than a team cores."""

    def small(instr: Instr) -> Instr:
        if not isinstance(instr, Task):
            return instr
        if instr.op == "gmm_tn":
            return instr
        return replace(instr, base=replace(instr.base, m=min(instr.base.m, 2)))

    queues = tuple(
        replace(queue, code=tuple(small(instr) for instr in queue.code))
        for queue in s.queues
    )
    return replace(s, queues=queues)
