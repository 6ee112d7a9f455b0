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
from octants.codegen.llvm.gpu.function_text import Gpu, GpuCode, ThreadText
from octants.codegen.llvm.gpu.narrow_stores import narrow_stores
from octants.codegen.llvm.gpu.nvidia_targets import target as target
from octants.codegen.llvm.gpu.wide_extrema import widen_extrema
from octants.codegen.llvm.types_and_literals import REGISTER
from octants.target import Target
from octants.types.scalars import DType

_STARTS_EARLY = 90
"""The least processor whose functions may start early."""
_MOST_REGISTERS, _REGISTERS_OF_BLOCK = 255, 1 << 16
"""Registers of a thread, and of all threads of a block, at most."""


class NvptxCode(GpuCode):
    """A function of a thread of an NVIDIA GPU."""

    adds_by_address = True

    # -- threads ----------------------------------------------------------------------------------

    def thread(self) -> str:
        start = self._product("ctaid.x", "ntid.x")
        return self._thread.once("thread", f"add nuw nsw i64 {start}, {self._wide('tid.x')}")

    def threads(self) -> str:
        return self._product("nctaid.x", "ntid.x")

    def thread_in_block(self) -> str:
        return self._special("tid.x")

    def threads_in_block(self) -> str:
        return self._special("ntid.x")

    def _product(self, one: str, other: str) -> str:
        factors = self._wide(one), self._wide(other)
        product = f"mul nuw nsw i64 {factors[0]}, {factors[1]}"
        return self._thread.once(("product", one, other), product)

    def _wide(self, register: str) -> str:
        wide = f"zext i32 {self._special(register)} to i64"
        return self._thread.once(("wide", register), wide)

    def _special(self, register: str) -> str:
        name = self._declared(f"read.ptx.sreg.{register}", "i32", "")
        return self._thread.once(("special", register), f"call i32 {name}()")

    def _declared(self, name: str, result: str, parameters: str, attributes: str = "") -> str:
        return self._thread.text.declare(f"@llvm.nvvm.{name}", result, parameters, attributes)

    # -- subgroups --------------------------------------------------------------------------------

    def read_across(self, x: str, dtype: DType, distance: int) -> str:
        return self._shuffle("bfly", REGISTER[dtype], x, distance, "-1")

    def read_lane(self, x: str, dtype: DType, lane: str) -> str:
        return self._shuffle("idx", REGISTER[dtype], x, lane, self._thread.lane_mask)

    def _shuffle(self, how: str, kind: str, x: str, which: str | int, mask: str) -> str:
        suffix = "f32" if kind == "float" else "i32"
        name = self._declared(f"shfl.sync.{how}.{suffix}", kind, f"i32, {kind}, i32, i32")
        operands = f"i32 {mask}, {kind} {x}, i32 {which}, i32 31"
        return self._thread.assign(f"call {kind} {name}({operands})")

    def all_at(self, address: str) -> str:
        """Return whether all 32 lanes of the warp are active, with the address of the first one."""
        f, mask = self._thread, self._active()
        check, merge, before = f.fresh_label("check"), f.fresh_label("merge"), f.label
        f.branch_if(f.apply("icmp eq", "i32", mask, -1), check, merge)
        f.start(check)
        bits = f.convert("ptrtoint", "ptr", address, "i64")
        differs = "0"
        for half in (bits, f.apply("lshr", "i64", bits, 32)):
            word = f.convert("trunc", "i64", half, "i32")
            first = self._shuffle("idx", "i32", word, 0, "-1")
            differs = f.apply("or", "i32", differs, f.apply("xor", "i32", word, first))
        vote = self._declared("vote.all.sync", "i1", "i32, i1")
        same = f.assign(f"call i1 {vote}(i32 -1, i1 {f.apply('icmp eq', 'i32', differs, 0)})")
        f.enter(merge)
        return f.phi("i1", ("false", before), (same, check))

    def lanes_by_address(self, address: str) -> tuple[str, str]:
        f, mask = self._thread, self._active()
        match = self._declared("match.any.sync.i64", "i32", "i32, i64")
        bits = f.convert("ptrtoint", "ptr", address, "i64")
        return mask, f.assign(f"call i32 {match}(i32 {mask}, i64 {bits})")

    def _active(self) -> str:
        active = self._declared("activemask", "i32", "", "convergent nounwind")
        return self._thread.assign(f"call i32 {active}()")

    def any_lane(self, condition: str) -> str:
        name = self._declared("vote.any.sync", "i1", "i32, i1")
        return self._thread.assign(f"call i1 {name}(i32 -1, i1 {condition})")

    def votes(self, condition: str, mask: str) -> str:
        name = self._declared("vote.ballot.sync", "i32", "i32, i1")
        return self._thread.assign(f"call i32 {name}(i32 {mask}, i1 {condition})")

    # -- blocks -----------------------------------------------------------------------------------

    def shared_memory(self, name: str, nbytes: int) -> str:
        f, memory = self._thread, f"internal addrspace(3) global [{nbytes} x i8] undef, align 16"
        f.text.add_function(f"@{name} = {memory}")
        return f.once(("shared", name), f"addrspacecast ptr addrspace(3) @{name} to ptr")

    def barrier(self, scope: str) -> None:
        if scope == "block":
            self._instruct("barrier.cta.sync.aligned.all", ("i32", "0"))
        else:
            self.barrier_among(self._thread.lane_mask)

    def barrier_among(self, lanes: str) -> None:
        self._instruct("bar.warp.sync", ("i32", lanes))

    def fence(self, scope: str = "device") -> None:
        self._instruct("membar.gl" if scope == "device" else "membar.cta")

    def _instruct(self, name: str, *operands: tuple[str, str]) -> None:
        full = self._declared(name, "void", ", ".join(kind for kind, _ in operands))
        given = ", ".join(f"{kind} {value}" for kind, value in operands)
        self._thread.emit(f"call void {full}({given})")

    def any_in_block(self, condition: str) -> str:
        name = self._declared("barrier.cta.red.or.aligned.all", "i1", "i32, i1")
        return self._thread.assign(f"call i1 {name}(i32 0, i1 {condition})")


class Nvptx(Gpu):
    """An NVIDIA GPU. Subgroups are warps of 32 threads."""

    thread_code = NvptxCode
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
        count = abi.LAUNCH_SIZE // 8
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
