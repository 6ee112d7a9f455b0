"""The protocol that a GPU driver implements for the shared GPU runtime.

    DeviceMemory      allocate
    Queue             write, read, read_each, copy, copy_rows, clear
    PreparedDispatch  resize, launch, launch_as
    Chunk             upload, download, wait

Record buffers (`record_buffers`, `record_buffer_growth`), messages (`messages`) and staging
(`staging`) use nothing else of a driver.
"""

from __future__ import annotations

from typing import Any, Protocol

from octants.runtime.device import Allocation, Bytes


class DeviceMemory(Protocol):
    """An allocator of device memory."""

    def allocate(self, nbytes: int, what: str = "", /) -> Allocation:
        """Allocate ``nbytes`` with unspecified contents.

        Args:
            nbytes: The size in bytes.
            what: A name for the table of allocations.

        Raises:
            OctantsMemoryError: the device is out of memory; the error shows that table.
        """


class Queue(Protocol):
    """Runs copies and fills in order, on device memory given by its addresses."""

    def write(self, address: int, values: Bytes, /) -> None:
        """Queue a copy from the host; the caller may change ``values`` when this returns."""

    def read(self, address: int, into: Bytes, /) -> None:
        """Wait for what is queued, and copy ``into.nbytes`` to the host."""

    def read_each(self, addresses: list[int], nbytes: int, /) -> Bytes:
        """Wait for what is queued, and read ``nbytes`` at each address.

        Returns:
            An array of bytes, of shape ``(len(addresses), nbytes)``.
        """

    def copy(self, target: int, source: int, nbytes: int, /) -> None:
        """Queue a copy of ``nbytes`` within the device; source and target do not overlap."""

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
        """Queue a copy of ``rows`` rows of ``nbytes`` within the device.

        The steps are the distances between the starts of two rows, in bytes; at least ``nbytes``.
        """

    def clear(self, address: int, nbytes: int, /) -> None:
        """Queue a fill with zeros."""


class PreparedDispatch(Protocol):
    """The state of a dispatch, a `kernel.Action`, that one launch at a time uses.

    `known` are the bounds that it is set up for. `fill` blocks of `block` threads occupy the whole
    GPU; the dispatch also runs with blocks of `least_block` threads. `words` are the launch words
    of `abi`. `repeat` belongs to `record_buffer_growth`.
    """

    action: Any
    known: tuple[int, int] | None
    is_empty: bool
    repeat: Any

    @property
    def fill(self) -> int: ...

    @property
    def block(self) -> int: ...

    @property
    def least_block(self) -> int: ...

    @property
    def words(self) -> Any: ...

    def block_for(self, items: int) -> int:
        """The threads of a block: smaller blocks spread few work items over the whole GPU."""

    def resize(self, bounds: tuple[int, int], /) -> None:
        """Set up the launch for other bounds."""

    def launch(self) -> None:
        """Queue a launch of as many blocks as the bounds require."""

    def launch_as(self, blocks: int, block: int) -> None:
        """Queue a launch of ``blocks`` blocks of ``block`` threads."""


class Chunk(Protocol):
    """A staging buffer at the address `host`: host memory that the device can copy from and to.

    ``stream`` is the driver's handle of the stream that copies.
    """

    @property
    def host(self) -> int: ...

    def upload(self, target: int, nbytes: int, stream: int, /) -> None:
        """Queue a copy from this buffer to an address of the device."""

    def download(self, source: int, nbytes: int, stream: int, /) -> None:
        """Queue a copy from an address of the device to this buffer."""

    def wait(self) -> None:
        """Wait for the last copy."""
