"""Streams and events of devices that do one thing after the other: there is nothing to be done.

A program that names them gets the same results there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

Pools = dict[Any, list[Any]]


class SerialStream:
    """A queue on a device that has only one; its handle is 0."""

    handle = 0

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self.synchronize = synchronize

    def destroy(self) -> None:
        """Do nothing."""


class SerialEvent:
    """A point in the only queue of a device."""

    handle = 0

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self.synchronize = synchronize

    def record(self, _: Any = None) -> None:
        """Do nothing: what comes later waits anyway."""

    def wait(self, _: Any = None) -> None:
        """Do nothing: what comes later waits anyway."""

    def destroy(self) -> None:
        """Do nothing."""


class SerialLaunches:
    """What a `Device` has in place of streams, where it does one launch after the other."""

    def create_stream(self, _: int | None = None) -> SerialStream:
        """What stands for a stream."""
        return SerialStream(self.synchronize)

    def create_event(self) -> SerialEvent:
        """What stands for an event."""
        return SerialEvent(self.synchronize)

    def using(self, _: Any) -> contextlib.AbstractContextManager[None]:
        """Launch as always."""
        return contextlib.nullcontext()

    def blocks_of(self, pool: list[Any]) -> list[Any]:
        """The pool itself: the launch before has ended when the next one uses its storage."""
        return pool

    def synchronize(self) -> None:
        """Wait until all that was launched is done; raises what went wrong in it."""
        raise NotImplementedError
