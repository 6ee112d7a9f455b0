"""Creates pipelines from SPIR-V, with the driver's cache data of earlier processes."""

from __future__ import annotations

import struct
import weakref
from ctypes import addressof, byref, c_char_p, c_size_t, c_uint64, create_string_buffer
from typing import Any

from octants.artifact import Artifact, Dispatch
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.diagnostics.vulkan_errors import VulkanFailed
from octants.runtime.gpu import pipeline_cache
from octants.runtime.vulkan import structures as vk
from octants.runtime.vulkan.context import Context
from octants.runtime.vulkan.library import OUT_OF_MEMORY, SUCCESS, handle_argument
from octants.runtime.vulkan.push_constants_and_descriptors import COMPUTE_STAGE

_HEAD = struct.Struct("<4I16s")  # its own length, a version, vendor, device, what drivers compare
_HEAD_VERSION = 1
_WHOLE_SUBGROUPS = 2


class Pipeline(pipeline_cache.CachedPipelines):
    """The pipelines of a SPIR-V module, by the names of its entry points."""

    def __init__(self, context: Context, layout: int, artifact: Artifact) -> None:
        super().__init__(context, artifact)
        self._layout = layout
        self._handles: list[int] = []
        if not artifact.dispatches:
            return
        code = artifact.code
        info = vk.ShaderModuleCreateInfo(size=len(code), code=c_char_p(code))
        module = context.create("vkCreateShaderModule", info)
        try:
            self._load(module)
        finally:
            context.functions.vkDestroyShaderModule(context.handle, module, None)
        weakref.finalize(self, context.retire, "vkDestroyPipeline", self._handles).atexit = False

    def _identity(self) -> str:
        properties = self._context.hardware.properties
        driver = f"{properties.vendor:x} {properties.device:x} {properties.driver_version:x}"
        return f"{driver} {_identity(properties).hex()}"

    def _restore(self, module: int, known: bytes) -> bool:
        if not _is_for(self._context, known):
            return False
        self._make(module, known)
        return True

    def _make(self, module: int, known: bytes) -> bytes:
        context = self._context
        text = create_string_buffer(known, len(known) or 1)
        info = vk.PipelineCacheCreateInfo(size=len(known), data=addressof(text))
        cache = context.create("vkCreatePipelineCache", info)
        try:
            for dispatch in self._artifact.dispatches:
                self.pipelines[dispatch.entry] = self._pipeline(module, dispatch, cache)
            return _data_of(context, cache)
        finally:
            context.functions.vkDestroyPipelineCache(context.handle, cache, None)

    def _pipeline(self, module: int, dispatch: Dispatch, cache: int) -> Any:
        name, hardware = dispatch.entry, self._context.hardware
        stage = vk.ShaderStageCreateInfo(stage=COMPUTE_STAGE, module=module, name=name.encode())
        size = vk.RequiredSubgroupSize(size=dispatch.lanes)
        if dispatch.lanes and "whole" in hardware.features:
            stage.flags = _WHOLE_SUBGROUPS
            if dispatch.block <= hardware.most_sized:
                stage.next = addressof(size)
        info = vk.ComputePipelineCreateInfo(stage=stage, layout=self._layout, base_index=-1)
        handle, context = c_uint64(), self._context
        create = context.functions.vkCreateComputePipelines
        status = create(context.handle, cache, 1, byref(info), None, byref(handle))
        if status in OUT_OF_MEMORY:
            raise OctantsMemoryError(f"the driver has no memory left to compile `{name}`")
        if status != SUCCESS:
            raise VulkanFailed("vkCreateComputePipelines", f"status {status}").at()
        self._handles.append(handle.value)
        return handle_argument(handle.value)


def _data_of(context: Context, cache: int) -> bytes:
    """The driver's data worth keeping; empty if they are a header only."""
    size, get = c_size_t(), context.functions.vkGetPipelineCacheData
    if not cache or get(context.handle, cache, byref(size), None) != SUCCESS:
        return b""
    data = create_string_buffer(max(1, size.value))
    if get(context.handle, cache, byref(size), data) != SUCCESS or size.value <= _HEAD.size:
        return b""
    return data.raw[: size.value]


def _is_for(context: Context, data: bytes) -> bool:
    """Whether data are those of this driver; not every driver checks that well."""
    if len(data) <= _HEAD.size:
        return False
    properties = context.hardware.properties
    length, version, *whose = _HEAD.unpack_from(data)
    mine = [properties.vendor, properties.device, _identity(properties)]
    return bool(length == _HEAD.size and version == _HEAD_VERSION and whose == mine)


def _identity(properties: Any) -> bytes:
    """The header by which a driver recognises its data."""
    return bytes(properties.cache)
