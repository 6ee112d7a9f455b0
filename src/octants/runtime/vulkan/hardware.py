"""The devices that Vulkan knows, the best one first, and what each can do."""

from __future__ import annotations

import functools
from ctypes import addressof, byref, c_int32, c_uint32, c_void_p
from typing import Any

from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.vulkan_errors import (
    NoSuchVulkanDevice,
    NoVulkanDevice,
    UnfitVulkanDevice,
)
from octants.runtime.vulkan import structures as vk
from octants.runtime.vulkan.library import (
    SUCCESS,
    Functions,
    global_function,
    instance_functions,
)
from octants.target import Target

_VERSION = 1 << 22 | 2 << 12  # Vulkan 1.2
_BEST_FIRST = (2, 1, 3, 0, 4)  # discrete, integrated, virtual, other, the CPU
_CPU = 4
_COMPUTE = 2
_FLOAT_64, _INT_64, _INT_16 = 39, 40, 41  # of `Features`
_STORAGE_16 = 0  # of `Features11`
_STORAGE_8, _ATOMIC_64, _INT_8, _TIMELINE, _ADDRESSES = 2, 5, 8, 37, 38  # of `Features12`
_ADD_32, _ADD_64 = 1, 3  # of `AtomicFloatFeatures`
_INDEPENDENT = 1  # of `FloatControls`: 2 says that widths must agree
ATOMIC_FLOAT = b"VK_EXT_shader_atomic_float"
_NEEDED = {
    "int64": "64-bit integers (shaderInt64)",
    "addresses": "addresses of buffers (bufferDeviceAddress)",
    "timeline": "timeline semaphores (timelineSemaphore)",
}


class Hardware:
    """A physical device. `features` are those of `codegen.spirv.features`, and what is needed."""

    def __init__(self, functions: Functions, handle: int) -> None:
        self.functions = functions
        self.handle = c_void_p(handle)
        properties = vk.Properties2()
        controls = vk.FloatControls()
        properties.next = addressof(controls)
        functions.vkGetPhysicalDeviceProperties2(self.handle, byref(properties))
        self.properties = properties.properties
        self.name: str = self.properties.name.decode(errors="replace")
        self.has_version = self.properties.api_version >= _VERSION
        self.extensions = self._extensions() if self.has_version else frozenset()
        self.features = self._features(controls) if self.has_version else frozenset()

    @property
    def rank(self) -> int:
        """How good a sort of device it is; 0 is best."""
        kind = self.properties.type
        return _BEST_FIRST.index(kind) if kind in _BEST_FIRST else len(_BEST_FIRST)

    @property
    def is_cpu(self) -> bool:
        """Whether the driver runs on the CPU."""
        return bool(self.properties.type == _CPU)

    def check(self) -> None:
        """Raise `OctantsRuntimeError` unless kernels can run."""
        missing = [text for name, text in _NEEDED.items() if name not in self.features]
        if not self.has_version:
            missing = ["Vulkan 1.2"]
        if missing:
            raise UnfitVulkanDevice(self.name, ", ".join(missing)).at(None)

    @property
    def target(self) -> Target:
        """What code is made for."""
        features = ",".join(sorted(self.features))
        return Target("vulkan", "spirv1.5-vulkan1.2", self.name, features)

    def family(self) -> int:
        """The queues that kernels are run by."""
        count = c_uint32()
        ask = self.functions.vkGetPhysicalDeviceQueueFamilyProperties
        ask(self.handle, byref(count), None)
        families = (vk.QueueFamily * count.value)()
        ask(self.handle, byref(count), families)
        for number, family in enumerate(families):
            if family.flags & _COMPUTE:
                return number
        raise UnfitVulkanDevice(self.name, "a queue for compute").at(None)

    def _extensions(self) -> frozenset[bytes]:
        count, ask = c_uint32(), self.functions.vkEnumerateDeviceExtensionProperties
        ask(self.handle, None, byref(count), None)
        found = (vk.ExtensionProperties * count.value)()
        ask(self.handle, None, byref(count), found)
        return frozenset(each.name for each in found)

    def _features(self, controls: Any) -> frozenset[str]:
        basic, first, second, atomics = ask_features(self)
        found = {
            "float64": basic.values[_FLOAT_64],
            "int64": basic.values[_INT_64],
            "int16": basic.values[_INT_16],
            "int8": second.values[_INT_8],
            "storage16": first.values[_STORAGE_16],
            "storage8": second.values[_STORAGE_8],
            "atomic64": second.values[_ATOMIC_64],
            "add32": atomics.values[_ADD_32],
            "add64": atomics.values[_ADD_64],
            "addresses": second.values[_ADDRESSES],
            "timeline": second.values[_TIMELINE],
            "fences": not self.is_cpu,
            "cuts": "llvmpipe" in self.name,
            **_float_modes(controls),
        }
        return frozenset(name for name, value in found.items() if value)


