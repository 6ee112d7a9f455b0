"""Compiles modules built by hand for Vulkan, and runs them on numpy arrays that are copied."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from octants.codegen.spirv.compile import compile_module
from octants.diagnostics.exceptions import OctantsError
from octants.ir.core import Module
from octants.ir.verifier import verify
from octants.runtime.vulkan import VulkanDevice
from octants.target import Target
from tests.codegen.compiled import Compiled
from tests.vulkan.validation import check


@functools.cache
def device() -> VulkanDevice:
    """The device that the tests run on; they are skipped where there is none."""
    try:
        return VulkanDevice(without=os.environ.get("OCTANTS_VULKAN_WITHOUT", ""))
    except OctantsError as error:
        pytest.skip(f"no Vulkan here: {error}")


class OnVulkan(Compiled):
    """A kernel on the device of the tests; what is said comes when a launch is over.

    The targets of other devices do not matter; ``features`` are added to those that there are.
    """

    owner: Any = staticmethod(device)

    def __init__(
        self, module: Module, target: Target | None = None, features: str = "", **options: Any
    ) -> None:
        verify(module)
        self.module = module
        own = device().hardware.target
        own = dataclasses.replace(own, features=f"{own.features},{features}")
        self.artifact = compile_module(module, own)
        check(self.artifact)
        self.kernel = device().load(self.artifact)  # type: ignore[assignment]

    @classmethod
    def together(cls, modules: Any) -> Any:
        return [cls(module) for module in modules]

    def run(
        self, arrays: Mapping[Any, np.ndarray[Any, Any]], seed: int = 0, launch: int = 0
    ) -> dict[str, np.ndarray[Any, Any]]:
        block, made = self.block(arrays, seed, launch)
        held = []
        for position, slot in enumerate(self.artifact.parameters.slots):
            if slot.kind == "pointer":
                array = self.module.arrays[slot.array]
                values = block.data[array.name, slot.companion]
                piece = self.owner().allocate(max(1, values.nbytes))
                self.owner().write(piece.address, np.ravel(values, "K").view(np.uint8))
                block[position] = piece.address
                held.append((piece, values))
        try:
            self.kernel.launch(ctypes.addressof(block))
            self.owner().synchronize()
        finally:
            for piece, values in held:
                flat = np.empty(values.nbytes, np.uint8)
                self.owner().read(piece.address, flat)
                shaped = flat.view(values.dtype)
                values[...] = np.ndarray(values.shape, values.dtype, shaped, 0, values.strides)
        return made


def run(module: Module, arrays: Mapping[Any, Any], **options: Any) -> dict[str, Any]:
    """Compile and launch once."""
    return OnVulkan(module).run(arrays, **options)
