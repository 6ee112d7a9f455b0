"""GPUs for which LLVM generates the code, and whose drivers launch grids of threads."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from octants.backends.base import NEAR_BYTES, Backend
from octants.cached_property import cached_property
from octants.codegen.llvm import llvmlite_driver
from octants.deferred_import import Deferred
from octants.ir.core import Module
from octants.options import Options
from octants.runtime.device import Device
from octants.target import Blocks, Capabilities

if TYPE_CHECKING:
    from octants.codegen.llvm.gpu import compilation
    from octants.codegen.llvm.gpu.function_text import Gpu
    from octants.runtime.cuda import context
else:
    compilation = Deferred("octants.codegen.llvm.gpu.compilation")
    context = Deferred("octants.runtime.cuda.context")

_THREADS = 2048  # of a multiprocessor, at most


class LlvmGpuBackend(Backend):
    """The GPU with the ordinal that the options name.

    `driver_name` is what the driver's interface is called, which `library` opens. With
    `approximates_quotients` there is an instruction for `approximate_div`.
    """

    driver_name: str
    approximates_quotients = False
    groups_sums = exchanges_factors = False
    allots_registers = keeps_calls = False
    nested_records = 1

    @abstractmethod
    def library(self) -> Any:
        """The driver's functions; an `OctantsRuntimeError` if there is no driver."""

    @abstractmethod
    def gpu(self, chosen: Options) -> Gpu:
        """The GPU whose instructions are written."""

    def import_compiler(self) -> None:
        super().import_compiler()
        _ = compilation.compile_module
        llvmlite_driver.begin()

    def estimate_sums(self, chosen: Options) -> int:
        """How many additions take as long as an estimate of a sine; 0 if there is none."""
        return 0

    def context(self, device: int) -> Any:
        """The GPU of an ordinal as its driver knows it; an `OctantsError` if it cannot be used."""
        return context.context_of(self.library(), device)

    def require(self) -> None:
        """Require the driver, and a GPU that code is generated for; wait for its context."""
        self.context(0)

    def device_names(self) -> tuple[str, ...]:
        return context.names_of_devices(self.library())

    @cached_property
    def _version(self) -> str:
        return f"{llvmlite_driver.version()}, {self.driver_name} {self.library().driver_version}"

    def version(self) -> str:
        return self._version

    # -- code -----------------------------------------------------------------------------------

    def llvm_text(self, module: Module, chosen: Options) -> str:
        return compilation.llvm_text(module, self.gpu(chosen), fast_math=chosen.fast_math)

    def optimised_llvm_text(self, module: Module, chosen: Options) -> str:
        return compilation.optimised_llvm_text(module, self.gpu(chosen), **choices(chosen))

    # -- what the language and passes want to know ----------------------------------------------

    def machine(self, chosen: Options, device: Device | None) -> Capabilities:
        own = self.context(chosen.device)
        count = 1 if device is None else int(own.multiprocessors)
        return Capabilities(
            contracts=True,
            fuses=True,
            approximates_quotients=self.approximates_quotients,
            fills=2 * count * _THREADS,  # where blocks end early, others begin
            splits=True,
            groups_sums=self.groups_sums,
            exchanges_factors=self.exchanges_factors,
            allots_registers=self.allots_registers,
            keeps_calls=self.keeps_calls,
            estimate_sums=self.estimate_sums(chosen),
            blocks=Blocks(),
            memory_bytes=own.total_memory,
            workers=count * _THREADS,
            local_record_bytes=NEAR_BYTES,
            nested_records=self.nested_records,
        )


def choices(chosen: Options) -> dict[str, Any]:
    """The options that code generation takes."""
    return {"fast_math": chosen.fast_math, "opt_level": chosen.opt_level}
