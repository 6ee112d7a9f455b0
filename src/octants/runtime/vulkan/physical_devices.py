"""The physical devices that Vulkan lists, best first, and their features."""

from __future__ import annotations

import copy
import functools
import itertools
from ctypes import addressof, byref, c_char_p, c_int32, c_uint32, c_void_p
from typing import Any

from octants import options
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.launch_errors import WrongOption
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
from octants.target import Blocks, Target

_VERSION = 1 << 22 | 2 << 12  # Vulkan 1.2
_BEST_FIRST = (2, 1, 3, 0, 4)  # discrete, integrated, virtual, other, the CPU
_CPU = 4
_NVIDIA = 0x10DE
_GRAPHICS, _COMPUTE = 1, 2
_DEVICE_LOCAL_HEAP = 1
_STORAGE_RANGE = 7  # of `DeviceProperties.limits`: the bytes of a buffer that is bound
_MOST_PUSHED = 8  # the same: the bytes that a launch pushes
_BITS = {
    "float64": (0, 39),
    "int64": (0, 40),
    "int16": (0, 41),
    "storage16": (1, 0),
    "storage8": (2, 2),
    "atomic64": (2, 5),
    "shared64": (2, 6),
    "int8": (2, 8),
    "timeline": (2, 37),
    "addresses": (2, 38),
    "add32": (3, 1),
    "add64": (3, 3),
    "sized": (4, 0),
    "whole": (4, 1),
}
"""The location of each feature: a structure of `query_features`, and a position in it."""
_IN_COMPUTE, _EXCHANGES = 0x20, 0b11001  # of `SubgroupProperties`: basic, ballot, shuffle
_SHARED_BYTES, _MOST_ITEMS, _LONGEST_BLOCK = 54, 58, 59  # of the limits, in words
_MOST_BLOCK_DIM = 1024
_NARROW_BYTES = 1 << 31  # an i32 holds the offset of each element
_INDEPENDENT = 1  # of `FloatControls`: 2 says that widths must agree
_ATOMIC_FLOAT = b"VK_EXT_shader_atomic_float"
_SUBGROUP_SIZE = b"VK_EXT_subgroup_size_control"
_STRUCTURES: tuple[tuple[Any, bytes], ...] = (
    (vk.Features, b""),
    (vk.Features11, b""),
    (vk.Features12, b""),
    (vk.AtomicFloatFeatures, _ATOMIC_FLOAT),
    (vk.SubgroupSizeFeatures, _SUBGROUP_SIZE),
)
"""The structures of features, with the extension that each belongs to, if any."""
PORTABLE_DRIVERS, _ENUMERATE_PORTABLE = b"VK_KHR_portability_enumeration", 1
PORTABLE_SUBSET = b"VK_KHR_portability_subset"
"""Extensions of drivers that are not all of Vulkan, such as MoltenVK. Kernels need nothing of what
may be missing; but the loader hides such drivers, and devices require that their users know."""
_NEEDED = {"timeline": "timeline semaphores (timelineSemaphore)"}


