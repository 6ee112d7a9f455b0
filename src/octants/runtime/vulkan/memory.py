"""Allocates device memory: buffers with addresses, split into suballocations.

A suballocation that is freed is used again at once, since the queue runs commands in order. Only an
access of the host waits (see `transfers`).
"""

from __future__ import annotations

from ctypes import addressof, byref, c_void_p

from octants.diagnostics.byte_counts import format_bytes
from octants.diagnostics.exceptions import OctantsError, OctantsMemoryError
from octants.diagnostics.vulkan_errors import OutOfVulkanMemory
from octants.runtime.gpu import suballocation
from octants.runtime.gpu.suballocation import ALIGNMENT
from octants.runtime.vulkan import structures as vk
from octants.runtime.vulkan.context import Context
from octants.runtime.vulkan.library import SUCCESS

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
        for kind, properties in _types(context, needs.types, wanted, self.nbytes):
            info = vk.MemoryAllocateInfo(next=addressof(flags), size=needs.size, type=kind)
            self.memory = context.create("vkAllocateMemory", info)
            if self.memory:
                functions.vkBindBufferMemory(context.handle, self.handle, self.memory, 0)
                self.reads_well = bool(properties & CACHED)
                return self._map() if properties & MAPPED == MAPPED else True
        return False

    def _map(self) -> bool:
        mapped, context = c_void_p(), self.context
        whole = (1 << 64) - 1
        arguments = (context.handle, self.memory, 0, whole, 0, byref(mapped))
        is_mapped = context.functions.vkMapMemory(*arguments) == SUCCESS
        self.host = mapped.value or 0
        return bool(is_mapped)

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


def _types(context: Context, allowed: int, wanted: int, nbytes: int) -> list[tuple[int, int]]:
    """The memory types that are suitable, with their properties, the best first."""
    properties = context.hardware.memory_properties()
    types = [(k, properties.types[k].properties) for k in range(properties.type_count)]
    found = [(k, p) for k, p in types if allowed >> k & 1 and p & wanted == wanted]
    if wanted == DEVICE_LOCAL:
        is_small = nbytes <= suballocation.BLOCK
        return sorted(found, key=lambda each: _memory_type_rank(each[1], is_small))
    if wanted == NEAR:
        return found + _types(context, allowed, MAPPED, nbytes)
    return sorted(found, key=lambda each: not each[1] & CACHED)


def _memory_type_rank(properties: int, is_small: bool) -> int:
    """The rank of a memory type: cached host memory first, then memory of the device.

    The host had better reach small arrays, as far as it can reach memory of the device.
    """
    if properties & (MAPPED | CACHED) == MAPPED | CACHED:
        return 0
    return 1 if bool(properties & MAPPED == MAPPED) == is_small else 2


class Heap(suballocation.Heap[Buffer]):
    """Suballocates buffers of one memory type."""

    def __init__(self, context: Context, wanted: int = DEVICE_LOCAL) -> None:
        super().__init__(context)
        self._device, self._wanted = context, wanted

    def _make(self, nbytes: int) -> Buffer:
        return Buffer(self._device, nbytes, self._wanted)

    def _refused(self, nbytes: int) -> OctantsError:
        hardware = self._device.hardware
        total, used = hardware.memory_bytes, self.live.nbytes
        left = f"of {format_bytes(total)}, Octants uses {format_bytes(used)}"
        if nbytes > hardware.largest:
            left += f", and at most {format_bytes(hardware.largest)} can be had at once"
        return self.live.refusal(OutOfVulkanMemory(hardware.name, format_bytes(nbytes), left))
