"""Kernels run by the interpreter: slow, and the definition of what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octants.artifact import Artifact
from octants.backends.base import Backend, Run
from octants.deferred import Deferred
from octants.diagnostics.exceptions import InternalError
from octants.ir.core import Module
from octants.options import Options
from octants.runtime.device import Device
from octants.runtime.null import NullDevice
from octants.target import Blocks, Target

if TYPE_CHECKING:
    from octants.codegen.llvm.lanes import choice
    from octants.runtime import reference
else:
    choice = Deferred("octants.codegen.llvm.lanes.choice")
    reference = Deferred("octants.runtime.reference")


class PythonBackend(Backend):
    """The interpreter as an arch; memory is all that it needs of a device."""

    name = "python"
    compiles = False

    def make_device(self, chosen: Options) -> Device:
        return NullDevice()

    def target(self, chosen: Options) -> Target:
        return Target("python")

    def version(self) -> str:
        return "the interpreter"

    def compile(self, module: Module, chosen: Options) -> Artifact:
        raise InternalError("the interpreter has no code")

    def interpret(self, module: Module, device: Device, chosen: Options) -> Run:
        budget = chosen.stack_budget(self.memory_bytes(chosen))
        return reference.make_run(module, device.pending, budget)

    def blocks(self, chosen: Options) -> Blocks | None:
        return Blocks()

    def contracts(self, chosen: Options) -> bool:
        return False

    def fills(self, device: Device | None) -> int:
        return 0

    def choices(self, module: Module, chosen: Options) -> list[choice.Choice]:
        return [choice.Choice("the interpreter has no lanes") for _ in module.tasks]


BACKEND = PythonBackend()
