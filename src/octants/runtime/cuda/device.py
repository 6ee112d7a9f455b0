"""Implements `runtime.device.Device` for NVIDIA GPUs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from ctypes import c_void_p
from typing import TYPE_CHECKING, Any

from octants.artifact import Artifact
from octants.deferred_import import Deferred
from octants.runtime.capture import (
    Command,
    captures,
    noted,
    refuse_read,
)
from octants.runtime.cuda.errors import OtherDevice
from octants.runtime.cuda.fill_words import words_of
from octants.runtime.cuda.foreign_arrays import (
    ForeignGpuArray,
    array_interface,
    foreign_array,
    torch_stream,
)
from octants.runtime.cuda.graphs.captured_commands import CudaGraph
from octants.runtime.cuda.graphs.repeated_clears import RepeatedClears
from octants.runtime.cuda.kernel import CudaKernel
from octants.runtime.cuda.launch_context import LaunchContext
from octants.runtime.cuda.library import MOST_PITCH
from octants.runtime.cuda.memory import DeviceAllocation, ExportedMemory
from octants.runtime.cuda.repeated_copies import Pieces, RepeatedCopies
from octants.runtime.cuda.staging_buffer import PinnedStagingBuffer
from octants.runtime.cuda.streams import Event, EventTimer, RetainedMemory, Stream, Using
from octants.runtime.device import Bytes, StagingBuffer
from octants.runtime.gpu.device import POOL, STAGING
from octants.runtime.memory.strided_copy import copy_rows

if TYPE_CHECKING:
    from octants.runtime.interop import dlpack
else:
    dlpack = Deferred("octants.runtime.interop.dlpack")

DLPACK_GPU = 2  # kDLCUDA


class CudaDevice(LaunchContext):
    """An NVIDIA GPU as a device. Launches are queued in the stream of the calling thread."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.dlpack_device = DLPACK_GPU, self.context.ordinal
        self._clears = RepeatedClears()
        self._copies = RepeatedCopies()

    @property
    def is_starting(self) -> bool:
        return self.context.is_starting

    @property
    def has_one_order(self) -> bool:
        return not self.streams.is_busy

    # -- kernels --------------------------------------------------------------------------------

    def load(self, artifact: Artifact) -> CudaKernel:
        """Load a kernel."""
        return CudaKernel(self, artifact)

    # -- memory ---------------------------------------------------------------------------------

    def allocate_zeros(self, nbytes: int, what: str) -> DeviceAllocation:
        """Allocate memory that is zero for all later launches."""
        return self.memory.allocate(nbytes, what, zeroed=True)

    def allocate_dirty(self, nbytes: int, what: str) -> DeviceAllocation:
        """Allocate memory with unspecified contents."""
        return self.memory.allocate(nbytes, what)

    def live_bytes(self) -> int:
        """The size of all live allocations."""
        return self.memory.nbytes

    def pools(self) -> dict[str, int]:
        """The bytes that pools and staging buffers retain; see `GpuDevice.pools`."""
        return {POOL: self.memory.pooled_bytes(), STAGING: self.staging.nbytes}

    def staging_buffer(self, nbytes: int, written: int) -> StagingBuffer:
        """Allocate a staging buffer; see `runtime.device.Device.staging_buffer`.

        If no launch writes to it, the host does not wait for its launches.
        """
        if not written:
            return super().staging_buffer(nbytes, written)
        return PinnedStagingBuffer(self, nbytes, written)

    def read(self, address: int, into: Bytes) -> None:
        """Wait for all launches, and copy device memory to the host.

        Raises:
            OctantsError: a launch failed.
        """
        if captures:
            refuse_read()
        if self.streams.is_busy:
            self.streams.leave(self.streams.current.stream)
            self.streams.order_foreign_streams()
        self.streams.default.transfers.read(address, into, self.synchronize)

    def copy_from(self, target: int, device: Any, source: int, nbytes: int) -> None:
        """Queue a copy from another GPU; see `runtime.device.Device.copy_from`.

        The driver copies through the host where the GPUs cannot access each other's memory.
        """
        self._will_write(target, nbytes)
        stream, _ = self.streams.current_handle(), device.streams.current_handle()
        own, other = self.context, device.context
        device.memory.open_to(own)
        self.streams.wait_for_gpu(device.streams)
        with own.active():
            between = target, own.handle, source, other.handle
            own.call("cuMemcpyPeerAsync", *between, nbytes, stream)
        device.streams.wait_for_gpu(self.streams)

    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        """Queue a strided copy within the device; see `gpu.driver.Queue.copy_rows`."""
        if max(target_step, source_step) > MOST_PITCH:
            copy_rows(self, target, target_step, source, source_step, nbytes, rows)
        else:
            super().copy_rows(target, target_step, source, source_step, nbytes, rows)

    def set_elements(self, address: int, element: bytes, count: int) -> None:
        """Queue a fill of ``count`` contiguous elements with the bytes of one."""
        words = words_of(element, count)
        if words is None or address % words[0]:
            super().set_elements(address, element, count)
            return
        size, values, count = words
        for value in values:
            self.fill_words(address, size, value, count)
            address += size

    def _queue_copies(self, pieces: Pieces) -> None:
        """The same; often repeated ones become launches of a kernel."""
        streams = self.streams
        is_usual = not (streams.is_busy or streams.is_one_of_several)
        if not (is_usual and self._copies.queue(self, pieces)):
            super()._queue_copies(pieces)

    def _queue_clears(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """The same; often repeated ones become a driver graph."""
        graph = self._clears.get(self, ranges)
        if graph is None:
            super()._queue_clears(ranges)
        else:
            streams = self.streams
            graph.launch_here(c_void_p(streams.current_handle()) if streams.is_busy else None)

    @noted
    def fill_words(self, address: int, size: int, value: int, count: int) -> None:
        """Queue a fill of ``count`` words of 1, 2 or 4 bytes."""
        self._will_write(address, size * count)
        self.streams.queue().fill_words(address, size, value, count)

    def make_graph(self, commands: Sequence[Command], kept: Any = None) -> CudaGraph:
        """Make a graph that replays the commands of a capture."""
        return CudaGraph(self, commands, kept)

    # -- streams --------------------------------------------------------------------------------

    def create_stream(self, handle: int | None = None) -> Stream:
        """A new stream, or one of another library, with its ``handle``."""
        return self.streams.create(handle)

    def create_event(self) -> Event:
        """A new event."""
        return Event(self.streams)

    def create_timer(self) -> EventTimer:
        """A pair of events in the thread's stream."""
        return EventTimer(self.streams)

    def using(self, stream: Stream) -> Using:
        """Make a stream the thread's current one for a ``with`` block."""
        return Using(self.streams, stream)

    def blocks_of(self, pool: list[Any]) -> list[Any]:
        """The parameter blocks of a pool whose storage belongs to the thread's stream."""
        stream = self.streams.current.stream
        if stream is self.streams.default:
            return pool
        return stream.blocks.setdefault(pool, [])

    def wait_for_foreign(self, handle: int) -> None:
        """Make the thread's stream wait for a stream of another library."""
        self.streams.order(self.streams.foreign(handle), self.streams.current.stream)

    # -- arrays of other libraries --------------------------------------------------------------

    def foreign(self, value: Any, what: str) -> ForeignGpuArray | None:
        """Describe an array of another library in the memory of this GPU; None if it is on no GPU.

        The thread's stream waits for the work that the library has queued on the array.

        Args:
            value: The array.
            what: Its name in an error.

        Raises:
            OctantsRuntimeError: it is in the memory of another GPU.
        """
        found = foreign_array(value, self.streams.current.stream.handle)
        if found is None:
            return None
        ordinal = found.ordinal
        if ordinal is None and found.address:
            ordinal = self.context.ordinal_of(found.address)
        if ordinal not in (None, self.context.ordinal):
            raise OtherDevice(what, f"GPU {ordinal}", repr(self)).at()
        if found.stream is not None:
            self.wait_for_foreign(found.stream)
        return found

    def address_of(self, value: Any) -> int | None:
        """The address of an array of another library on this GPU; None if it is on no GPU.

        The next launch comes after the work that the library has queued on it, and before its later
        work.
        """
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor) and value.is_cuda:
            return self._address_of_tensor(value)
        found = self.foreign(value, "the array")
        if found is None:
            return None
        if found.stream is not None:
            stream = self.streams.foreign(found.stream)
            if stream is not self.streams.current.stream:
                self.streams.expect(stream)
        elif found.has_no_stream:
            self.streams.retain(found.owner)
        return found.address

    def number_of(self, value: Any) -> int | None:
        """The number of the GPU that an array of another library is on; None for the host."""
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            return int(value.get_device()) if value.is_cuda else None
        address = value.__cuda_array_interface__["data"][0]
        return self.context.ordinal_of(address) if address and self.context.has_others else None

    def _address_of_tensor(self, tensor: Any) -> int:
        """The address of a torch tensor, by a fast path if torch uses the default stream."""
        ordinal: int = tensor.get_device()
        if ordinal != self.context.ordinal:
            raise OtherDevice("the tensor", f"GPU {ordinal}", repr(self)).at()
        handle, streams = torch_stream(ordinal), self.streams
        if handle or streams.is_busy:
            stream = streams.foreign(handle)
            if stream is not streams.current.stream:
                streams.order(stream, streams.current.stream)
                streams.expect(stream)
        address: int = tensor.data_ptr()
        return address

    def import_array(self, value: Any, what: str) -> dlpack.DlpackView | None:
        """Import an array of another library on this GPU; None if it is on no GPU."""
        found = self.foreign(value, what)
        if found is None:
            return None
        layout = found.address, found.shape, found.strides, found.dtype
        owner = value, found.owner
        if found.has_no_stream:
            self.streams.free_unused()
            owner = RetainedMemory(owner, self.streams), found.owner
        return dlpack.DlpackView(*layout, self.dlpack_device, found.is_read_only, owner)

    def export_memory(self, owner: Any) -> Any:
        """An object that keeps ``owner`` alive for another library."""
        if owner is not None:
            self.versions.exported(owner.address)
        return ExportedMemory(owner, self.memory)

    def make_stream_wait(self, stream: int | None) -> None:
        """Make a stream of another library wait for all launches; -1: none has to wait."""
        if stream == -1:
            return
        self.streams.leave(self.streams.current.stream)
        self.streams.order_foreign_streams()
        self.streams.order(self.streams.default, self.streams.foreign(stream or 0))

    def interface_of(
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], typestr: str
    ) -> dict[str, Any]:
        """The ``__cuda_array_interface__`` of an array in this memory."""
        self.versions.exported(address)
        stream = self.streams.current_handle()
        return array_interface(address, shape, strides, typestr, stream)

    # -- closing --------------------------------------------------------------------------------

    def give_back(self) -> None:
        """Destroy the streams, and free all dropped allocations."""
        self._clears.forget()
        self._copies.forget()
        self.streams.close()
        self.memory.free()
