"""Records of what a program did and when: launches, compilations, copies; see `octants.profiler`.

Nothing is recorded, and nothing slower, unless `init` is given ``kernel_profiler=True``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from octants.lazy_dataclass import dataclass

KERNEL, COMPILE, TRANSFER = "kernel", "compile", "transfer"


@dataclass(slots=True)
class TimelineEntry:
    """A span of time, in nanoseconds of `time.perf_counter_ns`.

    `nbytes` is what was copied or, of a kernel, what the record buffers of its device took
    afterwards.
    """

    kind: str
    name: str
    start: int
    thread: int
    measure: Callable[[], int]
    nbytes: int = 0
    duration: int | None = None

    def nanoseconds(self) -> int:
        """The duration; waits for the work of a launch."""
        if self.duration is None:
            self.duration = self.measure()
        return self.duration


class Timeline:
    """The records since the profiler was started or cleared."""

    def __init__(self) -> None:
        self.records: list[TimelineEntry] = []

    def add(
        self, kind: str, name: str, start: int, measure: Callable[[], int], nbytes: int = 0
    ) -> None:
        """Add a record of the present thread."""
        self.records.append(
            TimelineEntry(kind, name, start, threading.get_ident(), measure, nbytes)
        )


class _Active:
    timeline: Timeline | None = None


def active() -> Timeline | None:
    """The timeline that records; None without a profiler."""
    return _Active.timeline


def activate(timeline: Timeline | None) -> None:
    """Record in a timeline from now on; None ends that."""
    _Active.timeline = timeline


@contextmanager
def span(kind: str, name: str) -> Iterator[None]:
    """Record the time that the body takes on the host, if there is a profiler."""
    timeline = _Active.timeline
    if timeline is None:
        yield
        return
    start = time.perf_counter_ns()
    try:
        yield
    finally:
        duration = time.perf_counter_ns() - start
        timeline.add(kind, name, start, lambda: duration)


def record_copies(device: Any, timeline: Timeline) -> None:
    """Record the copies between the host and a device that has a memory of its own."""

    def recorded(name: str, copy: Callable[[int, Any], None]) -> Callable[[int, Any], None]:
        def run(address: int, values: Any) -> None:
            start = time.perf_counter_ns()
            copy(address, values)
            duration = time.perf_counter_ns() - start
            timeline.add(TRANSFER, name, start, lambda: duration, int(values.nbytes))

        return run

    for method, name in (("read", "device to host"), ("write", "host to device")):
        setattr(device, method, recorded(name, getattr(device, method)))
