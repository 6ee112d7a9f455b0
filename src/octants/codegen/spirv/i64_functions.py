"""Emulate 64-bit integers on devices without them: each is a pair of two u32.

All 64 bits are computed, so that no index can wrap. Drivers remove unused high halves of additions,
such as those of addresses, which are below 2^32 in memory that is bound. Atomic operations on 64
bits are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from octants.codegen.instruction_writer import Code, Kind, Pointer, UnaddressedElement
from octants.codegen.spirv import i64_bitwise, i64_division
from octants.codegen.spirv.control_flow import Words
from octants.codegen.spirv.i64_value import Pair, is_wide
from octants.codegen.spirv.instruction_writer import SpirvCode
from octants.codegen.spirv.opcodes import Op, StorageClass
from octants.types.scalars import DType, f32, f64, i32, i64, u1, u32, u64

_HALF, _WHOLE = 1 << 32, 1 << 64


class PairCode(SpirvCode):
    """A function whose operands of i64 and u64 are pairs."""

    # -- values ---------------------------------------------------------------------------------

    def constant(self, value: Any, dtype: DType) -> Any:
        if not is_wide(dtype):
            return super().constant(value, dtype)
        bits = value % _WHOLE
        known = bits - _WHOLE if dtype.is_signed and bits >= _WHOLE // 2 else bits
        return Pair(self._word(bits % _HALF), self._word(bits // _HALF), known)

    def known(self, operand: Any) -> Any:
        return operand.value if isinstance(operand, Pair) else super().known(operand)

    def _word(self, value: int) -> int:
        return super().constant(value, u32)

    def _u32(self, fn: str, *operands: int) -> int:
        return super().apply(fn, u32, *operands)

    def _bit(self, condition: int) -> int:
        return super().convert(condition, u1, u32)

    def apply(self, fn: str, dtype: DType, *operands: Any) -> Any:
        if not is_wide(dtype):
            return super().apply(fn, dtype, *operands)
        if fn in i64_bitwise.FUNCTIONS:
            return i64_bitwise.apply(self, fn, dtype, *operands)
        if fn in ("quotient", "remainder"):
            return i64_division.divide(self, fn, dtype, *operands)
        simple: dict[str, Callable[..., Pair]] = {
            "add": self._sum,
            "sub": self._difference,
            "mul": self._product,
            "neg": self._minus,
        }
        return simple[fn](*operands)

    def _sum(self, a: Pair, b: Pair) -> Pair:
        low = self._u32("add", a.low, b.low)
        carry = self._bit(super().compare("lt", u32, low, a.low))
        return Pair(low, self._u32("add", self._u32("add", a.high, b.high), carry))

    def _difference(self, a: Pair, b: Pair) -> Pair:
        carry = self._bit(super().compare("lt", u32, a.low, b.low))
        high = self._u32("sub", self._u32("sub", a.high, b.high), carry)
        return Pair(self._u32("sub", a.low, b.low), high)

    def _minus(self, a: Pair) -> Pair:
        return self._difference(self.constant(0, u64), a)

    def _product(self, a: Pair, b: Pair) -> Pair:
        word = self.assembly.type(u32)
        both = self.assembly.declare(Op.TYPE_STRUCT, word, word)
        product = self.assign(Op.U_MUL_EXTENDED, both, a.low, b.low)
        low, high = (self.assign(Op.COMPOSITE_EXTRACT, word, product, k) for k in (0, 1))
        for one, other in ((a.low, b.high), (a.high, b.low)):
            high = self._u32("add", high, self._u32("mul", one, other))
        return Pair(low, high)

    def compare(self, fn: str, dtype: DType, a: Any, b: Any) -> Any:
        if not is_wide(dtype):
            return super().compare(fn, dtype, a, b)
        return i64_bitwise.compare(self, fn, dtype, a, b)

    def choose(self, condition: int, dtype: DType, on_true: Any, on_false: Any) -> Any:
        if not is_wide(dtype):
            return super().choose(condition, dtype, on_true, on_false)
        return i64_bitwise.choose(self, condition, on_true, on_false)

    # -- conversions ----------------------------------------------------------------------------

    def convert(self, x: Any, source: DType, target: DType) -> Any:
        if is_wide(source):
            if is_wide(target):
                return x if x.value is None else self.constant(x.value, target)
            if target.is_float:
                return self._to_float(x, source, target)
            return super().convert(x.low, u32, target)
        if not is_wide(target):
            return super().convert(x, source, target)
        if source.is_float:
            return self._from_float(x, source)
        if source is u1 or not source.is_signed:
            return Pair(super().convert(x, source, u32), self._word(0))
        low = super().convert(x, source, i32)
        return Pair(low, super().apply("shr", i32, low, self._word(31)))

    def _from_float(self, x: int, source: DType) -> Pair:
        """Convert by halves of the magnitude: each step is exact."""
        size = super().apply("abs", source, x)
        scaled = super().apply("mul", source, size, super().constant(2.0**-32, source))
        top = super().apply("floor", source, scaled)
        whole = super().apply("mul", source, top, super().constant(2.0**32, source))
        rest = super().apply("sub", source, size, whole)
        low, high = super().convert(rest, source, u32), super().convert(top, source, u32)
        number, zero = Pair(low, high), super().constant(0.0, source)
        is_negative = super().compare("lt", source, x, zero)
        signed: Pair = self.choose(is_negative, i64, self._minus(number), number)
        return signed

    def _to_float(self, x: Pair, source: DType, target: DType) -> int:
        if not source.is_signed:
            return self._size_to_float(x, target)
        is_negative = self.compare("lt", i64, x, self.constant(0, i64))
        size = self._size_to_float(self.choose(is_negative, i64, self._minus(x), x), target)
        return super().choose(is_negative, target, super().apply("neg", target, size), size)

    def _size_to_float(self, x: Pair, target: DType) -> int:
        """Convert a u64, rounding once."""
        if target is f64:
            low, high = (super(PairCode, self).convert(half, u32, f64) for half in (x.low, x.high))
            high = super().apply("mul", f64, high, super().constant(2.0**32, f64))
            return super().apply("add", f64, high, low)
        distance = self._digits(x.high)
        top = i64_bitwise.apply(self, "ushr", u64, x, distance)
        back = i64_bitwise.apply(self, "shl", u64, top, distance)
        is_cut = self.compare("ne", u64, back, x)
        number = super().convert(self._u32("or", top.low, self._bit(is_cut)), u32, f32)
        biased = self._u32("add", distance.low, self._word(127))
        scale = super().bitcast(self._u32("shl", biased, self._word(23)), u32, f32)
        return super().apply("mul", f32, number, scale)

    def _digits(self, x: int) -> Pair:
        """Return the number of binary digits of a u32, or one more; 0 for zero."""
        bits = super().bitcast(super().convert(x, u32, f32), f32, u32)
        exponent = self._u32("ushr", bits, self._word(23))
        is_zero = super().compare("eq", u32, x, self._word(0))
        digits = self._u32("sub", exponent, self._word(126))
        return Pair(super().choose(is_zero, u32, self._word(0), digits), self._word(0))

    def bitcast(self, x: Any, source: DType, target: DType) -> Any:
        if is_wide(source) and target is f64:
            return self.assign(Op.BITCAST, self.assembly.type(f64), self._packed(x))
        if source is f64 and is_wide(target):
            return self._unpacked(self.assign(Op.BITCAST, self.assembly.vector(2), x))
        if is_wide(source) and is_wide(target):
            return self.convert(x, source, target)
        return super().bitcast(x, source, target)

    def _packed(self, x: Pair) -> int:
        """Return a vector of both halves."""
        return self.assign(Op.COMPOSITE_CONSTRUCT, self.assembly.vector(2), x.low, x.high)

    def _unpacked(self, vector: int) -> Pair:
        word = self.assembly.type(u32)
        return Pair(*(self.assign(Op.COMPOSITE_EXTRACT, word, vector, k) for k in (0, 1)))

    # -- variables ------------------------------------------------------------------------------

    def variable(self, dtype: DType) -> Any:
        if not is_wide(dtype):
            return super().variable(dtype)
        return Pair(super().variable(u32), super().variable(u32))

    def read(self, variable: Any) -> Any:
        if not isinstance(variable, Pair):
            return super().read(variable)
        return Pair(super().read(variable.low), super().read(variable.high))

    def write(self, variable: Any, operand: Any) -> None:
        if not isinstance(variable, Pair):
            super().write(variable, operand)
            return
        super().write(variable.low, operand.low)
        super().write(variable.high, operand.high)

    # -- memory ---------------------------------------------------------------------------------

    def _halves_at(self, address: Pointer) -> tuple[Pointer, Pointer]:
        """Return the addresses of both halves of a number."""
        if isinstance(address, UnaddressedElement):
            low = self._u32("shl", address.index, self._word(1))
            high = self._u32("add", low, self._word(1))
            return UnaddressedElement(address.array, low), UnaddressedElement(address.array, high)
        return address, self._sum(address, self.constant(4, u64))

    def load(self, address: Pointer, dtype: DType, of: Any = None) -> Any:  # noqa: ARG002
        if not is_wide(dtype):
            return super().load(address, dtype)
        return Pair(*(super(PairCode, self).load(half, u32) for half in self._halves_at(address)))

    def store(self, address: Pointer, dtype: DType, value: Any, of: Any = None) -> None:  # noqa: ARG002
        if not is_wide(dtype):
            super().store(address, dtype, value)
            return
        for half, word in zip(self._halves_at(address), (value.low, value.high), strict=True):
            super().store(half, u32, word)

    def local_array(self, dtype: DType, count: int) -> Words:
        if is_wide(dtype):
            return super().local_array(u32, 2 * count)
        return super().local_array(dtype, count)

    def shared_array(self, key: Any, dtype: DType, count: int) -> Words:
        if is_wide(dtype):
            return super().shared_array(key, u32, 2 * count)
        return super().shared_array(key, dtype, count)

    # -- other threads --------------------------------------------------------------------------

    def read_lane(self, x: Any, dtype: DType, lane: int) -> Any:
        if not is_wide(dtype):
            return super().read_lane(x, dtype, lane)
        return Pair(super().read_lane(x.low, u32, lane), super().read_lane(x.high, u32, lane))

    # -- functions and launch words -------------------------------------------------------------

    def call(
        self,
        name: str,
        parameters: Sequence[Kind],
        result: DType | None,
        make: Callable[[Any, list[Any]], Any],
        operands: Sequence[Any],
    ) -> Any:
        kinds = [kind or u64 for kind in parameters]

        def make_of_pairs(code: Code, words: list[Any]) -> Any:
            assert isinstance(code, PairCode)
            left = iter(words)
            pairs = [Pair(next(left), next(left)) if is_wide(d) else next(left) for d in kinds]
            value = make(code, pairs)
            return code._packed(value) if isinstance(value, Pair) else value

        types = [half for dtype in kinds for half in _halves_of(dtype)]
        words = [word for operand in operands for word in _words_of(operand)]
        found = super().call(name, types, result, make_of_pairs, words)
        return self._unpacked(found) if result is not None and is_wide(result) else found

    def _result_type(self, result: DType | None) -> int:
        is_pair = result is not None and is_wide(result)
        return self.assembly.vector(2) if is_pair else super()._result_type(result)

    def _pushed(self, word: int) -> Any:
        def half(which: int) -> int:
            kind, member = self.assembly.type(u32), self.constant(2 * word + which, i32)
            pointer = self.assembly.pointer(StorageClass.PUSH_CONSTANT, kind)
            address = self.assign(Op.ACCESS_CHAIN, pointer, self.assembly.pushed(), member)
            return self.assign(Op.LOAD, kind, address)

        def make() -> Any:
            return Pair(half(0), half(1))

        return self.hoisted(("pushed", word), make)


def _halves_of(dtype: DType) -> tuple[DType, ...]:
    """Return the parameter types for a number of a type."""
    return (u32, u32) if is_wide(dtype) else (dtype,)


def _words_of(operand: Any) -> tuple[int, ...]:
    return (operand.low, operand.high) if isinstance(operand, Pair) else (operand,)
