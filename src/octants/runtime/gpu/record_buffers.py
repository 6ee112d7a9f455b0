"""Allocates the record buffers of a GPU, and reads which work items ran out of space for records.

`abi` has the layout; `record_buffer_growth` decides how large record buffers are.
"""

from __future__ import annotations

import threading

import numpy as np

from octants import abi
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.diagnostics.kernel_run_time_errors import UntrackedWrite
from octants.locks_at_fork import released_in_children
from octants.runtime.device import Allocation
from octants.runtime.gpu.driver import DeviceMemory, Queue

_HEAD = 16  # bytes of the largest need and the count, before one bit for each work item


class DeviceRecordBuffers:
    """The record buffers of all threads of a queue, in one heap of at most ``limit`` bytes.

    A launch holds `lock` from its first thread until the host knows that no work item ran out of
    record buffer, so that no two launches use the heap at once.
    """

    def __init__(self, memory: DeviceMemory, queue: Queue, limit: int) -> None:
        self.lock = released_in_children(threading.Lock())
        self._memory, self._queue = memory, queue
        self._limit = limit
        self._heap: Allocation | None = None
        self._report: Allocation | None = None
        self._is_clean = False
        self.trusted = ""
        """The kernel of the last launch to `confirm`; "" if there is none."""
        self.layout = object()
        """Another object after each change of the addresses of the heap and the failure report."""

    def is_ready(self, layout: object) -> bool:
        """Whether addresses are those of an earlier `layout`, and the failure report is zero."""
        return self.layout is layout and self._is_clean

    @property
    def address(self) -> int:
        """The address of the heap; 0 without one."""
        return self._heap.address if self._heap is not None else 0

    @property
    def nbytes(self) -> int:
        """The size of the heap, in bytes."""
        return self._heap.nbytes if self._heap is not None else 0

    def reserve(self, nbytes: int) -> bool:
        """Grow the heap to at least ``nbytes``, to twice its size if memory allows.

        Returns:
            Whether it is that large now; False if it would exceed the limit or the memory of the
                device.
        """
        if nbytes <= self.nbytes:
            return True
        if nbytes > self._limit:
            return False
        generous = max(nbytes, min(2 * self.nbytes, self._limit))
        self._heap = None  # free the old heap first
        self.layout = object()
        for size in dict.fromkeys((generous, nbytes)):
            try:
                self._heap = self._memory.allocate(size, "record buffers")
            except OctantsMemoryError:
                continue
            return True
        return False

    def free(self) -> None:
        """Free the heap, unless a launch is using it."""
        if self.lock.acquire(blocking=False):
            self._heap = None
            self.layout = object()
            if not self.trusted:
                self._report = None
            self.lock.release()

    # -- capacity failures ----------------------------------------------------------------------

    def failure_report(self, items: int) -> int:
        """The address of a zeroed failure report for ``items`` work items, for a launch that may
        fail.
        """
        self.confirm()
        address = self.clean_report(items)
        self._is_clean = False
        return address

    def clean_report(self, items: int) -> int:
        """The same address, for a launch whose record buffers are known to suffice."""
        nbytes = report_bytes(items)
        if self._report is None or self._report.nbytes < nbytes:
            self.confirm()
            self._report = None
            self.layout = object()
            self._report = self._memory.allocate(nbytes, "failed work items")
            self._is_clean = False
        if not self._is_clean:
            self._queue.clear(self._report.address, self._report.nbytes)
            self._is_clean = True
        return self._report.address

    def trust(self, kernel: str) -> None:
        """Register a queued launch of a kernel that the host does not wait for.

        Its record buffers suffice unless memory was written that no version tracks; `confirm`
        checks that.
        """
        self.trusted = kernel

    def confirm(self) -> None:
        """Wait for the launches that were trusted, and check that none ran out of record space.

        Raises:
            OctantsRuntimeError: one did: memory was changed by an untracked write.
        """
        kernel, self.trusted = self.trusted, ""
        if kernel and self.read_failures()[1]:
            self._is_clean = False
            raise UntrackedWrite(f"kernel `{kernel}`").at()

    def read_failures(self) -> tuple[int, int]:
        """Wait for the launch, and read its failure report, which is zero again afterwards.

        Returns:
            The most bytes that a failed work item needs, and how many failed.
        """
        assert self._report is not None
        need, count = self._read_pair(self._report.address)
        if count:
            self._queue.clear(self._report.address, _HEAD)
        else:
            self._is_clean = True
        return need, count

    def first_failure(self) -> int:
        """The first work item that failed, counted from the lower bound."""
        assert self._report is not None
        report = np.zeros(self._report.nbytes, np.uint8)
        self._queue.read(self._report.address, report)
        bits = np.unpackbits(report[abi.REFUSED_ITEMS :], bitorder="little")
        return int(bits.argmax())

    # -- bounds computed on the device ----------------------------------------------------------

    def read_bounds(self, address: int) -> tuple[int, int]:
        """Wait for what is queued, and read the bounds at an address."""
        return self._read_pair(address)

    def write_bounds(self, address: int, lower: int, upper: int) -> None:
        """Queue a write of the bounds at an address."""
        self._queue.write(address, np.array([lower, upper], np.int64).view(np.uint8))

    def _read_pair(self, address: int) -> tuple[int, int]:
        words = np.empty(2, np.int64)
        self._queue.read(address, words.view(np.uint8))
        return int(words[0]), int(words[1])


def report_bytes(items: int) -> int:
    """The size of a failure report for ``items`` work items, in bytes."""
    return abi.REFUSED_ITEMS + 4 * -(-items // 32)
