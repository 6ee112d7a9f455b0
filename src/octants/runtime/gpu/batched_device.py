"""Devices whose commands go in batches (see `batches`), and the state that their launches share."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from octants.artifact import Artifact
from octants.diagnostics.errors import UserError
from octants.runtime.capture import refuse_read
from octants.runtime.device import Bytes, StagingBuffer
from octants.runtime.devices.serial_streams_and_graphs import SerialLaunches
from octants.runtime.gpu.batched_staging_buffer import BatchedStagingBuffer
from octants.runtime.gpu.device import POOL, STAGING, GpuDevice
from octants.runtime.gpu.messages import MessageQueue
from octants.runtime.gpu.record_buffers import DeviceRecordBuffers
from octants.runtime.gpu.suballocation import Heap, SubAllocation
from octants.runtime.memory.versions import Versions
from octants.runtime.reports.pending_errors import Pending

H = TypeVar("H", bound=Hashable)


class SubmissionContext:
    """A device with one queue, whose submissions complete in order.

    The n-th submission has the number n; `done` is the number of the last one known to be complete.
    `launched` lists the names of the kernels that were launched since the last synchronisation.
    Once the device is `lost`, every call fails with that error; in a process that was forked, that
    is `forked`.
    """

    forked: type[UserError]

    def __init__(self) -> None:
        self.lost: UserError | None = None
        self.launched: deque[str] = deque(maxlen=1024)
        self.submitted = 0
        self.done = 0
        _contexts.add(self)

    def check(self) -> None:
        """Raise the error of a lost device, an `OctantsRuntimeError`."""
        if self.lost is not None:
            raise self.lost.at()


_contexts: weakref.WeakSet[SubmissionContext] = weakref.WeakSet()


def _lose_all() -> None:
    for context in _contexts:
        context.lost = context.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lose_all)


class SharedState:
    """The state of a device that stays until the process ends, as arrays may outlive a `Device`.

    ``mapped`` and ``mapped_transfers`` are for memory that the host reads while the device is busy.
    """

    def __init__(
        self, context: Any, heap: Any, queue: Any, mapped: Any, make_transfers: Callable[..., Any]
    ) -> None:
        self.context, self.heap, self.queue, self.mapped = context, heap, queue, mapped
        self.programs: weakref.WeakValueDictionary[bytes, Any] = weakref.WeakValueDictionary()
        self.transfers = make_transfers(queue, heap)
        self.mapped_transfers = make_transfers(queue, mapped)


S = TypeVar("S", bound=SharedState)


def shared_state(known: dict[H, S], hardware: H, make: Callable[[H], S]) -> S:
    """The shared state of a device; created again after a loss, but not after a fork."""
    found = known.get(hardware)
    if found is not None and isinstance(found.context.lost, found.context.forked):
        found.context.check()
    if found is None or found.context.lost is not None:
        found = known[hardware] = make(hardware)
    return found


class BatchedDevice(GpuDevice, SerialLaunches):
    """A device whose launches are queued in batches.

    Args:
        hardware: The device.
        shared: Its state.
        threads: The number of threads that occupy it.
        record_budget: Bytes that the records of a launch should take, as far as shorter blocks of
            long loops make that possible; 0: 1/64 of the memory.
        record_buffer_limit: The most bytes of all record buffers; 0: 9/10 of the memory.
    """

    layout: Any = None
    heap: Heap[Any]

    def __init__(
        self,
        hardware: Any,
        shared: Any,
        threads: int,
        record_budget: int = 0,
        record_buffer_limit: int = 0,
    ) -> None:
        super().__init__()
        self.hardware = hardware
        self.context, self.queue, self.programs = shared.context, shared.queue, shared.programs
        self.heap, self.mapped = shared.heap, shared.mapped
        self.transfers = shared.transfers
        self.queue_here = lambda: shared.transfers
        self._heaps = {id(heap): heap for heap in (shared.heap, shared.mapped)}
        self._all_transfers = shared.transfers, shared.mapped_transfers
        total = hardware.memory_bytes
        self.record_budget = record_budget or total // 64
        self.record_buffers = DeviceRecordBuffers(
            self.heap, self.transfers, record_buffer_limit or total // 10 * 9
        )
        self.threads = threads
        self.pending = Pending()
        self.messages = MessageQueue(
            shared.mapped, shared.mapped_transfers, self.pending, self.wait_for_launches
        )
        self.bounds: SubAllocation = self.heap.allocate(32, "bounds of loops")
        self.versions = Versions(self.heap.live.find)

    # -- implemented by a driver ----------------------------------------------------------------

    def make_program(self, artifact: Artifact) -> Any:
        """Create the pipelines of an artifact; they may raise `OctantsRuntimeError`."""
        raise NotImplementedError

    def new_push_constants(self, slots: int) -> tuple[Any, Any, Any]:
        """The data that a launch pushes: the address of the parameter block, the words of `abi`,
        and those of the driver, such as the first of so many slots of the parameter block.

        Returns:
            All words, the memory of the slots among them, and what the queue's `dispatch` takes.
        """
        raise NotImplementedError

    def report(self) -> None:
        """Raise what the driver has to say of launches that are complete."""

    # -- what is the same on all ----------------------------------------------------------------

    def program(self, artifact: Artifact) -> Any:
        """The pipelines of an artifact; kernels with the same code share them."""
        known = self.programs.get(artifact.code)
        if known is None:
            known = self.programs[artifact.code] = self.make_program(artifact)
        return known

    def allocate_zeros(self, nbytes: int, what: str) -> SubAllocation:
        """Allocate memory that is zero for all later launches."""
        piece = self.allocate_dirty(nbytes, what)
        self.transfers.clear(piece.address, -(-nbytes // 4) * 4)
        return piece

    def allocate_dirty(self, nbytes: int, what: str) -> SubAllocation:
        """Allocate memory with unspecified contents."""
        piece = self.heap.allocate(nbytes, what)
        self.versions.freed(piece.address, nbytes)  # memory that was freed before
        return piece

    def staging_buffer(self, nbytes: int, written: int) -> StagingBuffer:
        """Allocate a staging buffer; see `runtime.device.Device.staging_buffer`.

        If no launch writes to it, the host does not wait for its launches.
        """
        if not written:
            return super().staging_buffer(nbytes, written)
        return BatchedStagingBuffer(self, nbytes, written)

    def live_bytes(self) -> int:
        """The size of all live allocations."""
        return sum(heap.live.nbytes for heap in self._heaps.values())

    def pools(self) -> dict[str, int]:
        """The bytes that pools and staging buffers retain; see `GpuDevice.pools`."""
        free = sum(heap.free_bytes() for heap in self._heaps.values())
        staging = sum(transfers.staging_bytes for transfers in self._all_transfers)
        return {POOL: free, STAGING: staging}

    def read(self, address: int, into: Bytes) -> None:
        """Wait for all launches, and copy device memory to the host.

        Raises:
            OctantsError: a launch failed.
        """
        refuse_read()
        self.transfers.read(address, into)
        self.deliver()
        self.pending.raise_first()

    def wait_for_launches(self) -> None:
        """Synchronise: wait for all launches, write what kernels printed, raise the first error."""
        self.queue.finish()
        self.deliver()

    def deliver(self) -> None:
        """Write what kernels printed, and raise the first error; all launches are complete."""
        self.report()
        if self.record_buffers.trusted or self.messages.undelivered:
            with self.queue.lock:  # first, as in a launch
                self.confirm_record_buffers()
                self.messages.deliver()

    def all_record_buffers(self) -> tuple[DeviceRecordBuffers]:
        """The one record buffer."""
        return (self.record_buffers,)
