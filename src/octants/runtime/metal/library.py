"""The methods of Metal, through libobjc and Metal.framework and nothing else.

A message is a call of one C function, `objc_msgSend`, which takes the receiver, the selector, and
the arguments of the method. So each selector of `METHODS` is an attribute of `Library`, named with
underscores for its colons: ``library.newBufferWithLength_options_(device, nbytes, 0)``.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import platform
from collections.abc import Callable, Iterator
from ctypes import CFUNCTYPE, POINTER, c_bool, c_char_p, c_int64, c_uint8, c_uint64, c_void_p
from typing import Any, Protocol

from octants.diagnostics.metal_errors import MissingMetal

OLDEST = (15,)
"""The version of macOS with Metal 3.2, which has fences and modes of floats."""


class Size(ctypes.Structure):
    """MTLSize."""

    _fields_ = (("width", c_uint64), ("height", c_uint64), ("depth", c_uint64))


class Range(ctypes.Structure):
    """NSRange."""

    _fields_ = (("start", c_uint64), ("length", c_uint64))


_FRAMEWORKS = "/System/Library/Frameworks/{0}.framework/{0}"
_P, _N = c_void_p, c_uint64

METHODS: dict[str, tuple[Any, ...]] = {
    "new": (_P,),
    "retain": (_P,),
    "release": (None,),
    "name": (_P,),
    "stringWithUTF8String:": (_P, c_char_p),
    "UTF8String": (_P,),
    "fileURLWithPath:": (_P, _P),
    "arrayWithObject:": (_P, _P),
    "localizedDescription": (_P,),
    "supportsFamily:": (c_bool, c_int64),
    "recommendedMaxWorkingSetSize": (_N,),
    "maxBufferLength": (_N,),
    "maxThreadgroupMemoryLength": (_N,),
    "newCommandQueue": (_P,),
    "newSharedEvent": (_P,),
    "newBufferWithLength:options:": (_P, _N, _N),
    "contents": (_P,),
    "gpuAddress": (_N,),
    "setLanguageVersion:": (None, _N),
    "setMathMode:": (None, c_int64),
    "setMathFloatingPointFunctions:": (None, c_int64),
    "newLibraryWithSource:options:error:": (_P, _P, _P, POINTER(_P)),
    "newFunctionWithName:": (_P, _P),
    "setComputeFunction:": (None, _P),
    "setBinaryArchives:": (None, _P),
    "newComputePipelineStateWithDescriptor:options:reflection:error:": (
        *(_P, _P, _N, _P),
        POINTER(_P),
    ),
    "maxTotalThreadsPerThreadgroup": (_N,),
    "threadExecutionWidth": (_N,),
    "setUrl:": (None, _P),
    "newBinaryArchiveWithDescriptor:error:": (_P, _P, POINTER(_P)),
    "addComputePipelineFunctionsWithDescriptor:error:": (c_bool, _P, POINTER(_P)),
    "serializeToURL:error:": (c_bool, _P, POINTER(_P)),
    "commandBuffer": (_P,),
    "computeCommandEncoder": (_P,),
    "blitCommandEncoder": (_P,),
    "setComputePipelineState:": (None, _P),
    "setBytes:length:atIndex:": (None, _P, _N, _N),
    "useResources:count:usage:": (None, _P, _N, _N),
    "memoryBarrierWithScope:": (None, _N),
    "dispatchThreadgroups:threadsPerThreadgroup:": (None, Size, Size),
    "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:": (None, _P, _N, _P, _N, _N),
    "fillBuffer:range:value:": (None, _P, Range, c_uint8),
    "endEncoding": (None,),
    "encodeSignalEvent:value:": (None, _P, _N),
    "commit": (None,),
    "waitUntilCompleted": (None,),
    "status": (_N,),
    "error": (_P,),
    "signaledValue": (_N,),
    "waitUntilSignaledValue:timeoutMS:": (c_bool, _N, _N),
}
"""The result and the arguments of each method, as types of C."""


class System(Protocol):
    """The system that has Metal's functions."""

    version: tuple[int, ...]
    build: str

    def selector(self, name: str) -> int:
        """The selector of a method, which stands for its name."""

    def send(self, name: str) -> int:
        """The address of the C function that sends messages of a selector."""

    def find_class(self, name: str) -> int:
        """A class."""

    def default_device(self) -> int:
        """The GPU; 0 if there is none."""

    def push_pool(self) -> int:
        """Begin to collect what methods return without an owner."""

    def pop_pool(self, pool: int) -> None:
        """Release what was collected since."""


