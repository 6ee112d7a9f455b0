"""Kernels run by the interpreter: slow, and the definition of what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octants.artifact import Artifact
from octants.backends.base import Backend, Run, Updates
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import InternalError
from octants.ir.core import Module, Task
from octants.options import Options, memory_of_the_machine
from octants.runtime.device import Device
from octants.runtime.devices.null import NullDevice
from octants.target import Blocks, Capabilities, Target

if TYPE_CHECKING:
    from octants.analysis.lanes import choose_loops
    from octants.analysis.sums import privatisation
    from octants.runtime.devices import interpreter as interpreter_device
else:
    privatisation = Deferred("octants.analysis.sums.privatisation")
    choose_loops = Deferred("octants.analysis.lanes.choose_loops")
    interpreter_device = Deferred("octants.runtime.devices.interpreter")


class PythonBackend(Backend):
    """The interpreter as an arch; it needs only memory from a device."""

    name = "python"
    is_gpu = False
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
        budget = chosen.stack_budget(memory_of_the_machine())
        return interpreter_device.make_run(module, device.pending, budget)

    def machine(self, chosen: Options, device: Device | None) -> Capabilities:
        return Capabilities(blocks=Blocks(), memory_bytes=memory_of_the_machine())

    def choices(self, module: Module, chosen: Options) -> list[choose_loops.LaneChoice]:
        return [choose_loops.LaneChoice("the interpreter has no lanes") for _ in module.tasks]

    def updates(self, task: Task, noalias: bool, device: Device | None) -> Updates:
        return Updates(set(), privatisation.PrivatisedSums())


BACKEND = PythonBackend()
