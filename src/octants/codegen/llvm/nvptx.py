"""Compile kernels for NVIDIA's GPUs to PTX, which the driver compiles for its device.

Each dispatch is a function ``entry(parameters, launch)``: the parameter block by value, or its
address if it is large, and the launch words of `abi` by value.
"""

from __future__ import annotations

from typing import Any

from octants import abi
from octants.codegen.llvm.function_text import FunctionText
from octants.codegen.llvm.gpu import approximations
from octants.codegen.llvm.gpu.atomics_without_results import without_results
from octants.codegen.llvm.gpu.base import Gpu
from octants.codegen.llvm.gpu.function_text import ThreadText
from octants.codegen.llvm.gpu.narrow_stores import narrow_stores
from octants.codegen.llvm.gpu.nvidia_targets import target as target
from octants.codegen.llvm.gpu.wide_extrema import widen_extrema
from octants.target import Target

_STARTS_EARLY = 90
"""The least processor whose functions may start early."""
_MOST_REGISTERS, _REGISTERS_OF_BLOCK = 255, 1 << 16
"""Registers of a thread, and of all threads of a block, at most."""


class Nvptx(Gpu):
    """An NVIDIA GPU. Subgroups are warps of 32 threads."""

    subgroup = 32
    estimates = approximations.ESTIMATES
    has_blocks = True
    shared_bytes = 48 * 1024
    most_subgroups = 32
    exchange_subgroups = 4
    reciprocal_root = approximations.ROOT
    normal_root = staticmethod(approximations.normal_root)
    quotient = staticmethod(approximations.quotient)
    by_value = 3968  # all parameters take at most 4096 bytes
    # NVIDIA's compiler unrolls a `while` with a condition like ``w < abs(x[0])`` by a trip count
    # for which it reads the load of an iteration that has not run. LLVM hoists such loads.
    least_level = 1

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.starts_early = int(target.cpu.removeprefix("sm_")) >= _STARTS_EARLY

    def emit(self, machine: Any, optimised: Any) -> bytes:
        text = widen_extrema(narrow_stores(machine.emit_assembly(optimised)))
        return without_results(text).encode()

    def quick(self, f: FunctionText, fn: str, operands: list[str]) -> str | None:
        write = approximations.FAST.get(fn)
        return None if write is None else write(f, *operands)

    def head(self, f: ThreadText, name: str) -> str:
        size = f.kernel.size
        slots = f"ptr noalias readonly byval([{size // 8} x i64]) align 8 %parameters"
        if size > self.by_value:
            slots = "ptr noalias nonnull readonly align 8 %parameters"
        count = abi.LAUNCH_GRAPH_SIZE // 8
        words = f"ptr noalias readonly byval([{count} x i64]) align 8 %launch"
        most = f.block_size or (self.exchange_subgroups * self.subgroup if f.products else 0)
        limit = f' "nvvm.maxntid"="{most}"' if most else ""
        if f.least_blocks:
            limit += f' "nvvm.minctasm"="{f.least_blocks}"'
        elif f.all_registers and f.block_size <= _REGISTERS_OF_BLOCK // _MOST_REGISTERS:
            limit += f' "nvvm.maxnreg"="{_MOST_REGISTERS}"'
        return f"ptx_kernel void @{name}({slots}, {words}) nounwind{limit}"

    def prologue(self, f: ThreadText) -> list[str]:
        """Let the next launch start, and wait for the end of the one before.

        Where neither starts early, both do nothing. All launches wait, so one that has ended says
        that all before it have.
        """
        if not self.starts_early:
            return []
        names = (f"@llvm.nvvm.griddepcontrol.{name}" for name in ("launch.dependents", "wait"))
        return [f"  call void {f.text.declare(name, 'void', '')}()" for name in names]

    # -- threads ----------------------------------------------------------------------------------

    def thread(self, f: ThreadText) -> str:
        start = self._product(f, "ctaid.x", "ntid.x")
        return f.once("thread", f"add nuw nsw i64 {start}, {self._wide(f, 'tid.x')}")

    def threads(self, f: ThreadText) -> str:
        return self._product(f, "nctaid.x", "ntid.x")

    def _product(self, f: ThreadText, one: str, other: str) -> str:
        factors = self._wide(f, one), self._wide(f, other)
        return f.once(("product", one, other), f"mul nuw nsw i64 {factors[0]}, {factors[1]}")

    def _wide(self, f: ThreadText, register: str) -> str:
        return f.once(("wide", register), f"zext i32 {self._special(f, register)} to i64")

    def _special(self, f: ThreadText, register: str) -> str:
        name = f.text.declare(f"@llvm.nvvm.read.ptx.sreg.{register}", "i32", "")
        return f.once(("special", register), f"call i32 {name}()")

    # -- subgroups --------------------------------------------------------------------------------

    def from_lane(self, f: ThreadText, type: str, value: str, distance: int) -> str:
        suffix = "f32" if type == "float" else "i32"
        name = f"@llvm.nvvm.shfl.sync.bfly.{suffix}"
        f.text.declare(name, type, f"i32, {type}, i32, i32")
        return f.assign(f"call {type} {name}(i32 -1, {type} {value}, i32 {distance}, i32 31)")

    def all_at(self, f: ThreadText, address: str) -> str:
        """Return whether all 32 lanes of the warp are active, with the address of the first one."""
        active = f.text.declare("@llvm.nvvm.activemask", "i32", "", "convergent nounwind")
        mask = f.assign(f"call i32 {active}()")
        check, merge, before = f.fresh_label("check"), f.fresh_label("merge"), f.label
        f.branch_if(f.apply("icmp eq", "i32", mask, -1), check, merge)
        f.start(check)
        bits = f.convert("ptrtoint", "ptr", address, "i64")
        name = "@llvm.nvvm.shfl.sync.idx.i32"
        f.text.declare(name, "i32", "i32, i32, i32, i32")
        differs = "0"
        for half in (bits, f.apply("lshr", "i64", bits, 32)):
            word = f.convert("trunc", "i64", half, "i32")
            first = f.assign(f"call i32 {name}(i32 -1, i32 {word}, i32 0, i32 31)")
            differs = f.apply("or", "i32", differs, f.apply("xor", "i32", word, first))
        vote = f.text.declare("@llvm.nvvm.vote.all.sync", "i1", "i32, i1")
        same = f.assign(f"call i1 {vote}(i32 -1, i1 {f.apply('icmp eq', 'i32', differs, 0)})")
        f.branch(merge)
        f.start(merge)
        phi = f.open_phi("i1")
        phi.incoming += [("false", before), (same, check)]
        f.close_phi(phi)
        return phi.name

    def lanes_by_address(self, f: ThreadText, address: str) -> tuple[str, str]:
        active = f.text.declare("@llvm.nvvm.activemask", "i32", "", "convergent nounwind")
        mask = f.assign(f"call i32 {active}()")
        match = f.text.declare("@llvm.nvvm.match.any.sync.i64", "i32", "i32, i64")
        bits = f.convert("ptrtoint", "ptr", address, "i64")
        return mask, f.assign(f"call i32 {match}(i32 {mask}, i64 {bits})")

    def any_lane(self, f: ThreadText, condition: str) -> str:
        name = f.text.declare("@llvm.nvvm.vote.any.sync", "i1", "i32, i1")
        return f.assign(f"call i1 {name}(i32 -1, i1 {condition})")

    # -- blocks -----------------------------------------------------------------------------------

    def thread_in_block(self, f: ThreadText) -> str:
        return self._special(f, "tid.x")

    def shared_memory(self, f: ThreadText, name: str, nbytes: int) -> str:
        memory = f"internal addrspace(3) global [{nbytes} x i8] undef, align 16"
        f.text.add_function(f"@{name} = {memory}")
        return f.once(("shared", name), f"addrspacecast ptr addrspace(3) @{name} to ptr")

    def block_barrier(self, f: ThreadText) -> None:
        self._instruct(f, "barrier.cta.sync.aligned.all", ("i32", "0"))

    def subgroup_barrier(self, f: ThreadText, mask: str) -> None:
        self._instruct(f, "bar.warp.sync", ("i32", mask))

    def fence(self, f: ThreadText, scope: str) -> None:
        self._instruct(f, "membar.gl" if scope == "device" else "membar.cta")

    def _instruct(self, f: ThreadText, name: str, *operands: tuple[str, str]) -> None:
        full = f.text.declare(f"@llvm.nvvm.{name}", "void", ", ".join(kind for kind, _ in operands))
        f.emit(f"call void {full}({', '.join(f'{kind} {value}' for kind, value in operands)})")

    def read_lane(self, f: ThreadText, type: str, value: str, lane: str, mask: str) -> str:
        name = f"@llvm.nvvm.shfl.sync.idx.{'f32' if type == 'float' else type}"
        f.text.declare(name, type, f"i32, {type}, i32, i32")
        return f.assign(f"call {type} {name}(i32 {mask}, {type} {value}, i32 {lane}, i32 31)")

    def ballot(self, f: ThreadText, condition: str, mask: str) -> str:
        name = f.text.declare("@llvm.nvvm.vote.ballot.sync", "i32", "i32, i1")
        return f.assign(f"call i32 {name}(i32 {mask}, i1 {condition})")

    def is_first_lane(self, f: ThreadText) -> str:
        return f.apply("icmp eq", "i32", f.code.lane(), 0)

    def subgroup_in_block(self, f: ThreadText) -> str:
        return f.apply("udiv", "i32", self._special(f, "tid.x"), self.subgroup)

    def subgroups_in_block(self, f: ThreadText) -> str:
        return f.apply("udiv", "i32", self._special(f, "ntid.x"), self.subgroup)

    def threads_in_block(self, f: ThreadText) -> str:
        return self._special(f, "ntid.x")

    def any_in_block(self, f: ThreadText, condition: str) -> str:
        name = f.text.declare("@llvm.nvvm.barrier.cta.red.or.aligned.all", "i1", "i32, i1")
        return f.assign(f"call i1 {name}(i32 0, i1 {condition})")
