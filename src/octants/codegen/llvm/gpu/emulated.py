"""Emulate a GPU on the CPU, to test the code that all GPUs share where there is none.

Each dispatch is a function ``entry(parameters, launch, thread, threads)`` of one thread, compiled
for the CPU. A subgroup is one thread.
"""

from __future__ import annotations

from octants import abi
from octants.artifact import Artifact
from octants.codegen.llvm import backend
from octants.codegen.llvm.gpu.function import ThreadText
from octants.codegen.llvm.gpu.kernels import write
from octants.codegen.llvm.gpu.machine import Gpu
from octants.ir.core import Module
from octants.target import Target


class Emulated(Gpu):
    """An emulated GPU: threads run one after the other."""

    subgroup = 1

    def __init__(self, target: Target) -> None:
        self.has_half = not backend.is_x64(target) or "+f16c" in target.features.split(",")
        self.has_fused = backend.has_fused(target)

    def head(self, f: ThreadText, name: str) -> str:
        slots = f"ptr noalias nonnull readonly align 8 dereferenceable({f.kernel.size}) %parameters"
        size = abi.LAUNCH_GRAPH_SIZE
        words = f"ptr noalias nonnull readonly align 8 dereferenceable({size}) %launch"
        return f"void @{name}({slots}, {words}, i64 %thread, i64 %threads) nounwind"

    def thread(self, f: ThreadText) -> str:  # noqa: ARG002
        return "%thread"

    def threads(self, f: ThreadText) -> str:  # noqa: ARG002
        return "%threads"

    def from_lane(self, f: ThreadText, type: str, value: str, distance: int) -> str:
        raise NotImplementedError("a subgroup of one thread has no other lane")

    def all_at(self, f: ThreadText, address: str) -> str:  # noqa: ARG002
        return "true"

    def any_lane(self, f: ThreadText, condition: str) -> str:  # noqa: ARG002
        return condition

    def fence(self, f: ThreadText, scope: str) -> None:  # noqa: ARG002
        f.emit("fence acq_rel")

    def is_first_lane(self, f: ThreadText) -> str:  # noqa: ARG002
        return "true"


def compile_module(
    module: Module, target: Target, *, fast_math: bool = False, opt_level: int = 2
) -> Artifact:
    """Compile the functions of a module's dispatches into an object file for the CPU."""
    written = write(module, Emulated(target), fast_math=fast_math)
    optimised, machine = backend.optimised(written.text.finish(), target, opt_level)
    return written.artifact(target, machine.emit_object(optimised), parameters="pointer")
