"""A status line on a terminal for work that takes longer than a second."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Any

DELAY_S = 1.0


class Progress:
    """Shows what is going on, on stderr, only on a terminal, only after a second.

    Used as a context manager; `step` names the work that begins.
    """

    def __init__(self) -> None:
        self._text = ""
        self._status: Any = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            self._timer = threading.Timer(DELAY_S, self._start)
            self._timer.daemon = True
            self._timer.start()
        return self

    def step(self, text: str) -> None:
        """Say what begins now, for example `simulating list`."""
        with self._lock:
            self._text = text
            if self._status is not None:
                self._status.update(text)

    def _start(self) -> None:
        from rich.console import Console

        with self._lock:
            if self._timer is None:
                return
            self._status = Console(stderr=True).status(self._text)
            self._status.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._status is not None:
                self._status.stop()
                self._status = None
