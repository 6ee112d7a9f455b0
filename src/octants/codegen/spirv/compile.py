"""Compile kernels for Vulkan: one SPIR-V module, with an entry point for each dispatch."""

from __future__ import annotations

from dataclasses import replace

from octants.artifact import Artifact, Dispatch
from octants.codegen import sums_of_products
from octants.codegen.spirv.control_flow import EntryPoint
from octants.codegen.spirv.driver_i64_workaround import SplitCode
from octants.codegen.spirv.i64_functions import PairCode
from octants.codegen.spirv.instruction_writer import SpirvCode
from octants.codegen.spirv.lanewise_addresses import LanewiseCode
from octants.codegen.spirv.module_builder import Assembly
from octants.codegen.structured.dispatch_functions import BlockSizes, DispatchEmitter, functions
from octants.codegen.structured.features import Features
from octants.codegen.structured.function_emitter import StructuredKernel
from octants.ir.core import Module
from octants.target import Target

BLOCK = 64
"""The threads of a block: a multiple of all subgroup sizes."""

SUMMING = 1024
"""The same for tasks that reduce, except on a CPU: a block makes one update of each sum."""

PLAIN = 256
"""The same for tasks that neither reduce nor write records: a GPU starts few large blocks sooner
than many small ones.
"""

LONG = 128
"""The same for tasks with long work items, which should run on many multiprocessors."""

FEW = 32
"""The same for few work items, where that is no less than a subgroup."""

VECTOR = 8
"""The threads of a serial task's block on drivers that run on the CPU. Mesa's gets nests of loops
wrong in a block of one thread: from the second iteration of the outer one, the inner one ends.
"""
ENOUGH = 1 << 18
"""Threads that fill any device, for tasks where more threads mean more updates, or less to sort."""


def compile_module(module: Module, target: Target, *, fast_math: bool = False) -> Artifact:
    """Compile a module with tasks to SPIR-V.

    Args:
        module: The lowered module, divided into tasks.
        target: The device's features.
        fast_math: Allow less exact functions, and contraction by the driver.

    Returns:
        The artifact: one SPIR-V module and its dispatches.

    Raises:
        OctantsRuntimeError: The device lacks a feature that the kernel needs.
    """
    kernel = StructuredKernel(module, fast_math=fast_math)
    features = Features(target, module.kernel or module.name)
    assembly = Assembly(features, fast_math=fast_math)
    enough = 0 if assembly.features.has("cuts") else ENOUGH
    sizes = BlockSizes(BLOCK, SUMMING, PLAIN, LONG, FEW)
    if assembly.exchanging:
        subgroups = assembly.exchanging // features.lanes
        nbytes = sums_of_products.shared_bytes(subgroups, features.lanes)
        sizes = replace(sizes, factor_bytes=nbytes)
    if assembly.features.has("masks"):
        sizes = BlockSizes(BLOCK, BLOCK, BLOCK, BLOCK, BLOCK, VECTOR)
    written = functions(kernel, sizes, target.blocks, enough)
    dispatches = tuple(_write(assembly, function) for function in written)
    return kernel.artifact(target.triple, assembly.finish(), dispatches=dispatches)


def _write(assembly: Assembly, function: DispatchEmitter) -> Dispatch:
    """Write a function, and return its dispatch, complete with what the code needs."""
    lanes = assembly.features.lanes
    numbered = lanes > 1 and function.has_lanes
    entry, number = EntryPoint(function.threads, numbered, has_lanes=numbered), assembly.fresh()
    code = code_class(assembly.features)(assembly, entry)
    code.write_function(number, [], None, lambda inner, _: function.write(inner))
    shared = [words.variable for words in entry.shared.values()]
    assembly.add_entry(function.dispatch.entry, number, entry.block, shared)
    return replace(function.dispatch, lanes=lanes if entry.has_lanes else 0)


def code_class(features: Features) -> type[SpirvCode]:
    """The class that writes functions for a device with some features."""
    if not features.has("int64"):
        return PairCode
    if features.has("lanewise") and features.has("addresses"):
        return LanewiseCode
    return SplitCode if features.has("splits") else SpirvCode
