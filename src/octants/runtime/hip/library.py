"""Binds the HIP runtime, libamdhip64: CUDA's functions, under the names that HIP has for them.

HIP has nearly each function of CUDA's driver with the same arguments, and the same numbers for
statuses and most options. So `HipLibrary` has HIP's functions as attributes under the names of
CUDA's, and `runtime.cuda` runs on it as it is. What differs is here: numbers of attributes,
structures of graphs, and four functions.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Collection, Mapping
from ctypes import POINTER, Structure, byref, c_char, c_int, c_uint, c_void_p
from typing import Any

from octants.runtime.c_declarations import fields
from octants.runtime.cuda import library as cuda
from octants.runtime.cuda.errors import CallFailed
from octants.runtime.cuda.library import GpuModel, LaunchConfiguration, Library
from octants.runtime.hip.errors import MissingHip, NoAmdDevice, OldHip, UnsupportedProcessor

MINIMUM_VERSION = 60200000
"""HIP 6.2, the first with hipDrvGraphAddMemsetNode."""

ATTRIBUTE_MULTIPROCESSORS = 63
ATTRIBUTE_MEMORY_POOLS = 88

PROCESSOR_OFFSET = 1160
"""Where hipDeviceProp_tR0600 has the name of the processor."""
PROPERTIES_BYTES = 4096
"""More than hipDeviceProp_tR0600 takes."""


class KernelNode(Structure):
    """hipKernelNodeParams: a launch as a graph node."""

    _fields_ = fields(
        "uint block, block_y, block_z; void* extra, function; uint grid, grid_y, grid_z; "
        "void* arguments; uint shared"
    )


class FillNode(Structure):
    """hipMemsetParams: elements of 1, 2 or 4 bytes."""

    _fields_ = fields("uint64 target; uint size; size_t height, pitch; uint value; size_t width")


class CopyNode(Structure):
    """HIP_MEMCPY3D: CUDA_MEMCPY3D without the reserved fields."""

    _fields_ = [field for field in cuda.CopyNode._fields_ if not field[0].endswith("_reserved")]


_NAMES = {
    "cuDriverGetVersion": "hipRuntimeGetVersion",
    "cuGetErrorName": "hipDrvGetErrorName",
    "cuGetErrorString": "hipDrvGetErrorString",
    "cuDeviceGetCount": "hipGetDeviceCount",
    "cuCtxSynchronize": "hipDeviceSynchronize",
    "cuMemAlloc": "hipMalloc",
    "cuMemAllocFromPoolAsync": "hipMallocFromPoolAsync",
    "cuMemFree": "hipFree",
    "cuMemFreeAsync": "hipFreeAsync",
    "cuMemFreeHost": "hipHostFree",
    "cuMemcpy2DAsync": "hipMemcpyParam2DAsync",
    "cuStreamCreate": "hipStreamCreateWithFlags",
    "cuEventCreate": "hipEventCreateWithFlags",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (
        "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"
    ),
    "cuGraphAddMemsetNode": "hipDrvGraphAddMemsetNode",
    "cuGraphAddMemcpyNode": "hipDrvGraphAddMemcpyNode",
}
"""HIP's names of functions of CUDA, where more than the first letters differ."""
_ABSENT = frozenset(
    "cuDeviceCanAccessPeer cuCtxEnablePeerAccess cuMemPoolSetAccess cuMemcpyPeerAsync"
    " cuStreamGetCtx cuLinkCreate cuLinkAddData cuLinkComplete cuLinkDestroy cuLaunchKernelEx"
    " cuGraphAddDependencies".split()
)
"""The functions of CUDA in use that HIP has not, or with other arguments, or never needs."""
_STRUCTURES: dict[Any, Any] = {
    POINTER(cuda.KernelNode): POINTER(KernelNode),
    POINTER(cuda.FillNode): POINTER(FillNode),
    POINTER(cuda.CopyNode): POINTER(CopyNode),
}

FUNCTIONS: dict[str, tuple[str, tuple[Any, ...]]] = {
    name: (
        _NAMES.get(name, name.replace("cu", "hip", 1)),
        tuple(_STRUCTURES.get(each, each) for each in types),
    )
    for symbol, types in cuda.SIGNATURES.items()
    if (name := symbol.removesuffix("_v2")) not in _ABSENT
}
"""The functions of CUDA that HIP has, by CUDA's names: HIP's, with the types of their arguments."""

