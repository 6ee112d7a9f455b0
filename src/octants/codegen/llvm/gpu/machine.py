"""What is the same on all GPUs: their tapes, and the functions that are no instructions."""

from __future__ import annotations

from octants.codegen.function import Tape
from octants.codegen.llvm.code import LlvmCode
from octants.codegen.llvm.function import FunctionText
from octants.codegen.llvm.gpu.code import GpuCode
from octants.codegen.llvm.gpu.remainder import remainder
from octants.codegen.llvm.gpu.text import GpuMachine, ThreadText
from octants.codegen.tape import ThreadTape


class Gpu(GpuMachine):
    """A GPU of which the rest is still to be said."""

    def library(self, f: FunctionText, fn: str, type: str, operands: list[str]) -> str:
        assert fn == "fmod"
        return remainder(f, type, *operands)

    def code(self, f: FunctionText) -> LlvmCode:
        return GpuCode(f) if isinstance(f, ThreadText) else LlvmCode(f)

    def tape(self, f: FunctionText) -> Tape:
        assert isinstance(f, ThreadText)
        return ThreadTape(f)
