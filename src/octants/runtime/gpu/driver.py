"""The verbs that a driver of GPUs implements, for the runtime that all of them share.

    Memory   allocate
    Queue    write, read, read_each, copy, copy_rows, clear
    Step     launch_as
    Chunk    upload, download, wait

Tapes (`tapes`, `tape_growth`), messages (`messages`) and staging (`staging`) are written over these
alone.
"""

from __future__ import annotations

from typing import Any, Protocol

from octants.runtime.device import Allocation, Bytes


class DeviceMemory(Protocol):
    """The memory of a device."""

    def allocate(self, nbytes: int, what: str = "", /) -> Allocation:
        """Memory with unspecified contents; ``what`` is its name in the table of allocations.

        Raises `OctantsMemoryError`, with that table.
        """


class Queue(Protocol):
    """Does one thing after the other, on memory of the device that is known by its addresses."""

    def write(self, address: int, values: Bytes, /) -> None:
        """Copy from the host, after what was launched; ``values`` may be changed at once."""

    def read(self, address: int, into: Bytes, /) -> None:
        """Copy to the host, when what was launched is done."""

    def read_each(self, addresses: list[int], nbytes: int, /) -> Bytes:
        """The bytes at each of some addresses, as rows, when what was launched is done."""

    def copy(self, target: int, source: int, nbytes: int, /) -> None:
        """Copy within the device, after what was launched; the pieces do not overlap."""

    def copy_rows(
        self,
        target: int,
        target_step: int,
        source: int,
        source_step: int,
        nbytes: int,
        rows: int,
        /,
    ) -> None:
        """Copy ``rows`` pieces of ``nbytes`` within the device, after what was launched.

        The steps are the bytes from a piece to the next one, at least ``nbytes``.
        """

    def clear(self, address: int, nbytes: int, /) -> None:
        """Set memory to zero, after what was launched."""


class PreparedDispatch(Protocol):
    """A dispatch that is loaded: its launch words, and how it is launched.

    It has `fill` blocks of `block` threads where it fills the GPU; blocks of `least_block` can be
    had as well. `words` are those of `abi`.
    """

    @property
    def fill(self) -> int: ...

    @property
    def block(self) -> int: ...

    @property
    def least_block(self) -> int: ...

    @property
    def words(self) -> Any: ...

    def launch_as(self, blocks: int, block: int) -> None:
        """Launch so many blocks of so many threads."""


class Chunk(Protocol):
    """Host memory that the device copies from and to, `host` being its address.

    ``stream`` is the driver's handle of the stream of a copy.
    """

    @property
    def host(self) -> int: ...

    def upload(self, target: int, nbytes: int, stream: int, /) -> None:
        """Queue a copy from here to an address of the device."""

    def download(self, source: int, nbytes: int, stream: int, /) -> None:
        """Queue a copy from an address of the device to here."""

    def wait(self) -> None:
        """Wait until the last copy is done."""
