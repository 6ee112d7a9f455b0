"""Tracks versions of memory, to tell whether it may have been written since an earlier query.

The device reports each write when it is queued, once a version has been queried; only few memory
ranges are ever watched. Memory that other libraries share has no version.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from octants.artifact import MemoryRange
from octants.lazy_dataclass import dataclass
from octants.locks_at_fork import released_in_children
from octants.runtime.parameter_blocks.slots import SlotViews

Range = tuple[int, int]
"""The first address, and the one past the last."""


@dataclass(slots=True)
class WatchedRange:
    """A memory range, its allocation, and its version."""

    interval: Range
    allocation: Range
    version: int


class WrittenRanges:
    """Ranges that are written together: addresses and bytes, 0 for a whole allocation.

    `reached` are the watched ranges among them, as of the `changes` of `Versions` that `at` is.
    """

    __slots__ = ("at", "ranges", "reached")

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self.ranges = tuple(dict.fromkeys(ranges))
        self.at = -1
        self.reached: list[WatchedRange] = []


class Versions:
    """The versions of a device's memory.

    ``find`` returns the allocation that contains an address, or None.
    """

    def __init__(self, find: Callable[[int], Range | None]) -> None:
        self._find = find
        self._numbers = itertools.count(1)
        self._lock = released_in_children(threading.Lock())
        self._by_range: dict[tuple[int, int], WatchedRange] = {}
        self._exported: set[Range] = set()
        self._last_ranges: tuple[Any, WrittenRanges] = None, WrittenRanges(())
        self.changes = 0
        """Changes whenever `watches` does."""
        self.watches: list[WatchedRange] = []
        """The watched ranges; writers check first whether there are any."""

    def of(self, ranges: Sequence[MemoryRange], slots: Sequence[int]) -> tuple[int, ...] | None:
        """The versions of memory ranges: equal to earlier ones if nothing was written in between.

        None if they are not known.
        """
        found = []
        for memory_range in ranges:
            watch = self._watch(slots[memory_range.slot], memory_range.nbytes)
            if watch is None:
                return None
            found.append(watch.version)
        return tuple(found)

    def _watch(self, address: int, nbytes: int) -> WatchedRange | None:
        watch = self._by_range.get((address, nbytes))
        if watch is None:
            allocation = self._find(address)
            if allocation is None or allocation in self._exported:
                return None
            interval = (address, address + nbytes) if nbytes else allocation
            watch = WatchedRange(interval, allocation, next(self._numbers))
            with self._lock:
                self._by_range[address, nbytes] = watch
                self.watches.append(watch)
                self.changes += 1
        return watch

    # -- changes ------------------------------------------------------------------------------

    def wrote(self, address: int, nbytes: int) -> None:
        """Report queued work that may write ``nbytes`` at an address; 0: the whole allocation."""
        self._renew(self._reached(address, nbytes))

    def wrote_again(self, written: WrittenRanges) -> None:
        """Report queued work that writes the same ranges each time."""
        if written.at != self.changes:
            changes = self.changes
            found = [self._reached(*each) for each in written.ranges]
            written.reached = [watch for some in found for watch in some]
            written.at = changes
        self._renew(written.reached)

    def wrote_each(self, ranges: tuple[Range, ...]) -> None:
        """Report queued work that writes ranges, each an address and bytes; fast if repeated."""
        known, written = self._last_ranges
        if known != ranges:
            written = WrittenRanges(each for each in ranges if each[1])
            self._last_ranges = ranges, written
        self.wrote_again(written)

    def _reached(self, address: int, nbytes: int) -> list[WatchedRange]:
        found = []
        for watch in tuple(self.watches):
            start, end = watch.interval if nbytes else watch.allocation
            if start < address + max(1, nbytes) and address < end:
                found.append(watch)
        return found

    def _renew(self, watches: Sequence[WatchedRange]) -> None:
        for watch in watches:
            watch.version = next(self._numbers)

    def reporter(
        self, ranges: Sequence[MemoryRange], slots: SlotViews
    ) -> Callable[[memoryview[int]], None]:
        """A function that reports the launches of a kernel, given the bytes of their parameter
        blocks.

        It is fast for launches that write to the same memory repeatedly.
        """
        if not ranges:
            return _nothing
        read = slots.reader({memory_range.slot for memory_range in ranges})
        order = sorted({memory_range.slot for memory_range in ranges})
        last: tuple[Any, WrittenRanges] = None, WrittenRanges(())  # one, since threads share it

        def report(view: memoryview[int]) -> None:
            nonlocal last
            values = read(view)
            known, written = last
            if known != values:
                at = dict(zip(order, values, strict=True))
                written = WrittenRanges((at[each.slot], each.nbytes) for each in ranges)
                last = values, written
            self.wrote_again(written)

        return report

    def exported(self, address: int) -> None:
        """Stop tracking an allocation that another library may write without notice."""
        allocation = self._find(address)
        if allocation is not None:
            self._exported.add(allocation)
            self._drop(*allocation)

    def freed(self, address: int, nbytes: int) -> None:
        """Forget an allocation that was freed."""
        self._exported.discard((address, address + nbytes))
        if self.watches:
            self._drop(address, address + nbytes)

    def _drop(self, start: int, end: int) -> None:
        with self._lock:
            for memory_range, watch in list(self._by_range.items()):
                if start < watch.allocation[1] and watch.allocation[0] < end:
                    del self._by_range[memory_range]
                    self.watches.remove(watch)
                    self.changes += 1


def _nothing(_: object) -> None:
    pass
