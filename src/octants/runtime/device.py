"""The protocol of a device: memory, loaded kernels, streams, graphs, synchronisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from octants.artifact import Artifact
from octants.runtime.capture import Command, CommandReplay
from octants.runtime.launch_timers import Timer
from octants.runtime.reports.pending_errors import Pending

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
"""Contiguous host memory, as bytes."""


class Allocation(Protocol):
    """Device memory, freed when its last reference is dropped.

    Earlier launches and copies may still use it then.
    """

    @property
    def address(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


class StagingBuffer(Protocol):
    """Memory of the host and of the device, `host` and `memory`, for the arrays of a launch.

    One launch at a time uses it, which `is_launched` from `launch` to the end of `download`.
    """

    host: Bytes
    memory: Allocation
    is_launched: bool

    def launch(self, run: Callable[[int], None], kernel: LoadedKernel, block: int) -> None:
        """Queue a copy of `host` to the device, and a launch.

        Args:
            run: Launches the kernel with the parameter block at an address.
            kernel: The kernel.
            block: The address of the parameter block.
        """

    def download(self) -> None:
        """Wait for all launches, and copy what the launch may have written to `host`.

        Raises:
            OctantsError: a launch failed.
        """


class Stream(Protocol):
    """A queue of launches; launches in different streams may run concurrently."""

    @property
    def handle(self) -> int:
        """The driver's handle; 0 stands for the default stream."""

    def synchronize(self) -> None:
        """Wait for all work in the stream."""

    def destroy(self) -> None:
        """Destroy the stream; its work runs to completion. Does nothing the second time."""


class Event(Protocol):
    """A point in a stream that others can wait for."""

    @property
    def handle(self) -> int:
        """The driver's handle."""

    def record(self, stream: Any = None, /) -> None:
        """Record it after the present work of a stream; None: the thread's own stream."""

    def wait(self, stream: Any = None, /) -> None:
        """Make later work of a stream wait for it; None: the thread's own stream."""

    def synchronize(self) -> None:
        """Wait for it on the host."""

    def destroy(self) -> None:
        """Destroy it. Does nothing the second time."""


class LoadedKernel(Protocol):
    """A kernel that is loaded on a device."""

    def launch(self, block: int) -> None:
        """Launch the kernel with the parameter block at an address: 8-byte slots as in
        `Artifact.parameters`.

        The launch fills the slot "messages" itself. It returns when the work is complete or, on
        devices with a queue, when it is queued. Messages and errors of the kernel arrive at the
        latest with `Device.synchronize`.

        Raises:
            OctantsAssertionError: an assertion or bounds check failed.
            OctantsMemoryError: memory was refused.
            KeyboardInterrupt: Ctrl-C ended the launch.
        """


