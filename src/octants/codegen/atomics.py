"""Write atomic updates: instructions where the machine has them, else compare-exchange loops.

All are relaxed: they update numbers and order no other access. A number of less than 32 bits is
updated within its word of four bytes, unless the machine can exchange less.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.codegen import arithmetic
from octants.codegen.function_emitter import FunctionEmitter
from octants.codegen.instruction_writer import Operand, Pointer, UnaddressedElement, register
from octants.codegen.memory import address_of
from octants.codegen.numbers_as_bits import from_word, to_word, word_of
from octants.ir import ops
from octants.types.scalars import DType, f16, u1, u8, u16, u32, u64

_BOOL = {"add": "or", "sub": "xor", "mul": "and", "min": "and", "max": "or"}
_NATIVE = frozenset(("add", "sub", "min", "max", "and", "or", "xor", "exchange"))
_STORED = {u1: u8, f16: u16}  # the integers as which they are in memory


def atomic(f: FunctionEmitter, op: ops.Atomic) -> None:
    """Update an element and bind the result to the value before."""
    address = address_of(f, op.array, op.companion, op.indices)
    f.bind(op.result, update(f, op.fn, op.array.dtype, address, f.use(op.value)))


def update(f: FunctionEmitter, fn: str, dtype: DType, address: Pointer, value: Operand) -> Operand:
    """Update a number in memory and return the value before."""
    code = f.code
    if dtype is u1:
        fn = _BOOL.get(fn, fn)
    if dtype.is_float and fn == "sub":
        fn, value = "add", code.apply("neg", register(dtype), value)
    if _has_instruction(f, fn, dtype, address):
        if dtype is not u1:
            return code.atomic(fn, dtype, address, value)
        before = code.atomic(fn, u8, address, code.convert(value, u1, u8))
        return code.compare("ne", u8, before, code.constant(0, u8))

    def change(old: Operand) -> Operand:
        return value if fn == "exchange" else arithmetic.combine(f, fn, dtype, old, value)

    return _Word(f, dtype, address).change(change, may_stay=fn in ("min", "max"))


def _has_instruction(f: FunctionEmitter, fn: str, dtype: DType, address: Pointer) -> bool:
    if isinstance(address, UnaddressedElement) and (dtype.is_float or dtype.bits < 32):
        return False  # its word holds 32 truth values
    return (
        fn in _NATIVE and dtype is not f16 and f.code.has_atomic(fn, u8 if dtype is u1 else dtype)
    )


def compare_exchange(f: FunctionEmitter, op: ops.CompareExchange) -> None:
    """Compare, exchange, and bind the result to the value before."""
    address = address_of(f, op.array, op.companion, op.indices)
    found = exchange_if(f, op.array.dtype, address, f.use(op.expected), f.use(op.value))
    f.bind(op.result, found)


def exchange_if(
    f: FunctionEmitter, dtype: DType, address: Pointer, expected: Operand, value: Operand
) -> Operand:
    """Store a value where another one is expected, and return the value before.

    Floats are compared as numbers, not by their bits: zeros are equal, a NaN is not.
    """
    code = f.code
    if dtype.is_integer and (dtype.bits >= 32 or code.has_atomic("exchange", dtype)):
        return code.exchange_if(dtype, address, expected, value)

    def is_expected(old: Operand) -> Operand:
        return code.compare("eq", register(dtype), old, expected)

    return _Word(f, dtype, address).change(lambda _: value, is_expected)


class _Word:
    """The memory word that holds a narrow number, and the number's position in it."""

    def __init__(self, f: FunctionEmitter, dtype: DType, address: Pointer) -> None:
        code = self._code = f.code
        self._dtype, self._word, self._address = dtype, word_of(dtype), address
        self._bits = max(8, dtype.bits)
        self._is_part = dtype.bits < 32 and not isinstance(address, UnaddressedElement)
        stored = _STORED.get(dtype, dtype)
        if self._is_part and code.has_atomic("exchange", stored):
            self._is_part, self._word = False, stored
        if self._is_part:
            three = code.constant(3, u64)
            byte = code.convert(code.apply("and", u64, address, three), u64, u32)
            self._shift = code.apply("shl", u32, byte, code.constant(3, u32))
            self._address = code.apply("and", u64, address, code.apply("not", u64, three))

    def change(
        self,
        make: Callable[[Operand], Operand],
        test: Callable[[Operand], Operand] | None = None,
        *,
        may_stay: bool = False,
    ) -> Operand:
        """Replace the number by a compare-exchange loop, and return the old number.

        The word stays as it is where ``test`` is false for the old number, or, with ``may_stay``,
        where the new number equals the old one.
        """
        code, word = self._code, self._word
        known = code.variable(word)
        code.write(known, code.atomic_load(self._address, word))

        def goes_on() -> Operand:
            """Try to write the word; return whether another thread changed it meanwhile."""
            before = code.read(known)
            if test is not None:
                code.branch(code.apply("not", u1, test(self._number(before))), code.stop)
            new = self._with(before, make(self._number(before)))
            if may_stay:
                code.branch(code.compare("eq", word, new, before), code.stop)
            found = code.exchange_if(word, self._address, before, new)
            code.write(known, found)
            return code.compare("ne", word, found, before)

        code.loop(goes_on, lambda: None)
        return self._number(code.read(known))

    def _number(self, word: Operand) -> Operand:
        """Extract the number from a word."""
        code = self._code
        if self._is_part:
            word = code.apply("ushr", u32, word, self._shift)
        elif self._word.bits < 32:
            word = code.convert(word, self._word, u32)
        return from_word(code, self._dtype, word)

    def _with(self, word: Operand, number: Operand) -> Operand:
        """Return a word with the number replaced."""
        code, bits = self._code, to_word(self._code, self._dtype, number)
        if not self._is_part:
            return code.convert(bits, u32, self._word) if self._word.bits < 32 else bits
        mask = code.apply("shl", u32, code.constant((1 << self._bits) - 1, u32), self._shift)
        rest = code.apply("and", u32, word, code.apply("not", u32, mask))
        return code.apply("or", u32, rest, code.apply("shl", u32, bits, self._shift))
