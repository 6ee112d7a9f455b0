"""The formats of f32 and f64."""

from __future__ import annotations

from octants.lazy_dataclass import dataclass
from octants.mathlib.ir_number import Number
from octants.types import scalars
from octants.types.scalars import DType


@dataclass(frozen=True, eq=False)
class Format:
    """A binary floating-point type: ``digits`` of precision, exponents up to ``bias``."""

    dtype: DType
    word: DType
    """The unsigned integer of the same width."""
    integer: DType
    """The signed one."""
    digits: int
    bias: int

    @property
    def fraction(self) -> int:
        """The bits after the point."""
        return self.digits - 1

    @property
    def sign(self) -> int:
        """The sign's bit in a word."""
        return 1 << (self.dtype.bits - 1)

    @property
    def round_constant(self) -> float:
        """Adding it rounds a number below 2**(digits - 2) in size to an integer."""
        return 1.5 * 2.0**self.fraction

    @property
    def round_word(self) -> int:
        """The bits of `round_constant`."""
        return (self.bias + self.fraction) << self.fraction | 1 << (self.fraction - 1)

    @property
    def tiny(self) -> float:
        """The least normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def unit(self) -> float:
        """The rounding error of a number near one, at most."""
        return 2.0**-self.digits

    def truncated(self, x: Number) -> Number:
        """The leading half of the digits of a number: products of two such are exact."""
        kept = ~((1 << ((self.digits + 1) // 2)) - 1) & ((1 << self.dtype.bits) - 1)
        return (x.read_as(self.word) & kept).read_as(self.dtype)

    def power_of_two(self, n: Number) -> Number:
        """2**n for a signed n between 1 - bias and bias."""
        return ((n + self.bias) << self.fraction).read_as(self.dtype)

    def nearest(self, x: Number) -> tuple[Number, Number]:
        """The nearest integer, even at a tie, as a float and signed; |x| < 2**(digits - 2)."""
        shifted = x + self.round_constant
        return shifted - self.round_constant, shifted.read_as(self.integer) - self.round_word

    def sign_of(self, x: Number) -> Number:
        """The sign's bit as a word."""
        return x.read_as(self.word) & self.sign

    def with_sign(self, x: Number, sign: Number) -> Number:
        """The number negated where the word has the sign's bit."""
        return (x.read_as(self.word) ^ sign).read_as(self.dtype)


F32 = Format(scalars.f32, scalars.u32, scalars.i32, 24, 127)
F64 = Format(scalars.f64, scalars.u64, scalars.i64, 53, 1023)


def format_of(x: Number) -> Format:
    """The format of a number's type."""
    return F64 if x.type is scalars.f64 else F32
