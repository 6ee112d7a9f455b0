"""The base class of GPUs: their instruction writer and their record buffers."""

from __future__ import annotations

from typing import Any

from octants.codegen.function_emitter import RecordBuffer
from octants.codegen.interleaved_record_buffer import ThreadRecordBuffer
from octants.codegen.llvm.function_text import FunctionText
from octants.codegen.llvm.gpu.function_text import GpuMachine, ThreadText
from octants.codegen.llvm.gpu.instruction_writer import GpuCode
from octants.codegen.llvm.instruction_writer import LlvmCode
from octants.target import Target


class Gpu(GpuMachine):
    """A GPU; subclasses add its threads, subgroups and blocks.

    A parameter block of up to `by_value` bytes is passed by value; a larger one has its address
    passed. `flags` are names and values of LLVM's module flags. LLVM optimises at `least_level`
    or above.
    """

    by_value = -1  # none, not even an empty one
    flags: tuple[tuple[str, int], ...] = ()
    least_level = 0

    def __init__(self, target: Target) -> None:
        self.target = target

    def emit(self, machine: Any, optimised: Any) -> bytes:
        """The code that the driver loads, from LLVM's target machine and optimised module."""
        raise NotImplementedError

    def code(self, f: FunctionText) -> LlvmCode:
        return GpuCode(f) if isinstance(f, ThreadText) else LlvmCode(f)

    def record_buffer(self, f: FunctionText) -> RecordBuffer:
        assert isinstance(f, ThreadText)
        return ThreadRecordBuffer(f)
