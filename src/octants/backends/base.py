"""The interface of an arch to the driver; its default implementations are those of GPUs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from octants.artifact import Artifact, Making
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsError
from octants.ir.core import Module, Operation, Task
from octants.lazy_dataclass import dataclass
from octants.options import Options
from octants.runtime.device import Device
from octants.target import Capabilities, Target

if TYPE_CHECKING:
    from octants import frontend, pipeline
    from octants.analysis.lanes import choose_loops
    from octants.analysis.sums import privatisation, reductions
else:
    frontend, pipeline = Deferred("octants.frontend"), Deferred("octants.pipeline")
    privatisation = Deferred("octants.analysis.sums.privatisation")
    reductions = Deferred("octants.analysis.sums.reductions")
    choose_loops = Deferred("octants.analysis.lanes.choose_loops")

Run = Callable[[int], None]

NEAR_BYTES = 256
"""The bytes of the memory near a work item of a GPU that a block of a loop may take."""

_SURELY_WHOLE = 1 << 16
"""Bytes: loops that take no more in a work item are recorded whole by code that knows it. It is the
same code for all budgets that give as much."""


@dataclass(frozen=True, slots=True)
class Updates:
    """How the workers of a task update what they share.

    Each collects those that are `collected` in a register, and makes one of them. To `sums` they
    add plainly, which do not overlap; at most so many workers have `parts` of their own.
    """

    collected: set[Operation]
    sums: privatisation.PrivatisedSums
    parts: int = 0


class Backend(ABC):
    """The code generation and the devices of an arch; a process has one object of each.

    `compiles` is False for the interpreter, which runs modules as they are; `is_gpu` is False where
    work items run on the CPU.
    """

    name: str
    compiles = True
    is_gpu = True

    @property
    def has_several_devices(self) -> bool:
        """Whether a process may use several devices of this arch at once."""
        return False

    # -- what there is --------------------------------------------------------------------------

    def begin(self, chosen: Options) -> None:
        """Let what takes long to start begin, before it is needed."""
        return

    def require(self) -> None:  # noqa: B027 - most need nothing
        """Raise the `OctantsError` that keeps kernels from running here, if there is one."""

    def obstacle(self) -> str:
        """The reason why kernels cannot run here, and the package that helps; "" if they can."""
        try:
            self.require()
        except OctantsError as error:
            found = error.diagnostic
            return "; ".join(filter(None, (found.title, found.remedy))) if found else str(error)
        return ""

    def drawback(self) -> str:
        """The reason why `init` without a named arch prefers the CPU; "" if it does not."""
        return ""

    def device_names(self) -> tuple[str, ...]:
        """The names of the devices by their numbers, where there is no obstacle."""
        return ()

    @abstractmethod
    def make_device(self, chosen: Options) -> Device:
        """The device that these options ask for; `OctantsRuntimeError` if it cannot be used."""

    @abstractmethod
    def target(self, chosen: Options) -> Target:
        """The target of code generation for the device of these options."""

    @abstractmethod
    def version(self) -> str:
        """The versions of whatever generates code: they are part of the cache's keys."""

    # -- code -----------------------------------------------------------------------------------

    def import_compiler(self) -> None:
        """Import the parts of the compiler that each kernel needs."""
        _ = frontend.build
        pipeline.import_passes(self.is_gpu)

    @abstractmethod
    def compile(self, module: Module, chosen: Options) -> Artifact:
        """The code of a finished module."""

    def begin_compile(self, module: Module, chosen: Options) -> Making:
        """The same, where the last step of it may go on in another thread."""
        return Making(self.compile(module, chosen))

    def interpret(self, module: Module, device: Device, chosen: Options) -> Run:
        """A function that runs a module on the parameter block at an address, if not `compiles`."""
        raise NotImplementedError

    def llvm_text(self, module: Module, chosen: Options) -> str:
        """The LLVM IR of a module; "" where there is none."""
        return ""

    def optimised_llvm_text(self, module: Module, chosen: Options) -> str:
        """The LLVM IR of a module after LLVM's passes; "" where there is none."""
        return ""

    def assembly_text(self, module: Module, chosen: Options) -> str:
        """The code of a module in words."""
        return ""

    # -- what the language and passes want to know ----------------------------------------------

    @abstractmethod
    def machine(self, chosen: Options, device: Device | None) -> Capabilities:
        """The capabilities of the machine, whatever the options request."""

    def capabilities(self, chosen: Options, device: Device | None) -> Capabilities:
        """The capabilities of the machine, and the demands of these options on its code."""
        found = self.machine(chosen, device)
        share = max(1, chosen.stack_budget(found.memory_bytes) // found.workers)
        return replace(
            found,
            contracts=chosen.fast_math and found.contracts,
            whole_record_bytes=min(share, _SURELY_WHOLE * found.record_buffer_sharers),
            capacity=chosen.ad_stack_size,
            nests=chosen.ad_stack_nests,
            checks_bounds=chosen.checks_bounds,
            checks_finite=chosen.checks_finite,
            deterministic=chosen.deterministic,
        )

    # -- how code runs ---------------------------------------------------------------------------

    def choices(self, module: Module, chosen: Options) -> list[choose_loops.LaneChoice]:
        """How the tasks of a finished module are run, as far as that depends on its code."""
        return [choose_loops.LaneChoice("each has a thread") for _ in module.tasks]

    def updates(self, task: Task, noalias: bool, device: Device | None) -> Updates:
        """How workers update what they share; ``noalias``: no two arrays share memory."""
        found = reductions.find_reductions(task, noalias)
        return Updates(
            {op for each in found for op in each.atomics}, privatisation.PrivatisedSums()
        )
