"""What devices have that do one thing after the other, and share memory with no other library.

A program that names streams and events gets the same results there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from octants.runtime.capture import Command, CommandList

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
    """What a `Device` has in place of streams, driver graphs and arrays of other libraries."""

    is_starting = False
    dlpack_device = (1, 0)

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

    def make_graph(self, commands: Sequence[Command], _: Any = None) -> CommandList:
        """What does these commands again, one after the other."""
        return CommandList(commands)

    def synchronize(self) -> None:
        """Wait until all that was launched is done; raises what went wrong in it."""
        raise NotImplementedError

    # -- arrays of other libraries --------------------------------------------------------------

    def address_of(self, _: Any, /) -> int | None:
        """None: the arrays of others that kernels can reach have a numpy array or are on a CPU."""
        return None

    def interface_of(self, *_: object) -> dict[str, Any] | None:
        """None: others share this memory by numpy, or cannot."""
        return None

    def import_array(self, *_: object) -> Any:
        """None: numpy borrows what is in memory of the host."""

    def export_memory(self, owner: Any) -> Any:
        """The owner itself: nobody works on this memory unseen."""
        return owner

    def make_stream_wait(self, _: int | None) -> None:
        """Do nothing: there are no streams of others."""
