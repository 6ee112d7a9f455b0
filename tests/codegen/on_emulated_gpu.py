"""Runs modules through the runtime of GPUs on a fake one, whose threads are run by the CPU."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from octants.codegen.llvm.gpu import emulated
from octants.ir.core import Module
from octants.ir.verifier import verify
from octants.runtime.cpu import native
from octants.runtime.cuda.device import CudaDevice
from tests.codegen.compiled import TARGET
from tests.codegen.on_gpu import OnGpu
from tests.runtime.cuda.fake_cuda import Call, FakeCuda

_Entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class AddressableCuda(FakeCuda):
    """A fake GPU whose memory is the host's, so that native code can work on it."""

    def _allocate(self, out: Any, size: int) -> int:
        status = super()._allocate(out, size)
        if status == 0:
            memory = self._memory.pop(out[0])
            kept = np.frombuffer(memory, np.uint8)
            out[0] = kept.__array_interface__["data"][0]
            self._memory[out[0]] = memory
        return status


class OnEmulatedGpu(OnGpu):
    """A kernel on a fake GPU of four multiprocessors."""

    def __init__(self, module: Module, **limits: Any) -> None:
        verify(module)
        self.module = module
        self.fake = AddressableCuda()
        self.device = CudaDevice(library=self.fake.library(), **limits)  # type: ignore[assignment]
        self.artifact = emulated.compile_module(module, TARGET, opt_level=1)
        names = [dispatch.entry for dispatch in self.artifact.dispatches]
        self._library = native.link(self.artifact.code, names, native.implied_symbols())
        code = "".join(f"entry {name} 8\n" for name in names)  # they take the block's address
        self.fake.kernels.update(dict.fromkeys(names, self._run))
        self.kernel = self.device.load(  # type: ignore[assignment]
            type(self.artifact)(**{**vars(self.artifact), "code": code.encode()})
        )

    def _run(self, call: Call) -> None:
        entry = _Entry(self._library[call.entry])
        told = (ctypes.c_int64 * len(call.launch))(*call.launch)
        (block,) = call.slots.tolist()
        for thread in range(call.threads):
            entry(block, ctypes.addressof(told), thread, call.threads)
