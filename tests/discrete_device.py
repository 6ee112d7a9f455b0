"""The CPU as a device whose memory the host cannot access.

``OCTANTS_DISCRETE=1`` gives tests such a device for the CPU, also several with one memory each;
``OCTANTS_DISCRETE=late`` one that raises the errors of launches at the next synchronisation.

Addresses of this device are those of the host plus `_DISTANCE`, which no processor accepts: an
access of the host ends the process. Kernels get translated pointers, and an error for a pointer to
anything that was not allocated here.
"""

from __future__ import annotations

import bisect
import ctypes
import os
import threading
from typing import Any

import numpy as np

from octants.artifact import Artifact
from octants.backends.cpu import CpuBackend
from octants.diagnostics.exceptions import InternalError, OctantsError
from octants.locks_at_fork import released_in_children
from octants.runtime.capture import noted, refuse_read, thread_capture
from octants.runtime.cpu.device import CpuDevice, CpuKernel
from octants.runtime.device import Bytes
from octants.runtime.memory.host import HostAllocation, HostMemory, address_of, allocate

_DISTANCE = 1 << 60


class DiscreteAllocation:
    """Memory at an address that the host cannot access."""

    __slots__ = ("_memory", "_owner", "address", "nbytes")

    def __init__(self, owner: DiscreteMemory, memory: HostAllocation) -> None:
        self._memory = memory
        self._owner = owner
        self.address = memory.address + _DISTANCE
        self.nbytes = memory.nbytes
        owner.remember(self.address, memory.nbytes)

    def __del__(self) -> None:
        self._owner.forget(self.address)


class DiscreteKernel:
    """A kernel that gets addresses of an `DiscreteDevice`."""

    def __init__(self, device: DiscreteDevice, kernel: CpuKernel) -> None:
        self._device = device
        self._kernel = kernel
        slots = kernel.artifact.parameters.slots
        self._size = 8 * len(slots)
        self._pointers = [k for k, slot in enumerate(slots) if slot.kind == "pointer"]

    def launch(self, block: int) -> None:
        """Launch with a copy of the slots, whose pointers are translated to host addresses."""
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


class DiscreteMemory(HostMemory):
    """Memory that the host cannot access by its addresses, although it is the host's."""

    shares_memory = False

    def __init__(self, *given: Any, **options: Any) -> None:
        # A collection of garbage may free memory at any time.
        self._lock = released_in_children(threading.RLock())
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        super().__init__(*given, **options)

    def allocate(self, nbytes: int, _: str = "", /) -> DiscreteAllocation:  # type: ignore[override]
        allocation = DiscreteAllocation(self, allocate(nbytes))
        capture = thread_capture()
        if capture is not None:
            capture.allocated(self.clear, allocation)
        return allocation

    def allocate_uninitialised(  # type: ignore[override]
        self, nbytes: int, what: str = "", /
    ) -> DiscreteAllocation:
        """Allocate memory that is not zero, to find what relies on that."""
        allocation = self.allocate(nbytes, what)
        ctypes.memset(self.host_address(allocation.address, nbytes), 0xA5, nbytes)
        return allocation

    def remember(self, address: int, nbytes: int) -> None:
        """Register an allocation."""
        with self._lock:
            bisect.insort(self._starts, address)
            self._sizes[address] = nbytes

    def forget(self, address: int) -> None:
        """Forget an allocation that was freed."""
        with self._lock:
            del self._starts[bisect.bisect_left(self._starts, address)]
            del self._sizes[address]

    def host_address(self, address: int, nbytes: int = 0) -> int:
        """Translate an address to one of the host.

        Raises:
            InternalError: ``nbytes`` there are not part of one allocation.
        """
        with self._lock:
            position = bisect.bisect(self._starts, address) - 1
            start = self._starts[position] if position >= 0 else 0
            end = start + self._sizes.get(start, 0)
        if not start <= address <= address + nbytes <= end:
            raise InternalError(f"{nbytes} bytes at {address:#x} are not memory of the device")
        return address - _DISTANCE

    def address_of(self, value: Any, /) -> int | None:
        """The address of an array that claims to be in this memory, as a torch tensor does."""
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

    def copy_each(self, pieces: tuple[tuple[int, int, int], ...]) -> None:
        for piece in pieces:
            self.copy(*piece)

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

    def clear_each(self, ranges: tuple[tuple[int, int], ...]) -> None:
        super().clear_each(tuple((self.host_address(*each), each[1]) for each in ranges))


class DiscreteDevice(DiscreteMemory, CpuDevice):
    """The CPU with discrete memory, created as a `CpuDevice`.

    One that `is_late` raises the errors of launches at the next synchronisation, as if it had a
    queue.
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        self.is_late = os.environ["OCTANTS_DISCRETE"] == "late"
        self.failures: list[OctantsError] = []
        super().__init__(*given, **options)

    def load(self, artifact: Artifact) -> DiscreteKernel:  # type: ignore[override]
        return DiscreteKernel(self, super().load(artifact))

    def read(self, address: int, into: Bytes) -> None:
        refuse_read()
        self.synchronize()
        super().read(address, into)

    def synchronize(self) -> None:
        failures, self.failures = self.failures, []
        for failure in failures:
            self.pending.add(failure)
        super().synchronize()


def is_requested() -> bool:
    """Whether the CPU gets such memory."""
    return os.environ.get("OCTANTS_DISCRETE", "") not in ("", "0")


def install() -> None:
    """Let the CPU be such a device, of which there are as many as are named, where requested."""

    def has_several_devices(_: CpuBackend) -> bool:
        return is_requested()

    def device_class(_: CpuBackend) -> type[CpuDevice]:
        return DiscreteDevice if is_requested() else CpuDevice

    for each in (has_several_devices, device_class):
        setattr(CpuBackend, each.__name__, property(each))
