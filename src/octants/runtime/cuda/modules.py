"""Loads code on a GPU: compiles or links PTX, finds functions, and chooses block sizes."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from ctypes import byref, c_char, c_int, c_size_t, c_void_p

from octants.diagnostics.exceptions import InternalError
from octants.runtime.cuda import library as cuda
from octants.runtime.cuda.context import Context

_LOG_SIZE = 16384
_BLOCKS = (128, 256, 64, 512)  # threads in a block, the first one is taken where all are as good
_LARGE_BLOCKS = (512, 256, 128, 64)


class Module:
    """A loaded module: the binary if the driver accepts it, else PTX that the driver compiles.

    It is unloaded some time after the last reference to it is dropped.
    """

    def __init__(self, context: Context, ptx: bytes, binary: bytes, dropped: deque[int]) -> None:
        self._context = context
        self._handle = 0
        self._dropped = dropped
        with context.active():
            handle = self._load_binary(binary) if binary else 0
            self._handle = handle or self._load(ptx)

    def _load_binary(self, binary: bytes) -> int:
        handle = c_void_p()
        status = self._context.status("cuModuleLoadDataEx", byref(handle), binary, 0, None, None)
        return 0 if status else handle.value or 0

    def _load(self, ptx: bytes) -> int:
        handle, log = c_void_p(), Log()
        # The driver wants the text to end with a zero, as ctypes makes it.
        text = ctypes.c_char_p(ptx)
        status = self._context.status("cuModuleLoadDataEx", byref(handle), text, *log.options)
        if status:
            raise log.refusal(self._context, "cuModuleLoadDataEx", status)
        return handle.value or 0

    def __del__(self) -> None:
        if self._handle:
            self._dropped.append(self._handle)

    def function(self, name: str) -> DeviceFunction:
        """The function with a name."""
        handle = c_void_p()
        with self._context.active():
            self._context.call("cuModuleGetFunction", byref(handle), self._handle, name.encode())
            return DeviceFunction(self._context, handle.value or 0, self)


class Log:
    """The driver's compiler log; `options` request it."""

    def __init__(self) -> None:
        self._text = (c_char * _LOG_SIZE)()
        self.options = (
            2,
            (c_int * 2)(cuda.JIT_ERROR_LOG, cuda.JIT_ERROR_LOG_SIZE),
            (c_void_p * 2)(ctypes.addressof(self._text), _LOG_SIZE),
        )

    def refusal(self, context: Context, function: str, status: int) -> InternalError:
        """The error for code that the driver rejects."""
        error = context.error(function, status)
        said = self._text.value.decode(errors="replace").strip()
        refused = InternalError(f"the driver does not take the code: {said}")
        refused.__cause__ = error
        return refused


def link(context: Context, ptx: bytes) -> bytes:
    """Link PTX to a binary for a GPU."""
    state, binary, size, log = c_void_p(), c_void_p(), c_size_t(), Log()
    with context.active():
        context.call("cuLinkCreate", *log.options, byref(state))
        try:
            text = ctypes.c_char_p(ptx)
            for function, arguments in (
                ("cuLinkAddData", (cuda.INPUT_PTX, text, len(ptx) + 1, b"kernel", 0, None, None)),
                ("cuLinkComplete", (byref(binary), byref(size))),
            ):
                status = context.status(function, state, *arguments)
                if status:
                    raise log.refusal(context, function, status)
            return ctypes.string_at(binary.value or 0, size.value)
        finally:
            context.library.cuLinkDestroy(state)


class Linking:
    """A link of PTX, run in a thread of its own or when the result is requested."""

    def __init__(self, context: Context, ptx: bytes, *, in_thread: bool) -> None:
        self._context, self._ptx = context, ptx
        self._binary = b""
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        if in_thread:
            self._thread = threading.Thread(target=self._run, name="octants linker")
            self._thread.start()

    def _run(self) -> None:
        try:
            self._binary = link(self._context, self._ptx)
        except BaseException as error:
            self._error = error

    def result(self) -> bytes:
        """Wait for the binary, and return it."""
        if self._thread is None:
            self._run()
        else:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._binary


PTX_HEADER = """\
.version 6.4
.target sm_75
.address_size 64
"""
"""For kernels of the runtime, which all supported GPUs and drivers load."""


def table_kernel(name: str, nbytes: int, body: str) -> str:
    """The PTX of a kernel whose one parameter, ``p``, is a table of so many bytes."""
    head = f".visible .entry {name}(.param .align 8 .b8 p[{nbytes}])"
    return f"{PTX_HEADER}{head}\n{{\n{body}}}\n"


_SMALL = table_kernel("octants_small", 8, "  ret;\n").encode()


def load_linker(context: Context) -> None:
    """Let a thread link a small kernel, once in a process.

    The driver loads its compiler for that, which takes tens of milliseconds. Meanwhile the first
    kernel is compiled to PTX.
    """
    context.library.shared_object("linker", 0, lambda: Linking(context, _SMALL, in_thread=True))


class DeviceFunction:
    """A function of a module, which it keeps loaded."""

    def __init__(self, context: Context, handle: int, module: Module) -> None:
        self._context = context
        self.handle = handle
        self.module = module
        most = c_int()
        context.call("cuFuncGetAttribute", byref(most), cuda.FUNCTION_MAX_THREADS, handle)
        self._most = most.value

    def shape(self, block: int, large: bool = False) -> tuple[int, int]:
        """Choose the size of blocks.

        Args:
            block: The threads of a block; 0 to choose them.
            large: Whether to prefer the largest of the block sizes with equal occupancy.

        Returns:
            The threads of a block, and the number of blocks that occupy the GPU.
        """
        with self._context.active():
            if block:
                return block, self._fill(block)
            sizes = _LARGE_BLOCKS if large else _BLOCKS
            allowed = [size for size in sizes if size <= self._most] or [self._context.wave]
            best = max(allowed, key=lambda size: size * self._fill(size))
            return best, self._fill(best)

    def _fill(self, block: int) -> int:
        count = c_int()
        name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        self._context.call(name, byref(count), self.handle, block, 0)
        return max(1, count.value) * self._context.multiprocessors
