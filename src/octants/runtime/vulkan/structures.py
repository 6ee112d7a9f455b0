"""The structures of Vulkan that are used here, field by field.

After "Vulkan Specification", version 1.2, the Khronos Group. The first fields of most are a number
that tells the type, and a pointer to a structure that extends it.
"""

from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_float,
    c_int32,
    c_size_t,
    c_ubyte,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, ClassVar


class Typed(Structure):
    """A structure that begins with its type; keywords set its fields."""

    KIND: ClassVar[int] = 0

    def __init__(self, **fields: Any) -> None:
        super().__init__(kind=self.KIND, **fields)


def _typed(name: str, kind: int, *fields: tuple[str, Any]) -> type[Typed]:
    members = {"KIND": kind, "_fields_": [("kind", c_int32), ("next", c_void_p), *fields]}
    return type(name, (Typed,), members)


ApplicationInfo = _typed(
    "ApplicationInfo",
    0,
    ("application", c_char_p),
    ("application_version", c_uint32),
    ("engine", c_char_p),
    ("engine_version", c_uint32),
    ("api_version", c_uint32),
)
InstanceCreateInfo = _typed(
    "InstanceCreateInfo",
    1,
    ("flags", c_uint32),
    ("application", c_void_p),
    ("layer_count", c_uint32),
    ("layers", POINTER(c_char_p)),
    ("extension_count", c_uint32),
    ("extensions", POINTER(c_char_p)),
)
QueueCreateInfo = _typed(
    "QueueCreateInfo",
    2,
    ("flags", c_uint32),
    ("family", c_uint32),
    ("count", c_uint32),
    ("priorities", POINTER(c_float)),
)
DeviceCreateInfo = _typed(
    "DeviceCreateInfo",
    3,
    ("flags", c_uint32),
    ("queue_count", c_uint32),
    ("queues", c_void_p),
    ("layer_count", c_uint32),
    ("layers", c_void_p),
    ("extension_count", c_uint32),
    ("extensions", POINTER(c_char_p)),
    ("features", c_void_p),
)
SubmitInfo = _typed(
    "SubmitInfo",
    4,
    ("wait_count", c_uint32),
    ("waits", c_void_p),
    ("stages", c_void_p),
    ("command_count", c_uint32),
    ("commands", POINTER(c_void_p)),
    ("signal_count", c_uint32),
    ("signals", POINTER(c_uint64)),
)
MemoryAllocateInfo = _typed("MemoryAllocateInfo", 5, ("size", c_uint64), ("type", c_uint32))
SemaphoreCreateInfo = _typed("SemaphoreCreateInfo", 9, ("flags", c_uint32))
BufferCreateInfo = _typed(
    "BufferCreateInfo",
    12,
    ("flags", c_uint32),
    ("size", c_uint64),
    ("usage", c_uint32),
    ("sharing", c_int32),
    ("family_count", c_uint32),
    ("families", c_void_p),
)
ShaderModuleCreateInfo = _typed(
    "ShaderModuleCreateInfo", 16, ("flags", c_uint32), ("size", c_size_t), ("code", c_char_p)
)
PipelineCacheCreateInfo = _typed(
    "PipelineCacheCreateInfo", 17, ("flags", c_uint32), ("size", c_size_t), ("data", c_void_p)
)
ShaderStageCreateInfo = _typed(
    "ShaderStageCreateInfo",
    18,
    ("flags", c_uint32),
    ("stage", c_uint32),
    ("module", c_uint64),
    ("name", c_char_p),
    ("specialisation", c_void_p),
)


class ComputePipelineCreateInfo(Typed):
    """A pipeline of one stage."""

    KIND = 29
    _fields_ = (
        ("kind", c_int32),
        ("next", c_void_p),
        ("flags", c_uint32),
        ("stage", ShaderStageCreateInfo),
        ("layout", c_uint64),
        ("base", c_uint64),
        ("base_index", c_int32),
    )


PipelineLayoutCreateInfo = _typed(
    "PipelineLayoutCreateInfo",
    30,
    ("flags", c_uint32),
    ("set_count", c_uint32),
    ("sets", c_void_p),
    ("range_count", c_uint32),
    ("ranges", c_void_p),
)
DescriptorSetLayoutCreateInfo = _typed(
    "DescriptorSetLayoutCreateInfo",
    32,
    ("flags", c_uint32),
    ("count", c_uint32),
    ("bindings", c_void_p),
)
DescriptorPoolCreateInfo = _typed(
    "DescriptorPoolCreateInfo",
    33,
    ("flags", c_uint32),
    ("set_count", c_uint32),
    ("size_count", c_uint32),
    ("sizes", c_void_p),
)
DescriptorSetAllocateInfo = _typed(
    "DescriptorSetAllocateInfo",
    34,
    ("pool", c_uint64),
    ("count", c_uint32),
    ("layouts", POINTER(c_uint64)),
)
WriteDescriptorSet = _typed(
    "WriteDescriptorSet",
    35,
    ("set", c_uint64),
    ("binding", c_uint32),
    ("element", c_uint32),
    ("count", c_uint32),
    ("type", c_int32),
    ("images", c_void_p),
    ("buffers", c_void_p),
    ("views", c_void_p),
)
CommandPoolCreateInfo = _typed(
    "CommandPoolCreateInfo", 39, ("flags", c_uint32), ("family", c_uint32)
)
CommandBufferAllocateInfo = _typed(
    "CommandBufferAllocateInfo", 40, ("pool", c_uint64), ("level", c_int32), ("count", c_uint32)
)
CommandBufferBeginInfo = _typed(
    "CommandBufferBeginInfo", 42, ("flags", c_uint32), ("inheritance", c_void_p)
)
MemoryBarrier = _typed("MemoryBarrier", 46, ("source", c_uint32), ("target", c_uint32))
MemoryAllocateFlagsInfo = _typed(
    "MemoryAllocateFlagsInfo", 1000060000, ("flags", c_uint32), ("mask", c_uint32)
)
SemaphoreTypeCreateInfo = _typed(
    "SemaphoreTypeCreateInfo", 1000207002, ("type", c_int32), ("start", c_uint64)
)
TimelineSubmitInfo = _typed(
    "TimelineSubmitInfo",
    1000207003,
    ("wait_count", c_uint32),
    ("waits", c_void_p),
    ("signal_count", c_uint32),
    ("signals", POINTER(c_uint64)),
)
SemaphoreWaitInfo = _typed(
    "SemaphoreWaitInfo",
    1000207004,
    ("flags", c_uint32),
    ("count", c_uint32),
    ("semaphores", POINTER(c_uint64)),
    ("values", POINTER(c_uint64)),
)
BufferAddressInfo = _typed("BufferAddressInfo", 1000244001, ("buffer", c_uint64))


