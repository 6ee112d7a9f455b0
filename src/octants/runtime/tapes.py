"""The memory of tapes on a GPU, and what is told of refused work items; `abi` has the layout."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from octants import abi
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.diagnostics.kernel_errors import UnseenWrite
from octants.runtime.device import Allocation, Bytes

HEAD = 16
"""The bytes of the need and the count, before the bits of the work items."""


class TapeMemory(ABC):
    """A *heap* that holds the tapes of all threads, of at most ``limit`` bytes.

    After each launch that records the host looks whether work items were refused, so that no two
    use it at once. Subclasses add the rest of `runtime.steps.Tape`.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._heap: Allocation | None = None
        self._refused: Allocation | None = None
        self._is_clean = False
        self._trusted = ""

    @abstractmethod
    def _allocate(self, nbytes: int, what: str) -> Allocation:
        """Memory of the device; `OctantsMemoryError` if there is none."""

    @abstractmethod
    def _clear(self, address: int, nbytes: int) -> None:
        """Set memory to zero, after what was launched."""

    @abstractmethod
    def _copy(self, address: int, into: Bytes) -> None:
        """Copy memory to the host, after what was launched."""

    @abstractmethod
    def _move(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device, after what was launched."""

    @abstractmethod
    def _read_pair(self, address: int) -> tuple[int, int]:
        """Two words of the device (i64), when what was launched is done."""

    @property
    def address(self) -> int:
        """Where the heap is."""
        return self._heap.address if self._heap is not None else 0

    @property
    def nbytes(self) -> int:
        """The bytes of the heap."""
        return self._heap.nbytes if self._heap is not None else 0

    def reserve(self, nbytes: int) -> bool:
        """Make the heap as large as that, twice what it was if there is room; False if refused."""
        if nbytes <= self.nbytes:
            return True
        if nbytes > self._limit:
            return False
        generous = max(nbytes, min(2 * self.nbytes, self._limit))
        self._heap = None  # lest both be there at once
        for size in dict.fromkeys((generous, nbytes)):
            try:
                self._heap = self._allocate(size, "tapes of gradients")
            except OctantsMemoryError:
                continue
            return True
        return False

    def _drop(self) -> None:
        """Give the memory back."""
        self._heap = None
        if not self._trusted:
            self._refused = None

    # -- refused work items ---------------------------------------------------------------------

    def expect(self, items: int) -> int:
        """The address of room for what is told of so many work items, all of it zero."""
        self.confirm()
        address = self.nothing_refused(items)
        self._is_clean = False
        return address

    def nothing_refused(self, items: int) -> int:
        """The same address, for a launch of which no work item can be refused."""
        nbytes = abi.REFUSED_ITEMS + 4 * (-(-items // 32))
        if self._refused is None or self._refused.nbytes < nbytes:
            self.confirm()
            self._refused = None
            self._refused = self._allocate(nbytes, "refused work items")
            self._is_clean = False
        if not self._is_clean:
            self._clear(self._refused.address, self._refused.nbytes)
            self._is_clean = True
        return self._refused.address

    def trust(self, kernel: str) -> None:
        """Such a launch of a kernel is queued, of which that is true if versions of memory are."""
        self._trusted = kernel

    @property
    def is_trusted(self) -> bool:
        """Whether there is something to `confirm`."""
        return bool(self._trusted)

    def confirm(self) -> None:
        """Look whether what was trusted is true, when what was launched is done; else an error."""
        kernel, self._trusted = self._trusted, ""
        if kernel and self.refused()[1]:
            self._is_clean = False
            raise UnseenWrite(f"kernel `{kernel}`").at(None)

    def refused(self) -> tuple[int, int]:
        """(the most bytes that one needs, how many were refused), when what was launched is done.

        Both are zero again afterwards.
        """
        assert self._refused is not None
        need, count = self._read_pair(self._refused.address)
        if count:
            self._clear(self._refused.address, HEAD)
        else:
            self._is_clean = True
        return need, count

    def adopt(self, told: int, items: int) -> tuple[int, int]:
        """Take over what is told elsewhere of refused items: as `expect`, and then `refused`.

        Gives the address of that, and the most bytes that one of them needs.
        """
        address = self.expect(items)
        self._move(address, told, abi.REFUSED_ITEMS + 4 * (-(-items // 32)))
        return address, self.refused()[0]

    def first_refused(self) -> int:
        """The place of the first work item that is refused, counted from the lower bound."""
        assert self._refused is not None
        told = np.zeros(self._refused.nbytes, np.uint8)
        self._copy(self._refused.address, told)
        bits = np.unpackbits(told[abi.REFUSED_ITEMS :], bitorder="little")
        return int(bits.argmax())

    # -- bounds that a kernel has computed ------------------------------------------------------

    def read_bounds(self, address: int) -> tuple[int, int]:
        """The bounds that what was launched has left at an address."""
        return self._read_pair(address)
