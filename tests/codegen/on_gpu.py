"""Runs modules on a GPU of NVIDIA, on numpy arrays that are copied there and back."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from octants.codegen.llvm import nvptx
from octants.codegen.llvm.gpu import compilation
from octants.diagnostics.exceptions import OctantsError
from octants.ir.core import Module
from octants.ir.verifier import verify
from octants.runtime.cuda.device import CudaDevice
from tests.codegen.compiled import Compiled


@functools.cache
def gpu() -> CudaDevice | None:
    """The first GPU; None if there is none."""
    try:
        return CudaDevice()
    except OctantsError:
        return None


class OnGpu(Compiled):
    """A kernel on a GPU."""

    def __init__(self, module: Module, device: CudaDevice | None = None, **options: Any) -> None:
        verify(module)
        self.module = module
        self.device = device or gpu()  # type: ignore[assignment]
        major, minor = self.device.context.capability
        target = nvptx.target(10 * major + minor)
        self.artifact = compilation.compile_module(module, nvptx.Nvptx(target), **options)
        self.kernel = self.device.load(self.artifact)  # type: ignore[assignment]

    def run(
        self, arrays: Mapping[Any, np.ndarray[Any, Any]], seed: int = 0, launch: int = 0
    ) -> dict[str, np.ndarray[Any, Any]]:
        block, made = self.block(arrays, seed, launch)
        there: dict[int, Any] = {}
        for values in block.data.values():
            place = values.__array_interface__["data"][0]
            if place not in there:
                memory = self.device.allocate(values.nbytes)
                there[place] = memory, values
                self.device.write(memory.address, _bytes(values))
        for position, slot in enumerate(self.artifact.parameters.slots):
            if slot.kind == "pointer":
                block[position] = there[block[position]][0].address
        try:
            self.kernel.launch(ctypes.addressof(block))
            self.device.synchronize()
        finally:
            for memory, values in there.values():
                copy = np.empty_like(values, order="C")
                self.device.read(memory.address, _bytes(copy))
                values[...] = copy
        return made


def _bytes(values: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    assert values.flags.c_contiguous
    return values.reshape(-1).view(np.uint8)
