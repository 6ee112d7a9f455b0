"""The structures of Vulkan that are used here, field by field.

After "Vulkan Specification", version 1.2, the Khronos Group. The first fields of most are a number
that tells the type, and a pointer to a structure that extends it.
"""

from __future__ import annotations

from ctypes import Structure
from typing import Any, ClassVar

from octants.runtime.c_declarations import fields


class Typed(Structure):
    """A structure that begins with its type; keywords set its fields."""

    KIND: ClassVar[int] = 0

    def __init__(self, **fields: Any) -> None:
        super().__init__(kind=self.KIND, **fields)


def _typed(name: str, kind: int, declarations: str, *structures: type[Structure]) -> type[Typed]:
    declared = fields(f"int32 kind; void* next; {declarations}", *structures)
    members = {"KIND": kind, "_fields_": declared}
    return type(name, (Typed,), members)


ApplicationInfo = _typed(
    "ApplicationInfo",
    0,
    "char* application; uint32 application_version; char* engine; uint32 engine_version, "
    "api_version",
)
InstanceCreateInfo = _typed(
    "InstanceCreateInfo",
    1,
    "uint32 flags; void* application; uint32 layer_count; char** layers; "
    "uint32 extension_count; char** extensions",
)
QueueCreateInfo = _typed("QueueCreateInfo", 2, "uint32 flags, family, count; float* priorities")
DeviceCreateInfo = _typed(
    "DeviceCreateInfo",
    3,
    "uint32 flags, queue_count; void* queues; uint32 layer_count; void* layers; "
    "uint32 extension_count; char** extensions; void* features",
)
SubmitInfo = _typed(
    "SubmitInfo",
    4,
    "uint32 wait_count; void* waits, stages; uint32 command_count; void** commands; "
    "uint32 signal_count; uint64* signals",
)
MemoryAllocateInfo = _typed("MemoryAllocateInfo", 5, "uint64 size; uint32 type")
SemaphoreCreateInfo = _typed("SemaphoreCreateInfo", 9, "uint32 flags")
BufferCreateInfo = _typed(
    "BufferCreateInfo",
    12,
    "uint32 flags; uint64 size; uint32 usage; int32 sharing; uint32 family_count; void* families",
)
ShaderModuleCreateInfo = _typed(
    "ShaderModuleCreateInfo", 16, "uint32 flags; size_t size; char* code"
)
PipelineCacheCreateInfo = _typed(
    "PipelineCacheCreateInfo", 17, "uint32 flags; size_t size; void* data"
)
ShaderStageCreateInfo = _typed(
    "ShaderStageCreateInfo",
    18,
    "uint32 flags, stage; uint64 module; char* name; void* specialisation",
)
ComputePipelineCreateInfo = _typed(
    "ComputePipelineCreateInfo",
    29,
    "uint32 flags; ShaderStageCreateInfo stage; uint64 layout, base; int32 base_index",
    ShaderStageCreateInfo,
)
PipelineLayoutCreateInfo = _typed(
    "PipelineLayoutCreateInfo",
    30,
    "uint32 flags, set_count; void* sets; uint32 range_count; void* ranges",
)
DescriptorSetLayoutCreateInfo = _typed(
    "DescriptorSetLayoutCreateInfo", 32, "uint32 flags, count; void* bindings"
)
DescriptorPoolCreateInfo = _typed(
    "DescriptorPoolCreateInfo", 33, "uint32 flags, set_count, size_count; void* sizes"
)
DescriptorSetAllocateInfo = _typed(
    "DescriptorSetAllocateInfo", 34, "uint64 pool; uint32 count; uint64* layouts"
)
WriteDescriptorSet = _typed(
    "WriteDescriptorSet",
    35,
    "uint64 set; uint32 binding, element, count; int32 type; void* images, buffers, views",
)
CommandPoolCreateInfo = _typed("CommandPoolCreateInfo", 39, "uint32 flags, family")
CommandBufferAllocateInfo = _typed(
    "CommandBufferAllocateInfo", 40, "uint64 pool; int32 level; uint32 count"
)
CommandBufferBeginInfo = _typed("CommandBufferBeginInfo", 42, "uint32 flags; void* inheritance")
MemoryBarrier = _typed("MemoryBarrier", 46, "uint32 source, target")
MemoryAllocateFlagsInfo = _typed("MemoryAllocateFlagsInfo", 1000060000, "uint32 flags, mask")
SemaphoreTypeCreateInfo = _typed("SemaphoreTypeCreateInfo", 1000207002, "int32 type; uint64 start")
TimelineSubmitInfo = _typed(
    "TimelineSubmitInfo",
    1000207003,
    "uint32 wait_count; void* waits; uint32 signal_count; uint64* signals",
)
SemaphoreWaitInfo = _typed(
    "SemaphoreWaitInfo", 1000207004, "uint32 flags, count; uint64* semaphores, values"
)
BufferAddressInfo = _typed("BufferAddressInfo", 1000244001, "uint64 buffer")


