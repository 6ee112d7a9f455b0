"""Allocates device memory: buffers with addresses, split into suballocations.

A suballocation that is freed is used again at once, since the queue runs commands in order. Only an
access of the host waits (see `transfers`).
"""

from __future__ import annotations

import bisect
import threading
import weakref
from collections import deque
from ctypes import addressof, byref, c_void_p

from octants.diagnostics.byte_counts import format_bytes
from octants.diagnostics.exceptions import OctantsError, OctantsMemoryError
from octants.diagnostics.vulkan_errors import OutOfVulkanMemory
from octants.runtime.gpu.allocation_ledger import Ledger
from octants.runtime.vulkan import structures as vk
from octants.runtime.vulkan.context import Context
from octants.runtime.vulkan.library import SUCCESS

ALIGNMENT = 256
_BLOCK = 1 << 24  # bytes of a buffer that small pieces share
_LARGE = _BLOCK // 4  # pieces from here on have a buffer of their own
_USAGE = 0x1 | 0x2 | 0x20  # copied from and to, storage
_WITH_ADDRESS = 0x20000
_ADDRESSED = 2
DEVICE_LOCAL, HOST_VISIBLE, COHERENT, CACHED = 1, 2, 4, 8
MAPPED = HOST_VISIBLE | COHERENT
"""Memory that the host reads and writes, preferably cached."""
NEAR = MAPPED | DEVICE_LOCAL
"""Memory that the host only writes, preferably local to the device."""


class Buffer:
    """A buffer with its memory; `host` is its address on the host, 0 if it is not mapped.

    The host `reads_well` from mapped memory that is cached. `address` is 0 if the device has no
    buffer addresses.
    """

    def __init__(self, context: Context, nbytes: int, wanted: int) -> None:
        self.context = context
        self.nbytes = nbytes
        has_address = "addresses" in context.hardware.features
        usage = _USAGE | _WITH_ADDRESS * has_address
        self.handle = context.create(
            "vkCreateBuffer", vk.BufferCreateInfo(size=nbytes, usage=usage)
        )
        self.memory = 0
        self.host = 0
        self.reads_well = False
        is_too_large = nbytes > context.hardware.largest
        if not self.handle or is_too_large or not self._bind(wanted):
            self.free()
            raise OctantsMemoryError(f"{nbytes} bytes are refused")
        self.address = 0
        if not context.hardware.is_bound:
            asked = vk.BufferAddressInfo(buffer=self.handle)
            get = context.functions.vkGetBufferDeviceAddress
            self.address = get(context.handle, byref(asked))

    def _bind(self, wanted: int) -> bool:
        context, functions = self.context, self.context.functions
        needs = vk.MemoryRequirements()
        functions.vkGetBufferMemoryRequirements(context.handle, self.handle, byref(needs))
        has_address = "addresses" in context.hardware.features
        flags = vk.MemoryAllocateFlagsInfo(flags=_ADDRESSED * has_address)
        for kind, properties in _types(context, needs.types, wanted):
            info = vk.MemoryAllocateInfo(next=addressof(flags), size=needs.size, type=kind)
            self.memory = context.create("vkAllocateMemory", info)
            if self.memory:
                functions.vkBindBufferMemory(context.handle, self.handle, self.memory, 0)
                self.reads_well = bool(properties & CACHED)
                return self._map() if properties & MAPPED == MAPPED else True
        return False

    def _map(self) -> bool:
        place, context = c_void_p(), self.context
        whole = (1 << 64) - 1
        arguments = (context.handle, self.memory, 0, whole, 0, byref(place))
        mapped = context.functions.vkMapMemory(*arguments) == SUCCESS
        self.host = place.value or 0
        return bool(mapped)

    def free(self) -> None:
        """Free the memory, which must not be in use."""
        functions, device = self.context.functions, self.context.handle
        if self.handle:
            functions.vkDestroyBuffer(device, self.handle, None)
        if self.memory:
            functions.vkFreeMemory(device, self.memory, None)
        self.handle = self.memory = 0