class MacSystem:
    """The libraries of macOS."""

    def __init__(self) -> None:
        self.version = tuple(map(int, platform.mac_ver()[0].split(".")))
        self.build = f"{platform.mac_ver()[0]} {platform.version()}"
        self._objc = ctypes.CDLL("/usr/lib/libobjc.A.dylib")
        # A program without a window has no default device until CoreGraphics is loaded.
        self._graphics = ctypes.CDLL(_FRAMEWORKS.format("CoreGraphics"))
        self._metal = ctypes.CDLL(_FRAMEWORKS.format("Metal"))
        for name in ("sel_registerName", "objc_getClass", "objc_autoreleasePoolPush"):
            getattr(self._objc, name).restype = c_void_p
        self._metal.MTLCreateSystemDefaultDevice.restype = c_void_p
        self._send = ctypes.cast(self._objc.objc_msgSend, c_void_p).value or 0

    def selector(self, name: str) -> int:
        return int(self._objc.sel_registerName(name.encode()))

    def send(self, _: str) -> int:
        return self._send

    def find_class(self, name: str) -> int:
        return self._objc.objc_getClass(name.encode()) or 0

    def default_device(self) -> int:
        return self._metal.MTLCreateSystemDefaultDevice() or 0

    def push_pool(self) -> int:
        return self._objc.objc_autoreleasePoolPush() or 0

    def pop_pool(self, pool: int) -> None:
        self._objc.objc_autoreleasePoolPop(c_void_p(pool))


class Library:
    """The methods of `METHODS` as attributes, which take the receiver first."""

    def __init__(self, system: System) -> None:
        self.system = system
        for name, (result, *arguments) in METHODS.items():
            kind = CFUNCTYPE(result, _P, _P, *arguments)
            send, selector = kind(system.send(name)), c_void_p(system.selector(name))
            setattr(self, name.replace(":", "_"), _method(send, selector))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(name)

    def make(self, name: str) -> int:
        """A new object of a class."""
        found: int = self.new(self.system.find_class(name))
        return found

    def string(self, text: bytes) -> int:
        """A string, which belongs to the pool."""
        kind = self.system.find_class("NSString")
        found: int = self.stringWithUTF8String_(kind, text)
        return found

    def text(self, string: int | None) -> str:
        """The text of a string."""
        data = self.UTF8String(string) if string else None
        return ctypes.string_at(data).decode(errors="replace") if data else ""

    def describe(self, error: int | None) -> str:
        """The message of an error."""
        return self.text(self.localizedDescription(error)) if error else "no reason is given"

    @contextlib.contextmanager
    def pool(self) -> Iterator[None]:
        """Release what methods return without an owner."""
        pool = self.system.push_pool()
        try:
            yield
        finally:
            self.system.pop_pool(pool)


def _method(send: Any, selector: c_void_p) -> Callable[..., Any]:
    def method(receiver: Any, *arguments: Any) -> Any:
        return send(receiver, selector, *arguments)

    return method


@functools.cache
def library() -> Library:
    """Metal; `OctantsRuntimeError` where there is none."""
    if platform.system() != "Darwin":
        raise MissingMetal("it is a part of macOS only").at()
    try:
        system = MacSystem()
    except (OSError, AttributeError) as error:
        raise MissingMetal(str(error)).at() from None
    return check_version(Library(system))


def check_version(found: Library) -> Library:
    """A library of a system that is new enough; `OctantsRuntimeError` for others."""
    if found.system.version < OLDEST:
        version = ".".join(map(str, found.system.version))
        raise MissingMetal(f"macOS {version} has no Metal 3.2").at()
    return found
