"""What a device gives: memory, loaded kernels, and an end to waiting. Backends implement these."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from octants.artifact import Artifact
from octants.runtime.capture import Command, CommandReplay
from octants.runtime.reports.pending_errors import Pending

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
"""A contiguous piece of host memory."""


class Allocation(Protocol):
    """A piece of a device's memory, freed when the last reference to it is gone.

    What was launched before, and copies that were asked for before, may still use it then.
    """

    @property
    def address(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


class Stream(Protocol):
    """A queue of launches of a device; those in different streams may run at the same time."""

    @property
    def handle(self) -> int:
        """What the device's driver calls it; 0 stands for the stream that launches use unasked."""

    def synchronize(self) -> None:
        """Wait until all that is in it is done."""

    def destroy(self) -> None:
        """Give it back; what is in it runs to its end. Does nothing the second time."""


class Event(Protocol):
    """A point in a stream, for which others can wait."""

    @property
    def handle(self) -> int:
        """What the device's driver calls it."""

    def record(self, stream: Any = None, /) -> None:
        """Let it happen when what is in a stream now is done; None: the thread's own stream."""

    def wait(self, stream: Any = None, /) -> None:
        """Let what comes into a stream from now on wait for it; None: the thread's own stream."""

    def synchronize(self) -> None:
        """Wait until it has happened."""

    def destroy(self) -> None:
        """Give it back. Does nothing the second time."""


class LoadedKernel(Protocol):
    """A kernel whose code is on a device."""

    def launch(self, block: int) -> None:
        """Run with the parameter block at address ``block``, 8-byte slots as `Artifact.parameters`.

        The launch fills the slot "messages" itself. Returns when the work is done or, on devices
        that have a queue, when it is queued; what the kernel printed and how it failed comes at the
        latest with `Device.synchronize`: `OctantsAssertionError` for a failed assertion or bounds
        check, `OctantsMemoryError` where memory was refused, `KeyboardInterrupt` after Ctrl-C.
        """


class Device(Protocol):
    """A machine that runs kernels."""

    pending: Pending

    shares_memory: bool
    """Whether the host may touch the device's memory by its addresses."""

    @property
    def is_starting(self) -> bool:
        """Whether it would be waited for now: what can be put off should be."""

    def load(self, artifact: Artifact) -> LoadedKernel:
        """Make a kernel ready to be launched."""

    def allocate(self, nbytes: int, what: str = "", /) -> Allocation:
        """``nbytes`` of zeros at a multiple of 64; `OctantsMemoryError` if there are none.

        ``what`` is their name where it is told what takes memory.

        They are zeros for whatever is launched later.
        """

    def read(self, address: int, into: Bytes) -> None:
        """Copy memory to the host, after all that was launched; raises what went wrong in it."""

    def write(self, address: int, values: Bytes) -> None:
        """Copy from the host, after what was launched; ``values`` may be changed at once."""

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device, after what was launched; the pieces do not overlap."""

    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        """Copy ``rows`` pieces of ``nbytes`` within the device, after what was launched.

        The steps are the bytes from a piece to the next one, at least ``nbytes``. The bytes between
        the pieces keep their values. `runtime.memory.strided_copy.copy_rows` copies through the
        host.
        """

    def clear(self, address: int, nbytes: int) -> None:
        """Set memory to zero, after what was launched."""

    def set_elements(self, address: int, element: bytes, count: int) -> None:
        """Set ``count`` elements that stand in a row, after what was launched.

        `runtime.memory.fill.set_elements` does it by copies.
        """

    def create_stream(self, handle: int | None = None, /) -> Stream:
        """A new stream, or with a ``handle`` one that another library has made."""

    def create_event(self) -> Event:
        """A new event."""

    def using(self, stream: Any, /) -> AbstractContextManager[None]:
        """Launch in a stream, as long as this lasts; other threads go on in theirs.

        Streams of ours wait for what is launched without any, and that for them. So do streams of
        others, at the beginning and at the end of this.
        """

    def blocks_of(self, pool: list[Any]) -> list[Any]:
        """The part of a pool of launch storage that the thread's stream uses alone."""

    def address_of(self, value: Any) -> int | None:
        """The address of an array of another library that lies in this memory; None elsewhere.

        ``value`` is a tensor of torch that is on no CPU, or offers ``__cuda_array_interface__``.
        What its library has queued on it comes before what is launched next, and the other way
        round. It is asked at each launch, and keeps nothing alive.
        """

    def interface_of(
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], typestr: str
    ) -> dict[str, Any] | None:
        """What other libraries are told of an array in this memory; None where they are not.

        It is what they ask for as ``__cuda_array_interface__``, with strides in bytes and a type in
        the words of numpy.
        """

    def make_graph(self, commands: Sequence[Command], kept: Any = None, /) -> CommandReplay:
        """What does the commands of a capture again, in order.

        What they need is ``kept`` as long as replays may be under way.
        """

    dlpack_device: tuple[int, int]
    """What DLPack calls this memory, where others can share it: a kind, and a number."""

    def import_array(self, value: Any, what: str, /) -> Any:
        """The `dlpack.DlpackView` of an array of another library in this memory; None elsewhere.

        What its library has queued on it comes before what is launched next. ``what`` names it in
        the error for memory of another device of this kind.
        """

    def export_memory(self, owner: Any) -> Any:
        """What keeps an owner of memory alive for another library.

        When it is dropped, others may still work on the memory, which waits for that.
        """

    def make_stream_wait(self, stream: int | None) -> None:
        """Let a stream of another library wait for all that was launched; None: the usual one."""

    def synchronize(self) -> None:
        """Wait until all that was launched is done; raises what went wrong in it.

        That includes what is `pending`: `OctantsAssertionError` for a tape that has overflowed.
        """

    def close(self) -> None:
        """Stop threads and give memory back; what is alive of allocations stays valid."""
