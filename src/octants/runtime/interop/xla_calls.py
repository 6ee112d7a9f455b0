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
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_void_p,
    cast,
)
from typing import Any

_METADATA = 1
_EXECUTE = 3
_INTERNAL = 13
_HEAD: list[tuple[str, Any]] = [("struct_size", c_size_t), ("extension", c_void_p)]


class _Extension(Structure):
    _fields_ = [("struct_size", c_size_t), ("type", c_int), ("next", c_void_p)]


class _Version(Structure):
    _fields_ = [*_HEAD, ("major", c_int), ("minor", c_int)]


class _Metadata(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("version", _Version),
        ("traits", c_uint32),
        ("state_type", c_int64),
    ]


class _MetadataExtension(Structure):
    _fields_ = [("base", _Extension), ("metadata", POINTER(_Metadata))]


class _Api(Structure):
    _fields_ = [
        *_HEAD,
        ("version", _Version),
        ("internal", c_void_p),
        ("create_error", c_void_p),
        ("message_of_error", c_void_p),
        ("destroy_error", c_void_p),
        ("register_handler", c_void_p),
        ("get_stream", c_void_p),
    ]


class _ErrorArguments(Structure):
    _fields_ = [*_HEAD, ("message", c_char_p), ("code", c_int)]


class _DestroyArguments(Structure):
    _fields_ = [*_HEAD, ("error", c_void_p)]


class _StreamArguments(Structure):
    _fields_ = [*_HEAD, ("context", c_void_p), ("stream", c_void_p)]


class _Buffer(Structure):
    _fields_ = [
        *_HEAD,
        ("dtype", c_int),
        ("data", c_void_p),
        ("rank", c_int64),
        ("dims", POINTER(c_int64)),
    ]


class _Buffers(Structure):
    _fields_ = [
        *_HEAD,
        ("size", c_int64),
        ("types", c_void_p),
        ("buffers", POINTER(POINTER(_Buffer))),
    ]


class _Scalar(Structure):
    _fields_ = [("dtype", c_int), ("value", POINTER(c_int64))]


class _Attributes(Structure):
    _fields_ = [
        *_HEAD,
        ("size", c_int64),
        ("types", c_void_p),
        ("names", c_void_p),
        ("scalars", POINTER(POINTER(_Scalar))),
    ]


class _Frame(Structure):
    _fields_ = [
        *_HEAD,
        ("api", POINTER(_Api)),
        ("context", c_void_p),
        ("stage", c_int32),
        ("arguments", _Buffers),
        ("results", _Buffers),
        ("attributes", _Attributes),
    ]


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
