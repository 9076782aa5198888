"""The oracle: is this schedule safe, for all tables that it is shown? If not, why?

It shares no code with the checker and none with the engines. See `execution` for why
one execution a table is enough, and `search` for the test of that argument.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpc.machine.record import load_machine
from hpc.schedule.layer import Layer
from hpc.schedule.model import Instr, Schedule, Task
from tests.safety.contract import (
    broken_joins,
    broken_rules,
    differing_globals,
    differing_programs,
    too_small,
)
from tests.safety.execution import Execution, Outcome
from tests.safety.rows import Ids, Illegal
from tests.safety.tiles import Tiles

REASONS = ("illegal", "hang", "race", "wrong", "late", "other", "joins", "relaunch")
"""Why a schedule is unsafe: it breaks a rule of the format (`illegal`), some cores
never end, two accesses are not ordered, rows are read unwritten or written for nobody
or twice, something arrives after the end, the outputs are properly computed but not
those of the layer (`other`), thresholds are not the signals that arrive, or it is safe
alone but not when the next launch follows (`relaunch`)."""

Outputs = list[list[list[int]]]
"""By table, rank and cell."""


@dataclass(frozen=True)
class Verdict:
    """`kind` is "safe" or one of REASONS; `text` says what was seen."""

    kind: str
    text: str = ""

    @property
    def safe(self) -> bool:
        return self.kind == "safe"


SAFE = Verdict("safe")


class Oracle:
    """Judges variants of one schedule, which is itself safe and computes `outputs`."""

    def __init__(
        self, base: Schedule, tables: Sequence[Ids], relaxed: bool = False
    ) -> None:
        self.base, self.tables, self.relaxed = base, tables, relaxed
        self.machine = load_machine(base.machine)
        self._tiles = [Tiles(base, table) for table in tables]
        self.outputs: Outputs | None = None
        verdict = self.judge([base] * base.layer.ep)
        if not verdict.safe:
            raise AssertionError(f"the base is not safe: {verdict}")
        found = [self._run([base] * base.layer.ep, (t,)) for t in range(len(tables))]
        self.outputs = [outcome.outputs for outcome in found]

    @property
    def counts(self) -> list[list[int]]:
        """Rows by [rank, expert] of the first table."""
        experts = range(self.base.layer.experts)
        chosen = self._tiles[0].at.choice
        return [[mine.count(e) for e in experts] for mine in chosen]

    def tiles(self, table: int) -> Tiles:
        """Rows and tiles of the base under a table."""
        return self._tiles[table]

    def judge(self, programs: Sequence[Schedule]) -> Verdict:
        """The first reason found, table by table; `programs[rank]` runs on a rank."""
        for s in programs:
            for text in broken_rules(s, self.machine):
                return Verdict("illegal", text)
        for text in differing_globals(programs):
            return Verdict("illegal", text)
        try:
            own = max(self._tiles[0].at.routed, key=len)
            for text in too_small(programs[0], [len(own)]):
                return Verdict("illegal", text)
            verdict = self._judge_tables(programs)
        except Illegal as error:
            return Verdict("illegal", str(error))
        # Last, so that what goes wrong because of it is named first.
        for text in differing_programs(programs) if verdict.safe else ():
            return Verdict("illegal", text)
        return verdict

    def _judge_tables(self, programs: Sequence[Schedule]) -> Verdict:
        """Every table alone; then each followed by another, or by itself."""
        count = len(self.tables)
        unread: set[int] | None = None
        for t in range(count):
            outcome = self._run(programs, (t,))
            verdict = self._verdict(outcome, programs, t)
            if not verdict.safe:
                return replace(verdict, text=f"table {t}: {verdict.text}")
            if any(-1 not in slots for table in self.tables[t] for slots in table):
                unread = outcome.unread & (outcome.unread if unread is None else unread)
        if unread:
            return Verdict("wrong", f"nobody ever reads {len(unread)} cells written")
        pairs = [(t, (t + 1) % count) for t in range(count)]
        for pair in [*pairs, (0, 0)]:
            text = self._relaunch(self._run(programs, pair), pair[1])
            if text:
                return Verdict("relaunch", f"tables {pair}: {text}")
        return SAFE

    def _run(self, programs: Sequence[Schedule], launches: Sequence[int]) -> Outcome:
        tables = [[self._tiles_of(s, t) for s in programs] for t in launches]
        return Execution(programs, tables, self.relaxed).run()

    def _relaunch(self, outcome: Outcome, t: int) -> str:
        """What goes wrong in two launches, or nothing."""
        found = [outcome.hang] if outcome.hang else []
        found += outcome.mixed + outcome.races + outcome.wrong + outcome.late
        if (
            not found
            and self.outputs is not None
            and outcome.outputs != self.outputs[t]
        ):
            return "the outputs are not those of the layer"
        return found[0] if found else ""

    def _tiles_of(self, s: Schedule, t: int) -> Tiles:
        """Tiles kept from earlier variants, if nothing that they depend on differs."""
        kept = self._tiles[t]
        same = ("layer", "groups", "row_chunks", "buffers")
        if s is self.base or (
            all(getattr(s, field) == getattr(self.base, field) for field in same)
            and _gmm_widths(s) <= _gmm_widths(self.base)
        ):
            return kept
        return Tiles(s, self.tables[t])

    def _verdict(
        self, outcome: Outcome, programs: Sequence[Schedule], t: int
    ) -> Verdict:
        if outcome.hang:
            return Verdict("hang", outcome.hang)
        for kind in ("race", "wrong", "late"):
            found = {
                "race": outcome.races,
                "wrong": outcome.wrong,
                "late": outcome.late,
            }[kind]
            if found:
                return Verdict(kind, found[0])
        if self.outputs is not None and outcome.outputs != self.outputs[t]:
            return Verdict("other", "the outputs are not those of the layer")
        for text in broken_joins(programs, outcome.arrived):
            return Verdict("joins", text)
        return SAFE


def _gmm_widths(s: Schedule) -> set[tuple[str, int, int]]:
    return {
        (i.writes[0].buffer, i.base.m, i.base.n)
        for i in instructions(s)
        if isinstance(i, Task) and i.op.startswith("gmm") and i.writes
    }


def instructions(s: Schedule) -> list[Instr]:
    """All instructions of all queues."""
    return [instr for queue in s.queues for instr in queue.code]


def make_tables(layer: Layer, own: Ids, seed: int) -> list[Ids]:
    """The schedule's own table, then balanced, skewed, empty and random ones.

    "Safe" means for every routing; these are the corners: everything on one expert, no
    rows at all, one rank without tokens' choices, and random choices.
    """
    rng = random.Random(seed)
    sizes = [len(table) for table in own]
    experts = range(layer.experts)

    def table(choose: object) -> Ids:
        return [
            [choose(rank, i) for i in range(n)]  # type: ignore[operator]
            for rank, n in enumerate(sizes)
        ]

    k = layer.top_k
    return [
        own,
        table(lambda rank, i: rng.sample(experts, k)),
        table(lambda rank, i: [(i * k + j + rank) % layer.experts for j in range(k)]),
        table(lambda rank, i: [0, *[-1] * (k - 1)]),
        table(lambda rank, i: [-1] * k),
        table(lambda rank, i: rng.sample(experts, k) if rank == 0 else [-1] * k),
        table(lambda rank, i: [layer.experts - 1 - j for j in range(k)]),
    ]


def judge(s: Schedule, tables: Sequence[Ids]) -> Verdict:
    """Verdict on a schedule by itself, whatever its outputs mean."""
    try:
        Oracle(s, tables)
    except AssertionError as error:
        return Verdict("unsafe", str(error))
    return SAFE


__all__ = ["REASONS", "SAFE", "Oracle", "Verdict", "judge", "make_tables"]
