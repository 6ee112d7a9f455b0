"""Affine expressions of integers, as exact as the integers themselves: modulo 2^32 or 2^64."""

from __future__ import annotations

from dataclasses import field

from octants.ir.core import Value
from octants.lazy_dataclass import dataclass


def wrapped(number: int, bits: int) -> int:
    """The signed integer of so many bits that equals a number modulo 2^bits; 0 bits: itself."""
    if not bits:
        return number
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


@dataclass(slots=True)
class Affine:
    """``constant + sum(coefficient * atom)``, which is equal to a value modulo 2^bits.

    Additions, subtractions and products with constants wrap, and leave this equality as it is.
    With 0 bits nothing wraps: a value is equal to its expression.
    """

    constant: int = 0
    terms: dict[Value, int] = field(default_factory=dict)
    bits: int = 0

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        """The sum with a multiple of another expression, modulo the same power."""
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            terms[atom] = terms.get(atom, 0) + factor * coefficient
        return Affine(self.constant + factor * other.constant, terms, self.bits).reduced()

    def reduced(self) -> Affine:
        """The same with coefficients in the range of the type, and none of zero."""
        terms = {atom: wrapped(c, self.bits) for atom, c in self.terms.items()}
        kept = {atom: c for atom, c in terms.items() if c}
        return Affine(wrapped(self.constant, self.bits), kept, self.bits)

    def without(self, atom: Value) -> Affine:
        """The expression without the term of an atom."""
        terms = {other: c for other, c in self.terms.items() if other is not atom}
        return Affine(self.constant, terms, self.bits)

    def within(self, bits: int) -> Affine:
        """The expression modulo another power, which must divide that of this one."""
        return Affine(self.constant, self.terms, bits).reduced()
