"""Kernels for AMD's GPUs: a code object, as the HIP runtime loads it.

Each dispatch is a kernel ``entry(parameters, launch)``: the parameter block by value, or its
address where it is large, and by value what `abi` says of a dispatch.

A subgroup has 32 threads on all of them: half a wave where waves have 64. Lanes of a wave that do
not come to an instruction take no part in it, so that no mask is needed.
"""

from __future__ import annotations

from typing import Any

from octants import abi
from octants.codegen.llvm.amdgpu.code_objects import link
from octants.codegen.llvm.amdgpu.targets import WAVES
from octants.codegen.llvm.gpu.function_text import Gpu, GpuCode, ThreadText
from octants.codegen.llvm.types_and_literals import REGISTER
from octants.types.scalars import DType, u32

LARGEST = 512
"""The most threads in a block whose size no kernel asks for: more would have fewer registers."""

_CONSTANTS, _SHARED, _PRIVATE = 4, 3, 5  # address spaces
_BLOCKS, _BLOCK_SIZE = 0, 12  # bytes in the arguments that the runtime adds: an i32, an i16


class AmdgpuCode(GpuCode):
    """A function of a thread of an AMD GPU."""

    # -- threads ----------------------------------------------------------------------------------

    def thread(self) -> str:
        f, block = self._thread, self._wide(self._register("workgroup.id.x"))
        start = f.once("start", f"mul nuw nsw i64 {block}, {self._wide(self.threads_in_block())}")
        own = self._wide(self.thread_in_block())
        return f.once("thread", f"add nuw nsw i64 {start}, {own}")

    def threads(self) -> str:
        blocks, size = self._wide(self._given(_BLOCKS, "i32")), self._wide(self.threads_in_block())
        return self._thread.once("threads", f"mul nuw nsw i64 {blocks}, {size}")

    def thread_in_block(self) -> str:
        return self._register("workitem.id.x")

    def threads_in_block(self) -> str:
        size = self._given(_BLOCK_SIZE, "i16")
        return self._thread.once("block size", f"zext i16 {size} to i32")

    def _given(self, offset: int, type: str) -> str:
        """A field of the implicit arguments, which the runtime passes to all kernels."""
        f, name = self._thread, "@llvm.amdgcn.implicitarg.ptr"
        f.text.declare(name, f"ptr addrspace({_CONSTANTS})", "")
        start = f.once("given", f"call align 8 ptr addrspace({_CONSTANTS}) {name}()")
        moved = f"getelementptr inbounds i8, ptr addrspace({_CONSTANTS}) {start}, i64 {offset}"
        address = f.once(("given", offset), moved)
        load = f"load {type}, ptr addrspace({_CONSTANTS}) {address}, align 4"
        return f.once(("given value", offset), f"{load}, !invariant.load {f.text.empty}")

    def _wide(self, number: str) -> str:
        return self._thread.once(("wide", number), f"zext i32 {number} to i64")

    def _register(self, name: str) -> str:
        full = self._thread.text.declare(f"@llvm.amdgcn.{name}", "i32", "")
        return self._thread.once(("register", name), f"call i32 {full}()")

    # -- subgroups --------------------------------------------------------------------------------

    def read_across(self, x: str, dtype: DType, distance: int) -> str:
        other = self._thread.apply("xor", "i32", self.thread_in_block(), distance)
        return self._of_wave(REGISTER[dtype], x, other)

    def read_lane(self, x: str, dtype: DType, lane: str) -> str:
        first = self._thread.apply("and", "i32", self.thread_in_block(), -self.subgroup)
        return self._of_wave(REGISTER[dtype], x, self._thread.apply("or", "i32", first, lane))

    def _of_wave(self, type: str, value: str, thread: str) -> str:
        """A value of a thread of the block whose number has the same wave; for lanes the low bits
        of the number count.
        """
        f, name = self._thread, "@llvm.amdgcn.ds.bpermute"
        f.text.declare(name, "i32", "i32, i32")
        address = f.apply("shl", "i32", thread, 2)
        if type == "float":
            value = f.convert("bitcast", "float", value, "i32")
        found = f.assign(f"call i32 {name}(i32 {address}, i32 {value})")
        return f.convert("bitcast", "i32", found, "float") if type == "float" else found

    def votes(self, condition: str, mask: str) -> str:  # noqa: ARG002
        f, wave = self._thread, WAVES[self._thread.gpu.target.cpu]
        register = f"i{wave}"
        name = f.text.declare(f"@llvm.amdgcn.ballot.{register}", register, "i1")
        bits = f.assign(f"call {register} {name}(i1 {condition})")
        if wave == self.subgroup:
            return bits
        first = f.apply("and", "i32", self.thread_in_block(), self.subgroup)
        bits = f.apply("lshr", "i64", bits, f.convert("zext", "i32", first, "i64"))
        return f.convert("trunc", "i64", bits, "i32")

    def any_lane(self, condition: str) -> str:
        return self._thread.apply("icmp ne", "i32", self.votes(condition, "-1"), 0)

    def all_at(self, address: str) -> str:
        """All lanes have the address of the first one: those that are not here do not count."""
        f, differs = self._thread, "0"
        bits = f.convert("ptrtoint", "ptr", address, "i64")
        for half in (bits, f.apply("lshr", "i64", bits, 32)):
            word = f.convert("trunc", "i64", half, "i32")
            first = self.read_lane(word, u32, "0")
            differs = f.apply("or", "i32", differs, f.apply("xor", "i32", word, first))
        same = self.votes(f.apply("icmp eq", "i32", differs, 0), "-1")
        return f.apply("icmp eq", "i32", same, -1)

    # -- threads that work together ---------------------------------------------------------------

    def shared_memory(self, name: str, nbytes: int) -> str:
        f = self._thread
        memory = f"internal addrspace({_SHARED}) global [{nbytes} x i8] poison, align 16"
        f.text.add_function(f"@{name} = {memory}")
        return f.once(("shared", name), f"addrspacecast ptr addrspace({_SHARED}) @{name} to ptr")

    def barrier(self, scope: str) -> None:
        f, is_whole = self._thread, scope == "block"
        name = f"@llvm.amdgcn.{'s' if is_whole else 'wave'}.barrier"
        full = f.text.declare(name, "void", "", "convergent nounwind")
        scope = "workgroup" if is_whole else "wavefront"
        f.emit(f'fence syncscope("{scope}") release')
        f.emit(f"call void {full}()")
        f.emit(f'fence syncscope("{scope}") acquire')

    def fence(self, scope: str = "device") -> None:
        scopes = {"device": "agent", "block": "workgroup", "subgroup": "wavefront"}
        self._thread.emit(f'fence syncscope("{scopes[scope]}") acq_rel')

    def any_in_block(self, condition: str) -> str:
        """Each subgroup leaves a word for the others."""
        f = self._thread
        words = self.shared_memory(f.fresh_label(f"octants_any_{f.task}_"), 4 * 32)
        own = f.convert("zext", "i1", self.any_lane(condition), "i32")
        address = f.assign(f"getelementptr i32, ptr {words}, i32 {self.subgroup_in_block()}")
        f.emit(f"store i32 {own}, ptr {address}, align 4")
        self.barrier("block")
        lane = self.lane()
        address = f.assign(f"getelementptr i32, ptr {words}, i32 {lane}")
        word = f.assign(f"load i32, ptr {address}, align 4")
        is_there = f.apply("icmp ult", "i32", lane, self.subgroups_in_block())
        is_set = f.apply("icmp ne", "i32", f.choose(is_there, "i32", word, 0), 0)
        return self.any_lane(is_set)


