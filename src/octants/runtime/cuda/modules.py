"""Code on a GPU: PTX that the driver has compiled, its functions, and how many threads fit."""

from __future__ import annotations

import ctypes
from collections import deque
from ctypes import byref, c_char, c_int, c_void_p

from octants.diagnostics.exceptions import InternalError
from octants.runtime.cuda import library as cuda
from octants.runtime.cuda.context import Context

_LOG_SIZE = 16384
_BLOCKS = (128, 256, 64, 512)  # threads in a block, the first one is taken where all are as good
WARP = 32


class Module:
    """Loaded code. It is unloaded some time after the last reference to it is gone."""

    def __init__(self, context: Context, code: bytes, dropped: deque[int]) -> None:
        self._context = context
        self._handle = 0
        self._dropped = dropped
        handle = c_void_p()
        log = (c_char * _LOG_SIZE)()
        options = (c_int * 2)(cuda.JIT_ERROR_LOG, cuda.JIT_ERROR_LOG_SIZE)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_SIZE)
        with context.active():
            # The driver wants the text to end with a zero, as ctypes makes it.
            text = ctypes.c_char_p(code)
            status = context.status("cuModuleLoadDataEx", byref(handle), text, 2, options, values)
        if status:
            error = context.error("cuModuleLoadDataEx", status)
            said = log.value.decode(errors="replace").strip()
            raise InternalError(f"the driver does not take the code: {said}") from error
        self._handle = handle.value or 0

    def __del__(self) -> None:
        if self._handle:
            self._dropped.append(self._handle)

    def function(self, name: str) -> Function:
        """A function of the code."""
        handle = c_void_p()
        with self._context.active():
            self._context.call("cuModuleGetFunction", byref(handle), self._handle, name.encode())
            return Function(self._context, handle.value or 0, self)


class Function:
    """A function that can be launched. ``module`` keeps its code loaded."""

    def __init__(self, context: Context, handle: int, module: Module) -> None:
        self._context = context
        self.handle = handle
        self.module = module
        most = c_int()
        context.call("cuFuncGetAttribute", byref(most), cuda.FUNCTION_MAX_THREADS, handle)
        self._most = most.value

    def shape(self, block: int) -> tuple[int, int]:
        """(threads in a block, blocks that fill the GPU); ``block`` is given, or 0 for any."""
        with self._context.active():
            if block:
                return block, self._fill(block)
            allowed = [size for size in _BLOCKS if size <= self._most] or [WARP]
            best = max(allowed, key=lambda size: size * self._fill(size))
            return best, self._fill(best)

    def _fill(self, block: int) -> int:
        count = c_int()
        name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        self._context.call(name, byref(count), self.handle, block, 0)
        return max(1, count.value) * self._context.multiprocessors
