"""The copy and fill kernels of abortable graphs, for AMD's GPUs.

`runtime.cuda.graphs.abortable_nodes` says what they do, and has the same ones for NVIDIA's.
"""

from __future__ import annotations

from octants import abi
from octants.codegen.llvm import llvmlite_driver
from octants.codegen.llvm.amdgpu.code_objects import link
from octants.target import Target

_UNITS = {16: "<4 x i32>", 4: "i32", 2: "i16", 1: "i8"}
_WORDS = abi.LAUNCH_GRAPH_SIZE // 8

_COMMON = f"""\
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
!llvm.module.flags = !{{!0}}
!0 = !{{i32 1, !"amdhsa_code_object_version", i32 500}}

define amdgpu_kernel void @octants_begin(
    ptr addrspace(4) byref([1 x i64]) align 8 %p,
    ptr addrspace(4) byref([{_WORDS} x i64]) align 8 %l) nounwind {{
  %stop_address = getelementptr i8, ptr addrspace(4) %l, i64 {abi.LAUNCH_STOP}
  %stop = load ptr addrspace(1), ptr addrspace(4) %stop_address, align 8
  %number.at = getelementptr i8, ptr addrspace(1) %stop, i64 {abi.STOP_NUMBER}
  %number = load i64, ptr addrspace(1) %number.at, align 8
  %is.on = icmp eq i64 %number, 0
  br i1 %is.on, label %count, label %end
count:
  %begun.at = getelementptr i8, ptr addrspace(1) %stop, i64 {abi.STOP_BEGUN}
  %begun = load i64, ptr addrspace(1) %begun.at, align 8
  %more = add i64 %begun, 1
  store i64 %more, ptr addrspace(1) %begun.at, align 8
  br label %end
end:
  ret void
}}
"""

_LOOP = """\
define amdgpu_kernel void @octants_{name}_{size}(
    ptr addrspace(4) byref([6 x i64]) align 8 %p,
    ptr addrspace(4) byref([{words} x i64]) align 8 %l) nounwind
    "amdgpu-flat-work-group-size"="1,256" {{
  %stop_address = getelementptr i8, ptr addrspace(4) %l, i64 {stop}
  %stop = load ptr addrspace(1), ptr addrspace(4) %stop_address, align 8
  %number.at = getelementptr i8, ptr addrspace(1) %stop, i64 {number}
  %number = load i64, ptr addrspace(1) %number.at, align 8
  %is.on = icmp eq i64 %number, 0
  br i1 %is.on, label %begin, label %end
begin:
  %target = load i64, ptr addrspace(4) %p, align 8
  %target.step.at = getelementptr i64, ptr addrspace(4) %p, i64 1
  %target.step = load i64, ptr addrspace(4) %target.step.at, align 8
  %source.at = getelementptr i64, ptr addrspace(4) %p, i64 2
  %source = load i64, ptr addrspace(4) %source.at, align 8
  %source.step.at = getelementptr i64, ptr addrspace(4) %p, i64 3
  %source.step = load i64, ptr addrspace(4) %source.step.at, align 8
  %units.at = getelementptr i64, ptr addrspace(4) %p, i64 4
  %units = load i64, ptr addrspace(4) %units.at, align 8
  %rows.at = getelementptr i64, ptr addrspace(4) %p, i64 5
  %rows = load i64, ptr addrspace(4) %rows.at, align 8
  %all = mul i64 %units, %rows
  %given = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %blocks = load i32, ptr addrspace(4) %given, align 4
  %size.at = getelementptr i8, ptr addrspace(4) %given, i64 12
  %size = load i16, ptr addrspace(4) %size.at, align 4
  %size.64 = zext i16 %size to i64
  %blocks.64 = zext i32 %blocks to i64
  %threads = mul i64 %blocks.64, %size.64
  %block = call i32 @llvm.amdgcn.workgroup.id.x()
  %block.64 = zext i32 %block to i64
  %own = call i32 @llvm.amdgcn.workitem.id.x()
  %own.64 = zext i32 %own to i64
  %start = mul i64 %block.64, %size.64
  %first = add i64 %start, %own.64
  br label %test
test:
  %k = phi i64 [ %first, %begin ], [ %next, %move ]
  %is.there = icmp ult i64 %k, %all
  br i1 %is.there, label %move, label %end
move:
  %row = udiv i64 %k, %units
  %column = urem i64 %k, %units
  %within = mul i64 %column, {size}
  %target.row = mul i64 %row, %target.step
  %target.offset = add i64 %target.row, %within
  %to = add i64 %target, %target.offset
  %to.at = inttoptr i64 %to to ptr addrspace(1)
  {read}
  store {unit} %value, ptr addrspace(1) %to.at, align {size}
  %next = add i64 %k, %threads
  br label %test
end:
  ret void
}}
"""

_COPIED = """\
%source.row = mul i64 %row, %source.step
  %source.offset = add i64 %source.row, %within
  %from = add i64 %source, %source.offset
  %from.at = inttoptr i64 %from to ptr addrspace(1)
  %value = load {unit}, ptr addrspace(1) %from.at, align {size}"""
_FILLED = {
    16: """\
%word = trunc i64 %source to i32
  %one = insertelement <4 x i32> poison, i32 %word, i32 0
  %value = shufflevector <4 x i32> %one, <4 x i32> poison, <4 x i32> zeroinitializer""",
    **{size: f"%value = trunc i64 %source to {_UNITS[size]}" for size in (4, 2, 1)},
}


def _text() -> str:
    """The LLVM IR of all of them."""
    parts = [_COMMON]
    for size, unit in _UNITS.items():
        reads = {"copy": _COPIED.format(unit=unit, size=size), "fill": _FILLED[size]}
        for name, read in reads.items():
            offsets = {"stop": abi.LAUNCH_STOP, "number": abi.STOP_NUMBER, "words": _WORDS}
            parts.append(_LOOP.format(name=name, size=size, unit=unit, read=read, **offsets))
    return "\n".join(parts)


def code(target: Target) -> bytes:
    """The code object of all of them."""
    optimised, machine = llvmlite_driver.optimised(_text(), target, 1)
    return link(machine.emit_object(optimised))
