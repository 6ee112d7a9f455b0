"""Copies of contiguous regions in the memory of a device, by addresses alone.

Tapes that follow an earlier one make hundreds of small copies, each of which would be allocated and
described by itself. Here small ones share allocations.
"""

from __future__ import annotations

from typing import Any

from octants.analysis.index_ranges import ArrayRegion
from octants.launch.taped_memory import TapedMemory
from octants.runtime.capture import captures, thread_capture
from octants.runtime.device import Device
from octants.runtime.memory.array_access import Saved
from octants.runtime.memory.host import describe

_BLOCK = 1 << 20  # bytes of an allocation for several copies
_SMALL = 1 << 16  # bytes of the largest copy that shares one
_ALIGNMENT = 256


class PackedCopy:
    """A copy of the bytes at an address of a device. `owner` is the allocation that it is in."""

    __slots__ = ("address", "device", "nbytes", "owner", "source")

    def __init__(self, device: Device, source: int, nbytes: int, owner: Any, address: int) -> None:
        self.device = device
        self.source = source
        self.nbytes = nbytes
        self.owner = owner
        self.address = address
        device.copy(address, source, nbytes)

    def restore(self) -> None:
        """Write the bytes back."""
        if captures:
            self._keep()
        self.device.copy(self.source, self.address, self.nbytes)

    def _keep(self) -> None:
        capture = thread_capture()
        if capture is not None:
            capture.keep(self.owner)

    def as_snapshot(self, memory: TapedMemory, region: ArrayRegion) -> Any:
        """What `TapedMemory.snapshot` would have given for the region."""
        part = memory.part(region)
        layout = part.dtype, part.shape, part.strides
        copy = describe(self.address, self.nbytes, *layout, owner=self.owner)
        saved = Saved(copy, self.owner, self.device)
        return saved if region is None else [saved]


class PackedCopies:
    """Makes the copies of one tape."""

    def __init__(self) -> None:
        self._ranges: dict[Any, tuple[Device, int, int] | None] = {}
        self._blocks: dict[Device, tuple[Any, int, int]] = {}

    def make(self, memory: TapedMemory, region: ArrayRegion) -> PackedCopy | None:
        """Copy a region; None if it is not contiguous, or the host shares the memory.

        Raises:
            MemoryError: the device is out of memory.
        """
        key = memory.key, region
        if key not in self._ranges:
            self._ranges[key] = memory.contiguous_range(region)
        found = self._ranges[key]
        if found is None or captures:
            return None
        device, source, nbytes = found
        owner, address = self._allocate(device, nbytes)
        return PackedCopy(device, source, nbytes, owner, address)

    def _allocate(self, device: Device, nbytes: int) -> tuple[Any, int]:
        """Memory for a copy: the allocation, and the address in it."""
        if nbytes > _SMALL:
            owner = device.allocate_uninitialised(nbytes)
            return owner, owner.address
        owner, start, end = self._blocks.get(device, (None, 0, 0))
        if start + nbytes > end:
            owner = device.allocate_uninitialised(_BLOCK)
            start, end = owner.address, owner.address + _BLOCK
        self._blocks[device] = owner, start + -(-nbytes // _ALIGNMENT) * _ALIGNMENT, end
        return owner, start