class SetBinding(Structure):
    """The binding of a buffer in a descriptor set."""

    _fields_ = fields("uint32 binding; int32 type; uint32 count, stages; void* samplers")


class PoolSize(Structure):
    """The number of descriptors of a type in a pool."""

    _fields_ = fields("int32 type; uint32 count")


class BoundBuffer(Structure):
    """A part of a buffer that is bound."""

    _fields_ = fields("uint64 buffer, offset, size")


class PushRange(Structure):
    """The range of push constants that a stage reads."""

    _fields_ = fields("uint32 stages, offset, size")


class BufferCopy(Structure):
    """A region that is copied from one buffer to another."""

    _fields_ = fields("uint64 source, target, size")


class MemoryRequirements(Structure):
    """The memory types that a buffer can have: bit k of `types` stands for the k-th type."""

    _fields_ = fields("uint64 size, alignment; uint32 types")


class MemoryType(Structure):
    """A memory type, and the heap that it is from."""

    _fields_ = fields("uint32 properties, heap")


class MemoryHeap(Structure):
    """A memory heap of the device."""

    _fields_ = fields("uint64 size; uint32 flags")


class MemoryProperties(Structure):
    """All types and heaps of a device."""

    _fields_ = fields(
        "uint32 type_count; MemoryType types[32]; uint32 heap_count; MemoryHeap heaps[16]",
        *(MemoryType, MemoryHeap),
    )


class QueueFamily(Structure):
    """A family of queues with the same features."""

    _fields_ = fields("uint32 flags, count, timestamp_bits, granularity[3]")


class DeviceProperties(Structure):
    """The properties of a device; the first of its limits are counts of 32 bits."""

    _fields_ = fields(
        "uint32 api_version, driver_version, vendor, device, type; char name[256]; "
        "ubyte cache[16]; uint32 padding, limits[126], sparse[5]"
    )


class ExtensionProperties(Structure):
    """An extension that a device offers."""

    _fields_ = fields("char name[256]; uint32 version")


Features = _typed("Features", 1000059000, "uint32 values[55]")
Features11 = _typed("Features11", 49, "uint32 values[12]")
Features12 = _typed("Features12", 51, "uint32 values[47]")
AtomicFloatFeatures = _typed("AtomicFloatFeatures", 1000260000, "uint32 values[12]")
SubgroupSizeFeatures = _typed("SubgroupSizeFeatures", 1000225002, "uint32 values[2]")
SubgroupSizeLimits = _typed(
    "SubgroupSizeLimits", 1000225000, "uint32 least, most, most_in_block, stages"
)
RequiredSubgroupSize = _typed("RequiredSubgroupSize", 1000225001, "uint32 size")
MemoryLimits = _typed("MemoryLimits", 1000168000, "uint32 descriptors; uint64 largest_allocation")
FloatControls = _typed("FloatControls", 1000197000, "uint32 values[17]")
SubgroupProperties = _typed(
    "SubgroupProperties", 1000094000, "uint32 size, stages, operations, quads"
)
Properties2 = _typed("Properties2", 1000059001, "DeviceProperties properties", DeviceProperties)
