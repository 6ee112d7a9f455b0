"""Code for a driver that computes wrong integers when it knows something about them.

NVIDIA's compiler reduces a 64-bit integer to the bits that it believes to matter. It compares
`x << 1 < 1` with 63 bits, takes `(i & 1) * n` for `n` wherever any bit of `i` is set, and gets the
upper bits of constants wrong, and the sign of comparisons. This module hides those bits from it: an
operation that tells which bits matter works on the two halves of a number as 32-bit integers.
Splitting a number costs nothing, since the halves are registers of their own there.

The compiler follows a half back to the whole, too: of `u32(x) & 1` it tests all bits of `x` (only
where the program computes a square root or a quotient of f64, which it compiles by another way). So
the halves of a number that were not computed as such are combined with a zero that only the launch
knows, by an exclusive or: one instruction, through which no compiler can see.

Of 16-bit integers, the compiler takes `x << 8 | x >> 8` for an exchange of bytes, and gives other
ones (580.159); so it does of `(x & 255) << 8 | x >> 8` in 32 bits, of which 16 matter. So what is
shifted to the left in 16 bits is hidden from it likewise, products by constants, which are shifts
to it, what is widened from 16 bits, and what is cut to them.
"""

from __future__ import annotations

from typing import Any

from octants.codegen.spirv import i64_bitwise
from octants.codegen.spirv.control_flow import EntryPoint
from octants.codegen.spirv.i64_value import Pair, is_wide
from octants.codegen.spirv.instruction_writer import SpirvCode
from octants.codegen.spirv.module_builder import Assembly
from octants.codegen.spirv.opcodes import Op
from octants.types.scalars import DType, i16, i32, u1, u16, u32, u64

_HALF = 1 << 32


class SplitCode(SpirvCode):
    """A function that converts, compares and masks i64 and u64 by halves.

    It hides 16-bit integers where they are widened, made or shifted. The rest is as it is.
    """

    def __init__(self, assembly: Assembly, entry: EntryPoint) -> None:
        super().__init__(assembly, entry)
        self._halves: dict[int, Pair] = {}  # of numbers that were made of them

    def _known_halves(self, x: int) -> Pair:
        known = self.known(x)
        if known is not None:
            low, high = (self.constant(half, u32) for half in (known % _HALF, known // _HALF))
            return Pair(low, high, known)
        return self._halves.get(x) or self._split(x)

    def _hidden(self, x: int) -> Pair:
        """The halves, which the driver's compiler cannot follow back to the whole number."""
        halves = self._known_halves(x)
        if halves.value is not None or x in self._halves:
            return halves
        zero = self.workgroup_row()
        low, high = (self.apply("xor", u32, half, zero) for half in (halves.low, halves.high))
        return Pair(low, high)

    def _split(self, x: int) -> Pair:
        vector = self.assign(Op.BITCAST, self.assembly.vector(2), x)
        word = self.assembly.type(u32)
        return Pair(*(self.assign(Op.COMPOSITE_EXTRACT, word, vector, k) for k in (0, 1)))

    def _joined(self, halves: Pair) -> int:
        vector = self.assembly.vector(2)
        both = self.assign(Op.COMPOSITE_CONSTRUCT, vector, halves.low, halves.high)
        result = self.assign(Op.BITCAST, self.assembly.type(u64), both)
        self._halves[result] = halves
        return result

    def apply(self, fn: str, dtype: DType, *operands: int) -> int:
        if not is_wide(dtype):
            result = super().apply(fn, dtype, *operands)
            is_shift = fn in ("shl", "mul") and dtype in (i16, u16)
            is_known = is_shift and any(self.known(each) is not None for each in operands)
            return self.opaque(result, dtype) if is_known else result
        if fn in i64_bitwise.FUNCTIONS:
            return self._joined(i64_bitwise.apply(self, fn, dtype, *map(self._hidden, operands)))
        if fn in ("quotient", "remainder") and not dtype.is_signed:
            return self._divided(fn, dtype, *operands)
        return super().apply(fn, dtype, *operands)

    def opaque(self, x: int, dtype: DType) -> int:
        """A number of at most 32 bits of which the driver's compiler knows nothing."""
        return super().apply("xor", dtype, x, super().convert(self.workgroup_row(), u32, dtype))

    def _divided(self, fn: str, dtype: DType, a: int, b: int) -> int:
        """Of a power of two the driver knows what it is a shift or a mask of."""
        number = self.known(b)
        if not number or number & (number - 1):
            return super().apply(fn, dtype, a, b)
        if fn == "remainder":
            return self.apply("and", dtype, a, self.constant(number - 1, dtype))
        return self.apply("ushr", dtype, a, self.constant(number.bit_length() - 1, dtype))

    def compare(self, fn: str, dtype: DType, a: int, b: int) -> Any:
        if not is_wide(dtype):
            return super().compare(fn, dtype, a, b)
        return i64_bitwise.compare(self, fn, dtype, self._known_halves(a), self._known_halves(b))

    def convert(self, x: int, source: DType, target: DType) -> int:
        if source.is_float or target.is_float or source.bits == target.bits:
            return super().convert(x, source, target)
        if is_wide(source):
            return self.convert(self._hidden(x).low, u32, target)
        if not is_wide(target):
            if target.bits == 16 and source.bits == 32:
                x = self.opaque(x, source)
            result = super().convert(x, source, target)
            is_widened = source.bits == 16 and target.bits == 32
            return self.opaque(result, target) if is_widened else result
        return self._joined(self._widened(x, source))

    def _widened(self, x: int, source: DType) -> Pair:
        if source is u1 or not source.is_signed:
            return Pair(self.convert(x, source, u32), self.constant(0, u32))
        low = self.convert(x, source, i32)
        return Pair(low, super().apply("shr", i32, low, self.constant(31, i32)))
