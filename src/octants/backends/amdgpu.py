"""Kernels on GPUs of AMD."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

from octants.artifact import Artifact
from octants.backends.base import NEAR_BYTES, Backend
from octants.codegen.llvm import backend
from octants.codegen.llvm.amdgpu import targets
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsError, OctantsWarning
from octants.diagnostics.user_frames import levels_to_the_user
from octants.ir.core import Module
from octants.options import Options
from octants.runtime.device import Device
from octants.target import Arch, Blocks, Capabilities, Target

if TYPE_CHECKING:
    from octants.codegen.llvm.amdgpu import abortable_nodes, kernels
    from octants.runtime.cuda import context
    from octants.runtime.hip import device, library
else:
    abortable_nodes = Deferred("octants.codegen.llvm.amdgpu.abortable_nodes")
    kernels = Deferred("octants.codegen.llvm.amdgpu.kernels")
    context = Deferred("octants.runtime.cuda.context")
    device = Deferred("octants.runtime.hip.device")
    library = Deferred("octants.runtime.hip.library")

_UNTESTED = (
    "arch `amdgpu` is experimental: no GPU of AMD has run it yet. Compare results with those of"
    " another arch, such as `qd.vulkan`"
)
_THREADS = 2048  # of a multiprocessor, at most


@functools.cache
def driver_library() -> library.HipLibrary:
    """The HIP runtime of this machine; an `OctantsRuntimeError` if it cannot be used."""
    return library.open_library(targets.WAVES)


class AmdgpuBackend(Backend):
    """The GPU with the ordinal that the options name."""

    name = Arch.amdgpu.name

    def obstacle(self) -> str:
        """The absence of the HIP runtime, or of a GPU that code is generated for."""
        try:
            context.context_of(driver_library(), 0)
        except OctantsError as error:
            found = error.diagnostic
            return f"{found.title}; {found.remedy}" if found else str(error)
        return ""

    def drawback(self) -> str:
        """No GPU of AMD has run the tests, so this is for those who ask for it."""
        return "it is experimental: no GPU of AMD has run it yet"

    def device_names(self) -> tuple[str, ...]:
        return context.names_of_devices(driver_library())

    def make_device(self, chosen: Options) -> Device:
        target = self.target(chosen)
        warnings.warn(_UNTESTED, OctantsWarning, levels_to_the_user())
        return device.HipDevice(
            lambda: abortable_nodes.code(target),
            chosen.device,
            chosen.ad_stack_budget_bytes,
            library=driver_library(),
        )

    def target(self, chosen: Options) -> Target:
        return targets.target(context.context_of(driver_library(), chosen.device).processor)

    @functools.cached_property
    def _version(self) -> str:
        return f"{backend.version()}, HIP {driver_library().driver_version}"

    def version(self) -> str:
        return self._version

    # -- code -----------------------------------------------------------------------------------

    def compile(self, module: Module, chosen: Options) -> Artifact:
        return kernels.compile_module(module, self.target(chosen), **_choices(chosen))

    def llvm_text(self, module: Module, chosen: Options) -> str:
        return kernels.llvm_text(module, self.target(chosen), fast_math=chosen.fast_math)

    def optimised_llvm_text(self, module: Module, chosen: Options) -> str:
        return kernels.optimised_llvm_text(module, self.target(chosen), **_choices(chosen))

    def assembly_text(self, module: Module, chosen: Options) -> str:
        return kernels.assembly_text(module, self.target(chosen), **_choices(chosen))

    # -- what the language and passes want to know ----------------------------------------------

    def machine(self, chosen: Options, device: Device | None) -> Capabilities:
        own = context.context_of(driver_library(), chosen.device)
        found: Any = device
        count = 1 if found is None else int(own.multiprocessors)
        return Capabilities(
            contracts=True,
            fills=2 * count * _THREADS,  # where blocks end early, others begin
            splits=True,
            blocks=Blocks(),
            memory_bytes=own.total_memory,
            workers=count * _THREADS,
            tape_local=NEAR_BYTES,
        )


def _choices(chosen: Options) -> dict[str, Any]:
    """The options that code generation takes."""
    return {"fast_math": chosen.fast_math, "opt_level": chosen.opt_level}


BACKEND = AmdgpuBackend()
