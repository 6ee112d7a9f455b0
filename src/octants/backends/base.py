"""What the driver asks of an arch. Where there is an answer here, it is that of GPUs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from octants.artifact import Artifact, Making
from octants.deferred import Deferred
from octants.ir.core import Module, Operation, Task
from octants.options import Options, memory_of_the_machine
from octants.runtime.device import Device
from octants.target import Blocks, Target

if TYPE_CHECKING:
    from octants.analysis import sums
    from octants.codegen.llvm.lanes import choice
else:
    sums = Deferred("octants.analysis.sums")
    choice = Deferred("octants.codegen.llvm.lanes.choice")

Run = Callable[[int], None]


class Backend(ABC):
    """The code generation and the devices of an arch; a process has one object of each.

    `compiles` is False for the interpreter, which runs modules as they are. One that
    `serialises_blocks` has no threads that could wait for each other in a block. `local_bytes` is
    what a block of a loop may take of the memory near a work item; 0: there is none.
    """

    name: str
    compiles = True
    serialises_blocks = False
    local_bytes = 0
    splits = False

    # -- what there is --------------------------------------------------------------------------

    def begin(self, chosen: Options) -> None:
        """Let what takes long to start begin, before it is needed."""
        return

    def obstacle(self) -> str:
        """What keeps kernels from running here, and what to install for it; "" for nothing."""
        return ""

    def drawback(self) -> str:
        """What makes the CPU a better choice for who has not asked for this arch by name."""
        return ""

    @abstractmethod
    def make_device(self, chosen: Options) -> Device:
        """The device that these options ask for; `OctantsRuntimeError` if it cannot be used."""

    @abstractmethod
    def target(self, chosen: Options) -> Target:
        """What code is made for under these options, which a device was made for."""

    @abstractmethod
    def version(self) -> str:
        """What turns IR into code; the cache keeps apart what other versions have made."""

    # -- code -----------------------------------------------------------------------------------

    @abstractmethod
    def compile(self, module: Module, chosen: Options) -> Artifact:
        """The code of a finished module."""

    def begin_compile(self, module: Module, chosen: Options) -> Making:
        """The same, where the last step of it may go on in another thread."""
        return Making(self.compile(module, chosen))

    def interpret(self, module: Module, device: Device, chosen: Options) -> Run:
        """What runs a module on the parameter block at an address, where nothing `compiles`."""
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

    def blocks(self, chosen: Options) -> Blocks | None:
        """What there is for work items that work together; None where they cannot."""
        return None

    def updates_64_bits(self, chosen: Options) -> bool:
        """Whether work items can update integers of 64 bits in memory atomically."""
        return True

    def memory_bytes(self, chosen: Options) -> int:
        """The bytes of memory that arrays, and tapes and their copies, share."""
        return memory_of_the_machine()

    def contracts(self, chosen: Options) -> bool:
        """Whether a product and a sum can be one instruction, which rounds once."""
        return True

    def workers(self, device: Device | None) -> int:
        """Among how many the bytes for the tapes of a launch are divided."""
        return 1

    def fills(self, device: Device | None) -> int:
        """How many work items keep a GPU busy; 0 for what is busy with few."""
        return self.workers(device)

    def items_in_step(self, chosen: Options) -> int:
        """How many work items share the tape of a worker, at most."""
        return 1

    def choices(self, module: Module, chosen: Options) -> list[choice.Choice]:
        """How the tasks of a finished module are run, as far as that depends on its code."""
        return [choice.Choice("each has a thread") for _ in module.tasks]

    def shared_updates(self, task: Task, apart: bool) -> set[Operation]:
        """The updates of a task that each worker collects in a register, and does once.

        ``apart`` says here and below that no two arrays of the task share memory.
        """
        return set()

    def most_parts(self, task: Task, device: Device | None) -> int:
        """How many arrays of their own, at most, the workers of a task have that sums up."""
        return 0

    def plain_sums(self, task: Task, apart: bool) -> sums.Sums:
        """The sums of a task to which workers add plainly, kept apart from each other."""
        return sums.Sums()
