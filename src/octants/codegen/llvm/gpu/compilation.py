"""Compile the kernels of a module for a GPU by LLVM, or show the text on the way."""

from __future__ import annotations

from typing import Any

from octants.artifact import Artifact
from octants.codegen.llvm import llvmlite_driver
from octants.codegen.llvm.gpu.dispatch_functions import WrittenKernel, write
from octants.codegen.llvm.gpu.function_text import Gpu
from octants.compile_profile import stage
from octants.ir.core import Module


def compile_module(
    module: Module, gpu: Gpu, *, fast_math: bool = False, opt_level: int = 2
) -> Artifact:
    """Compile a module with tasks.

    Args:
        module: The lowered module, divided into tasks.
        gpu: Whose instructions are written, and for which processor.
        fast_math: Allow less exact instructions for some functions of f32.
        opt_level: LLVM's optimisation level, 0 to 3.

    Returns:
        The artifact: the code that the GPU's driver loads, and its dispatches.
    """
    with stage("LLVM text"):
        written = _write(module, gpu, fast_math)
        text = written.text.finish()
    optimised, machine = _optimised(text, gpu, opt_level)
    with stage("LLVM emit") as note:
        code = gpu.emit(machine, optimised)
        note.gives(code.__len__, "bytes")
    by_value = written.kernel.size <= gpu.by_value
    facts = (("parameters", "value" if by_value else "pointer"),)
    kernel, dispatches = written.kernel, written.dispatches
    return kernel.artifact(gpu.target.cpu, code, metadata=facts, dispatches=dispatches)


def llvm_text(module: Module, gpu: Gpu, *, fast_math: bool = False) -> str:
    """The LLVM IR of a module as it is generated."""
    return _write(module, gpu, fast_math).text.finish()


def optimised_llvm_text(
    module: Module, gpu: Gpu, *, fast_math: bool = False, opt_level: int = 2
) -> str:
    """The LLVM IR of a module after LLVM's passes."""
    text = llvm_text(module, gpu, fast_math=fast_math)
    return str(_optimised(text, gpu, opt_level)[0])


def assembly_text(module: Module, gpu: Gpu, *, fast_math: bool = False, opt_level: int = 2) -> str:
    """The instructions of a module; compiled again, since LLVM emits a module only once."""
    text = llvm_text(module, gpu, fast_math=fast_math)
    optimised, machine = _optimised(text, gpu, opt_level)
    return str(machine.emit_assembly(optimised))


def _write(module: Module, gpu: Gpu, fast_math: bool) -> WrittenKernel:
    written = write(module, gpu, fast_math=fast_math)
    for name, value in gpu.flags:
        written.text.flag(name, value)
    return written


def _optimised(text: str, gpu: Gpu, level: int) -> tuple[Any, Any]:
    """The module after LLVM's passes, and the machine that emits it."""
    return llvmlite_driver.optimised(text, gpu.target, max(level, gpu.least_level))