def _float_modes(controls: Any) -> dict[str, int]:
    """What may be asked of floats of each width by itself."""
    values = controls.values
    modes = {f"nan{bits}": values[2 + k] for k, bits in enumerate((16, 32, 64))}
    for name, offset, independence in (("denormals", 5, values[0]), ("rte", 11, values[1])):
        for k, bits in enumerate((16, 32, 64)):
            is_free = independence <= _INDEPENDENT or all(values[offset : offset + 3])
            modes[f"{name}{bits}"] = values[offset + k] if is_free else 0
    return modes


def ask_features(hardware: Hardware) -> tuple[Any, Any, Any, Any]:
    """The structures of the features of a device, each pointing to the next one."""
    basic, first, second, atomics = (
        kind() for kind in (vk.Features, vk.Features11, vk.Features12, vk.AtomicFloatFeatures)
    )
    basic.next, first.next = addressof(first), addressof(second)
    if ATOMIC_FLOAT in hardware.extensions:
        second.next = addressof(atomics)
    hardware.functions.vkGetPhysicalDeviceFeatures2(hardware.handle, byref(basic))
    return basic, first, second, atomics


# -- all devices --------------------------------------------------------------------------------


@functools.cache
def all_hardware() -> tuple[Hardware, ...]:
    """The devices, the best one first; `OctantsRuntimeError` where there are none.

    The instance stays as long as the process.
    """
    functions = instance_functions(_make_instance())
    count, ask = c_uint32(), functions.vkEnumeratePhysicalDevices
    status = ask(_instance, byref(count), None)
    handles = (c_void_p * count.value)()
    if status == SUCCESS and count.value:
        ask(_instance, byref(count), handles)
    found = [Hardware(functions, handle) for handle in handles if handle]
    if not found:
        raise NoVulkanDevice("no driver offers one").at(None)
    return tuple(sorted(found, key=lambda each: (bool(_missing(each)), each.rank)))


_instance = c_void_p()


def _make_instance() -> int:
    create = global_function("vkCreateInstance", c_int32, c_void_p, c_void_p, c_void_p)
    application = vk.ApplicationInfo(application=b"octants", api_version=_VERSION)
    info = vk.InstanceCreateInfo(application=addressof(application))
    try:
        status = create(byref(info), None, byref(_instance))
    except OctantsError as error:  # a loader without drivers
        raise NoVulkanDevice("no driver can be loaded").at(None) from error
    if status != SUCCESS or not _instance.value:
        raise NoVulkanDevice("no driver can be loaded").at(None)
    return _instance.value


def _missing(hardware: Hardware) -> bool:
    return any(name not in hardware.features for name in _NEEDED)


def choose(number: int | None) -> Hardware:
    """The device of a number; the best one for None."""
    found = all_hardware()
    if number is not None and not 0 <= number < len(found):
        names = ", ".join(f"{k}: {each.name}" for k, each in enumerate(found))
        raise NoSuchVulkanDevice(number, names).at(None)
    hardware = found[number or 0]
    hardware.check()
    return hardware
