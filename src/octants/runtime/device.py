"""What a device gives: memory, loaded kernels, and an end to waiting. Backends implement these."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from octants.artifact import Artifact
from octants.runtime.pending import Pending

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
"""A contiguous piece of host memory."""


class Allocation(Protocol):
    """A piece of a device's memory, freed when the last reference to it is gone."""

    @property
    def address(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


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

    def load(self, artifact: Artifact) -> LoadedKernel:
        """Make a kernel ready to be launched."""

    def allocate(self, nbytes: int) -> Allocation:
        """``nbytes`` of zeros at a multiple of 64; `OctantsMemoryError` if there are none."""

    def read(self, address: int, into: Bytes) -> None:
        """Copy memory to the host, after all that was launched."""

    def write(self, address: int, values: Bytes) -> None:
        """Copy from the host, after what was launched; ``values`` may be changed at once."""

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device, after what was launched; the pieces do not overlap."""

    def clear(self, address: int, nbytes: int) -> None:
        """Set memory to zero, after what was launched."""

    def synchronize(self) -> None:
        """Wait until all that was launched is done; raises what went wrong in it.

        That includes what is `pending`: `OctantsAssertionError` for a tape that has overflowed.
        """

    def close(self) -> None:
        """Stop threads and give memory back; what is alive of allocations stays valid."""
