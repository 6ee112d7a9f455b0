"""A heap that refuses memory to record buffers on request, for the device of `qd.init`."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest

import octants as qd
from octants import driver
from octants.options import memory_of_the_machine
from octants.runtime.cpu import CpuDevice
from octants.runtime.cpu.native import linking as native

_C = ctypes.CDLL(None)
_C.realloc.restype = ctypes.c_void_p
_C.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_C.free.argtypes = [ctypes.c_void_p]


class Heap:
    """Gives real memory; ``grants`` is asked before, with a size and what all would take then."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.refused = 0
        self.grants: Callable[[int, int], bool] = lambda nbytes, total: True
        self.total = 0  # bytes that are given out
        self._sizes: dict[int, int] = {}
        self._lock = threading.RLock()  # a collection of garbage may free in the midst of a call
        pointer = ctypes.c_void_p
        self._realloc = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_int64)(self._resize)
        self._free = ctypes.CFUNCTYPE(None, pointer)(self._release)
        for function in (
            self._realloc,
            self._free,
        ):  # the process's end may call them
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))

    def reset(self) -> None:
        self.asked.clear()
        self.refused = 0
        self.grants = lambda nbytes, total: True

    def limit(self, nbytes: int) -> None:
        """Refuse what would take more than so many bytes in all."""
        self.grants = lambda _, total: total <= nbytes

    def _resize(self, address: int | None, nbytes: int) -> int | None:
        with self._lock:
            self.asked.append(nbytes)
            after = self.total + nbytes - self._sizes.get(address or 0, 0)
            if not self.grants(nbytes, after):
                self.refused += 1
                return None
            self._forget(address)
            new: int = _C.realloc(address, nbytes)
            self._sizes[new] = nbytes
            self.total += nbytes
            return new

    def _release(self, address: int | None) -> None:
        with self._lock:
            self._forget(address)
            _C.free(address)

    def _forget(self, address: int | None) -> None:
        self.total -= self._sizes.pop(address or 0, 0)

    @cached_property
    def support(self) -> native.Support:
        functions = {"realloc": self._realloc, "free": self._free}
        addresses = {
            name: ctypes.cast(function, ctypes.c_void_p).value or 0
            for name, function in functions.items()
        }
        return native.Support(addresses)

    def start(self, patch: pytest.MonkeyPatch, **options: Any) -> None:
        """Call `qd.init` for a device that gets the memory of its record buffers from here."""

        def make(chosen: Any) -> CpuDevice:
            budget = chosen.stack_budget(memory_of_the_machine())
            return CpuDevice(chosen.cpu_max_num_threads, record_budget=budget, support=self.support)

        patch.setattr(driver, "make_device", make)
        qd.init(arch=qd.cpu, **{"default_fp": qd.f64, "log_level": "error", **options})
