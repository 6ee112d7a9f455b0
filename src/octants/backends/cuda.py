"""Kernels on GPUs of NVIDIA."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from octants.artifact import Artifact, Making
from octants.backends.base import NEAR_BYTES, Backend
from octants.cache import current
from octants.codegen.llvm import backend
from octants.codegen.llvm.gpu.capabilities import target
from octants.compile_profile import is_requested, stage
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsError
from octants.ir.core import Module
from octants.options import Options
from octants.runtime.device import Device
from octants.target import Arch, Blocks, Capabilities, Target

if TYPE_CHECKING:
    from octants import frontend, pipeline
    from octants.codegen.llvm import nvptx
    from octants.runtime.cuda import context, device, launch_context, modules
else:
    frontend, pipeline = Deferred("octants.frontend"), Deferred("octants.pipeline")
    nvptx = Deferred("octants.codegen.llvm.nvptx")
    context = Deferred("octants.runtime.cuda.context")
    device = Deferred("octants.runtime.cuda.device")
    launch_context = Deferred("octants.runtime.cuda.launch_context")
    modules = Deferred("octants.runtime.cuda.modules")

_THREADS = 2048  # of a multiprocessor, at most


class CudaBackend(Backend):
    """The GPU of the number that the options name."""

    name = Arch.cuda.name

    def obstacle(self) -> str:
        """The driver's absence, or that of a GPU that is new enough; the context waits."""
        try:
            context.context_of(launch_context.driver_library(), 0)
        except OctantsError as error:
            return str(error.diagnostic.title if error.diagnostic else error)
        return ""

    def begin(self, chosen: Options) -> None:
        """Let a thread start the driver, and import meanwhile what will be needed."""
        with contextlib.suppress(OctantsError):  # of which `obstacle` will tell
            launch_context.driver_library()
            _ = device.CudaDevice, modules.Module, self._version
            if current.is_empty(chosen):
                _ = frontend.build, pipeline.lower, nvptx.compile_module
                backend.begin()

    def device_names(self) -> tuple[str, ...]:
        return context.names_of_devices(launch_context.driver_library())

    def make_device(self, chosen: Options) -> Device:
        return device.CudaDevice(chosen.device, chosen.ad_stack_budget_bytes)

    def target(self, chosen: Options) -> Target:
        found = context.context_of(launch_context.driver_library(), chosen.device)
        major, minor = found.capability
        return target(10 * major + minor)

    @functools.cached_property
    def _version(self) -> str:
        return f"{backend.version()}, CUDA {launch_context.driver_library().driver_version}"

    def version(self) -> str:
        return self._version

    # -- code -----------------------------------------------------------------------------------

    def compile(self, module: Module, chosen: Options) -> Artifact:
        return self.begin_compile(module, chosen).result()

    def begin_compile(self, module: Module, chosen: Options) -> Making:
        """PTX, which the driver links in a thread, unless somebody wants to know how long it takes.

        So the next kernel, often a gradient, is compiled meanwhile.
        """
        artifact = nvptx.compile_module(module, self.target(chosen), **_choices(chosen))
        if not artifact.dispatches:
            return Making(artifact)
        found = context.context_of(launch_context.driver_library(), chosen.device)
        linking = modules.Linking(found, artifact.code, in_thread=not is_requested())

        def finish() -> Artifact:
            with stage("driver", module.name) as note:
                binary = linking.result()
                note.gives(binary.__len__, "bytes")
            return dataclasses.replace(artifact, binary=binary)

        making = Making(artifact, finish)
        if is_requested():
            making.result()
        return making

    def llvm_text(self, module: Module, chosen: Options) -> str:
        return nvptx.llvm_text(module, self.target(chosen), fast_math=chosen.fast_math)

    def optimised_llvm_text(self, module: Module, chosen: Options) -> str:
        return nvptx.optimised_llvm_text(module, self.target(chosen), **_choices(chosen))

    def assembly_text(self, module: Module, chosen: Options) -> str:
        return self.compile(module, chosen).code.decode()

    # -- what the language and passes want to know ----------------------------------------------

    def machine(self, chosen: Options, device: Device | None) -> Capabilities:
        found: Any = device
        count = 1 if found is None else int(found.context.multiprocessors)
        own = context.context_of(launch_context.driver_library(), chosen.device)
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
    """What code generation asks of the options."""
    return {"fast_math": chosen.fast_math, "opt_level": chosen.opt_level}


BACKEND = CudaBackend()
