"""Tables for a terminal: numbers are never cut, whatever the width."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

UNLIMITED = 10_000
"""Width given to rich, which otherwise shortens cells that do not fit."""


def render_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    color: bool,
    left: Collection[int],
) -> str:
    """A table as text; columns named in `left` by index are set left, others right.

    `rows` are cells as text. Lines are as long as the content needs; a terminal that
    is narrower wraps them.
    """
    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="bold",
    )
    for index, name in enumerate(columns):
        side = "left" if index in left else "right"
        table.add_column(Text(name), justify=side, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell, style=_style(cell)) for cell in row))
    return _render(table, color=color)


def _style(cell: str) -> str:
    """Verdicts are coloured; the words alone say it all."""
    if cell.startswith("not checked"):
        return "dim"
    return {"ok": "green", "FAILED": "bold red"}.get(cell, "")


def _render(table: Table, *, color: bool) -> str:
    stream = StringIO()
    console = Console(
        file=stream,
        width=UNLIMITED,
        force_terminal=color,
        no_color=None if color else True,
        highlight=False,
        color_system="standard" if color else None,
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