def large_buffer(context: Context, nbytes: int) -> Buffer:
    """A buffer that the host writes, of ``nbytes`` or, if memory is short, a half or a quarter of
    that.
    """
    for size in (nbytes, nbytes // 2):
        try:
            return Buffer(context, size // ALIGNMENT * ALIGNMENT, NEAR)
        except OctantsMemoryError:
            continue
    return Buffer(context, nbytes // 4 // ALIGNMENT * ALIGNMENT, NEAR)


def _types(context: Context, allowed: int, wanted: int) -> list[tuple[int, int]]:
    """The memory types that are suitable, with their properties, the best first."""
    properties = context.hardware.memory_properties()
    types = [(k, properties.types[k].properties) for k in range(properties.type_count)]
    found = [(k, p) for k, p in types if allowed >> k & 1 and p & wanted == wanted]
    if wanted == DEVICE_LOCAL:
        return sorted(found, key=lambda each: _taste(each[1]))
    if wanted == NEAR:
        return found + _types(context, allowed, MAPPED)
    return sorted(found, key=lambda each: not each[1] & CACHED)


def _taste(properties: int) -> int:
    """The rank of a memory type: cached host memory first, then memory of the device alone."""
    if properties & (MAPPED | CACHED) == MAPPED | CACHED:
        return 0
    return 2 if properties & HOST_VISIBLE else 1


class SubAllocation:
    """A part of a buffer, freed when its last reference is dropped."""

    __slots__ = ("__weakref__", "address", "buffer", "nbytes")

    def __init__(self, buffer: Buffer, offset: int, nbytes: int) -> None:
        self.buffer = buffer
        self.address = buffer.address + offset
        self.nbytes = nbytes

    @property
    def offset(self) -> int:
        """Its offset in the buffer, in bytes."""
        return self.address - self.buffer.address

    @property
    def host(self) -> int:
        """Its address on the host; 0 if it is not mapped."""
        return self.buffer.host and self.buffer.host + self.offset


class Heap:
    """Suballocates buffers of one memory type.

    The finalizer of a suballocation only notes that it is free, since it may run in any thread.
    """

    def __init__(self, context: Context, wanted: int = DEVICE_LOCAL) -> None:
        self._context, self._wanted = context, wanted
        self._lock = threading.RLock()
        self._buffers: list[Buffer] = []  # by address
        self._free: dict[Buffer, list[tuple[int, int]]] = {}  # offsets and sizes, in order
        self._freed: deque[tuple[Buffer, int, int]] = deque()
        self._leaving: deque[tuple[int, Buffer]] = deque()  # with the submission to wait for
        self._can_grow = True
        self.live = Ledger()

    def allocate(self, nbytes: int, what: str = "") -> SubAllocation:
        """Allocate memory with unspecified contents.

        Args:
            nbytes: The size in bytes.
            what: A name for the table of allocations.

        Raises:
            OctantsMemoryError: the device is out of memory; the error shows the table.
        """
        self._context.check()
        size = max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)
        with self._lock:
            self._take_back()
            try:
                buffer, offset = self._find(size) or self._grow(size)
            except OctantsMemoryError:
                raise self._refused(nbytes) from None
            piece = SubAllocation(buffer, offset, nbytes)
            self.live[piece.address] = nbytes, what
        weakref.finalize(piece, self._freed.append, (buffer, offset, size)).atexit = False
        return piece

    def _find(self, size: int) -> tuple[Buffer, int] | None:
        """The first gap that is large enough."""
        for buffer, gaps in self._free.items():
            for number, (offset, free) in enumerate(gaps):
                if free >= size:
                    gaps[number : number + 1] = [(offset + size, free - size)][: free > size]
                    return buffer, offset
        return None

    def _grow(self, size: int) -> tuple[Buffer, int]:
        if not self._can_grow:
            raise OctantsMemoryError(f"{size} bytes are refused")
        whole = size if size >= _LARGE else _BLOCK
        try:
            buffer = self._make(whole)
        except OctantsMemoryError:
            self._release(everything=True)
            buffer = self._make(size)
        bisect.insort(self._buffers, buffer, key=lambda each: each.address)
        self._free[buffer] = [(size, buffer.nbytes - size)] if buffer.nbytes > size else []
        return buffer, 0

    def _make(self, nbytes: int) -> Buffer:
        """A buffer of the driver."""
        return Buffer(self._context, nbytes, self._wanted)

    def stay_within(self, buffer: Buffer, start: int, nbytes: int) -> None:
        """Allocate only within a part of a buffer, whose other parts belong to other heaps."""
        self._buffers = [buffer]
        self._free = {buffer: [(start, nbytes)]}
        self._can_grow = False

    def find(self, address: int) -> tuple[Buffer, int]:
        """The buffer that contains an address, and the offset in it.

        Raises:
            KeyError: no buffer contains it.
        """
        with self._lock:
            place = bisect.bisect_right(self._buffers, address, key=lambda each: each.address) - 1
            if place >= 0:
                buffer = self._buffers[place]
                if address <= buffer.address + buffer.nbytes:
                    return buffer, address - buffer.address
        raise KeyError(address)

    def _refused(self, nbytes: int) -> OctantsError:
        hardware = self._context.hardware
        total, used = hardware.memory_bytes, self.live.nbytes
        left = f"of {format_bytes(total)}, {format_bytes(used)} are Octants'"
        if nbytes > hardware.largest:
            left += f", and at most {format_bytes(hardware.largest)} can be had at once"
        return self.live.refusal(OutOfVulkanMemory(hardware.name, format_bytes(nbytes), left))

    # -- freeing ---------------------------------------------------------------------------------

    def _take_back(self) -> None:
        while self._freed:
            buffer, offset, size = self._freed.popleft()
            del self.live[buffer.address + offset]
            gaps = self._free[buffer]
            place = bisect.bisect(gaps, (offset, size))
            gaps.insert(place, (offset, size))
            _merge(gaps, place)
            is_whole = gaps == [(0, buffer.nbytes)] and buffer.nbytes != _BLOCK
            if is_whole and self._can_grow:
                self._drop(buffer)
        self._release()

    def _drop(self, buffer: Buffer) -> None:
        """Free a buffer once everything queued now is complete."""
        del self._free[buffer]
        self._buffers.remove(buffer)
        self._leaving.append((self._context.submitted + 1, buffer))

    def _release(self, *, everything: bool = False) -> None:
        """Free the buffers that are no longer in use."""
        while self._leaving:
            number, buffer = self._leaving[0]
            if everything and number <= self._context.submitted:
                self._context.wait(number)
            if number > self._context.done:
                return
            self._leaving.popleft()
            buffer.free()


def _merge(gaps: list[tuple[int, int]], place: int) -> None:
    """Merge a gap with its neighbours."""
    for first in (place, place - 1):
        if 0 <= first < len(gaps) - 1:
            (offset, size), (other, more) = gaps[first : first + 2]
            if offset + size == other:
                gaps[first : first + 2] = [(offset, size + more)]
