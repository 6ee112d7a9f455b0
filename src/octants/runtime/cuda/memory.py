"""Allocates the memory of a GPU, and frees it in stream order when its last reference is dropped.

Allocations are made in the default stream. All streams of Octants are ordered with it, so that work
launched before an allocation is dropped may still use it. The memory comes from a pool of the
driver's: an allocation of memory that was freed takes a microsecond.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from ctypes import byref, c_uint64, c_void_p
from typing import Any

from octants.diagnostics.byte_counts import format_bytes
from octants.diagnostics.exceptions import OctantsError
from octants.runtime.cuda import library as cuda
from octants.runtime.cuda.context import Context
from octants.runtime.cuda.errors import OutOfDeviceMemory
from octants.runtime.gpu.allocation_ledger import Ledger

DEFAULT_STREAM = 0


class DeviceAllocation:
    """An allocation, freed some time after its last reference is dropped."""

    __slots__ = ("_dropped", "address", "nbytes")

    def __init__(self, address: int, nbytes: int, dropped: deque[int]) -> None:
        self.address = address
        self.nbytes = nbytes
        self._dropped = dropped

    def __del__(self) -> None:
        # No call of the driver from here: any thread may be here at any time.
        self._dropped.append(self.address)


class ExportedMemory:
    """Keeps memory alive for another library, which may leave work on it in any stream."""

    __slots__ = ("_memory", "owner")

    def __init__(self, owner: Any, memory: DeviceMemory) -> None:
        self.owner = owner
        self._memory = memory

    def __del__(self) -> None:
        self._memory.waits_for_all = True


class DeviceMemory:
    """All allocations of a context.

    `relieve` is called when the device is out of memory, to drop caches. `before_free` and
    `after_allocation` order the streams: freed memory may have been used by all of them, and new
    memory is used by the thread's own. `freed` gets the address and the bytes of memory that may be
    allocated again.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._made_pool: int | None = None
        self._dropped: deque[int] = deque()
        self._others = {context.ordinal}
        self.live = Ledger()
        self.relieve: Callable[[], None] = _nothing
        self.freed: Callable[[int, int], None] = _nothing
        self.before_free: Callable[[], None] = _nothing
        self.after_allocation: Callable[[], None] = _nothing
        self.waits_for_all = False
        """Whether streams of other libraries may be using what is freed next."""

    @property
    def _pool(self) -> int | None:
        """The driver's pool, created on first use; None if the device has no pools."""
        if self._made_pool is None and self._context.has_pools:
            self._made_pool = self._make_pool()
        return self._made_pool

    def _make_pool(self) -> int | None:
        ordinal = self._context.ordinal
        properties = cuda.PoolProperties(
            allocation=cuda.ALLOCATION_PINNED, location=cuda.LOCATION_DEVICE, ordinal=ordinal
        )
        pool, keep = c_void_p(), c_uint64(2**64 - 1)
        with self._context.active():
            self._context.call("cuMemPoolCreate", byref(pool), byref(properties))
            threshold = cuda.POOL_RELEASE_THRESHOLD
            self._context.call("cuMemPoolSetAttribute", pool, threshold, byref(keep))
        return pool.value

    def allocate(self, nbytes: int, what: str = "", zeroed: bool = False) -> DeviceAllocation:
        """Allocate memory at a multiple of 256.

        Args:
            nbytes: The size in bytes.
            what: A name for the table of allocations.
            zeroed: Whether to fill it with zeros.

        Raises:
            OctantsMemoryError: the device is out of memory; the error shows the table.
        """
        if nbytes < 0:
            raise ValueError(f"{nbytes} bytes")
        size = max(1, nbytes)
        with self._context.active():
            self._free_dropped()
            address = self._try_allocate(size) or self._allocate_after_freeing(size)
            if address is None:
                raise self._refused(nbytes)
            allocation = DeviceAllocation(address, nbytes, self._dropped)
            self.live[address] = nbytes, what
            if zeroed:
                self._context.call("cuMemsetD8Async", address, 0, size, DEFAULT_STREAM)
        self.after_allocation()
        return allocation

    def _try_allocate(self, size: int) -> int | None:
        address = c_uint64()
        pool = self._pool
        name = "cuMemAlloc" if pool is None else "cuMemAllocFromPoolAsync"
        arguments = () if pool is None else (pool, DEFAULT_STREAM)
        status = self._context.status(name, byref(address), size, *arguments)
        if status not in (cuda.SUCCESS, cuda.OUT_OF_MEMORY):
            raise self._context.error(name, status)
        return address.value or None

    def _allocate_after_freeing(self, size: int) -> int | None:
        """Allocate again, after freeing everything that can be freed."""
        self.relieve()
        self._free_dropped()
        self._trim()
        return self._try_allocate(size)

    def _free_dropped(self) -> None:
        if not self._dropped:
            return
        self.before_free()
        if self.waits_for_all:
            self.waits_for_all = False
            self._context.call("cuCtxSynchronize")
        while self._dropped:
            try:
                address = self._dropped.popleft()
            except IndexError:  # taken by another thread meanwhile
                break
            self.freed(address, self.live.pop(address, (0, ""))[0])
            if self._pool is not None:
                self._context.call("cuMemFreeAsync", address, DEFAULT_STREAM)
            else:
                self._context.call("cuMemFree", address)

    def _trim(self) -> None:
        self._context.wait_for_stream(DEFAULT_STREAM)
        if self._made_pool is not None:
            # The driver counts memory as free only after a call that waits, not after a query.
            self._context.call("cuCtxSynchronize")
            self._context.call("cuMemPoolTrimTo", self._made_pool, 0)

    def free(self) -> None:
        """Free all dropped allocations, and return their memory to the system."""
        with self._context.active():
            self._free_dropped()
            self._trim()

    def open_to(self, other: Context) -> None:
        """Let another GPU access the memory, so that copies between them need no host.

        Nothing changes where the machine cannot do that: the driver then copies through the host.
        """
        if other.ordinal in self._others:
            return
        self._others.add(other.ordinal)
        if other.can_access(self._context) and self._pool is not None:
            access = cuda.PoolAccess(cuda.LOCATION_DEVICE, other.ordinal, cuda.READ_AND_WRITE)
            with self._context.active():
                self._context.status("cuMemPoolSetAccess", self._pool, byref(access), 1)

    # -- statistics -----------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """The size of all live allocations, in bytes."""
        dropped = sum(self.live.get(address, (0, ""))[0] for address in list(self._dropped))
        return self.live.nbytes - dropped

    def pooled_bytes(self) -> int:
        """The bytes that the driver's pool has from the system, and no allocation uses."""
        if self._made_pool is None:
            return 0
        reserved = c_uint64()
        with self._context.active():
            arguments = self._made_pool, cuda.POOL_RESERVED, byref(reserved)
            self._context.call("cuMemPoolGetAttribute", *arguments)
        return max(0, reserved.value - self.nbytes)

    def _refused(self, nbytes: int) -> OctantsError:
        free = format_bytes(self._context.free_memory())
        total = format_bytes(self._context.total_memory)
        left = f"of {total}, {free} are free; Octants uses {format_bytes(self.nbytes)}"
        return self.live.refusal(OutOfDeviceMemory(repr(self._context), format_bytes(nbytes), left))


def _nothing(*_: object) -> None:
    pass


class PinnedMemory:
    """Pinned host memory, which the GPU copies directly; it stays until the process ends."""

    def __init__(self, context: Context, nbytes: int) -> None:
        pointer = c_void_p()
        with context.active():
            context.call("cuMemAllocHost", byref(pointer), nbytes)
        self.address = pointer.value or 0
        self.nbytes = nbytes
        ctypes.memset(self.address, 0, nbytes)
