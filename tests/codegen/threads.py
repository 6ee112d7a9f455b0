"""Runs modules as a GPU would, by its code for the CPU: thread after thread, on numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from octants import abi
from octants.artifact import Dispatch
from octants.codegen.llvm.gpu import compilation
from octants.ir.core import Module
from octants.ir.verifier import verify
from octants.runtime.cpu.native import linking as native
from octants.runtime.memory.host import HostAllocation
from tests.codegen import emulated_target
from tests.codegen.compiled import TARGET, Compiled

_Entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Threads(Compiled):
    """A kernel for ``threads`` threads, whose record buffers hold ``capacity`` bytes, then more.

    Where refused memory is a failure at once there is a `MemoryError`. `runs` counts, for each
    dispatch, how often it had to be run.
    """

    def __init__(
        self,
        module: Module,
        threads: int = 37,
        capacity: int = 1 << 12,
        *,
        fast_math: bool = False,
    ) -> None:
        verify(module)
        self.module = module
        self.threads, self.capacity = threads, capacity
        self.artifact = compilation.compile_module(
            module, emulated_target.Emulated(TARGET), fast_math=fast_math, opt_level=1
        )
        names = [dispatch.entry for dispatch in self.artifact.dispatches]
        self._library = native.link(self.artifact.code, names, native.implied_symbols())
        self.messages = HostAllocation(abi.MESSAGES_HEADER + (1 << 16))
        self._bounds = HostAllocation(16)
        self.runs: dict[str, int] = {}

    def run(
        self, arrays: Mapping[Any, np.ndarray[Any, Any]], seed: int = 0, launch: int = 0
    ) -> dict[str, np.ndarray[Any, Any]]:
        block, made = self.block(arrays, seed, launch)
        block[0] = self.messages.address if self.artifact.messages else 0
        head = self.messages.bytes.view(np.int64)
        head[:] = 0
        head[abi.MESSAGES_CAPACITY // 8] = 1 << 13
        head[abi.MESSAGES_END // 8] = 1 << 62
        for dispatch in self.artifact.dispatches:
            self._dispatch(dispatch, block)
        if head[abi.MESSAGES_FAILED // 8] & 0xFFFFFFFF:
            number = int(head[abi.MESSAGES_FAILURE_ID // 8]) & 0xFFFFFFFF
            raise MemoryError(self.artifact.messages[number])
        return made

    def _dispatch(self, dispatch: Dispatch, block: Any) -> None:
        entry = _Entry(self._library[dispatch.entry])
        lower, upper = self._items(dispatch, block)
        threads = dispatch.threads or (self.threads if dispatch.bounds else 1)
        refused = HostAllocation(abi.REFUSED_ITEMS + 4 * ((max(0, upper - lower) + 31) // 32) + 4)
        head = refused.bytes[: abi.REFUSED_ITEMS].view(np.int64)
        again = 0
        while True:
            buffers = HostAllocation(-(-threads // 32) * 32 * self.capacity)
            words = [lower, upper, self._bounds.address, buffers.address, self.capacity]
            words += [self.capacity // 2, refused.address, again, 0, 0]
            launch_words = (ctypes.c_int64 * len(words))(*words)
            head[:] = 0
            for thread in range(threads):
                entry(ctypes.addressof(block), ctypes.addressof(launch_words), thread, threads)
            self.runs[dispatch.entry] = self.runs.get(dispatch.entry, 0) + 1
            if not dispatch.records or head[abi.REFUSED_COUNT // 8] == 0:
                return
            assert head[abi.REFUSED_NEED // 8] > self.capacity
            self.capacity = -(-int(head[abi.REFUSED_NEED // 8]) // 4) * 4
            again = 1

    def _items(self, dispatch: Dispatch, block: Any) -> tuple[int, int]:
        if not dispatch.bounds:
            return 0, 1
        if dispatch.bounds == "device":
            lower, upper = self._bounds.bytes.view(np.int64)
            return int(lower), int(upper)
        slots = np.frombuffer(block, np.int64).tolist()
        lower, upper = eval(dispatch.bounds, {"slots": slots})
        return lower, upper
