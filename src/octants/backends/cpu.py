"""Kernels on the CPU of this machine."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from octants.artifact import Artifact
from octants.backends.base import Backend, Updates
from octants.cache import configured_store
from octants.cached_property import cached_property
from octants.codegen.llvm import llvmlite_driver
from octants.codegen.llvm.lanes.vector_capabilities import most_lanes, vectors_of
from octants.deferred_import import Deferred
from octants.ir.core import Module, Task
from octants.options import Options, memory_of_the_machine
from octants.runtime.cpu import CpuDevice
from octants.runtime.cpu.native.parallel_loops import FIXED_PARTS
from octants.runtime.cpu.processor_identity import processor
from octants.runtime.device import Device
from octants.target import HOST, NEVER, Blocks, Capabilities, Target

if TYPE_CHECKING:
    from octants.analysis.lanes import choose_loops
    from octants.codegen.llvm import cpu
else:
    cpu = Deferred("octants.codegen.llvm.cpu")
    choose_loops = Deferred("octants.analysis.lanes.choose_loops")


class CpuBackend(Backend):
    """The host as an arch."""

    name = HOST.name
    is_gpu = False
    device_class = CpuDevice

    def make_device(self, chosen: Options) -> CpuDevice:
        budget = chosen.stack_budget(memory_of_the_machine())
        return self.device_class(chosen.cpu_max_num_threads, record_budget=budget)

    def target(self, chosen: Options) -> Target:
        return host_target()

    @cached_property
    def _version(self) -> str:
        return llvmlite_driver.version()

    def version(self) -> str:
        return self._version

    # -- code -----------------------------------------------------------------------------------

    def import_compiler(self) -> None:
        super().import_compiler()
        _ = cpu.compile_module
        llvmlite_driver.begin_on_host()

    def compile(self, module: Module, chosen: Options) -> Artifact:
        return cpu.compile_module(module, host_target(), **_choices(chosen))

    def llvm_text(self, module: Module, chosen: Options) -> str:
        return cpu.llvm_text(module, host_target(), simd=chosen.simd, fast_math=chosen.fast_math)

    def optimised_llvm_text(self, module: Module, chosen: Options) -> str:
        return cpu.optimised_llvm_text(module, host_target(), **_choices(chosen))

    def assembly_text(self, module: Module, chosen: Options) -> str:
        return cpu.assembly_text(module, host_target(), **_choices(chosen))

    # -- what passes want to know ---------------------------------------------------------------

    def machine(self, chosen: Options, device: Device | None) -> Capabilities:
        target = host_target()
        in_step = 1 if device is None or chosen.simd == NEVER else most_lanes(target)
        return Capabilities(
            contracts=llvmlite_driver.has_fused(target),
            fuses=llvmlite_driver.has_fused(target),
            serialises_blocks=True,
            blocks=Blocks(),
            vectors=vectors_of(target, chosen.simd),
            groups_sums=True,
            memory_bytes=memory_of_the_machine(),
            workers=device.threads if isinstance(device, CpuDevice) else 1,
            record_buffer_sharers=max(1, in_step),
        )

    def choices(self, module: Module, chosen: Options) -> list[choose_loops.LaneChoice]:
        vectors = vectors_of(host_target(), chosen.simd)
        return [choose_loops.choose(task, vectors, module.noalias) for task in module.tasks]

    def updates(self, task: Task, noalias: bool, device: Device | None) -> Updates:
        fixed = FIXED_PARTS if task.options.get("fixed_order") else 0
        workers = device.threads if isinstance(device, CpuDevice) else 1
        collected = super().updates(task, noalias, device).collected
        return Updates(collected, cpu.sums_of(task, noalias), (fixed or workers) - 1)


@functools.cache
def host_target() -> Target:
    """The CPU of this machine, as LLVM calls it; the cache knows that by the CPU's identity."""
    identity = processor()
    if identity is None:
        return llvmlite_driver.host_target()
    kept = configured_store.cached_bytes("target", f"{identity} {BACKEND.version()}", _host_target)
    arch, triple, cpu_name, features = kept.decode().split("\n")
    return Target(arch, triple, cpu_name, features)


def _host_target() -> bytes:
    found = llvmlite_driver.host_target()
    return f"{found.arch}\n{found.triple}\n{found.cpu}\n{found.features}".encode()


def _choices(chosen: Options) -> dict[str, Any]:
    """The options of code generation."""
    return {
        "fast_math": chosen.fast_math,
        "opt_level": chosen.opt_level,
        "simd": chosen.simd,
    }


BACKEND = CpuBackend()
