"""Quantised fields: arrays whose stores keep a few bits of a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octants.fuzz.oracle.arrays import Array
from octants.fuzz.oracle.numbers import F32, I32, Num, convert, lift, rounded
from octants.fuzz.oracle.state import STATE, IllDefined


@dataclass
class Quantised:
    """A quantised type: `scale` is that of fixed-point numbers, `digits` are those of floats."""

    bits: int
    signed: bool
    scale: float = 0.0
    digits: int = 0

    @property
    def is_integer(self) -> bool:
        return not self.scale and not self.digits

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest of so many bits."""
        return (-(1 << (self.bits - 1)) if self.signed else 0, (1 << (self.bits - self.signed)) - 1)

    def of(self, number: Num) -> Num:
        """The content of a field after a store of a number."""
        if self.is_integer:
            (low, _), value = self.limits, int(number.value)
            return Num(I32, (value - low) % (1 << self.bits) + low)
        if self.scale:
            low, high = self.limits
            return self._multiple(min(max(self.steps(number), low), high))
        if number.value == 0:
            return Num(F32, 0.0)
        _, exponent = math.frexp(number.value)
        unit = math.ldexp(1.0, exponent - 1 - self.digits)
        return Num(F32, _nearest(number.value, number.error, unit) * unit)

    def together(self, numbers: Sequence[Num]) -> list[Num]:
        """Floats, rounded to the exponent of the largest of them."""
        largest = max(abs(number.value) for number in numbers)
        if largest == 0:
            return [Num(F32, 0.0)] * len(numbers)
        _, exponent = math.frexp(largest)
        power, unit = math.ldexp(1.0, exponent), math.ldexp(1.0, exponent - self.digits)
        for number in numbers:
            size, margin = abs(number.value), 2 * number.error
            if margin and (size + margin >= power or abs(size - power / 2) <= margin):
                STATE.note_near("a shared exponent")
        most, found = (1 << self.digits) - 1, []
        for number in numbers:
            count = _nearest(number.value, number.error, unit)
            found.append(Num(F32, max(min(count, most), -most) * unit))
        return found

    def steps(self, number: Num) -> int:
        """The nearest multiple of the scale."""
        given = convert(number, F32)
        margin = 4.0 * F32.roundoff * abs(given.value) if self.is_rounded else 0.0
        return _nearest(given.value, given.error + margin, self.scale)

    def _multiple(self, count: int) -> Num:
        value = count * rounded(F32, self.scale)
        return Num(F32, rounded(F32, value), F32.roundoff * abs(value) if self.is_rounded else 0.0)

    @property
    def is_rounded(self) -> bool:
        """Whether products with the scale are."""
        return math.frexp(self.scale)[0] != 0.5

    def sum(self, before: Num, operand: Num, fn: str) -> Num:
        """A sum of multiples, which must not leave the range while work items add in any order."""
        count, added = round(before.value / self.scale), self.steps(operand)
        total = count + (added if fn == "+" else -added)
        low, high = self.limits
        if not low <= total <= high and STATE.item is not None:
            raise IllDefined("a sum that leaves the range")
        return self._multiple(min(max(total, low), high))


def _nearest(value: float, error: float, unit: float) -> int:
    """How many units a number has, rounded: halves away from zero."""
    count = abs(value) / unit
    if abs(count - math.floor(count) - 0.5) <= 2 * error / unit and error:
        STATE.note_near("rounding of a quantised number")
    return int(math.copysign(math.floor(count + 0.5), value))


class QuantisedArray(Array):
    """A field of a quantised type."""

    def __init__(self, kind: Quantised, shape: tuple[int, ...], element: tuple[int, ...]) -> None:
        super().__init__(I32 if kind.is_integer else F32, shape, element, needs_grad=False)
        self.kind = kind
        self.shares_exponent = False  # among the components of an element

    def load_initial(self, values: Sequence[Any], tangents: Sequence[float] | None) -> None:
        super().load_initial(values, tangents)
        self.put_all(0, self.cells)
        self.is_accessed = False

    def put(self, offset: int, value: Num) -> None:
        if not self.shares_exponent:
            super().put(offset, self.kind.of(value))
            return
        within = offset % self.width
        numbers = self.cells[offset - within : offset - within + self.width]
        numbers[within] = value
        self.put_all(offset - within, numbers)

    def put_all(self, first: int, numbers: Sequence[Num]) -> None:
        if not self.shares_exponent:
            super().put_all(first, numbers)
            return
        for start in range(0, len(numbers), self.width):
            together = self.kind.together(numbers[start : start + self.width])
            for offset, number in enumerate(together, first + start):
                super().put(offset, number)

    def write_all(self, first: int, values: Sequence[Any]) -> None:
        if not self.shares_exponent:
            super().write_all(first, values)
            return
        numbers = [convert(lift(value), self.dtype) for value in values]
        for offset, number in enumerate(numbers, first):
            self.watch.note(offset, "write", number)
        self.put_all(first, numbers)

    def update(self, offset: int, fn: str, value: Any, used: bool = False) -> Num:
        if not self.kind.scale or fn not in ("+", "-"):
            return super().update(offset, fn, value, used)
        self.watch.note(offset, "use" if used else "add")
        before = self.cells[offset]
        self.put(offset, self.kind.sum(before, lift(value), fn))
        return before


class BitpackedFields:
    """A word: where fields are in it does not matter here."""

    def __init__(self, **_: Any) -> None:
        self.leaves: list[Array] = []

    def place(self, *fields: Array, shared_exponent: bool = False) -> None:
        self.leaves += fields
        for field in fields:
            if isinstance(field, QuantisedArray):
                field.shares_exponent = shared_exponent


def integer(bits: int, signed: bool) -> Quantised:
    return Quantised(bits, signed)


def fixed(bits: int, signed: bool, max_value: float) -> Quantised:
    return Quantised(bits, signed, scale=max_value / 2 ** (bits - signed))


def floating(exp: int, frac: int) -> Quantised:
    return Quantised(exp + frac, True, digits=frac - 1)


class QuantTypes:
    """``qd.types.quant``."""

    int, fixed, float = staticmethod(integer), staticmethod(fixed), staticmethod(floating)
