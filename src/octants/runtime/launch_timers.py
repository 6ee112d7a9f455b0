"""Timers of launches, for the profiler: what a launch takes on its device, by the best clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """Measures the work between `start` and `stop`."""

    def start(self) -> None:
        """Begin; called in the thread that launches, right before the launch."""

    def stop(self) -> None:
        """End; called right after the launch."""

    def nanoseconds(self) -> int:
        """The duration; waits for the work, where the device has a queue."""


class HostTimer:
    """The host's clock, for a device whose launches return when their work is done."""

    __slots__ = ("_begin", "_end")

    def __init__(self) -> None:
        self._begin = self._end = 0

    def start(self) -> None:
        self._begin = time.perf_counter_ns()

    def stop(self) -> None:
        self._end = time.perf_counter_ns()

    def nanoseconds(self) -> int:
        """The duration on the host."""
        return self._end - self._begin


class SynchronisedTimer(HostTimer):
    """The host's clock around a launch that it waits for, with the cost of that wait."""

    __slots__ = ("_synchronize",)

    def __init__(self, synchronize: Callable[[], None]) -> None:
        super().__init__()
        self._synchronize = synchronize

    def start(self) -> None:
        self._synchronize()
        super().start()

    def stop(self) -> None:
        self._synchronize()
        super().stop()