class Amdgpu(Gpu):
    """Subgroups are waves of 32 threads, or halves of waves of 64."""

    by_value = 3072  # all parameters take at most 4096 bytes
    flags = (("amdhsa_code_object_version", 500),)
    # At level 0 LLVM ends the process on what its own passes would have rewritten: on a quotient
    # and a remainder of the same narrow integers.
    least_level = 1
    thread_code = AmdgpuCode
    subgroup = 32
    has_blocks = True
    shared_bytes = 48 * 1024
    most_subgroups = 32
    device_scope = "agent"
    constant_space = _CONSTANTS
    stack_space = _PRIVATE
    # LLVM itself makes one update of those of a wave whose address it knows to be uniform. Merging
    # two versions of an update it would drop `atomic_facts`, and so use no instruction for sums.
    shares_updates = False
    matches_addresses = False
    # All arrays are in memory of the device that no other device updates. As on NVIDIA's GPUs, a
    # sum of f32 in it may take a subnormal number for zero.
    atomic_facts = (
        ", !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0"
        ", !amdgpu.ignore.denormal.mode !0"
    )

    def emit(self, machine: Any, optimised: Any) -> bytes:
        return link(machine.emit_object(optimised))

    def head(self, f: ThreadText, name: str) -> str:
        size, words = f.kernel.size, abi.LAUNCH_SIZE // 8
        by_value = f" byref([{size // 8} x i64])" if size <= self.by_value else ""
        pointer = f"ptr addrspace({_CONSTANTS})"
        slots = f"{pointer} noalias nonnull readonly{by_value} align 8 %parameters.given"
        launch = f"{pointer} noalias readonly byref([{words} x i64]) align 8 %launch.given"
        limit = f'"amdgpu-flat-work-group-size"="1,{f.block_size or LARGEST}"'
        whole = '"uniform-work-group-size"="true"'
        return f"amdgpu_kernel void @{name}({slots}, {launch}) nounwind {limit} {whole}"

    def prologue(self, f: ThreadText) -> list[str]:  # noqa: ARG002
        return [
            f"  %{name} = addrspacecast ptr addrspace({_CONSTANTS}) %{name}.given to ptr"
            for name in ("parameters", "launch")
        ]
