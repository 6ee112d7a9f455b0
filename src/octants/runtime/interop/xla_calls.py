"""Python functions as custom calls of XLA, by its foreign function interface and ctypes.

XLA calls a C function with a call frame: pointers to the elements of arguments and results, and
attributes, of which there is one here, the key of a `XlaCall`. The function is one of Python behind
a pointer that ctypes makes, so that nothing is compiled. The structures are those of version 0 of
the interface; all changes within a version add fields behind them.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
import os
import traceback
import weakref
from collections.abc import Callable
from ctypes import POINTER, Structure, c_void_p, cast
from typing import Any

from octants.runtime.c_declarations import fields

_METADATA = 1
_EXECUTE = 3
_INTERNAL = 13
_HEAD = "size_t struct_size; void* extension"


class _Extension(Structure):
    _fields_ = fields("size_t struct_size; int type; void* next")


class _Version(Structure):
    _fields_ = fields(f"{_HEAD}; int major, minor")


class _Metadata(Structure):
    _fields_ = fields(
        "size_t struct_size; _Version version; uint32 traits; int64 state_type", _Version
    )


class _MetadataExtension(Structure):
    _fields_ = fields("_Extension base; _Metadata* metadata", _Extension, _Metadata)


class _Api(Structure):
    _fields_ = fields(
        f"{_HEAD}; _Version version; void* internal, create_error, message_of_error, "
        "destroy_error, register_handler, get_stream",
        _Version,
    )


class _ErrorArguments(Structure):
    _fields_ = fields(f"{_HEAD}; char* message; int code")


class _DestroyArguments(Structure):
    _fields_ = fields(f"{_HEAD}; void* error")


class _StreamArguments(Structure):
    _fields_ = fields(f"{_HEAD}; void* context, stream")


class _Buffer(Structure):
    _fields_ = fields(f"{_HEAD}; int dtype; void* data; int64 rank; int64* dims")


class _Buffers(Structure):
    _fields_ = fields(f"{_HEAD}; int64 size; void* types; _Buffer** buffers", _Buffer)


class _Scalar(Structure):
    _fields_ = fields("int dtype; int64* value")


class _Attributes(Structure):
    _fields_ = fields(f"{_HEAD}; int64 size; void* types, names; _Scalar** scalars", _Scalar)


class _Frame(Structure):
    _fields_ = fields(
        f"{_HEAD}; _Api* api; void* context; int32 stage; _Buffers arguments, results; "
        "_Attributes attributes",
        *(_Api, _Buffers, _Attributes),
    )


_CREATE_ERROR = ctypes.CFUNCTYPE(c_void_p, POINTER(_ErrorArguments))
_DESTROY_ERROR = ctypes.CFUNCTYPE(None, POINTER(_DestroyArguments))
_GET_STREAM = ctypes.CFUNCTYPE(c_void_p, POINTER(_StreamArguments))
_HANDLER = ctypes.CFUNCTYPE(c_void_p, POINTER(_Frame))


class _Owner:
    """An object that lives as long as the program of JAX that holds it."""


class CallFrame:
    """A call of XLA: the addresses of the arrays, and on a GPU the stream that it runs in."""

    def __init__(self, frame: _Frame) -> None:
        self._frame = frame
        self.arguments = _addresses(frame.arguments)
        self.results = _addresses(frame.results)

    def stream(self) -> int:
        """The handle of the stream of CUDA: the arguments are ready for what runs after its work.

        Raises:
            RuntimeError: XLA reports none, as on a CPU.
        """
        api = self._frame.api.contents
        asked = _StreamArguments(ctypes.sizeof(_StreamArguments), None, self._frame.context, None)
        error = cast(api.get_stream, _GET_STREAM)(ctypes.byref(asked))
        if error:
            given = _DestroyArguments(ctypes.sizeof(_DestroyArguments), None, error)
            cast(api.destroy_error, _DESTROY_ERROR)(ctypes.byref(given))
            raise RuntimeError("XLA reports no stream")
        return asked.stream or 0


def _addresses(buffers: _Buffers) -> list[int]:
    return [buffers.buffers[k].contents.data or 0 for k in range(buffers.size)]


class XlaCall:
    """A function that XLA may call, with a `CallFrame`. `key` is its attribute."""

    def __init__(self, function: Callable[[CallFrame], None]) -> None:
        self.run = function
        self.key = next(_keys)

    def publish(self) -> object:
        """Let XLA call it, as long as what is returned lives.

        After that it can be called until many other calls have ended, too: JAX drops what belongs
        to a program while the program may still be running.
        """
        owner = _Owner()
        _calls[self.key] = self
        weakref.finalize(owner, _drop, self.key).atexit = False
        return owner


_keys = itertools.count(int.from_bytes(os.urandom(7), "little"))
"""No process has those of another, so that no program that JAX has on disk meets a wrong call."""
_calls: dict[int, XlaCall] = {}
_dropped: collections.deque[int] = collections.deque()
_MOST_DROPPED = 4096


def _drop(key: int) -> None:
    """Forget a call later, whose owner is gone."""
    _dropped.append(key)
    while len(_dropped) > _MOST_DROPPED:
        _calls.pop(_dropped.popleft(), None)


def _handle(pointer: Any) -> int | None:
    """Answer a call of XLA: None for success, else an error."""
    frame = pointer.contents
    try:
        if frame.extension:
            extension = cast(frame.extension, POINTER(_MetadataExtension)).contents
            if extension.base.type == _METADATA:
                _describe(extension.metadata.contents)
                return None
        if frame.stage == _EXECUTE:
            key = frame.attributes.scalars[0].contents.value.contents.value
            _call_of(key).run(CallFrame(frame))
    except BaseException:  # also an interrupt: what runs here is a thread of XLA
        return _error(frame, traceback.format_exc())
    return None


def _call_of(key: int) -> XlaCall:
    call = _calls.get(key)
    if call is None:
        raise RuntimeError("the program was compiled in another process, or what it calls is gone")
    return call


def _describe(metadata: _Metadata) -> None:
    """Report the version of the interface that this module is for."""
    metadata.version = _Version(ctypes.sizeof(_Version), None, 0, 1)
    metadata.traits = 0
    metadata.state_type = 0


def _error(frame: _Frame, message: str) -> int | None:
    """An error for XLA, which frees it."""
    given = _ErrorArguments(ctypes.sizeof(_ErrorArguments), None, message.encode(), _INTERNAL)
    create = cast(frame.api.contents.create_error, _CREATE_ERROR)
    found: int | None = create(ctypes.byref(given))
    return found


handler = _HANDLER(_handle)
"""The C function, to be registered with XLA once."""
