"""Bindings of libcuda: functions, argument types, structures and constants.

Nothing else of CUDA is needed: the driver compiles PTX itself. A function is an attribute of
`Library` under its name in CUDA's manual. Where the library exports several versions under names
like ``cuMemAlloc_v2``, it is the newest one that driver `MINIMUM_DRIVER` has.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Collection
from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_ubyte,
    c_uint,
    c_uint64,
    c_ushort,
    c_void_p,
)
from typing import Any, NamedTuple

from octants.runtime.c_declarations import fields
from octants.runtime.cuda.errors import MissingDriver, NoDevice, OldDevice, OldDriver

MINIMUM_DRIVER = 11080
"""CUDA 11.8, the first with cuLaunchKernelEx."""
MINIMUM_CAPABILITY = (7, 5)

SUCCESS = 0
OUT_OF_MEMORY = 2
INVALID_CONTEXT = 201
INVALID_HANDLE = 400
NOT_READY = 600
ACCESS_ENABLED = 704

LOST = {214, 220, 700, 702, 708, 709, 710, 714, 715, 716, 717, 718, 719, 999}
"""Statuses after which a context is unusable: illegal addresses, traps, time limits, ..."""

ATTRIBUTE_MULTIPROCESSORS = 16
ATTRIBUTE_CACHE_BYTES = 38
ATTRIBUTE_MAJOR = 75
ATTRIBUTE_MINOR = 76
ATTRIBUTE_MEMORY_POOLS = 115

POOL_RELEASE_THRESHOLD = 4
POOL_RESERVED = 5  # the bytes that the pool has from the system
LOCATION_DEVICE = 1
ALLOCATION_PINNED = 1
READ_AND_WRITE = 3

JIT_ERROR_LOG = 5
JIT_ERROR_LOG_SIZE = 6

INPUT_PTX = 1

FUNCTION_MAX_THREADS = 0

POINTER_ORDINAL = 9

EVENT_NO_TIMING = 2


class PoolProperties(Structure):
    """CUmemPoolProps: what memory of a pool is like, and where."""

    _fields_ = fields(
        "int allocation, handles, location, ordinal; void* security; size_t most; "
        "ushort usage; ubyte reserved[54]"
    )


class PoolAccess(Structure):
    """CUmemAccessDesc: who may access the memory of a pool, and how."""

    _fields_ = fields("int location, ordinal, access")


class RowCopy(Structure):
    """CUDA_MEMCPY2D: pieces at equal distances, and where they go."""

    _fields_ = fields(
        "size_t source_x, source_y; uint source_kind; void* source_host; uint64 source; "
        "void* source_array; size_t source_pitch, target_x, target_y; uint target_kind; "
        "void* target_host; uint64 target; void* target_array; size_t target_pitch, width, "
        "height"
    )


ON_HOST = 1  # CU_MEMORYTYPE_HOST
ON_DEVICE = 2  # CU_MEMORYTYPE_DEVICE
MOST_PITCH = 2**31 - 1


class LaunchConfiguration(Structure):
    """CUlaunchConfig: how many threads run a function, and where."""

    _fields_ = fields(
        "uint grid, grid_y, grid_z, block, block_y, block_z, shared; void* stream, attributes; "
        "uint attribute_count"
    )


class KernelNode(Structure):
    """CUDA_KERNEL_NODE_PARAMS of its first version: a launch as a node of a graph."""

    _fields_ = fields(
        "void* function; uint grid, grid_y, grid_z, block, block_y, block_z, shared; "
        "void* arguments, extra"
    )


class FillNode(Structure):
    """CUDA_MEMSET_NODE_PARAMS of its first version: elements of 1, 2 or 4 bytes."""

    _fields_ = fields("uint64 target; size_t pitch; uint value, size; size_t width, height")


class CopyNode(Structure):
    """CUDA_MEMCPY3D: as `RowCopy`, with depth."""

    _fields_ = fields(
        "size_t source_x, source_y, source_z, source_level; uint source_kind; "
        "void* source_host; uint64 source; void* source_array, source_reserved; "
        "size_t source_pitch, source_height, target_x, target_y, target_z, target_level; "
        "uint target_kind; void* target_host; uint64 target; void* target_array, "
        "target_reserved; size_t target_pitch, target_height, width, height, depth"
    )


class EdgeKind(Structure):
    """CUgraphEdgeData: what a node of a graph waits for; by default, for the end of another one."""

    _fields_ = fields("ubyte from_port, to_port, type, reserved[5]")


STARTED_EARLY = EdgeKind(1, 0, 1)
"""The edge to a launch that starts before the one before it has ended: it waits for that itself."""

_HANDLE = POINTER(c_void_p)

SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (POINTER(c_char), c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDevicePrimaryCtxRetain": (_HANDLE, c_int),
    "cuCtxGetCurrent": (_HANDLE,),
    "cuCtxGetDevice": (POINTER(c_int),),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (_HANDLE,),
    "cuDeviceCanAccessPeer": (POINTER(c_int), c_int, c_int),
    "cuCtxEnablePeerAccess": (c_void_p, c_uint),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemPoolCreate": (_HANDLE, POINTER(PoolProperties)),
    "cuMemPoolSetAttribute": (c_void_p, c_int, c_void_p),
    "cuMemPoolGetAttribute": (c_void_p, c_int, POINTER(c_uint64)),
    "cuMemPoolSetAccess": (c_void_p, POINTER(PoolAccess), c_size_t),
    "cuMemPoolTrimTo": (c_void_p, c_size_t),
    "cuMemAllocFromPoolAsync": (POINTER(c_uint64), c_size_t, c_void_p, c_void_p),
    "cuMemFreeAsync": (c_uint64, c_void_p),
    "cuMemAllocHost_v2": (_HANDLE, c_size_t),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemcpyDtoDAsync_v2": (c_uint64, c_uint64, c_size_t, c_void_p),
    "cuMemcpy2DAsync_v2": (c_void_p, c_void_p),
    "cuMemcpyPeerAsync": (c_uint64, c_void_p, c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemsetD8Async": (c_uint64, c_ubyte, c_size_t, c_void_p),
    "cuMemsetD16Async": (c_uint64, c_ushort, c_size_t, c_void_p),
    "cuMemsetD32Async": (c_uint64, c_uint, c_size_t, c_void_p),
    "cuStreamCreate": (_HANDLE, c_uint),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamQuery": (c_void_p,),
    "cuStreamGetCtx": (c_void_p, _HANDLE),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuEventCreate": (_HANDLE, c_uint),
    "cuEventDestroy_v2": (c_void_p,),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventQuery": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuModuleLoadDataEx": (_HANDLE, c_void_p, c_uint, POINTER(c_int), _HANDLE),
    "cuModuleUnload": (c_void_p,),
    "cuLinkCreate_v2": (c_uint, POINTER(c_int), _HANDLE, _HANDLE),
    "cuLinkAddData_v2": (
        *(c_void_p, c_int, c_void_p, c_size_t, c_char_p, c_uint, POINTER(c_int), _HANDLE),
    ),
    "cuLinkComplete": (c_void_p, _HANDLE, POINTER(c_size_t)),
    "cuLinkDestroy": (c_void_p,),
    "cuModuleGetFunction": (_HANDLE, c_void_p, c_char_p),
    "cuFuncGetAttribute": (POINTER(c_int), c_int, c_void_p),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (POINTER(c_int), c_void_p, c_int, c_size_t),
    "cuLaunchKernelEx": (POINTER(LaunchConfiguration), c_void_p, _HANDLE, _HANDLE),
    "cuPointerGetAttribute": (c_void_p, c_int, c_uint64),
    "cuGraphCreate": (_HANDLE, c_uint),
    "cuGraphDestroy": (c_void_p,),
    "cuGraphAddKernelNode": (_HANDLE, c_void_p, _HANDLE, c_size_t, POINTER(KernelNode)),
    "cuGraphAddMemsetNode": (_HANDLE, c_void_p, _HANDLE, c_size_t, POINTER(FillNode), c_void_p),
    "cuGraphAddMemcpyNode": (_HANDLE, c_void_p, _HANDLE, c_size_t, POINTER(CopyNode), c_void_p),
    "cuGraphAddDependencies_v2": (c_void_p, _HANDLE, _HANDLE, POINTER(EdgeKind), c_size_t),
    "cuGraphInstantiateWithFlags": (_HANDLE, c_void_p, c_uint64),
    "cuGraphExecKernelNodeSetParams": (c_void_p, c_void_p, POINTER(KernelNode)),
    "cuGraphExecDestroy": (c_void_p,),
    "cuGraphLaunch": (c_void_p, c_void_p),
}
"""The symbols in use, with the types of their arguments. All return a CUresult."""

_SINCE = {"cuGraphAddDependencies_v2": 12030}
"""The drivers of functions that older ones do without."""

_UNCHECKED = {"cuCtxGetCurrent", "cuLaunchKernelEx", "cuGraphLaunch"}
"""Functions that callers give arguments of exact types, whose conversion would double the cost."""


class GpuModel(NamedTuple):
    """The model of a GPU: the compute capability for NVIDIA, the name of the processor for AMD.

    `wave` is the number of threads that work in step; blocks are multiples of it.
    """

    capability: tuple[int, int] = (0, 0)
    processor: str = ""
    wave: int = 32


class Library:
    """The functions of libcuda.

    Args:
        find: Maps a name in `SIGNATURES` to the function.

    Raises:
        OctantsRuntimeError: the driver is too old.
    """

    api = "CUDA"
    missing_device: type[Any] = NoDevice
    KernelNode, FillNode, CopyNode = KernelNode, FillNode, CopyNode
    multiprocessors_attribute = ATTRIBUTE_MULTIPROCESSORS
    cache_attribute: int | None = ATTRIBUTE_CACHE_BYTES
    pools_attribute = ATTRIBUTE_MEMORY_POOLS

    def __init__(self, find: Callable[[str], Callable[..., int]]) -> None:
        self.driver_version = _version(find("cuDriverGetVersion"))
        self.check_version()
        self.has_early_starts = "cuGraphAddDependencies_v2" in self.symbols
        for symbol in self.symbols:
            setattr(self, symbol.partition("_v2")[0], find(symbol))
        self._shared_objects: dict[tuple[str, int], Any] = {}
        self._start: threading.Thread | None = None
        self._started: int | None = None

    @property
    def symbols(self) -> Collection[str]:
        """The functions in use."""
        return [name for name in SIGNATURES if _SINCE.get(name, 0) <= self.driver_version]

    def check_version(self) -> None:
        """Check that the driver is new enough."""
        if self.driver_version < MINIMUM_DRIVER:
            has, needs = (_in_words(each) for each in (self.driver_version, MINIMUM_DRIVER))
            raise OldDriver(has, needs).at()

    def spelled(self, function: str) -> str:
        """The name that a function of `SIGNATURES` has in this library."""
        return function

    def identify(self, name: str, device: int, attribute: Callable[[int], int]) -> GpuModel:  # noqa: ARG002
        """Describe a GPU.

        Args:
            name: Its name, for the error.
            device: The driver's handle of it.
            attribute: The value of an attribute with a number.

        Raises:
            OctantsRuntimeError: no code is generated for it.
        """
        capability = attribute(ATTRIBUTE_MAJOR), attribute(ATTRIBUTE_MINOR)
        if capability < MINIMUM_CAPABILITY:
            has, needs = (".".join(map(str, v)) for v in (capability, MINIMUM_CAPABILITY))
            raise OldDevice(name, has, needs).at()
        return GpuModel(capability)

    def begin(self) -> None:
        """Start the driver in a thread, which takes a tenth of a second; see `started`."""
        self._start = threading.Thread(target=self._begin, name="octants driver")
        self._start.start()

    def _begin(self) -> None:
        self._started = self.cuInit(0)

    def started(self) -> int:
        """Start the driver, or wait until it has started; return its status."""
        if self._start is not None:
            self._start.join()
            self._start = None
        if self._started != SUCCESS:  # or perhaps it can be now
            self._begin()
        assert self._started is not None
        return self._started

    def __getattr__(self, name: str) -> Callable[..., int]:
        raise AttributeError(f"no function `{name}` of CUDA is used")

    def shared_object(self, what: str, ordinal: int, make: Callable[[], Any]) -> Any:
        """An object that a GPU has one of, created on first use, alive until the process ends."""
        if (what, ordinal) not in self._shared_objects:
            self._shared_objects[what, ordinal] = make()
        return self._shared_objects[what, ordinal]

    def find_shared_object(self, what: str, ordinal: int) -> Any:
        """The same object; None if it has not been created."""
        return self._shared_objects.get((what, ordinal))

    def name_of(self, status: int) -> str:
        """The name of a status: ``CUDA_ERROR_INVALID_VALUE``."""
        return self._word(self.cuGetErrorName, status) or f"error {status}"

    def text_of(self, status: int) -> str:
        """The description of a status: ``invalid argument``."""
        return self._word(self.cuGetErrorString, status) or "an unknown error"

    def _word(self, function: Callable[..., int], status: int) -> str:
        text = c_char_p()
        function(status, ctypes.byref(text))
        return (text.value or b"").decode(errors="replace")


def open_library() -> Library:
    """The driver of this machine.

    Raises:
        OctantsRuntimeError: there is none, or it is too old.
    """
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise MissingDriver(str(error)).at() from None

    def find(symbol: str) -> Callable[..., int]:
        try:
            function = library[symbol]
        except AttributeError:
            raise MissingDriver(f"{name} has no function `{symbol}`").at() from None
        function.restype = c_int
        if symbol not in _UNCHECKED:
            function.argtypes = SIGNATURES[symbol]
        return function

    opened = Library(find)
    opened.begin()
    return opened


def _version(function: Callable[..., int]) -> int:
    version = c_int()
    function(ctypes.byref(version))
    return version.value


def _in_words(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def words(count: int) -> ctypes.Array[c_int64]:
    """An array of ``count`` zeroed words in host memory, at a fixed address."""
    return (c_int64 * count)()
