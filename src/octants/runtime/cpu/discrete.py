"""The CPU in the part of a device whose memory the host cannot touch, to test what is above it.

Addresses of this device are those of the host and `_DISTANCE` more, which no processor takes: the
process ends where the host uses one. Kernels are given what their pointers stand for, and none that
stand for nothing that was allocated here.
"""

from __future__ import annotations

import bisect
import ctypes
import threading
from typing import Any

import numpy as np

from octants.artifact import Artifact
from octants.diagnostics.exceptions import InternalError, OctantsError
from octants.runtime.capture import noted, own_capture, refuse_read
from octants.runtime.cpu.device import CpuDevice, CpuKernel
from octants.runtime.device import Bytes
from octants.runtime.memory.host import HostAllocation, HostMemory, address_of, allocate

_DISTANCE = 1 << 60


class ApartAllocation:
    """A piece of memory at an address that is of no use to the host."""

    __slots__ = ("_memory", "_owner", "address", "nbytes")

    def __init__(self, owner: ApartMemory, memory: HostAllocation) -> None:
        self._memory = memory
        self._owner = owner
        self.address = memory.address + _DISTANCE
        self.nbytes = memory.nbytes
        owner.remember(self.address, memory.nbytes)

    def __del__(self) -> None:
        self._owner.forget(self.address)


class ApartKernel:
    """A kernel that is given addresses of an `ApartDevice`."""

    def __init__(self, device: ApartDevice, kernel: CpuKernel) -> None:
        self._device = device
        self._kernel = kernel
        slots = kernel.artifact.parameters.slots
        self._size = 8 * len(slots)
        self._pointers = [k for k, slot in enumerate(slots) if slot.kind == "pointer"]

    def launch(self, block: int) -> None:
        """Run on a copy of the slots, with pointers that the CPU knows."""
        slots = np.frombuffer(bytearray(ctypes.string_at(block, self._size)), np.uint64)
        for position in self._pointers:
            address = int(slots[position])
            slots[position] = self._device.host_address(address) if address else 0
        try:
            self._kernel.launch(address_of(slots))
        except OctantsError as error:
            if not self._device.is_late:
                raise
            self._device.failures.append(error)


class ApartMemory(HostMemory):
    """Memory that the host cannot touch, although it is the host's; see `allocate`."""

    shares_memory = False

    def __init__(self, *given: Any, **options: Any) -> None:
        self._lock = threading.RLock()  # a collection of garbage may free memory at any time
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        super().__init__(*given, **options)

    def allocate(self, nbytes: int, _: str = "", /) -> ApartAllocation:  # type: ignore[override]
        allocation = ApartAllocation(self, allocate(nbytes))
        capture = own_capture()
        if capture is not None:
            capture.allocated(self.clear, allocation)
        return allocation

    def remember(self, address: int, nbytes: int) -> None:
        """Note what was allocated."""
        with self._lock:
            bisect.insort(self._starts, address)
            self._sizes[address] = nbytes

    def forget(self, address: int) -> None:
        """Note that it is freed."""
        with self._lock:
            del self._starts[bisect.bisect_left(self._starts, address)]
            del self._sizes[address]

    def host_address(self, address: int, nbytes: int = 0) -> int:
        """Where memory of this device is; an error for what is none, or not all of it."""
        with self._lock:
            position = bisect.bisect(self._starts, address) - 1
            start = self._starts[position] if position >= 0 else 0
            end = start + self._sizes.get(start, 0)
        if not start <= address <= address + nbytes <= end:
            raise InternalError(f"{nbytes} bytes at {address:#x} are not memory of the device")
        return address - _DISTANCE

    def address_of(self, value: Any, /) -> int | None:
        """The address of what says that it is in this memory, as torch's tensors on a GPU do."""
        is_tensor = hasattr(value, "data_ptr")
        address = value.data_ptr() if is_tensor else value.__cuda_array_interface__["data"][0]
        try:
            self.host_address(address)
        except InternalError:
            return None
        return int(address)

    def read(self, address: int, into: Bytes) -> None:
        refuse_read()
        super().read(self.host_address(address, into.nbytes), into)

    @noted
    def write(self, address: int, values: Bytes) -> None:
        super().write(self.host_address(address, values.nbytes), values)

    @noted
    def copy(self, target: int, source: int, nbytes: int) -> None:
        to, of = self.host_address(target, nbytes), self.host_address(source, nbytes)
        super().copy(to, of, nbytes)

    @noted
    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        if min(target_step, source_step) < nbytes:
            raise InternalError("rows that are copied overlap")
        to = self.host_address(target, (rows - 1) * target_step + nbytes)
        of = self.host_address(source, (rows - 1) * source_step + nbytes)
        super().copy_rows(to, target_step, of, source_step, nbytes, rows)

    @noted
    def clear(self, address: int, nbytes: int) -> None:
        super().clear(self.host_address(address, nbytes), nbytes)


class ApartDevice(ApartMemory, CpuDevice):
    """The CPU, with memory of its own; made as a `CpuDevice`.

    One that `is_late` raises what goes wrong in a launch when the host looks, as if it had a queue.
    """

    is_late = False

    def __init__(self, *given: Any, **options: Any) -> None:
        self.failures: list[OctantsError] = []
        super().__init__(*given, **options)

    def load(self, artifact: Artifact) -> ApartKernel:  # type: ignore[override]
        return ApartKernel(self, super().load(artifact))

    def read(self, address: int, into: Bytes) -> None:
        refuse_read()
        self.synchronize()
        super().read(address, into)

    def synchronize(self) -> None:
        failures, self.failures = self.failures, []
        for failure in failures:
            self.pending.add(failure)
        super().synchronize()
