"""The mutation suite: `python -m tests.safety.suite --count 10000 --seed 0`.

Every mutant is judged twice, by the oracle and by the checker. The table counts where
they agree; a *false accept* is a schedule that the oracle proved unsafe and the checker
accepted, a *false reject* one that the oracle found safe and the checker refused.

A schedule that properly computes another layer is no fault that a schedule could show
by itself; if the checker accepts one, `hpc run` on the spec has to refuse its values
(column "values"), or it is a false accept.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

from hpc.interp.verify import verify_values
from hpc.machine.record import Machine
from hpc.schedule.check import CheckReport, Limits, check_schedule
from hpc.schedule.render import render_instr
from tests.safety.bases import BASES, RANDOM, Twin, relaxed_oracle, twin
from tests.safety.mutate import CLASSES, ONE_RANK, Mutant, mutate
from tests.safety.oracle import REASONS, Verdict

COLUMNS = (
    "mutants", "safe", "unsafe", "accepted", "rejected", "values", "false +", "false -",
)  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """A mutant, what the oracle and what the checker say."""

    base: str
    mutant: Mutant
    verdict: Verdict
    report: CheckReport
    refused_by_values: bool = False

    @property
    def false_accept(self) -> bool:
        return self.report.ok and not (self.verdict.safe or self.refused_by_values)

    @property
    def false_reject(self) -> bool:
        return self.verdict.safe and not self.report.ok


@dataclass
class Tally:
    """Counts by class and by the oracle's reason, and where the two disagree."""

    by_class: dict[str, Counter[str]] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    disagreements: list[Judged] = field(default_factory=list)

    def add(self, judged: Judged) -> None:
        row = self.by_class.setdefault(judged.mutant.cls, Counter())
        row["mutants"] += 1
        row["safe" if judged.verdict.safe else "unsafe"] += 1
        row["accepted" if judged.report.ok else "rejected"] += 1
        row["values"] += judged.refused_by_values
        self.reasons[judged.verdict.kind] += 1
        if judged.false_accept or judged.false_reject:
            row["false +" if judged.false_accept else "false -"] += 1
            self.disagreements.append(judged)

    def total(self) -> Counter[str]:
        return sum(self.by_class.values(), Counter())

    def table(self) -> str:
        """Fixed-width text, a line a class and one for the sum."""
        lines = [f"{'class':24}" + "".join(f"{name:>9}" for name in COLUMNS)]
        rows = [*sorted(self.by_class.items()), ("total", self.total())]
        for name, row in rows:
            cells = "".join(f"{row[column]:>9}" for column in COLUMNS)
            lines.append(f"{name:24}{cells}")
        found = ", ".join(f"{kind} {self.reasons[kind]}" for kind in REASONS)
        return "\n".join([*lines, f"unsafe because: {found}"])


def mutants(count: int, seed: int) -> Iterator[tuple[str, Mutant]]:
    """`count` different mutants: classes in turn, bases at random."""
    rng = Random(seed)
    names = [*sorted(BASES), *RANDOM]
    classes = [*CLASSES, ONE_RANK]
    seen: set[int] = set()
    made = turn = 0
    while made < count:
        cls = classes[turn % len(classes)]
        turn += 1
        for _ in range(20):
            base = rng.choice(names)
            mutant = mutate(twin(base).schedule, cls, rng)
            if mutant is None:
                continue
            key = hash((base, tuple(repr(s) for s in set(mutant.programs))))
            if key not in seen:
                seen.add(key)
                made += 1
                yield base, mutant
                break


def judge(base: str, mutant: Mutant, relaxed: bool = False) -> Judged:
    """Both verdicts on a mutant."""
    known = twin(base)
    oracle = relaxed_oracle(base) if relaxed else known.oracle
    verdict = oracle.judge(mutant.programs)
    report = checked(base, mutant, relaxed)
    other = report.ok and verdict.kind == "other" and _wrong_values(known, mutant)
    return Judged(base, mutant, verdict, report, other)


def _wrong_values(known: Twin, mutant: Mutant) -> bool:
    """Whether a run on data shows that the spec means something else."""
    schedule = mutant.programs[0]
    return not verify_values(schedule, mode="full", seeds=(0,), steps=known.steps).ok


def limits_of(machine: Machine) -> Limits:
    """The machine's limits, but for tiles that no cube has: see `bases.scaled`."""
    return replace(Limits.of(machine), fractal=None)


def checked(base: str, mutant: Mutant, relaxed: bool) -> CheckReport:
    """The checker's report, with the rows that the schedule's own routing brings."""
    known = twin(base)
    limits = limits_of(known.oracle.machine)
    first = mutant.programs[0]
    differ = any(s is not first for s in mutant.programs)
    subject = known.schedule if differ else first
    programs = mutant.programs if differ else None
    return check_schedule(
        subject, limits, known.oracle.counts, programs, relaxed=relaxed
    )


def run_suite(count: int, seed: int, relaxed: bool = False) -> Tally:
    """Judge `count` mutants."""
    tally = Tally()
    for base, mutant in mutants(count, seed):
        tally.add(judge(base, mutant, relaxed))
    return tally


def describe(judged: Judged) -> str:
    """A disagreement for the eye: what was changed, and both reasons."""
    base = twin(judged.base).schedule
    changed = next(s for s in judged.mutant.programs if s != base)
    lines = [f"{judged.base}: {judged.mutant.name}"]
    lines += [f"  oracle: {judged.verdict.kind}: {judged.verdict.text}"]
    codes = Counter(v.code for v in judged.report.violations)
    lines += [f"  checker: {dict(codes) or 'accepts'}"]
    lines += [f"    {v.render()}" for v in judged.report.violations[:2]]
    for q, (old, new) in enumerate(zip(base.queues, changed.queues, strict=True)):
        if old != new:
            lines.append(f"  queue {q} {new.team}:")
            lines += [f"    {render_instr(changed, instr)}" for instr in new.code]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; status 1 if the requirement is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.safety.suite")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=0, help="disagreements to print")
    parser.add_argument(
        "--relaxed", action="store_true", help="signals may overtake earlier data"
    )
    args = parser.parse_args(arguments)
    tally = run_suite(args.count, args.seed, args.relaxed)
    out = sys.stdout.write
    out(tally.table() + "\n")
    for judged in tally.disagreements[: args.show]:
        out(describe(judged) + "\n")
    total = tally.total()
    return int(total["false +"] > 0 or total["false -"] * 100 > total["safe"])


if __name__ == "__main__":
    sys.exit(main())