class Device(Protocol):
    """A machine that runs kernels."""

    pending: Pending

    number: int
    """The number that `init` and arrays name it by."""

    shares_memory: bool
    """Whether the host may access the device's memory by its addresses."""

    @property
    def is_starting(self) -> bool:
        """Whether using it now would wait for its start, so that work should be deferred."""

    @property
    def has_one_order(self) -> bool:
        """Whether work that is queued now comes after all earlier work of the process."""

    def become_one_of_several(self) -> None:
        """Take notice that the process uses another device, too."""

    def load(self, artifact: Artifact) -> LoadedKernel:
        """Load a kernel."""

    def allocate(self, nbytes: int, what: str = "", /) -> Allocation:
        """Allocate memory that is zero for all later launches, at a multiple of 64.

        Args:
            nbytes: The size in bytes.
            what: A name for the table of allocations that errors about memory show.

        Raises:
            OctantsMemoryError: the device is out of memory.
        """

    def allocate_uninitialised(self, nbytes: int, what: str = "", /) -> Allocation:
        """Allocate memory with unspecified contents; otherwise like `allocate`."""

    def staging_buffer(self, nbytes: int, written: int, /) -> StagingBuffer:
        """Allocate a staging buffer; a launch may write the first ``written`` bytes of its memory.

        Raises:
            OctantsMemoryError: the device is out of memory.
        """

    def read(self, address: int, into: Bytes) -> None:
        """Wait for all launches, and copy ``into.nbytes`` of device memory to the host.

        Raises:
            OctantsError: a launch failed.
        """

    def write(self, address: int, values: Bytes) -> None:
        """Queue a copy from the host; the caller may change ``values`` when this returns."""

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Queue a copy of ``nbytes`` within the device; source and target do not overlap."""

    def copy_each(self, pieces: tuple[tuple[int, int, int], ...]) -> None:
        """Queue several copies within the device: of each the target, the source, and the bytes.

        No target overlaps with a source. Not in a capture.
        """

    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        """Queue a copy of ``rows`` rows of ``nbytes`` within the device.

        The steps are the distances between the starts of two rows, in bytes; at least ``nbytes``.
        The bytes between rows keep their values. `runtime.memory.strided_copy.copy_rows` copies
        through the host.
        """

    def copy_from(self, target: int, device: Device, source: int, nbytes: int) -> None:
        """Queue a copy of ``nbytes`` from another device of this kind to this one.

        It comes after the earlier launches and copies of the threads' streams on both devices, and
        before their later ones. Not in a capture.
        """

    def clear(self, address: int, nbytes: int) -> None:
        """Queue a fill with zeros."""

    def clear_each(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Queue a fill with zeros of several ranges: addresses and bytes. Not in a capture."""

    def set_elements(self, address: int, element: bytes, count: int) -> None:
        """Queue a fill of ``count`` contiguous elements with the bytes of one.

        `runtime.memory.fill.set_elements` does it by copies.
        """

    def create_stream(self, handle: int | None = None, /) -> Stream:
        """A new stream, or one of another library, with its ``handle``."""

    def create_event(self) -> Event:
        """A new event."""

    def create_timer(self) -> Timer:
        """A new timer for one launch."""

    def using(self, stream: Any, /) -> AbstractContextManager[None]:
        """Make a stream the thread's current one for a ``with`` block.

        Streams of Octants and the default stream wait for each other. A stream of another library
        waits for the default stream when the block begins, and the default stream for it when the
        block ends.
        """

    def blocks_of(self, pool: list[Any]) -> list[Any]:
        """The parameter blocks of a pool whose storage belongs to the thread's stream."""

    def address_of(self, value: Any) -> int | None:
        """The address of an array of another library in this memory; None elsewhere.

        ``value`` is a torch tensor that is on no CPU, or an object with
        ``__cuda_array_interface__``. Its library's queued work comes before the next launch, and
        its later work after it. The call is part of each launch, and keeps nothing alive.
        """

    def number_of(self, value: Any) -> int | None:
        """The number of the device of this kind that an array of another library is on.

        None elsewhere. ``value`` is a torch tensor, or an object with ``__cuda_array_interface__``.
        """

    def interface_of(
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], typestr: str
    ) -> dict[str, Any] | None:
        """The ``__cuda_array_interface__`` of an array in this memory; None if it has none.

        Args:
            address: Where the array begins.
            shape: Its extents.
            strides: The distances of neighbouring elements, in bytes.
            typestr: The type of an element in numpy's notation, such as "<f4".
        """

    def make_graph(self, commands: Sequence[Command], kept: Any = None, /) -> CommandReplay:
        """Make a graph that replays the commands of a capture, in order.

        ``kept`` is what they use; it is kept alive while replays may be in flight.
        """

    dlpack_device: tuple[int, int]
    """The memory in DLPack's terms, if other libraries can share it: a kind, and a number."""

    def import_array(self, value: Any, what: str, /) -> Any:
        """Import an array of another library in this memory; None elsewhere.

        The work that its library has queued on it comes before the next launch.

        Args:
            value: The array.
            what: Its name in the error for memory of another device of this kind.

        Returns:
            A `dlpack.DlpackView`.
        """

    def export_memory(self, owner: Any) -> Any:
        """An object that keeps ``owner`` alive for another library.

        When it is dropped, the library may still be using the memory, so that its reuse waits for
        that.
        """

    def wait_for_foreign(self, handle: int, /) -> None:
        """Make the thread's stream wait for a stream of another library."""

    def make_stream_wait(self, stream: int | None) -> None:
        """Make a stream of another library wait for all launches; None: its default stream."""

    def synchronize(self) -> None:
        """Wait for all launches, and raise the first error, a `pending` one included.

        Raises:
            OctantsError: a kernel failed, or a record buffer overflowed.
        """

    def close(self) -> None:
        """Stop threads and free memory; live allocations stay valid."""
