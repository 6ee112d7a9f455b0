"""A thread that calls a function repeatedly, for work that must not wait for the next call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_PAUSE = 2e-3
"""Seconds until the next call if there is no work."""
_PAUSES = 50
"""The pauses in a row before the thread waits for `start`: to wake it costs a caller more time than
the calls between, since both need the global lock at once."""


class PeriodicThread:
    """Calls ``act`` in a thread, repeatedly, from `start` until it has returned None for a while.

    ``act`` returns the seconds until its next call, or None if there is no work.
    """

    def __init__(self, act: Callable[[], float | None]) -> None:
        self._act = act
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start calling ``act``, unless the thread is doing so already."""
        if self._wanted.is_set():
            return
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="octants-batches", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            pauses = 0
            while pauses < _PAUSES:
                again = self._act()
                pauses = 0 if again is not None else pauses + 1
                time.sleep(_PAUSE if again is None else again)
            self._wanted.clear()
            if self._act() is not None:  # work arrived after the last call
                self._wanted.set()
