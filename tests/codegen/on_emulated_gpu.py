"""Runs modules through the runtime of CUDA on a fake GPU, whose warps are run by the CPU."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.artifact import Artifact, Making
from octants.backends.cuda import CudaBackend
from octants.backends.llvm_gpu import choices
from octants.codegen.llvm.gpu import compilation
from octants.ir.core import Module
from octants.ir.verifier import verify
from octants.options import Options
from octants.runtime.cuda import launch_context, modules
from octants.runtime.cuda.device import CudaDevice
from octants.runtime.cuda.launch_state import parameter_bytes
from tests.codegen.on_gpu import OnGpu
from tests.codegen.warps import WarpKernels, Warps
from tests.runtime.cuda.fake_cuda import FakeCuda


class AddressableCuda(FakeCuda):
    """A fake GPU whose memory is the host's, so that native code can work on it."""

    limits: dict[str, int]
    """The threads that a block of an entry may have, 0 for any number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.limits = {}

    def cuFuncGetAttribute(self, out: Any, attribute: int, function: int) -> int:
        status = super().cuFuncGetAttribute(out, attribute, function)
        out[0] = self.limits.get(self._handles[function][0]) or out[0]
        return status

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

    def adopt(self, address: int, nbytes: int) -> None:
        """Take memory of another library on the host for some on the GPU."""
        if nbytes:
            memory: Any = (ctypes.c_ubyte * nbytes).from_address(address)
            self._memory[address] = memoryview(memory).cast("B")  # type: ignore[assignment]
            self._ordinals[address] = 0


class EmulatedCode:
    """Artifacts of `Warps` as those of a fake GPU."""

    def __init__(self, fake: AddressableCuda) -> None:
        self._fake = fake
        self._numbers = itertools.count()

    def adopt(self, artifact: Artifact) -> Artifact:
        """The artifact that the fake GPU can load."""
        kernels = WarpKernels(artifact)
        dispatches = []
        for dispatch in artifact.dispatches:
            unique = f"{dispatch.entry}_{next(self._numbers)}"
            self._fake.kernels[unique] = functools.partial(kernels.run, dispatch.entry)
            self._fake.limits[unique] = kernels.limits.get(dispatch.entry, 0)
            dispatches.append(dataclasses.replace(dispatch, entry=unique))
        size = parameter_bytes(artifact)
        size = 8 if size else 8 * len(artifact.parameters.slots)
        code = "".join(f"entry {each.entry} {size}\n" for each in dispatches).encode()
        return dataclasses.replace(artifact, code=code, dispatches=tuple(dispatches))


class OnEmulatedGpu(OnGpu):
    """A kernel on a fake GPU, with limits of its device; `facts` are of the driver and the GPU."""

    facts: Mapping[str, Any] = {}
    gpu: type[Warps] = Warps

    def __init__(self, module: Module, **limits: Any) -> None:
        verify(module)
        self.module = module
        self.fake = AddressableCuda(**self.facts)
        self.device = CudaDevice(library=self.fake.library(), **limits)  # type: ignore[assignment]
        made = compilation.compile_module(module, self.gpu(), opt_level=1)
        self.artifact = EmulatedCode(self.fake).adopt(made)
        self.kernel = self.device.load(self.artifact)  # type: ignore[assignment]

    def run(
        self, arrays: Mapping[Any, np.ndarray[Any, Any]], seed: int = 0, launch: int = 0
    ) -> dict[str, np.ndarray[Any, Any]]:
        made = super().run(arrays, seed, launch)
        assert not self.fake.problems, self.fake.problems[0]
        return made


class OnSmallGpu(OnEmulatedGpu):
    """A kernel on a fake GPU that holds few threads, so that each has several work items."""

    facts = {"multiprocessors": 1, "resident": 128}


def install(patch: pytest.MonkeyPatch, **facts: Any) -> AddressableCuda:
    """Let ``init(arch=cuda)`` start on a fake GPU; no code is kept on disk meanwhile."""
    fake = AddressableCuda(**facts)
    code, library = EmulatedCode(fake), fake.library()

    def begin_compile(_: CudaBackend, module: Module, chosen: Options) -> Making:
        return Making(code.adopt(compilation.compile_module(module, Warps(), **choices(chosen))))

    patch.setattr(launch_context, "driver_library", lambda: library)
    patch.setattr(modules, "load_linker", lambda _: None)
    patch.setattr(CudaBackend, "begin_compile", begin_compile)
    patch.setattr(driver, "_artifacts", {})
    patch.setenv("OCTANTS_OFFLINE_CACHE", "0")
    return fake


@contextlib.contextmanager
def emulated_gpu(**facts: Any) -> Iterator[AddressableCuda]:
    """Lets ``init(arch=cuda)`` start on a fake GPU."""
    with pytest.MonkeyPatch.context() as patch:
        fake = install(patch, **facts)
        try:
            yield fake
        finally:
            qd.reset()
