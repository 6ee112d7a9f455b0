"""Memory for machine code: first writable, then executable, never both."""

from __future__ import annotations

import ctypes
import functools
import sys
import weakref
from collections.abc import Iterable
from typing import Any

from octants.runtime.cpu.loader.relocations import Refused

_READ, _WRITE, _EXECUTE = 1, 2, 4
_PRIVATE, _ANONYMOUS = 2, 0x20  # of Linux
_FAILED = ctypes.c_void_p(-1).value


class ExecutableMemory:
    """Pages of this process, writable until they are protected; freed with the object.

    At the end of the process they stay, since Python threads may still run their code.

    Raises:
        Refused: the system has no memory.
    """

    def __init__(self, nbytes: int) -> None:
        map_pages, _, unmap = _functions()
        address = map_pages(None, nbytes, _READ | _WRITE, _PRIVATE | _ANONYMOUS, -1, 0)
        if address in (None, _FAILED):
            raise Refused(f"no memory of {nbytes} bytes")
        self.address: int = address
        weakref.finalize(self, unmap, address, nbytes).atexit = False

    def protect(self, start: int, end: int, executable: bool) -> None:
        """Make the pages from ``start`` to ``end`` read-only, and executable if asked for."""
        _, protect, _ = _functions()
        kind = _READ | _EXECUTE if executable else _READ
        if end > start and protect(self.address + start, end - start, kind):
            raise Refused("the system does not let memory be executed")


@functools.cache
def _functions() -> tuple[Any, Any, Any]:
    """``mmap``, ``mprotect`` and ``munmap``."""
    if sys.platform != "linux":
        raise Refused("this is not Linux")
    library = ctypes.CDLL(None)
    word, number, offset = ctypes.c_size_t, ctypes.c_int, ctypes.c_int64
    functions = library.mmap, library.mprotect, library.munmap
    types: Iterable[tuple[Any, list[Any]]] = (
        (ctypes.c_void_p, [ctypes.c_void_p, word, number, number, number, offset]),
        (number, [ctypes.c_void_p, word, number]),
        (number, [ctypes.c_void_p, word]),
    )
    for function, (result, arguments) in zip(functions, types, strict=True):
        function.restype, function.argtypes = result, arguments
    return functions
