"""Streams, events and graphs for devices that run all launches in one order.

A program that uses streams and events gets the same results there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from octants.runtime.capture import Command, CommandList, CommandReplay
from octants.runtime.launch_timers import HostTimer, Timer


class SerialStream:
    """The stream of a device that has only one; its handle is 0."""

    handle = 0

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self.synchronize = synchronize

    def destroy(self) -> None:
        """Do nothing."""


class SerialEvent:
    """A point in the only stream of a device."""

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
    """The parts of a `Device` without streams, driver graphs, or memory shared with other
    libraries.
    """

    is_starting = False
    has_one_order = True
    number = 0
    dlpack_device = (1, 0)

    def become_one_of_several(self) -> None:
        """Do nothing: a launch has ended when another device begins one."""

    def create_stream(self, _: int | None = None) -> SerialStream:
        """The only stream."""
        return SerialStream(self.synchronize)

    def create_event(self) -> SerialEvent:
        """An event of the only stream."""
        return SerialEvent(self.synchronize)

    def create_timer(self) -> Timer:
        """The host's clock: a launch returns when its work is done."""
        return HostTimer()

    def using(self, _: Any) -> contextlib.AbstractContextManager[None]:
        """Launch in the only stream."""
        return contextlib.nullcontext()

    def blocks_of(self, pool: list[Any]) -> list[Any]:
        """The pool itself: a launch has ended when the next one uses its storage."""
        return pool

    def make_graph(self, commands: Sequence[Command], kept: Any = None) -> CommandReplay:
        """Make a list that replays commands one by one; it keeps ``kept`` alive."""
        return CommandList(commands, kept)

    def synchronize(self) -> None:
        """Wait for all launches, and raise the first error."""
        raise NotImplementedError

    def copy_from(self: Any, target: int, device: Any, source: int, nbytes: int) -> None:
        """Copy from another device of this kind, through the host."""
        values = np.empty(nbytes, np.uint8)
        device.read(source, values)
        self.write(target, values)

    # -- arrays of other libraries --------------------------------------------------------------

    def address_of(self, _: Any, /) -> int | None:
        """None: kernels access arrays of other libraries through numpy, or on the CPU."""
        return None

    def number_of(self, _: Any) -> int | None:
        """None: kernels find out by `address_of`."""
        return None

    def interface_of(self, *_: object) -> dict[str, Any] | None:
        """None: other libraries share this memory through numpy, or cannot."""
        return None

    def import_array(self, *_: object) -> Any:
        """None: numpy imports arrays in host memory."""

    def export_memory(self, owner: Any) -> Any:
        """The owner itself: no other library queues work on this memory."""
        return owner

    def wait_for_foreign(self, _: int) -> None:
        """Do nothing: there are no streams of other libraries."""

    def make_stream_wait(self, _: int | None) -> None:
        """Do nothing: there are no streams of other libraries."""
