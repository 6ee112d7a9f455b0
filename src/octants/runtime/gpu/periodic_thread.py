"""A thread that calls a function repeatedly, for work that must not wait for the next call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class PeriodicThread:
    """Calls ``act`` in a thread, repeatedly, from `start` until it returns None.

    ``act`` returns the seconds until its next call.
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
            again = self._act()
            while again is not None:
                time.sleep(again)
                again = self._act()
            self._wanted.clear()
            if self._act() is not None:  # work arrived after the last call
                self._wanted.set()
