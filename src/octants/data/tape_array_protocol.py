"""The interface of arrays that a tape saves and restores: of Octants, numpy or torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from operator import length_hint
from typing import Any

import numpy as np

from octants.data import host_access_events
from octants.internal_members import internal
from octants.runtime.device import Device
from octants.types.companions import Companion
from octants.types.scalars import DType

Array = np.ndarray[Any, Any]


class StoredArray(ABC):
    """The values of an array, or one of its companions: a gradient, a dual.

    `companion` says what it is of its `primal`. `version` changes whenever the host writes the
    array, and when `mark_written` is called; with `shared_version`, nothing more is known of
    writes by others. If it `is_untracked`, others may write its memory uncounted.
    """

    companion: Companion = Companion.PRIMAL
    version: int = 0
    is_untracked: bool = False
    written: tuple[tuple[Any, int], tuple[int, ...]] | None = None
    """The last write of the host: its time (`host_access_events.Clock.now`), and the index."""
    dtype: DType

    @property
    def primal(self) -> Any:
        """The array whose companion this is; itself if it is none."""
        return self

    @property
    @internal
    def shared_version(self) -> int:
        """Torch's count of the writes through its tensors on this memory."""
        return 0

    @property
    @internal
    def is_allocated(self) -> bool:
        """Whether there is memory already; without it all elements are zero."""
        return True

    @abstractmethod
    @internal
    def companion_array(self, companion: Companion) -> Any:
        """The companion, or the array itself for PRIMAL; None if there is none."""

    @property
    @abstractmethod
    @internal
    def identity(self) -> Hashable:
        """A key that two arrays share exactly if they are the same memory."""

    @property
    @abstractmethod
    @internal
    def extent(self) -> tuple[int, int]:
        """The addresses of the first byte, and past the last one; others' bytes may lie between."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The bytes of the elements, which a snapshot takes."""

    @abstractmethod
    @internal
    def snapshot(self) -> Any:
        """A copy of the elements, for `restore`, with ``nbytes``; where they are, if it can be."""

    @abstractmethod
    @internal
    def read(self) -> Array:
        """The elements, row-major on the host."""

    @abstractmethod
    @internal
    def restore(self, snapshot: Any) -> None:
        """Write back what `snapshot` gave, and nothing between the elements."""

    @abstractmethod
    @internal
    def clear(self, region: tuple[int, ...] = ()) -> None:
        """Set the elements at ``region`` to zero: all, or those with these first indices."""

    @internal
    def contiguous_range(self) -> tuple[Device, int, int] | None:
        """The device, address and bytes of all elements, if `Device.clear_each` can clear them.

        None while there is no memory, or in a capture, or where other bytes lie between the
        elements.
        """
        return None

    @internal
    def active_elements(self) -> Array | None:
        """Whether each element is in an active cell, if it is a sparse field; None for others.

        A write to all elements changes those in active cells only.
        """
        return None

    def mark_written(self) -> None:
        """Note that the elements were changed through a pointer, untracked."""
        self.note_write(())

    @internal
    def note_write(self, region: tuple[int, ...]) -> None:
        """Count a write of the host, and remember when it was, and which elements it changed."""
        self.version += 1
        clock = host_access_events.Clock
        numbers, last = clock.launches.numbers, self.written
        now = numbers, length_hint(numbers, -1)  # as `clock.now()`, without a call
        if last is not None and last[1] != region and last[0] == now:
            region = ()
        self.written = now, region
        if self.companion is Companion.PRIMAL and now[0] is clock.launches.first_numbers:
            clock.last_write = now
