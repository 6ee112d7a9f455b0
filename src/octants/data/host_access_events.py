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


# Dictionaries keep the order, and forget an observer at once.
_write_observers: dict[Callable[[HostWrite], None], None] = {}
_share_observers: dict[Callable[[Any, bool], None], None] = {}
_read_observers: dict[Callable[[Any], None], None] = {}
_after_share_observers: list[Callable[[Any], None]] = []
_allocation_observers: list[Callable[[], None]] = []
_end_observers: list[Callable[[], None]] = []


def observe_writes(observer: Callable[[HostWrite], None]) -> None:
    """Call ``observer`` before each write. If it raises, nothing is written."""
    _write_observers[observer] = None


def observe_reads(observer: Callable[[Any], None]) -> None:
    """Call ``observer`` with the array before each read: a point of synchronisation."""
    _read_observers[observer] = None


def observe_shares(observer: Callable[[Any, bool], None]) -> None:
    """Call ``observer`` with the array before others see its memory, or may write it uncounted.

    It is also passed whether they may write it uncounted.
    """
    _share_observers[observer] = None


def observe_after_share(observer: Callable[[Any], None]) -> None:
    """Call ``observer`` with the array once others can see its memory, for the first time."""
    _after_share_observers.append(observer)


def observe_allocations(observer: Callable[[], None]) -> None:
    """Call ``observer`` when fields have been given their memory, before anything uses it."""
    _allocation_observers.append(observer)


def forget(*ended: Callable[..., None]) -> None:
    """End the observations by some observers; nothing happens if there are none."""
    for observer in ended:
        _write_observers.pop(observer, None)
        _share_observers.pop(observer, None)
        _read_observers.pop(observer, None)


def observe_ends(observer: Callable[[], None]) -> None:
    """Call ``observer`` when arrays have lost their memory within a runtime.

    An observer that remembers addresses must forget them.
    """
    _end_observers.append(observer)


def after_allocation() -> None:
    """Announce that fields have been given their memory."""
    for observer in _allocation_observers:
        observer()


def after_end() -> None:
    """Announce that arrays have lost their memory."""
    for observer in _end_observers:
        observer()


def before_write(array: Any, region: tuple[int, ...] = (), source: Any = None) -> None:
    """Announce a write. The caller has checked it completely."""
    if _write_observers:
        write = HostWrite(array, region, source)
        for observer in tuple(_write_observers):
            observer(write)


def are_writes_observed() -> bool:
    """Whether anything is called before writes, such as a tape."""
    return bool(_write_observers)


def after_write(array: Any, region: tuple[int, ...]) -> None:
    """Announce a write that was not: others have made it. The version is the old one still."""
    for observer in tuple(_write_observers):
        observer(HostWrite(array, region, is_done=True))


def before_share(array: Any, *, becomes_untracked: bool) -> None:
    """Announce that others are to see the memory of an array, or to write it uncounted."""
    for observer in tuple(_share_observers):
        observer(array, becomes_untracked)


def after_share(array: Any) -> None:
    """Announce that others can see the memory of an array from now on."""
    for observer in _after_share_observers:
        observer(array)


def before_read(array: Any) -> None:
    """Announce a read."""
    for observer in _read_observers:
        observer(array)
