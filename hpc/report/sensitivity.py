"""The report of `hpc run --sensitivity`, as text and as JSON."""

from __future__ import annotations

from hpc.interp.sensitivity import JITTER, STEP, Sensitivity
from hpc.report.tables import render_table

Json = dict[str, object]

SHOWN_FLIPS = 3
VISIBLE = 5e-4
"""Constants that move no latency by this much share one line."""


def sensitivity_text(found: Sensitivity, *, color: bool) -> str:
    """A table of relative changes by policy, then the verdict on every pair."""
    policies = list(found.base)
    rows = [["undisturbed, us", *(f"{found.base[p]:.1f}" for p in policies)]]
    for kind, label in (
        ("jitter", f"+-{JITTER:.0%} jitter of durations"),
        ("ties", "other tie orders"),
    ):
        rows.append([label, *(_span(*found.change(p, kind)) for p in policies)])
    quiet: list[str] = []
    for name in found.constants:
        spans = [found.change(p, "constant", name) for p in policies]
        if max(abs(end) for span in spans for end in span) < VISIBLE:
            quiet.append(name)
            continue
        rows.append([f"{name} +-{STEP:.0%}", *(_span(*span) for span in spans)])
    table = render_table("", ["", *policies], rows, left=(0,), color=color)
    notes = [f"+-{STEP:.0%} moves nothing: {', '.join(quiet)}"] if quiet else []
    if found.one_rank:
        notes.append("jitter: the same on all ranks")
    if not found.complete:
        notes.append(
            f"only {len(found.disturbances)} of {found.planned} runs were made"
        )
    return "\n".join([table.rstrip("\n"), *notes, *_verdicts(found)]) + "\n"


def sensitivity_json(found: Sensitivity) -> Json:
    """All latencies, and the verdict on every pair."""
    return {
        "numbers": "simulated",
        "complete": found.complete,
        "base_us": {p: round(us, 3) for p, us in found.base.items()},
        "runs": [
            {
                "kind": what.kind,
                "name": what.name,
                "factor": what.factor,
                "latency_us": {p: round(found.moved[p][n], 3) for p in found.base},
            }
            for n, what in enumerate(found.disturbances)
        ],
        "jitter_on": "one rank for all" if found.one_rank else "every rank",
        "ranking": list(found.ranking),
        "pairs": [
            {
                "faster": pair.faster,
                "slower": pair.slower,
                "verdict": "decided" if pair.decided else "undecided",
                "flipped_by": list(pair.flips),
            }
            for pair in found.pairs
        ],
    }


def _span(low: float, high: float) -> str:
    return f"{100 * low:+.1f} .. {100 * high:+.1f} %"


def _verdicts(found: Sensitivity) -> list[str]:
    runs = len(found.disturbances)
    lines: list[str] = []
    for pair in found.pairs:
        gain = found.base[pair.slower] / found.base[pair.faster]
        if pair.decided:
            lines.append(
                f"{pair.faster} is faster than {pair.slower} ({gain:.3f}x) "
                f"in all {runs} runs"
            )
            continue
        flips = ", ".join(pair.flips[:SHOWN_FLIPS])
        more = len(pair.flips) - SHOWN_FLIPS
        flips += f" and {more} more" if more > 0 else ""
        lines.append(
            f"undecided: {pair.faster} against {pair.slower} ({gain:.3f}x), "
            f"not faster with {flips}"
        )
    return lines