class SetBinding(Structure):
    """The binding of a buffer in a descriptor set."""

    _fields_ = (
        ("binding", c_uint32),
        ("type", c_int32),
        ("count", c_uint32),
        ("stages", c_uint32),
        ("samplers", c_void_p),
    )


class PoolSize(Structure):
    """The number of descriptors of a type in a pool."""

    _fields_ = (("type", c_int32), ("count", c_uint32))


class BoundBuffer(Structure):
    """A part of a buffer that is bound."""

    _fields_ = (("buffer", c_uint64), ("offset", c_uint64), ("size", c_uint64))


class PushRange(Structure):
    """The range of push constants that a stage reads."""

    _fields_ = (("stages", c_uint32), ("offset", c_uint32), ("size", c_uint32))


class BufferCopy(Structure):
    """A region that is copied from one buffer to another."""

    _fields_ = (("source", c_uint64), ("target", c_uint64), ("size", c_uint64))


class MemoryRequirements(Structure):
    """The memory types that a buffer can have: bit k of `types` stands for the k-th type."""

    _fields_ = (("size", c_uint64), ("alignment", c_uint64), ("types", c_uint32))


class MemoryType(Structure):
    """A memory type, and the heap that it is from."""

    _fields_ = (("properties", c_uint32), ("heap", c_uint32))


class MemoryHeap(Structure):
    """A memory heap of the device."""

    _fields_ = (("size", c_uint64), ("flags", c_uint32))


class MemoryProperties(Structure):
    """All types and heaps of a device."""

    _fields_ = (
        ("type_count", c_uint32),
        ("types", MemoryType * 32),
        ("heap_count", c_uint32),
        ("heaps", MemoryHeap * 16),
    )


class QueueFamily(Structure):
    """A family of queues with the same features."""

    _fields_ = (
        ("flags", c_uint32),
        ("count", c_uint32),
        ("timestamp_bits", c_uint32),
        ("granularity", c_uint32 * 3),
    )


class DeviceProperties(Structure):
    """The properties of a device; the first of its limits are counts of 32 bits."""

    _fields_ = (
        ("api_version", c_uint32),
        ("driver_version", c_uint32),
        ("vendor", c_uint32),
        ("device", c_uint32),
        ("type", c_uint32),
        ("name", c_char * 256),
        ("cache", c_ubyte * 16),
        ("padding", c_uint32),
        ("limits", c_uint32 * 126),
        ("sparse", c_uint32 * 5),
    )


class ExtensionProperties(Structure):
    """An extension that a device offers."""

    _fields_ = (("name", c_char * 256), ("version", c_uint32))


Features = _typed("Features", 1000059000, ("values", c_uint32 * 55))
Features11 = _typed("Features11", 49, ("values", c_uint32 * 12))
Features12 = _typed("Features12", 51, ("values", c_uint32 * 47))
AtomicFloatFeatures = _typed("AtomicFloatFeatures", 1000260000, ("values", c_uint32 * 12))
SubgroupSizeFeatures = _typed("SubgroupSizeFeatures", 1000225002, ("values", c_uint32 * 2))
SubgroupSizeLimits = _typed(
    "SubgroupSizeLimits",
    1000225000,
    ("least", c_uint32),
    ("most", c_uint32),
    ("most_in_block", c_uint32),
    ("stages", c_uint32),
)
RequiredSubgroupSize = _typed("RequiredSubgroupSize", 1000225001, ("size", c_uint32))
MemoryLimits = _typed(
    "MemoryLimits", 1000168000, ("descriptors", c_uint32), ("largest_allocation", c_uint64)
)
FloatControls = _typed("FloatControls", 1000197000, ("values", c_uint32 * 17))
SubgroupProperties = _typed(
    "SubgroupProperties",
    1000094000,
    ("size", c_uint32),
    ("stages", c_uint32),
    ("operations", c_uint32),
    ("quads", c_uint32),
)


class Properties2(Typed):
    """The properties of a device, with extensions."""

    KIND = 1000059001
    _fields_ = (("kind", c_int32), ("next", c_void_p), ("properties", DeviceProperties))
