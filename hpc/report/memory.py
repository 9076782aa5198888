"""The memory of a run as table rows and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpc.interp.lifetimes import BufferUse, MemoryUse, Peak

Json = dict[str, object]

PEAKS = ("every", "symmetric", "saved", "workspace")
"""Peaks of `MemoryUse`, in the order of reports."""

_LABELS = {
    "every": "  most at one time",
    "symmetric": "  most written by other ranks",
    "saved": "  most saved for backward",
    "workspace": "  most workspace",
}


def memory_json(use: MemoryUse) -> Json:
    """The keys below `memory`, in their fixed order."""
    return {
        "rank": use.rank,
        "allocated_bytes": use.allocated_bytes,
        "peaks": {name: _peak_json(_peak(use, name)) for name in PEAKS},
        "buffers": {buffer.name: _buffer_json(buffer) for buffer in use.buffers},
    }


def _peak(use: MemoryUse, name: str) -> Peak:
    return getattr(use, name)


def _peak_json(peak: Peak) -> Json:
    return {"bytes": peak.bytes, "at_us": round(peak.at_us, 3)}


def _buffer_json(buffer: BufferUse) -> Json:
    return {
        "role": buffer.role,
        "symmetric": buffer.symmetric,
        "saved": buffer.saved,
        "bytes": buffer.bytes,
        "formula": buffer.formula,
        "from_us": round(buffer.from_us, 3),
        "to_us": round(buffer.to_us, 3),
    }


def memory_rows(uses: Sequence[MemoryUse]) -> list[list[str]]:
    """Rows with a cell for each policy; no row of nothing but zeros."""

    def row(label: str, cell: Callable[[MemoryUse], str], kind: str) -> list[str]:
        return [label, *(cell(use) for use in uses), kind]

    rows = [row("memory of a rank", lambda u: size(u.allocated_bytes), "allocated")]
    rows += [
        row(_LABELS[name], lambda u, n=name: size(_peak(u, n).bytes), "simulated")
        for name in PEAKS
        if any(_peak(use, name).bytes for use in uses)
    ]
    return rows


def buffers_text(policy: str, use: MemoryUse, *, color: bool) -> str:
    """A table of the buffers of one policy, in order of their lives."""
    from hpc.report.tables import render_table

    columns = ["buffer", "role", "bytes", "from us", "to us", "formula"]
    ordered = sorted(use.buffers, key=lambda b: (b.from_us, b.to_us, b.name))
    rows = [
        [
            buffer.name,
            ", ".join(_words(buffer)),
            f"{buffer.bytes:,}",
            f"{buffer.from_us:.1f}",
            f"{buffer.to_us:.1f}",
            buffer.formula,
        ]
        for buffer in ordered
    ]
    title = f"Buffers of rank {use.rank}, policy {policy}; lifetimes are simulated"
    return render_table(title, columns, rows, color=color, left=(0, 1, 5))


def _words(buffer: BufferUse) -> Iterable[str]:
    yield buffer.role
    if buffer.symmetric:
        yield "symmetric"
    if buffer.saved and buffer.role != "saved":
        yield "saved"


def size(count: int) -> str:
    """Bytes in the largest decimal unit that leaves at least one.

    >>> [size(n) for n in (0, 999, 3758096384)]
    ['0 B', '999 B', '3.758 GB']
    """
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if count >= 10**power:
            return f"{count / 10**power:.3f} {unit}"
    return f"{count} B"
