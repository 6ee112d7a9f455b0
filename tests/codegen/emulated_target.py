"""Emulate a GPU on the CPU, to test the code that all GPUs share where there is none.

Each dispatch is a function ``entry(parameters, launch, thread, threads)`` of one thread, compiled
for the CPU. A subgroup is one thread.
"""

from __future__ import annotations

from typing import Any

from octants import abi
from octants.codegen.llvm import llvmlite_driver
from octants.codegen.llvm.gpu.function_text import Gpu, GpuCode, ThreadText
from octants.target import Target
from octants.types.scalars import DType


class EmulatedCode(GpuCode):
    """A function of an emulated thread."""

    def thread(self) -> str:
        return "%thread"

    def threads(self) -> str:
        return "%threads"

    def thread_in_block(self) -> str:
        raise NotImplementedError("there are no blocks")

    def threads_in_block(self) -> str:
        raise NotImplementedError("there are no blocks")

    def barrier(self, scope: str) -> None:
        raise NotImplementedError("there are no blocks")

    def read_lane(self, x: str, dtype: DType, lane: str) -> str:
        raise NotImplementedError("a subgroup of one thread has no other lane")

    def all_at(self, address: str) -> str:  # noqa: ARG002
        return "true"

    def any_lane(self, condition: str) -> str:
        return condition

    def fence(self, scope: str = "device") -> None:  # noqa: ARG002
        self._thread.emit("fence acq_rel")

    def is_first_lane(self) -> str:
        return "true"


class Emulated(Gpu):
    """An emulated GPU: threads run one after the other."""

    thread_code = EmulatedCode
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
        size = abi.LAUNCH_SIZE
        words = f"ptr noalias nonnull readonly align 8 dereferenceable({size}) %launch"
        return f"void @{name}({slots}, {words}, i64 %thread, i64 %threads) nounwind"