class Hardware:
    """A physical device. `features` are those of `codegen.structured.features`.

    It allows allocations of `largest` bytes, if it has a limit.
    """

    def __init__(self, functions: Functions, handle: int) -> None:
        self.functions = functions
        self.handle = c_void_p(handle)
        self.extensions = self._extensions()
        properties, controls = vk.Properties2(), vk.FloatControls()
        limits, self._subgroups = vk.MemoryLimits(), vk.SubgroupProperties()
        properties.next, controls.next = addressof(controls), addressof(limits)
        limits.next = addressof(self._subgroups)
        self._sizes = vk.SubgroupSizeLimits()
        if _SUBGROUP_SIZE in self.extensions:
            self._subgroups.next = addressof(self._sizes)
        functions.vkGetPhysicalDeviceProperties2(self.handle, byref(properties))
        self.properties = properties.properties
        self.largest = limits.largest_allocation or 1 << 62
        self.name: str = self.properties.name.decode(errors="replace")
        self.has_version = self.properties.api_version >= _VERSION
        self.features = self._features(controls) if self.has_version else frozenset()

    def leaving(self, names: str) -> Hardware:
        """The same device without some features, given as names separated by commas.

        Without `masks`, a CPU gets the code of GPUs, whose subgroups combine updates.

        Raises:
            OctantsRuntimeError: there is no feature of that name, on any device.
        """
        left = frozenset(filter(None, names.split(",")))
        if self.has_version and not left <= self._known_features:
            wanted = f"some of {', '.join(sorted(self._known_features))}, with commas between them"
            raise WrongOption("vulkan_without", wanted, repr(names)).at()
        fewer = copy.copy(self)
        fewer.features = self.features - left
        if "masks" in self.features & left:
            fewer.features |= {"gathers"}
        return fewer

    @property
    def rank(self) -> int:
        """The rank of the device's type; 0 is best."""
        kind = self.properties.type
        return _BEST_FIRST.index(kind) if kind in _BEST_FIRST else len(_BEST_FIRST)

    @property
    def is_cpu(self) -> bool:
        """Whether the driver runs on the CPU."""
        return bool(self.properties.type == _CPU)

    @property
    def flaw(self) -> str:
        """A known defect of its driver; "" if there is none.

        NVIDIA's compiler (580.159) computes 64-bit values with too few bits: see `splits`.
        """
        if self.properties.vendor != _NVIDIA or "splits" in self.features:
            return ""
        return "NVIDIA's compiler for Vulkan gets integers of 64 bits wrong"

    @property
    def copies_slowly(self) -> bool:
        """Whether its driver copies at a fraction of the speed of its memory.

        NVIDIA's (580.159) copies 256 MB in 0.63 ms on an H200, and a kernel in 0.13.
        """
        return bool(self.properties.vendor == _NVIDIA)

    @property
    def is_bound(self) -> bool:
        """Whether kernels access memory as one bound buffer instead of by address."""
        return not self.features >= {"addresses", "int64"}

    @property
    def memory_bytes(self) -> int:
        """The memory that kernels can access, in bytes."""
        if not self.is_bound:
            return self._memory
        reached: int = self.properties.limits[_STORAGE_RANGE]
        return min(self._memory // 2, self.largest, reached)

    @property
    def _memory(self) -> int:
        """The size of the largest heap that is local to the device, in bytes."""
        properties = self.memory_properties()
        heaps = [properties.heaps[k] for k in range(properties.heap_count)]
        return max(int(heap.size) for heap in heaps if heap.flags & _DEVICE_LOCAL_HEAP)

    def memory_properties(self) -> Any:
        """Its memory types and heaps."""
        properties = vk.MemoryProperties()
        self.functions.vkGetPhysicalDeviceMemoryProperties(self.handle, byref(properties))
        return properties

    def check(self) -> None:
        """Raise `OctantsRuntimeError` unless kernels can run."""
        missing = [text for name, text in _NEEDED.items() if name not in self.features]
        if not self.has_version:
            missing = ["Vulkan 1.2"]
        if missing:
            raise UnfitVulkanDevice(self.name, ", ".join(missing)).at()

    @property
    def target(self) -> Target:
        """The target that code is generated for."""
        features = ",".join(sorted(self.features))
        return Target("vulkan", "spirv1.5-vulkan1.2", self.name, features, blocks=self.blocks)

    @property
    def blocks(self) -> Blocks:
        """The features for cooperative work items."""
        limits = (c_uint32 * 126).from_buffer_copy(self.properties.limits)
        most = min(limits[_MOST_ITEMS], limits[_LONGEST_BLOCK], _MOST_BLOCK_DIM)
        lanes = self._subgroups.size if "lanes" in self.features else 1
        block_dim = min(Blocks().block_dim, most)
        return Blocks(lanes, block_dim, most // lanes * lanes, limits[_SHARED_BYTES])

    def family(self) -> int:
        """The index of the queue family that runs kernels.

        On NVIDIA's GPUs it is one without graphics, if there is one: submissions follow each other
        sooner there, on an H200 after 8 us instead of 14.
        """
        count = c_uint32()
        ask = self.functions.vkGetPhysicalDeviceQueueFamilyProperties
        ask(self.handle, byref(count), None)
        families = (vk.QueueFamily * count.value)()
        ask(self.handle, byref(count), families)
        found = [number for number, family in enumerate(families) if family.flags & _COMPUTE]
        if self.properties.vendor == _NVIDIA:
            found.sort(key=lambda number: families[number].flags & _GRAPHICS)
        if found:
            return found[0]
        raise UnfitVulkanDevice(self.name, "a queue for compute").at()

    def _has_lanes(self) -> bool:
        found = self._subgroups
        is_there = found.stages & _IN_COMPUTE and found.operations & _EXCHANGES == _EXCHANGES
        return bool(is_there) and found.size <= 64

    @property
    def most_sized(self) -> int:
        """The most threads of a block with a required subgroup size."""
        most: int = self._sizes.most_in_block * self._subgroups.size
        return most

    def _takes_size(self) -> bool:
        """Whether the subgroup size that it reports can be required."""
        sizes = self._sizes
        fits = sizes.least <= self._subgroups.size <= sizes.most
        return bool(fits and sizes.stages & _IN_COMPUTE)

    def _extensions(self) -> frozenset[bytes]:
        count, ask = c_uint32(), self.functions.vkEnumerateDeviceExtensionProperties
        ask(self.handle, None, byref(count), None)
        found = (vk.ExtensionProperties * count.value)()
        ask(self.handle, None, byref(count), found)
        return frozenset(each.name for each in found)

    def _features(self, controls: Any) -> frozenset[str]:
        asked = query_features(self)
        found = {
            **{name: asked[kind].values[position] for name, (kind, position) in _BITS.items()},
            "lanes": self._has_lanes(),
            "fences": not self.is_cpu,
            "gathers": not self.is_cpu,
            "fuses": not self.is_cpu,
            "masks": self.is_cpu,
            "cuts": "llvmpipe" in self.name,
            "lanewise": "llvmpipe" in self.name and self.largest <= _NARROW_BYTES,
            "rounds64": "llvmpipe" not in self.name,  # without AVX-512: round(1.5) is 1
            "splits": self.properties.vendor == _NVIDIA,
            "estimates": self.properties.vendor == _NVIDIA,
            "selects": self.properties.vendor == _NVIDIA,
            "crowds": self.properties.vendor == _NVIDIA,
            "push256": self.properties.limits[_MOST_PUSHED] >= 256,
            **_float_modes(controls),
        }
        found["whole"] &= found["sized"] and self._takes_size()
        self._known_features = frozenset(found)
        return frozenset(name for name, value in found.items() if value)


def _float_modes(controls: Any) -> dict[str, int]:
    """The float modes that can be set for each width on its own."""
    values = controls.values
    modes = {f"nan{bits}": values[2 + k] for k, bits in enumerate((16, 32, 64))}
    for name, offset, independence in (("denormals", 5, values[0]), ("rte", 11, values[1])):
        for k, bits in enumerate((16, 32, 64)):
            is_free = independence <= _INDEPENDENT or all(values[offset : offset + 3])
            modes[f"{name}{bits}"] = values[offset + k] if is_free else 0
    return modes


def query_features(hardware: Hardware) -> tuple[Any, ...]:
    """The structures of the features of a device, each pointing to the next one."""
    found = _chain(hardware)
    hardware.functions.vkGetPhysicalDeviceFeatures2(hardware.handle, byref(found[0]))
    return found


def used_features(hardware: Hardware) -> tuple[Any, ...]:
    """The structures of features with only those set that kernels use, for creating a device."""
    wanted = _chain(hardware)
    for name, (kind, position) in _BITS.items():
        wanted[kind].values[position] = int(name in hardware.features)
    return wanted


def used_extensions(hardware: Hardware) -> list[bytes]:
    """The extensions to enable."""
    names = [name for _, name in _STRUCTURES] + [PORTABLE_SUBSET]
    return [name for name in names if name in hardware.extensions]


def _chain(hardware: Hardware) -> tuple[Any, ...]:
    """The structures of features, linked if the device knows them."""
    chain = tuple(kind() for kind, _ in _STRUCTURES)
    known = [
        each
        for each, (_, extension) in zip(chain, _STRUCTURES, strict=True)
        if not extension or extension in hardware.extensions
    ]
    for one, following in itertools.pairwise(known):
        one.next = addressof(following)
    return chain


# -- all devices --------------------------------------------------------------------------------


@functools.cache
def all_hardware() -> tuple[Hardware, ...]:
    """The physical devices, best first, of an instance that stays until the process ends.

    Raises:
        OctantsRuntimeError: there is none.
    """
    instance = _make_instance()
    functions = instance_functions(instance)
    found = [Hardware(functions, handle) for handle in _handles(functions, instance)]
    if not found:
        reason = "; that of a GPU may lack the right to open it, in /dev/dri on Linux"
        raise NoVulkanDevice(f"no driver offers one{_chosen()}{reason}").at()
    return tuple(sorted(found, key=lambda each: (bool(_missing(each)), each.rank)))


def _handles(functions: Functions, instance: int) -> list[int]:
    """The handles of the physical devices; empty if no driver is installed."""
    count, ask = c_uint32(), functions.vkEnumeratePhysicalDevices
    try:
        if ask(instance, byref(count), None) != SUCCESS or not count.value:
            return []
        handles = (c_void_p * count.value)()
        ask(instance, byref(count), handles)
    except OctantsError:
        return []
    return [handle for handle in handles if handle]


def _make_instance() -> int:
    create = global_function("vkCreateInstance", c_int32, c_void_p, c_void_p, c_void_p)
    application = vk.ApplicationInfo(application=b"octants", api_version=_VERSION)
    info = vk.InstanceCreateInfo(application=addressof(application))
    if PORTABLE_DRIVERS in _instance_extensions():
        info.flags, info.extension_count = _ENUMERATE_PORTABLE, 1
        info.extensions = (c_char_p * 1)(PORTABLE_DRIVERS)
    instance = c_void_p()
    try:
        status = create(byref(info), None, byref(instance))
    except OctantsError as error:  # a loader without drivers
        raise NoVulkanDevice(f"no driver can be loaded{_chosen()}").at() from error
    if status != SUCCESS or not instance.value:
        raise NoVulkanDevice(f"no driver can be loaded{_chosen()}").at()
    return instance.value


def _instance_extensions() -> frozenset[bytes]:
    """The extensions of instances that the loader offers."""
    kinds = (c_int32, c_char_p, c_void_p, c_void_p)
    ask, count = global_function("vkEnumerateInstanceExtensionProperties", *kinds), c_uint32()
    try:
        ask(None, byref(count), None)
        found = (vk.ExtensionProperties * count.value)()
        ask(None, byref(count), found)
    except OctantsError:  # creating the instance will fail, too
        return frozenset()
    return frozenset(each.name for each in found)


def _chosen() -> str:
    """The drivers that environment variables select for the loader."""
    chosen = [f"{name} is `{value}`" for name, value in options.vulkan_choices().items()]
    return f" ({', '.join(chosen)})" if chosen else ""


def _missing(hardware: Hardware) -> bool:
    return any(name not in hardware.features for name in _NEEDED)


@functools.cache
def choose(number: int | None, without: str = "") -> Hardware:
    """The device at a position in `all_hardware`; None: the best one.

    See `Hardware.leaving` for ``without``.
    """
    found = all_hardware()
    if number is not None and not 0 <= number < len(found):
        names = ", ".join(f"{k}: {each.name}" for k, each in enumerate(found))
        raise NoSuchVulkanDevice(number, names).at()
    hardware = found[number or 0].leaving(without)
    hardware.check()
    return hardware
