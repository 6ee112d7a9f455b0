"""Atomic updates: instructions where there are any, else loops of compare-and-exchange.

All are relaxed: they are updates of numbers, and order nothing else. What is smaller than 32 bits
is updated within its word of four bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.codegen.code import Element, Operand, Place
from octants.codegen.structured import arithmetic
from octants.codegen.structured.body import Body, register
from octants.codegen.structured.memory import place_of
from octants.codegen.structured.words import from_word, to_word, word_of
from octants.ir import ops
from octants.types.scalars import DType, u1, u32, u64

_BOOL = {"add": "or", "sub": "xor", "mul": "and", "min": "and", "max": "or"}
_NATIVE = frozenset(("add", "sub", "min", "max", "and", "or", "xor", "exchange"))


def atomic(body: Body, op: ops.Atomic) -> None:
    """Bind the result to the value before."""
    place = place_of(body, op.array, op.companion, op.indices)
    body.bind(op.result, update(body, op.fn, op.array.dtype, place, body.use(op.value)))


def update(body: Body, fn: str, dtype: DType, place: Place, value: Operand) -> Operand:
    """Update a place; gives the value before."""
    code = body.code
    if dtype is u1:
        fn = _BOOL.get(fn, fn)
    if dtype.is_float and fn == "sub":
        fn, value = "add", code.apply("neg", register(dtype), value)
    is_number = not (isinstance(place, Element) and dtype.is_float)  # and no bits of one
    if fn in _NATIVE and dtype.bits >= 32 and is_number and code.has_atomic(fn, dtype):
        return code.atomic(fn, dtype, place, value)

    def change(old: Operand) -> Operand:
        return value if fn == "exchange" else arithmetic.combine(body, fn, dtype, old, value)

    return _Word(body, dtype, place).change(change, may_stay=fn in ("min", "max"))


def compare_exchange(body: Body, op: ops.CompareExchange) -> None:
    """Bind the result to the value before. Floats are compared as numbers, not by their bits."""
    code, dtype = body.code, op.array.dtype
    place = place_of(body, op.array, op.companion, op.indices)
    expected, value = body.use(op.expected), body.use(op.value)
    if not dtype.is_float and dtype.bits >= 32:
        body.bind(op.result, code.exchange_if(word_of(dtype), place, expected, value))
        return

    def is_expected(old: Operand) -> Operand:
        return code.compare("eq", register(dtype), old, expected)

    body.bind(op.result, _Word(body, dtype, place).change(lambda _: value, is_expected))


class _Word:
    """The word of a number in memory, and where in it the number stands."""

    def __init__(self, body: Body, dtype: DType, place: Place) -> None:
        self._body, self._code, self._dtype = body, body.code, dtype
        self._word = word_of(dtype)
        self._is_part = dtype.bits < 32 and not isinstance(place, Element)
        self._place = place
        self._bits = max(8, dtype.bits)
        if self._is_part:
            code = self._code
            three = code.constant(3, u64)
            byte = code.convert(code.apply("and", u64, place, three), u64, u32)
            self._shift = code.apply("shl", u32, byte, code.constant(3, u32))
            self._place = code.apply("and", u64, place, code.apply("not", u64, three))

    def change(
        self,
        make: Callable[[Operand], Operand],
        test: Callable[[Operand], Operand] | None = None,
        *,
        may_stay: bool = False,
    ) -> Operand:
        """Put the new value there until nobody has changed the old one; gives the old one.

        Nothing is changed where ``test`` does not hold of the old one, or where the new one
        ``may_stay`` the old one, and is.
        """
        code, word = self._code, self._word
        known, done = code.variable(word), code.variable(u1)
        code.write(known, code.atomic_load(self._place, word))
        code.write(done, code.constant(False, u1))

        def end() -> None:
            code.write(done, code.constant(True, u1))

        def exchange() -> None:
            before = code.read(known)
            new = self._with(before, make(self._number(before)))

            def swap() -> None:
                found = code.exchange_if(word, self._place, before, new)
                code.write(done, code.compare("eq", word, found, before))
                code.write(known, found)

            if may_stay:
                code.branch(code.compare("ne", word, new, before), swap, end)
            else:
                swap()

        def turn() -> None:
            if test is None:
                exchange()
                return
            goes_on = test(self._number(code.read(known)))
            code.branch(goes_on, exchange, end)

        code.loop(lambda: code.apply("not", u1, code.read(done)), turn)
        return self._number(code.read(known))

    def _number(self, word: Operand) -> Operand:
        """The number in a word."""
        if self._is_part:
            word = self._code.apply("ushr", u32, word, self._shift)
        return from_word(self._code, self._dtype, word)

    def _with(self, word: Operand, number: Operand) -> Operand:
        """A word with another number in it."""
        code, bits = self._code, to_word(self._code, self._dtype, number)
        if not self._is_part:
            return bits
        mask = code.apply("shl", u32, code.constant((1 << self._bits) - 1, u32), self._shift)
        rest = code.apply("and", u32, word, code.apply("not", u32, mask))
        return code.apply("or", u32, rest, code.apply("shl", u32, bits, self._shift))
