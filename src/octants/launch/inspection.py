"""Shows the compilation of a kernel: IR after each pass, LLVM IR and assembly, as text."""

from __future__ import annotations

from octants import driver, pipeline
from octants.analysis.memory.alias_sensitivity import disjoint_refs
from octants.backends.table import backend_of
from octants.cached_property import cached_property
from octants.diagnostics.launch_errors import WrongInspection
from octants.internal_members import internal
from octants.ir.core import Module
from octants.ir.printer import to_text
from octants.launch.specialisation import Specialisation
from octants.options import Options

MODES = ("primal", "reverse", "forward")


class Inspection:
    """The stages of a kernel by name, in order; printed, all of them.

    ``str(kernel.inspect(x))`` is long; ``kernel.inspect(x).stages["simplify"]`` is the IR that is
    differentiated, ``stages["finish"]`` the IR that code is generated from. The texts of LLVM are
    generated on demand.
    """

    @internal
    def __init__(self, stages: dict[str, str], module: Module, chosen: Options) -> None:
        self.stages = stages
        self._module = module
        self._options = chosen
        self._backend = backend_of(chosen.arch)

    @cached_property
    def lanes(self) -> dict[str, str]:
        """For each task by name: how many work items run at once, and why."""
        choices = self._backend.choices(self._module, self._options)
        names = (task.name for task in self._module.tasks)
        return {name: str(choice) for name, choice in zip(names, choices, strict=True)}

    @cached_property
    def llvm_ir(self) -> str:
        """The LLVM IR as it is generated; empty for ``arch=python``."""
        return self._backend.llvm_text(self._module, self._options)

    @cached_property
    def llvm_ir_optimized(self) -> str:
        """The LLVM IR after LLVM's passes."""
        return self._backend.optimised_llvm_text(self._module, self._options)

    @cached_property
    def assembly(self) -> str:
        """The assembly."""
        return self._backend.assembly_text(self._module, self._options)

    def __str__(self) -> str:
        parts = {
            **self.stages,
            "lanes": "\n".join(f"{name}: {choice}" for name, choice in self.lanes.items()),
            "LLVM IR": self.llvm_ir,
            "optimized LLVM IR": self.llvm_ir_optimized,
            "assembly": self.assembly,
        }
        return "\n".join(f"==== {name} ====\n{text}" for name, text in parts.items() if text)


def inspect(specialisation: Specialisation, mode: str) -> Inspection:
    """Build a kernel again, and record the result of each pass.

    Raises:
        OctantsValueError: there is no such mode.
    """
    if mode not in MODES:
        raise WrongInspection(mode, ", ".join(MODES)).at()
    stages: dict[str, str] = {}

    def observe(name: str, module: Module) -> None:
        number = 2
        label = name
        while label in stages:
            label, number = f"{name} {number}", number + 1
        stages[label] = to_text(module)

    chosen = specialisation.options
    function = specialisation.kernel.function
    module = driver.build(
        function, specialisation.types, specialisation.signature.returns, chosen, observe
    ).module
    stage = driver.stage_of(chosen, observe)
    noalias = mode == "reverse"
    if mode == "reverse":
        module = pipeline.differentiate_reverse(
            module, stage, before_launch=False, split=False, noalias=True
        ).module
    elif mode == "forward":
        module = pipeline.differentiate_forward(module, stage)
    elif disjoint_refs(module):  # the code of most launches, whose arrays share no memory
        noalias = True
    module = pipeline.finish(module, stage, noalias=noalias)
    return Inspection(stages, module, chosen)
