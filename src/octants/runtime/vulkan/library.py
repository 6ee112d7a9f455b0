"""Bindings of libvulkan."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from ctypes import byref, c_char, c_char_p, c_int32, c_uint32, c_uint64, c_void_p
from typing import Any

from octants.diagnostics.vulkan_errors import MissingVulkan, VulkanFailed

_NAMES = {
    "linux": ("libvulkan.so.1", "libvulkan.so"),
    "win32": ("vulkan-1.dll",),
    "darwin": (
        "libvulkan.1.dylib",
        "/opt/homebrew/lib/libvulkan.1.dylib",
        "/usr/local/lib/libvulkan.1.dylib",
        "libMoltenVK.dylib",
        "/opt/homebrew/lib/libMoltenVK.dylib",
    ),
}

SUCCESS, TIMEOUT = 0, 2
OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY, DEVICE_LOST = -1, -2, -4
OUT_OF_MEMORY = (OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY)

_P, _U32, _U64 = c_void_p, c_uint32, c_uint64

# Handles of instances, devices, queues and command buffers are pointers; others are 64 bits.
_INSTANCE = {
    "vkEnumeratePhysicalDevices": (c_int32, _P, _P, _P),
    "vkGetPhysicalDeviceProperties2": (None, _P, _P),
    "vkGetPhysicalDeviceFeatures2": (None, _P, _P),
    "vkGetPhysicalDeviceMemoryProperties": (None, _P, _P),
    "vkGetPhysicalDeviceQueueFamilyProperties": (None, _P, _P, _P),
    "vkEnumerateDeviceExtensionProperties": (c_int32, _P, c_char_p, _P, _P),
    "vkCreateDevice": (c_int32, _P, _P, _P, _P),
    "vkGetDeviceProcAddr": (_P, _P, c_char_p),
}
_DEVICE = {
    "vkGetDeviceQueue": (None, _P, _U32, _U32, _P),
    "vkAllocateMemory": (c_int32, _P, _P, _P, _P),
    "vkFreeMemory": (None, _P, _U64, _P),
    "vkMapMemory": (c_int32, _P, _U64, _U64, _U64, _U32, _P),
    "vkCreateBuffer": (c_int32, _P, _P, _P, _P),
    "vkDestroyBuffer": (None, _P, _U64, _P),
    "vkGetBufferMemoryRequirements": (None, _P, _U64, _P),
    "vkBindBufferMemory": (c_int32, _P, _U64, _U64, _U64),
    "vkGetBufferDeviceAddress": (_U64, _P, _P),
    "vkCreateShaderModule": (c_int32, _P, _P, _P, _P),
    "vkDestroyShaderModule": (None, _P, _U64, _P),
    "vkCreatePipelineCache": (c_int32, _P, _P, _P, _P),
    "vkGetPipelineCacheData": (c_int32, _P, _U64, _P, _P),
    "vkDestroyPipelineCache": (None, _P, _U64, _P),
    "vkCreatePipelineLayout": (c_int32, _P, _P, _P, _P),
    "vkCreateComputePipelines": (c_int32, _P, _U64, _U32, _P, _P, _P),
    "vkDestroyPipeline": (None, _P, _U64, _P),
    "vkCreateDescriptorSetLayout": (c_int32, _P, _P, _P, _P),
    "vkCreateDescriptorPool": (c_int32, _P, _P, _P, _P),
    "vkAllocateDescriptorSets": (c_int32, _P, _P, _P),
    "vkUpdateDescriptorSets": (None, _P, _U32, _P, _U32, _P),
    "vkCmdBindDescriptorSets": (None, _P, c_int32, _U64, _U32, _U32, _P, _U32, _P),
    "vkCreateCommandPool": (c_int32, _P, _P, _P, _P),
    "vkDestroyCommandPool": (None, _P, _U64, _P),
    "vkAllocateCommandBuffers": (c_int32, _P, _P, _P),
    "vkBeginCommandBuffer": (c_int32, _P, _P),
    "vkEndCommandBuffer": (c_int32, _P),
    "vkCmdCopyBuffer": (None, _P, _U64, _U64, _U32, _P),
    "vkCreateSemaphore": (c_int32, _P, _P, _P, _P),
    "vkGetSemaphoreCounterValue": (c_int32, _P, _U64, _P),
    "vkWaitSemaphores": (c_int32, _P, _P, _U64),
}


@functools.cache
def loader() -> ctypes.CDLL:
    """Load libvulkan.

    Raises:
        OctantsRuntimeError: it is not installed.
    """
    problem = ""
    for name in _NAMES.get(sys.platform, _NAMES["linux"]):
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            problem = problem or str(error)
    raise MissingVulkan(problem).at()


class Functions:
    """Functions as attributes; those that return a status raise its error."""

    quick: QuickFunctions

    def __init__(
        self,
        find: Callable[[bytes], int | None],
        table: dict[str, Any],
        lose: Callable[[], Exception] | None = None,
    ) -> None:
        for name, (result, *arguments) in table.items():
            address = find(name.encode())
            if not address:
                raise VulkanFailed(name, "the driver does not have it").at()
            function = ctypes.CFUNCTYPE(result, *arguments)(address)
            is_checked = result is c_int32
            setattr(self, name, checked(name, function, lose) if is_checked else function)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(name)


class QuickFunctions:
    """Functions as attributes that neither check their arguments and their status nor release the
    global lock, since they return at once.

    They take a third of the time. A Python number is an i32; all else is an object of ctypes, at
    best a `handle_argument` or a `byref`, or None.
    """

    def __init__(self, find: Callable[[bytes], int | None]) -> None:
        for name, result in _QUICK.items():
            setattr(self, name, ctypes.PYFUNCTYPE(result)(find(name.encode()) or 0))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(name)


_QUICK = {
    "vkCmdBindPipeline": None,
    "vkCmdPushConstants": None,
    "vkCmdDispatch": None,
    "vkCmdPipelineBarrier": None,
    "vkCmdCopyBuffer": None,
    "vkCmdFillBuffer": None,
    "vkCmdUpdateBuffer": None,
    "vkQueueSubmit": c_int32,
    "vkGetSemaphoreCounterValue": c_int32,
}


def handle_argument(handle: int | None) -> Any:
    """A handle in the form that ctypes passes fastest: a reference to memory at that address."""
    return byref(c_char.from_address(handle or 0))


def checked(
    name: str, function: Callable[..., int], lose: Callable[[], Exception] | None = None
) -> Callable[..., int]:
    """A function that raises if its status is an error other than out of memory.

    ``lose`` gives the error for a lost device.
    """

    def call(*arguments: Any) -> int:
        status = function(*arguments)
        if status < 0 and status not in OUT_OF_MEMORY:
            if status == DEVICE_LOST and lose is not None:
                raise lose()
            raise VulkanFailed(name, _STATUS.get(status, f"status {status}")).at()
        return status

    return call


_STATUS = {
    -3: "it could not be initialised (VK_ERROR_INITIALIZATION_FAILED)",
    DEVICE_LOST: "the device is lost (VK_ERROR_DEVICE_LOST)",
    -5: "memory cannot be mapped (VK_ERROR_MEMORY_MAP_FAILED)",
    -6: "a layer is not there (VK_ERROR_LAYER_NOT_PRESENT)",
    -7: "an extension is not there (VK_ERROR_EXTENSION_NOT_PRESENT)",
    -8: "a feature is not there (VK_ERROR_FEATURE_NOT_PRESENT)",
    -9: "the driver is incompatible (VK_ERROR_INCOMPATIBLE_DRIVER)",
    -10: "too many objects (VK_ERROR_TOO_MANY_OBJECTS)",
    -13: "the driver does not know why (VK_ERROR_UNKNOWN)",
}


def global_function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function that needs no instance."""
    function = ctypes.CFUNCTYPE(result, *arguments)(_find()(None, name.encode()))
    return checked(name, function) if result is c_int32 else function


def _find() -> Callable[[int | None, bytes], int]:
    find = loader().vkGetInstanceProcAddr
    find.restype, find.argtypes = c_void_p, (c_void_p, c_char_p)
    return find


def instance_functions(instance: int) -> Functions:
    """The functions of an instance."""
    find = _find()
    return Functions(lambda name: find(instance, name), _INSTANCE)


def device_functions(instance: Functions, device: int, lose: Callable[[], Exception]) -> Functions:
    """The functions of a device, called without the loader; see `checked` for ``lose``."""

    def find(name: bytes) -> int | None:
        address: int | None = instance.vkGetDeviceProcAddr(device, name)
        return address

    functions = Functions(find, _DEVICE, lose)
    functions.quick = QuickFunctions(find)
    return functions
