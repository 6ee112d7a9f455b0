"""Notifies observers of the host's reads and writes of arrays.

Every write of the host to a field or ndarray passes `before_write`, and every read `before_read`.
`ad.Tape` observes the writes: it saves what a write will overwrite, and remembers that the
adjoints of what was written end there.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import length_hint
from typing import Any

from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class HostWrite:
    """A write that is about to happen or, by others than us, has happened (`is_done`).

    `array` is the array or companion that is written (see `stored.StoredArray`). `region` is the
    index of what is written, () for all: leading indices from 0, those of the element last.
    `source` is the array that the values are copied from, if they are one's.
    """

    array: Any
    region: tuple[int, ...] = ()
    source: Any = None
    is_done: bool = False


class Clock:
    """The time of a write of the host: how many numbers of launches are left to be taken."""

    launches: Any = None
    """The owner of `numbers`, the iterator over the numbers of launches to come."""
    last_write: tuple[Any, int] = (None, -1)
    """When the host last wrote an array that is no companion, while launches had new numbers."""

    @classmethod
    def now(cls) -> tuple[Any, int]:
        """The iterator, and how many numbers it has left; -1 where that is not known."""
        numbers = cls.launches.numbers
        return numbers, length_hint(numbers, -1)


class Event:
    """An event that calls its observers with what they are to know, in the order they came."""

    def __init__(self) -> None:
        self.observers: dict[Callable[..., None], None] = {}

    def observe(self, observer: Callable[..., None]) -> None:
        """Call ``observer`` each time, until it is to `forget`."""
        self.observers[observer] = None

    def __call__(self, *known: Any) -> None:
        """Announce that it happens."""
        for observer in tuple(self.observers):
            observer(*known)


host_reads = Event()
"""The array to be read: a point of synchronisation."""
host_writes = Event()
"""A `HostWrite` to come, or done by others. If an observer raises, nothing is written."""
before_share = Event()
"""Others are to see the memory of an array or, if the second value is true, write it uncounted."""
after_share = Event()
"""Others can see the memory of an array from now on, for the first time."""
after_allocation = Event()
"""Fields have been given their memory, and nothing has used it."""
after_end = Event()
"""Arrays have lost their memory within a runtime: who remembers addresses must forget them."""


def forget(*ended: Callable[..., None]) -> None:
    """End the observations by some observers; nothing happens if there are none."""
    for observer in ended:
        for event in (host_reads, host_writes, before_share):
            event.observers.pop(observer, None)


def before_read(array: Any) -> None:
    """Announce a read."""
    if host_reads.observers:
        host_reads(array)


def before_write(array: Any, region: tuple[int, ...] = (), source: Any = None) -> None:
    """Announce a write. The caller has checked it completely."""
    if host_writes.observers:
        host_writes(HostWrite(array, region, source))


def after_write(array: Any, region: tuple[int, ...]) -> None:
    """Announce a write that was not: others have made it. The version is the old one still."""
    host_writes(HostWrite(array, region, is_done=True))
