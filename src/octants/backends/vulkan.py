"""Kernels on any device with a driver for Vulkan."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from octants.artifact import Artifact
from octants.backends.base import NEAR_BYTES, Backend
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsWarning
from octants.diagnostics.user_frames import levels_to_the_user
from octants.ir.core import Module
from octants.options import Options
from octants.runtime.device import Device
from octants.target import Arch, Capabilities, Target

if TYPE_CHECKING:
    from octants.codegen.spirv import compile as spirv
    from octants.codegen.spirv import copy_kernel
    from octants.runtime.vulkan import device, physical_devices
else:
    spirv = Deferred("octants.codegen.spirv.compile")
    copy_kernel = Deferred("octants.codegen.spirv.copy_kernel")
    device = Deferred("octants.runtime.vulkan.device")
    physical_devices = Deferred("octants.runtime.vulkan.physical_devices")

_THREADS = 1 << 16  # that record at the same time, on a GPU
_FILLS = 1 << 19  # that fill a large GPU: two for each thread, since a thread may take two items
_FEW_THREADS = 1 << 10  # on a CPU that stands for one
_ESTIMATE_SUMS = 8  # additions that take as long as an estimate of a sine, on NVIDIA's GPUs


class VulkanBackend(Backend):
    """The device of the number that the options name, the best one being 0."""

    name = Arch.vulkan.name

    def require(self) -> None:
        """Require the loader, a driver, and what kernels need of it."""
        physical_devices.choose(0)

    def drawback(self) -> str:
        """A driver that runs on the CPU, which the CPU's own code generation beats."""
        found = physical_devices.choose(0)
        return f"its only device is `{found.name}`, which is the CPU" if found.is_cpu else ""

    def device_names(self) -> tuple[str, ...]:
        return tuple(each.name for each in physical_devices.all_hardware())

    def make_device(self, chosen: Options) -> Device:
        found = physical_devices.choose(chosen.device, chosen.vulkan_without)
        target = found.target
        if found.flaw:
            text = f"{found.flaw}: results on `{found.name}` may be wrong without `splits`"
            warnings.warn(text, OctantsWarning, levels_to_the_user())
        return device.VulkanDevice(
            chosen.device,
            chosen.ad_stack_budget_bytes,
            without=chosen.vulkan_without,
            copy_kernel=lambda: copy_kernel.copy_kernel(target),
        )

    def target(self, chosen: Options) -> Target:
        return physical_devices.choose(chosen.device, chosen.vulkan_without).target

    def version(self) -> str:
        return "SPIR-V 1.5"

    # -- code -----------------------------------------------------------------------------------

    def import_compiler(self) -> None:
        super().import_compiler()
        _ = spirv.compile_module

    def compile(self, module: Module, chosen: Options) -> Artifact:
        return spirv.compile_module(module, self.target(chosen), fast_math=chosen.fast_math)

    # -- what passes want to know ---------------------------------------------------------------

    def machine(self, chosen: Options, device: Device | None) -> Capabilities:
        found = physical_devices.choose(chosen.device, chosen.vulkan_without)
        used = physical_devices.choose(0) if device is None else getattr(device, "hardware", None)
        is_cpu = used is not None and used.is_cpu
        workers, names = _FEW_THREADS if is_cpu else _THREADS, self.target(chosen).names()
        return Capabilities(
            contracts=True,
            fills=_FEW_THREADS if is_cpu else _FILLS,
            splits={"lanes", "gathers"} <= names,
            blocks=found.blocks,
            updates_64_bits="atomic64" in names,
            unrolls="masks" not in names,
            groups_sums={"lanes", "gathers"} <= names,
            exchanges_factors={"lanes", "gathers", "whole"} <= names,
            estimate_sums=_ESTIMATE_SUMS * ("estimates" in names),
            approximates_quotients="estimates" in names,
            memory_bytes=found.memory_bytes,
            workers=workers,
            local_record_bytes=NEAR_BYTES,
        )


BACKEND = VulkanBackend()
