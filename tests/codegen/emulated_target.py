"""Emulate a GPU on the CPU, to test the code that all GPUs share where there is none.

Each dispatch is a function ``entry(parameters, launch, thread, threads)`` of one thread, compiled
for the CPU. A subgroup is one thread.
"""

from __future__ import annotations

from typing import Any

from octants import abi
from octants.codegen.llvm import llvmlite_driver
from octants.codegen.llvm.gpu.base import Gpu
from octants.codegen.llvm.gpu.function_text import ThreadText
from octants.target import Target


class Emulated(Gpu):
    """An emulated GPU: threads run one after the other."""

    subgroup = 1
    starts_early = True

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.has_half = not llvmlite_driver.is_x64(target) or "+f16c" in target.features.split(",")
        self.has_fused = llvmlite_driver.has_fused(target)

    def emit(self, machine: Any, optimised: Any) -> bytes:
        code: bytes = machine.emit_object(optimised)
        return code

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
