"""Kernels on the GPU of a Mac."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octants.artifact import Artifact
from octants.backends.base import NEAR_BYTES, Backend
from octants.deferred_import import Deferred
from octants.ir.core import Module
from octants.options import Options
from octants.runtime.device import Device
from octants.target import Arch, Capabilities, Target

if TYPE_CHECKING:
    from octants.codegen.metal import compile as metal
    from octants.runtime.metal import context, device
else:
    metal = Deferred("octants.codegen.metal.compile")
    context = Deferred("octants.runtime.metal.context")
    device = Deferred("octants.runtime.metal.device")

_THREADS = 1 << 16  # that record at the same time


class MetalBackend(Backend):
    """The GPU that Metal has by default."""

    name = Arch.metal.name

    def require(self) -> None:
        """Require macOS, of a version that is new enough, and Apple silicon."""
        context.hardware()

    def device_names(self) -> tuple[str, ...]:
        return (context.hardware().name,)

    def make_device(self, chosen: Options) -> Device:
        return device.MetalDevice(chosen.ad_stack_budget_bytes)

    def target(self, chosen: Options) -> Target:
        return context.hardware().target

    def version(self) -> str:
        return "Metal 3.2"

    # -- code -----------------------------------------------------------------------------------

    def compile(self, module: Module, chosen: Options) -> Artifact:
        return metal.compile_module(module, self.target(chosen), fast_math=chosen.fast_math)

    def assembly_text(self, module: Module, chosen: Options) -> str:
        return self.compile(module, chosen).code.decode()

    # -- what passes want to know ---------------------------------------------------------------

    def machine(self, chosen: Options, device: Device | None) -> Capabilities:
        found = context.hardware()
        return Capabilities(
            contracts=True,
            fuses=True,
            fills=_THREADS,
            groups_sums=True,
            blocks=found.blocks,
            updates_64_bits=False,
            memory_bytes=found.memory_bytes,
            workers=_THREADS,
            local_record_bytes=NEAR_BYTES,
        )


BACKEND = MetalBackend()
