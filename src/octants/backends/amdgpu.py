"""Kernels on GPUs of AMD."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING

from octants.artifact import Artifact
from octants.backends.llvm_gpu import LlvmGpuBackend, choices
from octants.codegen.llvm.amdgpu import targets
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsWarning
from octants.diagnostics.user_frames import levels_to_the_user
from octants.ir.core import Module
from octants.options import Options
from octants.runtime.device import Device
from octants.target import Arch, Target

if TYPE_CHECKING:
    from octants.codegen.llvm.amdgpu import amdgcn
    from octants.codegen.llvm.gpu import compilation
    from octants.runtime.hip import device, library
else:
    compilation = Deferred("octants.codegen.llvm.gpu.compilation")
    amdgcn = Deferred("octants.codegen.llvm.amdgpu.amdgcn")
    device = Deferred("octants.runtime.hip.device")
    library = Deferred("octants.runtime.hip.library")

_UNTESTED = (
    "arch `amdgpu` is experimental: no GPU of AMD has run it yet. Compare results with those of"
    " another arch, such as `qd.vulkan`"
)


@functools.cache
def driver_library() -> library.HipLibrary:
    """The HIP runtime of this machine; an `OctantsRuntimeError` if it cannot be used."""
    return library.open_library(targets.WAVES)


class AmdgpuBackend(LlvmGpuBackend):
    """The GPU with the ordinal that the options name."""

    name, driver_name = Arch.amdgpu.name, "HIP"

    def drawback(self) -> str:
        """No GPU of AMD has run the tests, so this is for those who ask for it."""
        return "it is experimental: no GPU of AMD has run it yet"

    def library(self) -> library.HipLibrary:
        return driver_library()

    def make_device(self, chosen: Options) -> Device:
        self.target(chosen)  # an error if there is none
        warnings.warn(_UNTESTED, OctantsWarning, levels_to_the_user())
        return device.HipDevice(
            chosen.device,
            chosen.ad_stack_budget_bytes,
            library=driver_library(),
        )

    def target(self, chosen: Options) -> Target:
        return targets.target(self.context(chosen.device).processor)

    def gpu(self, chosen: Options) -> amdgcn.Amdgpu:
        return amdgcn.Amdgpu(self.target(chosen))

    # -- code -----------------------------------------------------------------------------------

    def compile(self, module: Module, chosen: Options) -> Artifact:
        return compilation.compile_module(module, self.gpu(chosen), **choices(chosen))

    def assembly_text(self, module: Module, chosen: Options) -> str:
        return compilation.assembly_text(module, self.gpu(chosen), **choices(chosen))


BACKEND = AmdgpuBackend()
