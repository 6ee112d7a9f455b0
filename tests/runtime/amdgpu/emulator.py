"""Runs code objects of AMD's GPUs instruction by instruction, by tinygrad's emulator.

A checkout of tinygrad's repository, which has `test/mockgpu/amd`, is named by the environment
variable `CHECKOUT`. The emulator compiles each instruction that it meets with clang, or what the
variable ``CC`` names.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import re
import struct
import sys
from typing import Any

from tests.runtime.amdgpu.code_reader import read_code

CHECKOUT = "OCTANTS_TINYGRAD"
ARCHITECTURES = {"gfx942": "cdna", "gfx1100": "rdna3", "gfx1201": "rdna4"}
"""The processors that can be emulated, and what the emulator calls them."""

_DESCRIPTOR = struct.Struct("<III4xq20xIIIHH4x")
_USER_REGISTERS = ((1, 4), (2, 2), (4, 2), (8, 2), (16, 2), (32, 2), (64, 1))
_ARGUMENTS = 8
"""The bit of a descriptor for the address of the arguments, among those for other registers."""
_SHARED_GRANULE, _SHARED_BYTES = 512, 1 << 16
_CACHE_ORDERS = {
    "rdna3": {0xE0AC0000: 2, 0xE0B00000: 2},
    "rdna4": {0xEE0AC07C: 3, 0xEE0B007C: 3},
    "cdna": {first | scope << 14: 2 for first in (0xE0A40000, 0xE0A00000) for scope in range(4)},
}
"""First words of instructions that invalidate or write back caches, and how many words they have.

