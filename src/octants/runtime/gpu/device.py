"""Implements `runtime.device.Device` for all GPUs, over the verbs of their drivers."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from octants.diagnostics.exceptions import OctantsError, OctantsRuntimeError
from octants.runtime.capture import noted, thread_capture
from octants.runtime.device import Allocation, Bytes, StagingBuffer
from octants.runtime.gpu.driver import Queue
from octants.runtime.gpu.messages import MessageQueue
from octants.runtime.gpu.record_buffers import DeviceRecordBuffers
from octants.runtime.launch_timers import SynchronisedTimer, Timer
from octants.runtime.memory.fill import set_elements
from octants.runtime.memory.staging_buffer import PageableStagingBuffer
from octants.runtime.memory.versions import Versions
from octants.runtime.reports.pending_errors import Pending

POOL, STAGING = "free in the pool", "staging buffers"
"""Kinds of memory that is retained for later use."""


class GpuDevice:
    """A GPU as a `Device`; a driver's class derives from it.

    Copies, fills and writes go into the queue that `queue_here` returns: that of the calling
    thread. A capture records them, and `versions` learns which memory they change. Once the
    `context` is `lost`, every call fails.
    """

    shares_memory = False
    number = 0
    context: Any
    pending: Pending
    messages: MessageQueue
    versions: Versions
    queue_here: Callable[[], Queue]

    def __init__(self) -> None:
        _devices.add(self)

    def become_one_of_several(self) -> None:
        """Take notice that the process uses another device, too."""

    # -- implemented by a driver ----------------------------------------------------------------

    def wait_for_launches(self) -> None:
        """Wait for all launches, write what kernels printed, raise the first failure.

        Raises:
            OctantsError: an assertion or bounds check of a kernel failed, or the device was lost.
        """
        raise NotImplementedError

    def all_record_buffers(self) -> Iterable[DeviceRecordBuffers]:
        """The record buffers of all queues."""
        raise NotImplementedError

    def allocate_zeros(self, nbytes: int, what: str) -> Allocation:
        """Allocate memory that is zero for all later launches; see `allocate`."""
        raise NotImplementedError

    def allocate_dirty(self, nbytes: int, what: str) -> Allocation:
        """Allocate memory with unspecified contents; see `allocate_uninitialised`."""
        raise NotImplementedError

    def give_back(self) -> None:
        """Free memory that is not in use."""

    def live_bytes(self) -> int:
        """The size of all live allocations."""
        raise NotImplementedError

    def pools(self) -> dict[str, int]:
        """The bytes that pools and staging buffers retain beside the live allocations."""
        raise NotImplementedError

    # -- memory ---------------------------------------------------------------------------------

    def allocate(self, nbytes: int, what: str = "") -> Allocation:
        """Allocate zeroed memory.

        Args:
            nbytes: The size in bytes.
            what: A name for the table of allocations that errors about memory show.

        Returns:
            Memory at a multiple of 64, freed when the last reference to the result is dropped.

        Raises:
            OctantsMemoryError: the device is out of memory; the error lists all allocations.
        """
        allocation = self.allocate_zeros(nbytes, what)
        capture = thread_capture()
        if capture is not None:
            capture.allocated(self.clear, allocation)
        return allocation

    def allocate_uninitialised(self, nbytes: int, what: str = "") -> Allocation:
        """Allocate memory with unspecified contents; otherwise like `allocate`."""
        allocation = self.allocate_dirty(nbytes, what)
        capture = thread_capture()
        if capture is not None:
            capture.kept.append(allocation)
        return allocation

    def read(self, address: int, into: Bytes) -> None:
        """Wait for all launches, and copy device memory to the host.

        Raises:
            OctantsError: a launch failed.
        """
        raise NotImplementedError

    def staging_buffer(self, nbytes: int, written: int) -> StagingBuffer:
        """Allocate a staging buffer; a launch may write the first ``written`` bytes of its memory.

        Raises:
            OctantsMemoryError: the device is out of memory.
        """
        return PageableStagingBuffer(self, nbytes, written)

    @noted
    def write(self, address: int, values: Bytes) -> None:
        """Queue a copy from the host; the caller may change ``values`` when this returns."""
        self._will_write(address, values.nbytes)
        self.queue_here().write(address, values)

    @noted
    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Queue a copy of ``nbytes`` within the device; source and target do not overlap."""
        self._will_write(target, nbytes)
        self.queue_here().copy(target, source, nbytes)

    def copy_each(self, pieces: tuple[tuple[int, int, int], ...]) -> None:
        """Queue several copies within the device: targets, sources, bytes. Not in a capture."""
        if self.versions.watches:
            for target, _, nbytes in pieces:
                self._will_write(target, nbytes)
        self._queue_copies(pieces)

    def _queue_copies(self, pieces: tuple[tuple[int, int, int], ...]) -> None:
        """Queue several copies, which `versions` knows of."""
        queue = self.queue_here()
        for target, source, nbytes in pieces:
            queue.copy(target, source, nbytes)

    @noted
    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        """Queue a strided copy within the device; see `driver.Queue.copy_rows`."""
        self._will_write(target, (rows - 1) * target_step + nbytes)
        self.queue_here().copy_rows(target, target_step, source, source_step, nbytes, rows)

    @noted
    def clear(self, address: int, nbytes: int) -> None:
        """Queue a fill with zeros."""
        self._will_write(address, nbytes)
        self.queue_here().clear(address, nbytes)

    def clear_each(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Queue a fill with zeros of several ranges: addresses and bytes. Not in a capture."""
        if self.versions.watches:
            self.versions.wrote_each(ranges)
        self._queue_clears(ranges)

    def _queue_clears(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Queue a fill with zeros of several ranges, which `versions` knows of."""
        queue = self.queue_here()
        for address, nbytes in ranges:
            queue.clear(address, nbytes)

    def set_elements(self, address: int, element: bytes, count: int) -> None:
        """Queue a fill of ``count`` contiguous elements with the bytes of one."""
        set_elements(self, address, element, count)

    def _will_write(self, address: int, nbytes: int) -> None:
        if self.versions.watches and nbytes > 0:
            self.versions.wrote(address, nbytes)

    # -- waiting --------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Wait for all launches, and raise the first error of one.

        Raises:
            OctantsError: a kernel failed, or a record buffer overflowed.
        """
        self.wait_for_launches()
        self.pending.raise_first()

    def create_timer(self) -> Timer:
        """The host's clock, around launches that it waits for."""
        return SynchronisedTimer(self.synchronize)

    def confirm_record_buffers(self) -> None:
        """Check the launches that skipped the check of record buffers; errors become pending."""
        for buffers in self.all_record_buffers():
            if buffers.trusted:
                with buffers.lock:
                    try:
                        buffers.confirm()
                    except OctantsRuntimeError as error:
                        self.pending.add(error)

    @property
    def record_buffer_bytes(self) -> int:
        """The size of all record buffers, in bytes; they are retained for later launches."""
        return sum(buffers.nbytes for buffers in self.all_record_buffers())

    def free_record_buffers(self) -> None:
        """Free the record buffers that no launch is using."""
        for buffers in self.all_record_buffers():
            buffers.free()

    def close(self) -> None:
        """Free retained memory; live allocations stay valid, and kernels can still be launched."""
        with contextlib.suppress(OctantsError):
            self.wait_for_launches()
        self.messages.forget()
        self.free_record_buffers()
        if self.context.lost is None:
            self.give_back()


_devices: weakref.WeakSet[GpuDevice] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    """Write what kernels printed since the last synchronisation; failures become pending."""
    for device in list(_devices):
        try:
            if device.context.lost is None:
                device.wait_for_launches()
        except OctantsError as error:
            device.pending.add(error)
