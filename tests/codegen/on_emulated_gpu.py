"""Runs modules through the runtime of GPUs on a fake one, whose threads are run by the CPU."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.artifact import Artifact, Making
from octants.backends.cuda import CudaBackend
from octants.codegen.llvm.gpu import compilation
from octants.ir.core import Module
from octants.ir.verifier import verify
from octants.options import Options
from octants.runtime.cpu.native import linking as native
from octants.runtime.cuda import launch_context
from octants.runtime.cuda.device import CudaDevice
from tests.codegen import emulated_target
from tests.codegen.compiled import TARGET
from tests.codegen.on_gpu import OnGpu
from tests.machines import pretend
from tests.runtime.cuda.fake_cuda import Call, FakeCuda

_Entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class AddressableCuda(FakeCuda):
    """A fake GPU whose memory is the host's, so that native code can work on it."""

    def _allocate(self, out: Any, size: int) -> int:
        status = super()._allocate(out, size)
        if status == 0:
            memory = self._memory.pop(out[0])
            kept = np.frombuffer(memory, np.uint8)
            ordinal = self._ordinals.pop(out[0])
            out[0] = kept.__array_interface__["data"][0]
            self._ordinals[out[0]] = ordinal
            self._memory[out[0]] = memory
        return status


class EmulatedCode:
    """Artifacts for the CPU as those of a fake GPU, whose kernels run them thread by thread.

    Kernels take the address of the parameter block; the block itself if it is passed ``by_value``,
    as on GPUs of NVIDIA.
    """

    def __init__(self, fake: FakeCuda, *, by_value: bool = False) -> None:
        self._fake, self._by_value = fake, by_value
        self._numbers = itertools.count()

    def adopt(self, artifact: Artifact) -> Artifact:
        """The artifact that the fake GPU can load."""
        names = [dispatch.entry for dispatch in artifact.dispatches]
        library = native.link(artifact.code, names, native.implied_symbols())
        dispatches, size, metadata = [], 8, artifact.metadata
        if self._by_value:
            size = 8 * len(artifact.parameters.slots)
            metadata = tuple(each for each in metadata if each[0] != "parameters")
        for dispatch in artifact.dispatches:
            unique = f"{dispatch.entry}_{next(self._numbers)}"
            run = functools.partial(_run_threads, library, dispatch.entry)
            self._fake.kernels[unique] = run
            dispatches.append(dataclasses.replace(dispatch, entry=unique))
        code = "".join(f"entry {each.entry} {size}\n" for each in dispatches).encode()
        return dataclasses.replace(
            artifact, code=code, dispatches=tuple(dispatches), metadata=metadata
        )


def _run_threads(library: Any, name: str, call: Call) -> None:
    entry = _Entry(library[name])
    words = (ctypes.c_int64 * len(call.launch))(*call.launch)
    slots = np.array(call.slots)
    block = int(slots[0]) if len(slots) == 1 else slots.ctypes.data
    for thread in range(call.threads):
        entry(block, ctypes.addressof(words), thread, call.threads)


class OnEmulatedGpu(OnGpu):
    """A kernel on a fake GPU of four multiprocessors."""

    def __init__(self, module: Module, **limits: Any) -> None:
        verify(module)
        self.module = module
        self.fake = AddressableCuda()
        self.device = CudaDevice(library=self.fake.library(), **limits)  # type: ignore[assignment]
        made = compilation.compile_module(module, emulated_target.Emulated(TARGET), opt_level=1)
        self.artifact = EmulatedCode(self.fake).adopt(made)
        self.kernel = self.device.load(self.artifact)  # type: ignore[assignment]


@contextlib.contextmanager
def emulated_gpu(*, by_value: bool = False, **facts: Any) -> Iterator[AddressableCuda]:
    """Lets ``init(arch=cuda)`` start on a fake GPU; no code is kept on disk meanwhile."""
    fake = AddressableCuda(**facts)
    code, library = EmulatedCode(fake, by_value=by_value), fake.library()

    def begin_compile(_: CudaBackend, module: Module, chosen: Options) -> Making:
        options = {"fast_math": chosen.fast_math, "opt_level": chosen.opt_level}
        return Making(
            code.adopt(
                compilation.compile_module(module, emulated_target.Emulated(TARGET), **options)
            )
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch_context, "driver_library", lambda: library)
        patch.setattr(CudaBackend, "begin_compile", begin_compile)
        pretend(patch, CudaBackend, splits=False)  # a thread has no others to work with
        patch.setattr(driver, "_artifacts", {})
        patch.setenv("OCTANTS_OFFLINE_CACHE", "0")
        try:
            yield fake
        finally:
            qd.reset()
