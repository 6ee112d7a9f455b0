"""What a device gives: memory, loaded kernels, and an end to waiting. Backends implement these."""

from __future__ import annotations

from typing import Protocol

from octants.artifact import Artifact
from octants.runtime.pending import Pending


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

    def load(self, artifact: Artifact) -> LoadedKernel:
        """Make a kernel ready to be launched."""

    def allocate(self, nbytes: int) -> Allocation:
        """``nbytes`` of zeros at a multiple of 64; `OctantsMemoryError` if there are none."""

    def synchronize(self) -> None:
        """Wait until all that was launched is done; raises what went wrong in it.

        That includes what is `pending`: `OctantsAssertionError` for a tape that has overflowed.
        """

    def close(self) -> None:
        """Stop threads and give memory back; what is alive of allocations stays valid."""
