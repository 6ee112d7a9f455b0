"""What is done a while later, since nobody may come by again to do it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Timer:
    """A thread that calls ``act`` again and again while it is wanted.

    ``act`` tells in how many seconds it is to be called again; None: not before the next `start`.
    """

    def __init__(self, act: Callable[[], float | None]) -> None:
        self._act = act
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Have ``act`` called in a moment."""
        if self._wanted.is_set():
            return
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="octants-vulkan", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            again = self._act()
            while again is not None:
                time.sleep(again)
                again = self._act()
            self._wanted.clear()
            if self._act() is not None:  # what was started since it has looked
                self._wanted.set()
