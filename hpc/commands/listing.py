"""`hpc list`: what there is to name in a command or a spec, one line each."""

from __future__ import annotations

import argparse
import inspect
import re
from collections import Counter
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import cast

from hpc.commands.errors import OK
from hpc.commands.outputs import show, show_json, show_table
from hpc.schedule.policy import POLICIES

Rows = list[dict[str, object]]


def run(args: argparse.Namespace) -> int:
    """Print the list that was asked for."""
    rows = LISTERS[args.what]()
    if args.json:
        show_json({args.what: rows})
        return OK
    if not rows:
        show(f"no {args.what} here")
        return OK
    columns = list(rows[0])
    show_table(columns, [[_cell(row[c]) for c in columns] for row in rows])
    return OK


def _cell(value: object) -> str:
    match value:
        case dict():
            pairs = cast("dict[str, object]", value)
            return " ".join(f"{key}={text}" for key, text in pairs.items())
        case list():
            return " ".join(cast("list[str]", value))
        case _:
            return str(value)


def first_sentence(text: str) -> str:
    """The first sentence of a text, or its first paragraph if that ends sooner."""
    paragraph = " ".join(text.strip().split("\n\n", 1)[0].split())
    return re.split(r"(?<=[^.]\.) ", paragraph, maxsplit=1)[0].rstrip(".")


def list_passes() -> Rows:
    """Our passes and the loaded ones; options with their defaults."""
    from hpc.commands.pipelines import options_of
    from hpc.universe import HPC_UNIVERSE

    rows: Rows = []
    for name, factory in HPC_UNIVERSE.all_passes.items():
        defined = factory()
        options = {
            option: default if default is not None else f"<{kind}>"
            for option, kind, default in options_of(defined)
        }
        does = first_sentence(inspect.getdoc(defined) or "")
        rows.append({"pass": name, "options": options, "does": does})
    return rows


def list_machines() -> Rows:
    """The machine records that ship."""
    from hpc.machine.record import load_machine, machine_names

    rows: Rows = []
    for name in machine_names():
        machine = load_machine(name)
        rows.append(
            {
                "machine": name,
                "aic cores": machine.aic_cores,
                "aiv cores": machine.aiv_cores,
                "HBM GiB": machine.hbm_bytes >> 30,
                "events": machine.max_events,
                "dtypes": list(machine.dtypes),
            }
        )
    return rows


def list_samples() -> Rows:
    """The sample layers of a source checkout, with their opening comment."""
    folder = Path(__file__).resolve().parents[2] / "samples"
    return [
        {"sample": f"samples/{path.name}", "about": _opening_comment(path)}
        for path in sorted(folder.glob("*.moe"))
    ]


def _opening_comment(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = takewhile(lambda line: line.startswith("#"), lines)
    return first_sentence("\n".join(line.lstrip("# ") for line in comment))


def list_policies() -> Rows:
    """The scheduling policies with their default pipelines."""
    from hpc.driver import default_pipeline

    return [{"policy": name, "pipeline": default_pipeline(name)} for name in POLICIES]


def list_ops() -> Rows:
    """The operators that the cost table knows; vector instructions per element."""
    from hpc.machine.ops import OP_COSTS

    return [
        {
            "op": name,
            "unit": cost.unit,
            "per element read": _totals(cost.per_read),
            "per element written": _totals(cost.per_write),
            "about": cost.doc,
        }
        for name, cost in OP_COSTS.items()
    ]


def _totals(instructions: tuple[tuple[str, int], ...]) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for name, count in instructions:
        totals[name] += count
    return dict(totals)


LISTERS: dict[str, Callable[[], Rows]] = {
    "passes": list_passes,
    "machines": list_machines,
    "samples": list_samples,
    "policies": list_policies,
    "ops": list_ops,
}
