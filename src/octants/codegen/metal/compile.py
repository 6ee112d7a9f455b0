"""Kernels for Metal: the text of a library, with a kernel function for each dispatch."""

from __future__ import annotations

from dataclasses import replace

from octants.artifact import Artifact, Dispatch
from octants.codegen.metal.instruction_writer import MetalCode
from octants.codegen.metal.library_text import EntryPoint, LibraryText
from octants.codegen.structured.dispatch_functions import BlockSizes, DispatchEmitter, functions
from octants.codegen.structured.features import Features
from octants.codegen.structured.function_emitter import StructuredKernel
from octants.ir.core import Module
from octants.target import Target

BLOCK, SUMMING, ENOUGH = 64, 256, 1 << 16
"""Threads of a block, of one whose threads sum up together, and threads that fill any GPU."""


def compile_module(module: Module, target: Target, *, fast_math: bool = False) -> Artifact:
    """The code of a module with tasks; `OctantsRuntimeError` where Metal lacks what it needs."""
    kernel = StructuredKernel(module, fast_math=fast_math)
    text = LibraryText(Features(target, module.kernel or module.name), fast_math=fast_math)
    written = functions(
        kernel, BlockSizes(BLOCK, SUMMING, BLOCK, BLOCK, BLOCK), target.blocks, ENOUGH
    )
    dispatches = tuple(_write(text, function) for function in written)
    return kernel.artifact(target.triple, text.finish(), dispatches=dispatches)


def _write(text: LibraryText, function: DispatchEmitter) -> Dispatch:
    """Write a function; gives its dispatch, which says what the code needs."""
    lanes = text.features.lanes
    numbered = lanes > 1 and function.has_lanes
    entry = EntryPoint(function.threads, numbered, has_lanes=numbered)
    code = MetalCode(text, entry)
    function.write(code)
    text.add_entry(function.dispatch.entry, entry, code.body())
    return replace(function.dispatch, lanes=lanes if entry.has_lanes else 0)
