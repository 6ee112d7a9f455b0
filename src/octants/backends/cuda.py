"""Kernels on GPUs of NVIDIA."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from octants.artifact import Artifact, Making
from octants.backends.llvm_gpu import LlvmGpuBackend, choices
from octants.cache import configured_store
from octants.codegen.llvm.gpu.nvidia_targets import target
from octants.compile_profile import is_requested, stage
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsError
from octants.ir.core import Module
from octants.options import Options
from octants.runtime.device import Device
from octants.target import Arch, Target

if TYPE_CHECKING:
    from octants.codegen.llvm import nvptx
    from octants.codegen.llvm.gpu import compilation
    from octants.runtime.cuda import device, launch_context, modules
    from octants.runtime.cuda.library import Library
else:
    nvptx = Deferred("octants.codegen.llvm.nvptx")
    compilation = Deferred("octants.codegen.llvm.gpu.compilation")
    device = Deferred("octants.runtime.cuda.device")
    launch_context = Deferred("octants.runtime.cuda.launch_context")
    modules = Deferred("octants.runtime.cuda.modules")


class CudaBackend(LlvmGpuBackend):
    """The GPU of the number that the options name."""

    name, driver_name = Arch.cuda.name, "CUDA"
    has_several_devices = True
    approximates_quotients = True
    groups_sums = exchanges_factors = True
    allots_registers = keeps_calls = True
    nested_records = 4

    def begin(self, chosen: Options) -> None:
        """Let a thread start the driver, and import meanwhile what will be needed."""
        with contextlib.suppress(OctantsError):  # of which `obstacle` will tell
            self.library()
            _ = device.CudaDevice, modules.Module, self._version
            if configured_store.is_empty(chosen):
                self.import_compiler()

    def library(self) -> Library:
        return launch_context.driver_library()

    def make_device(self, chosen: Options) -> Device:
        made = device.CudaDevice(chosen.device, chosen.ad_stack_budget_bytes)
        if configured_store.is_empty(chosen):
            modules.load_linker(made.context)
        return made

    def target(self, chosen: Options) -> Target:
        major, minor = self.context(chosen.device).capability
        return target(10 * major + minor)

    def estimate_sums(self, chosen: Options) -> int:
        # Capabilities 7.5 and 8.0 have half as many floating-point units per multiprocessor.
        return 4 if self.target(chosen).cpu in ("sm_75", "sm_80") else 8

    def gpu(self, chosen: Options) -> nvptx.Nvptx:
        return nvptx.Nvptx(self.target(chosen))

    # -- code -----------------------------------------------------------------------------------

    def import_compiler(self) -> None:
        super().import_compiler()
        _ = nvptx.Nvptx

    def compile(self, module: Module, chosen: Options) -> Artifact:
        return self.begin_compile(module, chosen).result()

    def begin_compile(self, module: Module, chosen: Options) -> Making:
        """PTX, which the driver links in a thread, unless the time of that is to be measured.

        So the next kernel, often a gradient, is compiled meanwhile.
        """
        artifact = compilation.compile_module(module, self.gpu(chosen), **choices(chosen))
        if not artifact.dispatches:
            return Making(artifact)
        linking = modules.Linking(
            self.context(chosen.device), artifact.code, in_thread=not is_requested()
        )

        def finish() -> Artifact:
            with stage("driver", module.name) as note:
                binary = linking.result()
                note.gives(binary.__len__, "bytes")
            return dataclasses.replace(artifact, binary=binary)

        making = Making(artifact, finish)
        if is_requested():
            making.result()
        return making

    def assembly_text(self, module: Module, chosen: Options) -> str:
        return self.compile(module, chosen).code.decode()


BACKEND = CudaBackend()
