"""How much a simulated latency depends on what the model cannot know.

Three kinds of disturbance, each applied to all schedules of a layer alike:

- jitter: every core's share of every task and every put tile takes up to 5 % more or
  less, drawn anew by seed for each rank, core and step;
- ties: what happens at the same time happens in another order, by renumbering the
  cores of each team, which changes nothing else;
- constants: each figure of the machine record that is marked as assumed, 20 % less and
  20 % more. The schedules stay as they are.

A policy that is faster than another in the undisturbed run but not in every other one
is not known to be faster: that pair is reported as undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from hpc.interp.engine import execute
from hpc.interp.expand import Expanded, expand
from hpc.interp.fold import foldable
from hpc.interp.program import build_program
from hpc.interp.timing import measure
from hpc.machine.cost import dispatched
from hpc.machine.fields import BY_KEY
from hpc.machine.record import Machine
from hpc.schedule.model import Schedule

JITTER = 0.05
STEP = 0.2
SEEDS = tuple(range(8))
ONE_RANK_FROM = 1 << 20
"""Task instances from which on jitter is drawn for one rank of a symmetric run."""

Tell = Callable[[str], None]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Disturbance:
    """`kind` is jitter, ties or constant; `name` a seed or a key of the record."""

    kind: str
    name: str
    factor: float = 1.0

    def __str__(self) -> str:
        if self.kind == "constant":
            return f"{self.name} {self.factor - 1:+.0%}"
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two policies, the first one faster undisturbed; `flips` says when it is not."""

    faster: str
    slower: str
    flips: tuple[str, ...]

    @property
    def decided(self) -> bool:
        return not self.flips


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Latencies in microseconds: `base[policy]` undisturbed, `moved[policy]` in the
    order of `disturbances`. `one_rank` if jitter was the same on all ranks. `planned`
    is how many runs there should have been, if an interrupt came before the last."""

    base: dict[str, float]
    disturbances: tuple[Disturbance, ...]
    moved: dict[str, tuple[float, ...]]
    one_rank: bool
    planned: int

    @property
    def complete(self) -> bool:
        return len(self.disturbances) == self.planned

    @property
    def ranking(self) -> tuple[str, ...]:
        """Policies, the fastest undisturbed one first."""
        return tuple(sorted(self.base, key=lambda policy: self.base[policy]))

    def change(self, policy: str, kind: str, name: str = "") -> tuple[float, float]:
        """Smallest and largest relative change by one kind (and name)."""
        base = self.base[policy]
        found = [
            us / base - 1
            for us, what in zip(self.moved[policy], self.disturbances, strict=True)
            if what.kind == kind and name in ("", what.name)
        ]
        return min(found, default=0.0), max(found, default=0.0)

    @property
    def constants(self) -> tuple[str, ...]:
        """The assumed constants that were changed, in the record's order."""
        names = [d.name for d in self.disturbances if d.kind == "constant"]
        return tuple(dict.fromkeys(names))

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Every two policies. Equal latencies flip nothing but decide nothing."""
        found: list[Pair] = []
        for faster, slower in combinations(self.ranking, 2):
            ahead = zip(self.moved[faster], self.moved[slower], strict=True)
            flips = [
                str(what)
                for what, (one, two) in zip(self.disturbances, ahead, strict=True)
                if one >= two
            ]
            if self.base[faster] >= self.base[slower]:
                flips.insert(0, "undisturbed")
            found.append(Pair(faster, slower, tuple(flips)))
        return tuple(found)


def sensitivity(
    schedules: Mapping[str, Schedule],
    counts: Counts,
    machine: Machine,
    *,
    dispatch: str = "static",
    seeds: tuple[int, ...] = SEEDS,
    tell: Tell | None = None,
) -> Sensitivity:
    """Simulates every schedule under every disturbance; `tell` hears which is next.
    `dispatch` is that of `hpc.interp.engine.simulate`.

    An interrupt ends it early, with what all schedules have been through by then.
    """
    every = tuple(_disturbances(machine, seeds))
    runners = {p: _Runner(s, counts, machine, dispatch) for p, s in schedules.items()}
    base = {policy: runner.latency_us(None) for policy, runner in runners.items()}
    rows: list[list[float]] = []
    try:
        for n, what in enumerate(every):
            if tell is not None:
                tell(f"disturbance {n + 1} of {len(every)}: {what}")
            rows.append([runner.latency_us(what) for runner in runners.values()])
    except KeyboardInterrupt:
        pass
    columns = [tuple(row[n] for row in rows) for n in range(len(runners))]
    return Sensitivity(
        base,
        every[: len(rows)],
        dict(zip(runners, columns, strict=True)),
        any(runner.one_rank for runner in runners.values()),
        len(every),
    )


def _disturbances(machine: Machine, seeds: tuple[int, ...]) -> Iterator[Disturbance]:
    for kind in ("jitter", "ties"):
        yield from (Disturbance(kind, f"{seed}") for seed in seeds)
    for fact in machine.facts:
        if fact.confidence == "assumed" and BY_KEY[fact.key].kind != "dtypes":
            yield Disturbance("constant", fact.key, 1 - STEP)
            yield Disturbance("constant", fact.key, 1 + STEP)


def scaled(machine: Machine, key: str, factor: float) -> Machine:
    """The machine with one figure multiplied, kept whole and in range if it must be."""
    field, value = BY_KEY[key], getattr(machine, key)

    def times(number: float) -> float:
        product = min(max(number * factor, field.low), field.high)
        return round(product) if field.kind == "int" else product

    if field.kind == "cycles":
        return replace(machine, **{key: tuple(times(part) for part in value)})
    return replace(machine, **{key: times(value)})


class _Runner:
    """One schedule under any disturbance."""

    def __init__(
        self, schedule: Schedule, counts: Counts, machine: Machine, dispatch: str
    ) -> None:
        self.schedule, self.counts, self.machine = schedule, counts, machine
        self.dispatch = dispatch
        self.folds = foldable(schedule.layer, counts, machine)
        cores = sum(q.team.size * len(q.code) for q in schedule.queues)
        self.one_rank = self.folds and cores * schedule.layer.ep >= ONE_RANK_FROM

    def latency_us(self, what: Disturbance | None) -> float:
        machine, ranks = self.machine, 1 if self.folds else None
        if what is not None and what.kind == "constant":
            machine = scaled(machine, what.name, what.factor)
        machine = dispatched(machine, self.dispatch)
        if what is not None and what.kind == "jitter":
            ranks = 1 if self.one_rank else None
        work = expand(self.schedule, self.counts, machine, ranks)
        if what is not None and what.kind == "jitter":
            _jitter(work, int(what.name))
        if what is not None and what.kind == "ties":
            _renumber(work, int(what.name))
        program = build_program(self.schedule, work, machine)
        run = execute(self.schedule, work, program, machine)
        return measure(run, record=False).latency_us


def _jitter(work: Expanded, seed: int) -> None:
    """Longer and shorter work and transfers, independently."""
    rng = np.random.default_rng(seed)
    for shares in work.queues:
        factor = rng.uniform(1 - JITTER, 1 + JITTER, shares.work_us.shape)
        shares.work_us *= factor
        shares.hbm_bytes *= factor
    puts = work.puts
    factor = rng.uniform(1 - JITTER, 1 + JITTER, puts.bytes.shape)
    for values in (puts.work_us, puts.busy_us, puts.fetched, puts.stored):
        values *= factor
    # Whole bytes: links are checked to lose none.
    np.rint(puts.bytes * factor, out=puts.bytes)


def _renumber(work: Expanded, seed: int) -> None:
    """The cores of every team in another order, each with its own work."""
    rng = np.random.default_rng(seed)
    for shares in work.queues:
        order = rng.permutation(shares.work_us.shape[1])
        for values in (shares.work_us, shares.hbm_bytes, shares.tiles):
            values[:] = values[:, order]
        shares.members = order.tolist()