There are no caches, and the emulator does not know them.
"""
_LANE = re.compile(r"= ([^;]*) / 4(U?) % (\w+?)U?;")
"""The lane that another one reads, which the emulator takes wrongly where it is none."""
_GUARDED = re.compile(r"if EXEC\[i\]\.u1 then\n(VGPR\[i\]\[VDST\]) = (\S+?);?\nendif")
_CHOSEN = r"\1 = EXEC[i].u1 ? \2 : \1;"
"""What lanes get that read others: the emulator gives it to lanes that take no part, too."""
_LOW_OPERAND = re.compile(r"DATA\[63 : 0\](\.[ub]64)?")
_HIGH_OPERAND = re.compile(r"DATA\[127 : 64\](\.[ub]64)?")
_NOTHING = 0xBF800000
"""An instruction that does nothing."""
_SHARED_SHIFT = 15


@functools.cache
def runner() -> Any:
    """What runs code: `run_asm` of the emulator."""
    checkout = os.environ[CHECKOUT]
    test = sys.modules.get("test")
    if test is not None and checkout not in str(getattr(test, "__path__", "")):
        del sys.modules["test"]  # that of Python itself
    sys.path.insert(0, checkout)
    try:
        from test.mockgpu.amd import emu
    finally:
        sys.path.remove(checkout)
    emu._Ctx.lds = _Shared(emu._Ctx.lds)
    for table in (emu.PCODE_RDNA3, emu.PCODE_RDNA4, emu.PCODE_CDNA):
        for instruction, meaning in table.items():
            if instruction.name == "DS_BPERMUTE_B32":
                meaning = _LANE.sub(r"= (\1 / 4\2) & (\3\2 - 1\2);", meaning)
                table[instruction] = _GUARDED.sub(_CHOSEN, meaning)
            elif "ATOMIC" in instruction.name and instruction.name.endswith("F64"):
                table[instruction] = meaning.replace("RETURN_DATA = ", "RETURN_DATA.f64 = ")
    _add_missing(emu)
    return emu.run_asm


def _add_missing(emu: Any) -> None:
    """Add instructions that the emulator lacks, or has wrongly."""
    handlers, parse, attribute = emu._INST_HANDLERS, emu.parse_pcode, emu._iattr
    swapping: list[tuple[Any, Any]] = []  # a compare-and-exchange of 64 bits that is compiled now

    def program_counter(handler: Any, inst: Any, ctx: Any) -> Any:
        name = emu._op_name(inst)
        if name not in ("S_GETPC_B64", "S_SETPC_B64", "S_SWAPPC_B64"):
            return handler(inst, ctx)
        to, source = ctx.inst_field(type(inst).sdst), ctx.inst_field(type(inst).ssrc0)
        after = emu._split64(ctx.rpc() + emu.UOp.const(ctx.inst_size, emu.dtypes.uint64))
        target = ctx.rsgpr_dyn(source), ctx.rsgpr_dyn(source + emu._c(1))
        low, high = after if name == "S_GETPC_B64" else target
        stores = [(emu._c(emu.PC_LO_IDX), low), (emu._c(emu.PC_HI_IDX), high)]
        if name != "S_SETPC_B64":
            stores += [(to, after[0]), (to + emu._c(1), after[1])]
        return emu.UOp.sink(*(ctx.wsgpr_dyn(place, value) for place, value in stores))

    def memory(handler: Any, inst: Any, ctx: Any) -> Any:
        name = emu._op_name(inst)
        if "ATOMIC_CMPSWAP" not in name or not name.endswith(("B64", "X2")):
            return handler(inst, ctx)
        swapping.append((inst, ctx))
        try:
            return handler(inst, ctx)
        finally:
            swapping.pop()

    def with_return(inst: Any, name: str, default: int = 0) -> int:
        """Find the bit `glc` under its new names: it has an atomic update return a value."""
        if name == "glc" and "ATOMIC" in emu._op_name(inst):
            for own in ("sc0", "th"):  # of CDNA 3 and RDNA 4
                if hasattr(type(inst), own):
                    return int(getattr(inst, own)) & 1
        return int(attribute(inst, name, default))

    def with_second_operand(meaning: str, sources: Any) -> Any:
        if swapping:
            inst, ctx = swapping[-1]
            field = type(inst).vsrc if hasattr(type(inst), "vsrc") else type(inst).data
            first, lane = ctx.inst_field(field), sources["laneId"]
            words = [ctx.rvgpr_dyn(first + emu._c(k), lane) for k in range(4)]
            operands = {"DATA": emu._u64(*words[:2]), "DATA2": emu._u64(*words[2:])}
            sources = {**sources, **operands}
            meaning = _LOW_OPERAND.sub("DATA.u64", _HIGH_OPERAND.sub("DATA2.u64", meaning))
        return parse(meaning, sources)

    emu.parse_pcode, emu._iattr = with_second_operand, with_return
    for kind, handler in list(handlers.items()):
        if handler is emu._compile_sop and "SOP1" in kind.__name__:
            handlers[kind] = functools.partial(program_counter, handler)
        elif handler is emu._compile_mem_op:
            handlers[kind] = functools.partial(memory, handler)


class _Shared:
    """Memory that a block shares, as instructions of the emulator index it.

    Lanes that take no part in an instruction are emulated, too, at whatever address they have.
    """

    def __init__(self, memory: Any) -> None:
        self._memory, self.dtype = memory, memory.dtype

    def index(self, place: Any) -> Any:
        is_guarded = place.op.name == "WHERE" and "Invalid" in repr(place.src[2])
        return self._memory.index(place if is_guarded else place & (_SHARED_BYTES // 4 - 1))


class LoadedCode:
    """A code object in memory, as the loader of a GPU lays it out."""

    def __init__(self, code: bytes, processor: str) -> None:
        self._architecture = ARCHITECTURES[processor.partition(":")[0]]
        read = read_code(code)
        self.kernels, size = read.symbols, read.nbytes
        self._memory = mmap.mmap(-1, size)
        self._held = ctypes.c_char.from_buffer(self._memory)
        self._base = ctypes.addressof(self._held)
        for address, content in read.segments:
            self._memory[address : address + len(content)] = content
        self._skip_cache_orders(size)

    def _skip_cache_orders(self, size: int) -> None:
        words = (ctypes.c_uint32 * (size // 4)).from_address(self._base)
        orders = _CACHE_ORDERS[self._architecture]
        for position, word in enumerate(list(words)):
            if word in orders:
                for each in range(orders[word]):
                    words[position + each] = _NOTHING

    def run(self, name: str, arguments: bytes, grid: int, block: int) -> None:
        """Run a kernel on so many blocks of so many threads; these are its own arguments."""
        place = self.kernels[f"{name}.kd"]
        shared, private, size, entry, _, _, second, properties, _ = _DESCRIPTOR.unpack_from(
            self._memory, place
        )
        hidden = struct.pack("<IIIHHHHHH", grid, 1, 1, block, 1, 1, 0, 0, 0)
        given = ctypes.create_string_buffer(max(size, len(arguments) + 256) + 64)
        start = -(-ctypes.addressof(given) // 64) * 64
        ctypes.memmove(start, arguments, len(arguments))
        ctypes.memmove(start + -(-len(arguments) // 8) * 8, hidden, len(hidden))
        registers: list[int] = []
        for bit, count in _USER_REGISTERS:
            if properties & bit:
                low, high = start & 0xFFFFFFFF, start >> 32
                registers += [low, high] if bit == _ARGUMENTS else [0] * count
        assert shared <= _SHARED_BYTES
        second |= _SHARED_BYTES // _SHARED_GRANULE << _SHARED_SHIFT
        code = self._base + place + entry
        extent = grid, 1, 1, block, 1, 1
        runner()(code, 0, *extent, start, second, private, self._architecture, registers)
