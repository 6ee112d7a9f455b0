"""A fake libamdhip64: the fake libcuda, under HIP's names and with its structures."""

from __future__ import annotations

import ctypes
import functools
import itertools
import struct
from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int
from dataclasses import dataclass
from typing import Any

from octants import abi
from octants.codegen.llvm.amdgpu.targets import WAVES
from octants.runtime.cuda import library as cuda
from octants.runtime.hip import library as hip
from octants.runtime.hip.library import FUNCTIONS, OTHERS, HipLibrary
from tests.codegen.on_emulated_gpu import AddressableCuda
from tests.runtime.amdgpu.code_reader import metadata_of
from tests.runtime.amdgpu.emulator import LoadedCode
from tests.runtime.cuda.fake_cuda import _CONTEXT, NO_BINARY, Call

_NAMES = {own: name for name, (own, _) in FUNCTIONS.items()}


@dataclass
class FakeHip(AddressableCuda):
    """The HIP runtime with some GPUs of one processor."""

    driver: int = 60342134
    processor: bytes = b"gfx1100"
    emulates: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._numbers = itertools.count()

    def library(self) -> HipLibrary:
        return HipLibrary(self._find_hip, WAVES)

    def _find_hip(self, symbol: str, types: tuple[Any, ...]) -> Callable[..., int]:
        if symbol in OTHERS:
            made = CFUNCTYPE(c_int, *types)(self._guarded(symbol))
        else:
            made = CFUNCTYPE(c_int, *types)(self._guarded(_NAMES[symbol]))
        self._references.append(made)
        return made

    def _refusal(self, name: str) -> int:
        return 0 if name.startswith("hipGetDevice") else super()._refusal(name)

    def hipGetDevicePropertiesR0600(self, out: int, device: int) -> int:
        place = out + hip.PROCESSOR_OFFSET
        ctypes.memmove(place, self.processor + b"\0", len(self.processor) + 1)
        return 0

    def cuModuleLoadDataEx(self, out: Any, code: int, count: int, options: Any, values: Any) -> int:
        """Load a code object; its kernels run in the emulator, if there is one."""
        if ctypes.string_at(code, 4) != b"\x7fELF":
            return super().cuModuleLoadDataEx(out, code, count, options, values)
        (sections,), (number,) = (
            struct.unpack(form, ctypes.string_at(code + place, size))
            for form, place, size in (("<Q", 40, 8), ("<H", 60, 2))
        )
        content = ctypes.string_at(code, sections + 64 * number)
        metadata = metadata_of(content)
        if metadata["amdhsa.target"] != f"amdgcn-amd-amdhsa--{self.processor.decode()}":
            return NO_BINARY
        loaded = LoadedCode(content, self.processor.decode())
        entries = {}
        for kernel in metadata["amdhsa.kernels"]:
            slots, words = [each for each in kernel[".args"] if "hidden" not in each[".value_kind"]]
            assert words[".size"] == abi.LAUNCH_SIZE
            if not self.emulates:
                entries[kernel[".name"]] = kernel[".name"], slots[".size"]
                continue
            unique = f"{kernel['.name']}:{next(self._numbers)}"
            entries[kernel[".name"]] = unique, slots[".size"]
            self.kernels[unique] = functools.partial(_run, loaded, kernel[".name"])
        out[0] = self._handle((entries, self.stack[-1]))
        return 0

    def cuModuleGetFunction(self, out: Any, module: int, name: bytes) -> int:
        entries, context = self._handles[module]
        if not isinstance(entries[name.decode()], tuple):
            return super().cuModuleGetFunction(out, module, name)
        out[0] = self._handle((*entries[name.decode()], context))
        return 0

    def hipStreamGetDevice(self, stream: int, out: Any) -> int:
        out[0] = self._streams[stream].context - _CONTEXT
        return 0

    def hipModuleLaunchKernel(self, function: int, *given: Any) -> int:
        grid, grid_y, grid_z, block, block_y, block_z, shared, stream, arguments, extra = given
        made = cuda.LaunchConfiguration(
            grid, grid_y, grid_z, block, block_y, block_z, shared, stream
        )
        return self.cuLaunchKernelEx([made], function, arguments, extra)

    def cuDeviceGetAttribute(self, out: Any, attribute: int, device: int) -> int:
        out[0] = {
            hip.ATTRIBUTE_MULTIPROCESSORS: 4,
            hip.ATTRIBUTE_MEMORY_POOLS: self.pools,
        }[attribute]
        return 0


def _run(code: LoadedCode, name: str, call: Call) -> None:
    arguments = call.parameters + struct.pack(f"<{len(call.launch)}q", *call.launch)
    code.run(name, arguments, call.grid, call.block)
