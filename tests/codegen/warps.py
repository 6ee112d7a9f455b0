"""Runs the code for GPUs of NVIDIA on the CPU, in warps of 32 lanes and blocks of several warps.

The code is LLVM's for NVPTX, behind its passes. Address spaces are dropped, and NVVM's intrinsics
call `fibres.cpp`, which suspends threads while they wait for others, and finds those that wait in
vain. What a block shares is filled with NaNs before it begins; accesses to it that race are found,
whatever the order in which they happened.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import re
from typing import Any

import numpy as np

from octants.artifact import Artifact
from octants.codegen.llvm import llvmlite_driver
from octants.codegen.llvm.nvptx import Nvptx, target
from octants.runtime.cpu.native import linking as native
from tests.codegen.compiled import TARGET
from tests.metal.cpp import fibres
from tests.runtime.cuda.fake_cuda import LAUNCH_FAILED, Call, Trap

_HEAD = re.compile(r"^target .*\n", re.MULTILINE)
_INTRINSIC = re.compile(r"^(declare|.*\bcall)\b(.*)@llvm\.nvvm\.([\w.]+)\((\))?", re.MULTILINE)
_BY_VALUE = re.compile(r" byval\(\[\d+ x i64\]\)")
_SHARED = re.compile(r"^(@\S+) = internal .*addrspace\(3\) global \[(\d+) x i8\]", re.MULTILINE)
_SPACE = re.compile(r" addrspace\(\d+\)")
_EXCHANGE = re.compile(r"call .*@llvm\.nvvm\.(?:bar|vote|shfl|match|activemask)")
_KERNEL = re.compile(r"^define ptx_kernel .*@(\w+)\(.* #(\d+) ", re.MULTILINE)
_GROUP = re.compile(r"^attributes #(\d+) = (.*)", re.MULTILINE)
_LIMIT = re.compile(r'"nvvm\.maxntid"="(\d+)"')
_BEGIN = "octants_begin_block"
_SHARE = "  call void @nvvm_share(i32 0, ptr {}, i64 {})\n"
_DECLARED = (
    "declare void @nvvm_share(i32, ptr, i64)\ndeclare void @nvvm_touch(i32, ptr, i64, i32)\n"
)
_POINTER = r"ptr ([%@][\w.]+|[a-z][^(\n]*\((?:[^()\n]|\([^()\n]*\))*\))"
_TYPE = r"(\w+|<\d+ x \w+>)"
_ACCESS = re.compile(
    rf"^  (?:\S+ = )?(load|store)( atomic)? {_TYPE}[ ,].*?{_POINTER}", re.MULTILINE
)
_UPDATE = re.compile(rf"^  \S+ = (?:atomicrmw \w+|cmpxchg) {_POINTER}, {_TYPE}", re.MULTILINE)
_READS, _WRITES, _UPDATES = range(3)


class Warps(Nvptx):
    """A GPU of NVIDIA, whose code is for the CPU."""

    def __init__(self, capability: int = 90) -> None:
        super().__init__(target(capability))

    def emit(self, machine: Any, optimised: Any) -> bytes:  # noqa: ARG002
        text = str(optimised)
        module, machine = llvmlite_driver.optimised(_for_host(text), TARGET, 0)
        facts = {"exchanges": bool(_EXCHANGE.search(text)), "limits": _limits(text)}
        code: bytes = json.dumps(facts).encode() + b"\n" + machine.emit_object(module)
        return code


def _limits(text: str) -> dict[str, int]:
    """The most threads of a block of those kernels that have a limit."""
    groups = dict(_GROUP.findall(text))
    limits = {name: _LIMIT.search(groups[number]) for name, number in _KERNEL.findall(text)}
    return {name: int(found[1]) for name, found in limits.items() if found}


def _for_host(text: str) -> str:
    """The LLVM IR of kernels for NVPTX as that of functions for the CPU."""
    shares = "".join(_SHARE.format(*found) for found in _SHARED.findall(text))
    lines = itertools.count(1)

    def function(found: re.Match[str]) -> str:
        line = "i32" if found[1] == "declare" else f"i32 {next(lines)}"
        name = found[3].replace(".", "_")
        return f"{found[1]}{found[2]}@nvvm_{name}({line}{found[4] or ', '}"

    def access(found: re.Match[str]) -> str:
        name, atomic, kind, pointer = found.groups()
        use = _UPDATES if atomic else _READS if name == "load" else _WRITES
        return touch(pointer, kind, use) + found[0]

    def touch(pointer: str, kind: str, use: int) -> str:
        operands = f"i32 {next(lines)}, ptr {pointer}, i64 {_size(kind)}, i32 {use}"
        return f"  call void @nvvm_touch({operands})\n"

    text = _SPACE.sub("", _BY_VALUE.sub("", _HEAD.sub("", text))).replace("ptx_kernel ", "")
    text = _INTRINSIC.sub(function, text.replace("addrspacecast", "bitcast"))
    if shares:
        text = _ACCESS.sub(access, text)
        text = _UPDATE.sub(lambda found: touch(found[1], found[2], _UPDATES) + found[0], text)
    return f"{text}{_DECLARED}define void @{_BEGIN}() {{\n{shares}  ret void\n}}\n"


def _size(kind: str) -> int:
    """The bytes of a type of LLVM's."""
    count, _, of = kind.strip("<>").rpartition(" x ")
    size = {"ptr": 8, "double": 8, "float": 4, "half": 2}.get(of) or -(-int(of[1:]) // 8)
    return size * int(count or 1)


class WarpKernels:
    """The kernels of an artifact of `Warps`; `limits` has the most threads of their blocks."""

    def __init__(self, artifact: Artifact) -> None:
        head, _, code = artifact.code.partition(b"\n")
        facts = json.loads(head)
        self._exchanges: bool = facts["exchanges"]
        self.limits: dict[str, int] = facts["limits"]
        self._is_by_value = dict(artifact.metadata)["parameters"] == "value"
        emulator, names = fibres(), [each.entry for each in artifact.dispatches]
        intrinsics = {name: _address(getattr(emulator, name)) for name in _names(code)}
        symbols = {**native.implied_symbols(), **intrinsics}
        self._library = native.link(code, [_BEGIN, *names], symbols)
        self._seed = 0

    def run(self, entry: str, call: Call) -> None:
        """Run a launch."""
        words = (ctypes.c_int64 * len(call.launch))(*call.launch)
        slots = np.array(call.slots)
        block = slots.ctypes.data if self._is_by_value else int(slots[0])
        assert call.block <= self.limits.get(entry, call.block)
        pointer = ctypes.c_void_p
        problem = fibres().run_grid(
            pointer(self._library[entry]),
            pointer(self._library[_BEGIN]),
            pointer(block),
            ctypes.byref(words),
            call.grid,
            call.block,
            self._exchanges,
            ctypes.c_uint64(self._seed),
        )
        self._seed += 1
        if problem:
            call.cuda.problems.append(f"{entry}: {problem.decode()}")
            raise Trap(LAUNCH_FAILED)


def _names(code: bytes) -> set[str]:
    """The intrinsics that an object file calls."""
    return {found.decode() for found in re.findall(rb"\bnvvm_\w+", code)}


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address
    return address
