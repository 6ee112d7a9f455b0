"""Affine expressions of integers, exact modulo 2^32 or 2^64."""

from __future__ import annotations

from dataclasses import field

from octants.ir.core import Value
from octants.lazy_dataclass import dataclass


def wrapped(number: int, bits: int) -> int:
    """The signed integer of so many bits that equals a number modulo 2^bits; 0: the number."""
    if not bits:
        return number
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


@dataclass(slots=True)
class Affine:
    """``constant + sum(coefficient * atom)``, which equals a value modulo 2^bits.

    Sums, differences and products with constants wrap, which preserves this equality. With 0 bits
    nothing wraps: a value equals its expression.
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
        """The expression with coefficients in the range of the type, none of them zero."""
        terms = {atom: wrapped(c, self.bits) for atom, c in self.terms.items()}
        nonzero = {atom: c for atom, c in terms.items() if c}
        return Affine(wrapped(self.constant, self.bits), nonzero, self.bits)

    def without(self, atom: Value) -> Affine:
        """The expression without the term of an atom."""
        terms = {other: c for other, c in self.terms.items() if other is not atom}
        return Affine(self.constant, terms, self.bits)

    def within(self, bits: int) -> Affine:
        """The expression modulo another power, which must divide the present one."""
        return Affine(self.constant, self.terms, bits).reduced()
