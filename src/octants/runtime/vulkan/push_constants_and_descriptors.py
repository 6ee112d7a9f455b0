"""Push constants and descriptors of pipelines.

Where a device has no buffer addresses, all memory is one buffer, which is bound to all pipelines.
"""

from __future__ import annotations

from ctypes import addressof, byref, c_uint64, c_void_p, pointer
from typing import Any

from octants.diagnostics.exceptions import OctantsMemoryError
from octants.runtime.vulkan import structures as vk
from octants.runtime.vulkan.context import Context
from octants.runtime.vulkan.library import SUCCESS
from octants.runtime.vulkan.memory import Buffer

COMPUTE_STAGE = 0x20
_COMPUTE_BIND = 1
_STORAGE_BUFFER = 7


def pipeline_layout(context: Context, pushed: int, sets: Any = None) -> int:
    """The layout of pipelines with ``pushed`` bytes of push constants, and a descriptor set or
    none.
    """
    words = vk.PushRange(COMPUTE_STAGE, 0, pushed)
    info = vk.PipelineLayoutCreateInfo(range_count=1, ranges=addressof(words))
    if sets is not None:
        info.set_count, info.sets = 1, addressof(sets)
    return context.create("vkCreatePipelineLayout", info)


class BoundMemory:
    """A buffer that is bound to all pipelines of a layout."""

    def __init__(self, context: Context, memory: Buffer, pushed: int) -> None:
        self._context = context
        binding = vk.SetBinding(0, _STORAGE_BUFFER, 1, COMPUTE_STAGE)
        info = vk.DescriptorSetLayoutCreateInfo(count=1, bindings=addressof(binding))
        kind = c_uint64(context.create("vkCreateDescriptorSetLayout", info))
        self._set = self._make_set(kind)
        self.layout = pipeline_layout(context, pushed, kind)
        self._describe(memory)

    def _make_set(self, kind: c_uint64) -> c_uint64:
        context, size, made = self._context, vk.PoolSize(_STORAGE_BUFFER, 1), c_uint64()
        info = vk.DescriptorPoolCreateInfo(set_count=1, size_count=1, sizes=addressof(size))
        pool = context.create("vkCreateDescriptorPool", info)
        wanted = vk.DescriptorSetAllocateInfo(pool=pool, count=1, layouts=pointer(kind))
        allocate = context.functions.vkAllocateDescriptorSets
        if allocate(context.handle, byref(wanted), byref(made)) != SUCCESS:
            raise OctantsMemoryError("the device has no memory left for descriptors")
        return made

    def _describe(self, memory: Buffer) -> None:
        whole = vk.BoundBuffer(memory.handle, 0, memory.nbytes)
        write = vk.WriteDescriptorSet(
            set=self._set, count=1, type=_STORAGE_BUFFER, buffers=addressof(whole)
        )
        context = self._context
        context.functions.vkUpdateDescriptorSets(context.handle, 1, byref(write), 0, None)

    def bind(self, commands: c_void_p) -> None:
        """Bind the buffer for all dispatches of a command buffer."""
        function, sets = self._context.functions.vkCmdBindDescriptorSets, byref(self._set)
        function(commands, _COMPUTE_BIND, self.layout, 0, 1, sets, 0, None)
