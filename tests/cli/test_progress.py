"""The status line: on a terminal only, and only for work that lasts."""

from __future__ import annotations

import io
import sys
import time

import pytest

from hpc.commands import progress
from hpc.commands.progress import Progress


class Terminal(io.StringIO):
    """Text that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def work(text: str, seconds: float) -> None:
    with Progress() as shown:
        shown.step(text)
        time.sleep(seconds)


def test_long_work_on_a_terminal_is_announced_and_wiped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "DELAY_S", 0.01)
    monkeypatch.setattr(sys, "stderr", Terminal())
    work("simulating list", 0.5)
    written = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert "simulating list" in written
    assert written.endswith(("\x1b[?25h\r\x1b[1A\x1b[2K", "\x1b[2K", "\x1b[?25h"))


def test_short_work_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    work("simulating list", 0.0)
    time.sleep(0.05)
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


def test_without_a_terminal_there_is_no_status_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "DELAY_S", 0.01)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    work("simulating list", 0.1)
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]
