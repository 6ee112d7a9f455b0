"""The base class of GPUs: their instruction writer and their tapes."""

from __future__ import annotations

from octants.codegen.function import TapeMemory
from octants.codegen.interleaved_tape import ThreadTape
from octants.codegen.llvm.code import LlvmCode
from octants.codegen.llvm.function import FunctionText
from octants.codegen.llvm.gpu.code import GpuCode
from octants.codegen.llvm.gpu.function import GpuMachine, ThreadText


class Gpu(GpuMachine):
    """A GPU; subclasses add its threads, subgroups and blocks."""

    def code(self, f: FunctionText) -> LlvmCode:
        return GpuCode(f) if isinstance(f, ThreadText) else LlvmCode(f)

    def tape(self, f: FunctionText) -> TapeMemory:
        assert isinstance(f, ThreadText)
        return ThreadTape(f)
