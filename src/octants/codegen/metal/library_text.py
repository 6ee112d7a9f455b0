"""A library of the Metal shading language while it is written: its functions, and what they share.

A kernel for two arrays begins as this one::

    [[kernel, max_total_threads_per_threadgroup(64)]] void task_0(
        constant Launch& launch [[buffer(0)]], ...)
    {
        threadgroup ulong shared[1];
        const Thread self = {&launch, (threadgroup uchar*)shared, ...};
        const ulong v1 = self.launch->words[0];
        const ulong v2 = *(device ulong*)(v1 + 8ul);

Integers are unsigned wherever they are kept, since overflow of signed ones is undefined; what
depends on the sign converts its operands. Memory is accessed as integers, so that the compiler
does not take two accesses for noalias because of their types.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable
from dataclasses import field
from typing import Any

from octants.abi import LAUNCH_SIZE
from octants.codegen.structured.features import Features
from octants.codegen.structured.legal_operations import legal
from octants.lazy_dataclass import dataclass
from octants.lowering.legal_operations import Legal
from octants.types.scalars import DType, f32, f64, u1

WORDS = 1 + LAUNCH_SIZE // 8
"""The words of 8 bytes of a launch: the address of the parameter block, and those of `abi`."""

_UNSIGNED = {8: "uchar", 16: "ushort", 32: "uint", 64: "ulong"}
_SIGNED = {8: "char", 16: "short", 32: "int", 64: "long"}

_HEAD = f"""\
#include <metal_stdlib>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;

struct Launch {{ ulong words[{WORDS}]; }};

struct Thread {{
    constant Launch* launch;
    threadgroup uchar* shared;
    uint in_grid, in_block, block, blocks, lane, subgroup;
}};

template <class Address, class Word>
static inline Word exchange_if(Address address, Word expected, Word value)
{{
    Word found = expected;
    while (!atomic_compare_exchange_weak_explicit(
        address, &found, value, memory_order_relaxed, memory_order_relaxed)) {{
        if (found != expected) break;
    }}
    return found;
}}
"""

_ENTRY = """
[[kernel, max_total_threads_per_threadgroup({threads})]] void {name}(
    constant Launch& launch [[buffer(0)]],
    uint in_grid [[thread_position_in_grid]],
    uint in_block [[thread_position_in_threadgroup]],
    uint block [[threadgroup_position_in_grid]],
    uint blocks [[threadgroups_per_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint subgroup [[simdgroup_index_in_threadgroup]])
{{
    threadgroup ulong shared[{words}];
    const Thread self = {{&launch, (threadgroup uchar*)shared, in_grid, in_block, block, blocks,
        lane, subgroup}};
{body}}}
"""


@functools.cache
def instructions(has_f64: bool, fast_math: bool) -> Legal:
    """The operations that Metal has instructions for; it rounds `fma` once."""
    base = legal(has_f64, fast_math)
    fused = frozenset((f32,))
    return Legal(base.functions, base.casts, base.fma | fused, fused, has_f64)


class Literal(str):
    """The text of a constant, and its value."""

    __slots__ = ("value",)
    value: Any


@dataclass(slots=True)
class EntryPoint:
    """An entry point: how many threads a block of it has, and the arrays that they share.

    They are `numbered` by subgroups where their lanes are those of the language. The arrays are
    known by the bytes at which they begin.
    """

    threads: int = 1
    numbered: bool = False
    has_lanes: bool = False
    shared: dict[Any, int] = field(default_factory=dict)
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Helper:
    """A function of the module; it `uses_thread` where it takes the thread as a parameter."""

    name: str
    uses_thread: bool


class LibraryText:
    """The text of a module; `functions` are in the order in which they call each other."""

    def __init__(self, features: Features, *, fast_math: bool = False) -> None:
        self.features = features
        self.legal = instructions(features.has("float64"), fast_math)
        self.functions: list[str] = []
        self._helpers: dict[str, Helper] = {}
        self._count = 0

    def fresh(self, letter: str) -> str:
        """A new name."""
        self._count += 1
        return f"{letter}{self._count}"

    def helper(self, name: str, make: Callable[[str], bool]) -> Helper:
        """A function that ``make`` writes when it is first called, by its name in the text.

        ``make`` returns whether the function uses the thread.
        """
        known = self._helpers.get(name)
        if known is None:
            written = "f_" + name.replace(".", "_")
            known = self._helpers[name] = Helper(written, make(written))
        return known

    # -- types and constants --------------------------------------------------------------------

    def type(self, dtype: DType) -> str:
        """The type in which values are kept."""
        if dtype is u1:
            return "bool"
        if dtype.is_float:
            if dtype is f64:
                self.features.require("float64")
            return "float"
        return _UNSIGNED[dtype.bits]

    def constant(self, value: Any, dtype: DType) -> Literal:
        """A number that ``dtype`` can hold."""
        kind = self.type(dtype)
        text = Literal(_text(value, dtype, kind))
        text.value = value
        return text

    # -- the whole ------------------------------------------------------------------------------

    def add_entry(self, name: str, entry: EntryPoint, body: str) -> None:
        """Add the function of an entry point, of which the body is written."""
        words = max(1, -(-entry.shared_bytes // 8))
        self.functions.append(
            _ENTRY.format(threads=entry.threads, name=name, words=words, body=body)
        )

    def finish(self) -> bytes:
        """The text."""
        return (_HEAD + "".join(self.functions)).encode()


def memory_type(dtype: DType) -> str:
    """The integer as which a number is in memory."""
    return _UNSIGNED[dtype.bits]


def signed_type(dtype: DType) -> str:
    """The signed integer of the width of a type."""
    return _SIGNED[dtype.bits]


def shared_offset(entry: EntryPoint, key: Any, nbytes: int) -> int:
    """The offset of a block's array; each key has one array."""
    if key not in entry.shared:
        entry.shared[key] = entry.shared_bytes
        entry.shared_bytes += -(-nbytes // 8) * 8
    return entry.shared[key]


def _text(value: Any, dtype: DType, kind: str) -> str:
    if dtype is u1:
        return "true" if value else "false"
    if not dtype.is_float:
        number = value & ((1 << dtype.bits) - 1)
        suffix = "ul" if dtype.bits == 64 else "u"
        return f"{number}{suffix}" if dtype.bits >= 32 else f"{kind}({number}u)"
    bits = int.from_bytes(struct.pack("<f", value), "little")
    is_plain = math.isfinite(value) and (bits & 0x7F800000 or not bits)
    if not is_plain:
        return f"as_type<float>({bits}u)"
    text = f"{struct.unpack('<f', struct.pack('<f', value))[0]:.9g}"
    text = text if any(mark in text for mark in ".e") else text + ".0"
    return f"({text}f)" if text.startswith("-") else f"{text}f"
