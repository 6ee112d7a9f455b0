"""Kernels on the CPU of this machine."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from octants import options
from octants.artifact import Artifact
from octants.backends.base import Backend
from octants.cache import current
from octants.codegen.llvm import backend
from octants.codegen.llvm.lanes.widths import NEVER, most_lanes
from octants.deferred import Deferred
from octants.ir.core import Module, Operation, Task
from octants.options import Options
from octants.runtime.cpu import CpuDevice
from octants.runtime.cpu.identity import processor
from octants.runtime.cpu.sums import FIXED_PARTS
from octants.runtime.device import Device
from octants.target import HOST, Blocks, Target

if TYPE_CHECKING:
    from octants.analysis.sums import Sums
    from octants.codegen import reductions
    from octants.codegen.llvm import cpu
    from octants.codegen.llvm.lanes import choice
    from octants.runtime.cpu import apart
else:
    cpu = Deferred("octants.codegen.llvm.cpu")
    reductions = Deferred("octants.codegen.reductions")
    choice = Deferred("octants.codegen.llvm.lanes.choice")
    apart = Deferred("octants.runtime.cpu.apart")


class CpuBackend(Backend):
    """The host as an arch."""

    name = HOST.name
    serialises_blocks = True

    def make_device(self, chosen: Options) -> Device:
        threads = chosen.cpu_max_num_threads
        budget = chosen.stack_budget(self.memory_bytes(chosen))
        if options.keeps_memory_apart():
            device = apart.ApartDevice(threads, tape_budget=budget)
            device.is_late = options.raises_late()
            return device
        return CpuDevice(threads, tape_budget=budget)

    def target(self, chosen: Options) -> Target:
        return host_target()

    @functools.cached_property
    def _version(self) -> str:
        return backend.version()

    def version(self) -> str:
        return self._version

    # -- code -----------------------------------------------------------------------------------

    def compile(self, module: Module, chosen: Options) -> Artifact:
        return cpu.compile_module(module, host_target(), **_choices(chosen))

    def llvm_text(self, module: Module, chosen: Options) -> str:
        return cpu.llvm_text(module, host_target(), simd=chosen.simd, fast_math=chosen.fast_math)

    def optimised_llvm_text(self, module: Module, chosen: Options) -> str:
        return cpu.optimised_llvm_text(module, host_target(), **_choices(chosen))

    def assembly_text(self, module: Module, chosen: Options) -> str:
        return cpu.assembly_text(module, host_target(), **_choices(chosen))

    # -- what passes want to know ---------------------------------------------------------------

    def blocks(self, chosen: Options) -> Blocks | None:
        return Blocks()

    def contracts(self, chosen: Options) -> bool:
        return backend.has_fused(host_target())

    def workers(self, device: Device | None) -> int:
        return device.threads if isinstance(device, CpuDevice) else 1

    def fills(self, device: Device | None) -> int:
        return 0

    def items_in_step(self, chosen: Options) -> int:
        return 1 if chosen.simd == NEVER else max(1, most_lanes(host_target()))

    def choices(self, module: Module, chosen: Options) -> list[choice.Choice]:
        target = host_target()
        return [choice.choose(task, target, chosen.simd, module.apart) for task in module.tasks]

    def shared_updates(self, task: Task, apart: bool) -> set[Operation]:
        return {op for found in reductions.find_reductions(task, apart) for op in found.atomics}

    def most_parts(self, task: Task, device: Device | None) -> int:
        fixed = FIXED_PARTS if task.options.get("fixed_order") else 0
        return (fixed or self.workers(device)) - 1

    def plain_sums(self, task: Task, apart: bool) -> Sums:
        return cpu.sums_of(task, apart)


@functools.cache
def host_target() -> Target:
    """The CPU of this machine, as LLVM calls it; the cache knows that by the CPU's identity."""
    identity = processor()
    if identity is None:
        return backend.host_target()
    kept = current.kept("target", f"{identity} {BACKEND.version()}", _host_target)
    arch, triple, cpu_name, features = kept.decode().split("\n")
    return Target(arch, triple, cpu_name, features)


def _host_target() -> bytes:
    found = backend.host_target()
    return f"{found.arch}\n{found.triple}\n{found.cpu}\n{found.features}".encode()


def _choices(chosen: Options) -> dict[str, Any]:
    """What code generation asks of the options."""
    return {
        "fast_math": chosen.fast_math,
        "opt_level": chosen.opt_level,
        "simd": chosen.simd,
    }


BACKEND = CpuBackend()