OTHERS: dict[str, tuple[Any, ...]] = {
    "hipGetDevicePropertiesR0600": (c_void_p, c_int),
    "hipModuleLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, *[POINTER(c_void_p)] * 2),
    "hipStreamGetDevice": (c_void_p, POINTER(c_int)),
}
"""Functions that stand for ones of CUDA with other arguments."""


class HipLibrary(Library):
    """The functions of libamdhip64.

    Args:
        find: Maps a name in `FUNCTIONS` or `OTHERS`, and the types of its arguments, to the
            function.
        waves: The processors that code is generated for, and how many threads of each work in step.

    Raises:
        OctantsRuntimeError: the runtime is too old.
    """

    api = "HIP"
    missing_device: type[Any] = NoAmdDevice
    KernelNode, FillNode, CopyNode = KernelNode, FillNode, CopyNode  # type: ignore[assignment]
    multiprocessors_attribute = ATTRIBUTE_MULTIPROCESSORS
    cache_attribute = None
    pools_attribute = ATTRIBUTE_MEMORY_POOLS

    def __init__(
        self, find: Callable[[str, tuple[Any, ...]], Callable[..., int]], waves: Mapping[str, int]
    ) -> None:
        self._waves = waves
        super().__init__(lambda name: find(*FUNCTIONS[name]))
        self._properties, self._launch, self._device_of = (
            find(name, types) for name, types in OTHERS.items()
        )

    @property
    def symbols(self) -> Collection[str]:
        return FUNCTIONS

    def check_version(self) -> None:
        if self.driver_version < MINIMUM_VERSION:
            raise OldHip(_in_words(self.driver_version), _in_words(MINIMUM_VERSION)).at()

    def spelled(self, function: str) -> str:
        return FUNCTIONS.get(function, (function.replace("cu", "hip", 1),))[0]

    def identify(self, name: str, device: int, attribute: Callable[[int], int]) -> GpuModel:  # noqa: ARG002
        properties = (c_char * PROPERTIES_BYTES)()
        status = self._properties(properties, device)
        if status:
            function = "hipGetDevicePropertiesR0600"
            raise CallFailed(self.api, function, self.name_of(status), self.text_of(status)).at()
        described = ctypes.string_at(ctypes.addressof(properties) + PROCESSOR_OFFSET).decode()
        processor = described.partition(":")[0]
        if processor not in self._waves:
            known = ", ".join(sorted(self._waves))
            raise UnsupportedProcessor(name, processor, known).at()
        return GpuModel(processor=processor, wave=self._waves[processor])

    # -- functions of CUDA with other arguments ---------------------------------------------------

    def cuLaunchKernelEx(  # noqa: N802
        self, configuration: Any, function: Any, arguments: Any, extra: Any
    ) -> int:
        """Launch a kernel: HIP has no such function before version 7."""
        made: LaunchConfiguration = configuration._obj
        grid = made.grid, made.grid_y, made.grid_z
        block = made.block, made.block_y, made.block_z
        return self._launch(function, *grid, *block, made.shared, made.stream, arguments, extra)

    def cuStreamGetCtx(self, stream: int, context: Any) -> int:  # noqa: N802
        """Write the context of a stream, which HIP has one of for each device."""
        device = c_int()
        status = self._device_of(stream, byref(device))
        return status or self.cuDevicePrimaryCtxRetain(context, device)


def open_library(waves: Mapping[str, int]) -> HipLibrary:
    """The HIP runtime of this machine.

    Args:
        waves: As `HipLibrary` takes it.

    Raises:
        OctantsRuntimeError: there is none, or it is too old.
    """
    names = ("amdhip64_7.dll", "amdhip64_6.dll") if sys.platform == "win32" else _SHARED_OBJECTS
    library, problem = None, ""
    for name in names:
        try:
            library = ctypes.CDLL(name)
            break
        except OSError as error:
            problem = problem or str(error)
    if library is None:
        raise MissingHip(problem).at()

    def find(symbol: str, types: tuple[Any, ...]) -> Callable[..., int]:
        try:
            function = library[symbol]
        except AttributeError:
            raise MissingHip(f"{library._name} has no function `{symbol}`").at() from None
        function.restype, function.argtypes = c_int, types
        return function

    opened = HipLibrary(find, waves)
    opened.begin()
    return opened


_SHARED_OBJECTS = (
    *("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"),
    "/opt/rocm/lib/libamdhip64.so",
)


def _in_words(version: int) -> str:
    return f"{version // 10_000_000}.{version // 100_000 % 100}"
