"""Quantised types: numbers of a few bits, several of which share a word of memory.

A field of such a type is placed by `BitpackedFields` or `quant_array`. What kernels load from it,
and store to it, are numbers of an ordinary type (`dtype`).
"""

from __future__ import annotations

from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType


@dataclass(frozen=True, slots=True)
class QuantType:
    """The type of the elements of a quantised field.

    Attributes:
        bits: all bits of an element.
        signed: whether one of them is a sign.
        dtype: the type of what kernels load and store.
    """

    bits: int
    signed: bool
    dtype: DType


@dataclass(frozen=True, slots=True)
class QuantInt(QuantType):
    """An integer: what does not fit wraps.

    Attributes:
        bits: all bits of an element.
        signed: whether one of them is a sign.
        dtype: the type of what kernels load and store.
    """

    def __repr__(self) -> str:
        return f"quant.int({self.bits}, signed={self.signed})"


@dataclass(frozen=True, slots=True)
class QuantFixed(QuantType):
    """A multiple of a number: the nearest one, of those that fit.

    Attributes:
        bits: all bits of an element.
        signed: whether one of them is a sign.
        dtype: the type of what kernels load and store.
        scale: the number.
    """

    scale: float

    def __repr__(self) -> str:
        return f"quant.fixed({self.bits}, signed={self.signed}, scale={self.scale})"


@dataclass(frozen=True, slots=True)
class QuantFloat(QuantType):
    """A float; one whose exponent has no bit set is zero.

    Attributes:
        bits: all bits of an element.
        signed: whether one of them is a sign.
        dtype: the type of what kernels load and store.
        exponent: the bits of the exponent.
        digits: the bits of the fraction, behind the leading one, which is not stored.
    """

    exponent: int
    digits: int

    @property
    def offset(self) -> int:
        """The number to add to the exponent to get that of an f32."""
        return 128 - (1 << (self.exponent - 1))

    def __repr__(self) -> str:
        fraction = self.digits + self.signed
        return f"quant.float({self.exponent}, {fraction}, signed={self.signed})"


@dataclass(frozen=True, slots=True)
class BitPosition:
    """The position of a number in a word: its first bit; for a float, also that of its exponent.

    Floats of one `group`, a number from 1, share their exponent.
    """

    kind: QuantType
    first: int
    exponent: int = -1
    group: int = 0

    @property
    def width(self) -> int:
        """The bits at `first`: those of a float without its exponent."""
        if isinstance(self.kind, QuantFloat):
            return self.kind.digits + self.kind.signed
        return self.kind.bits


@dataclass(frozen=True, slots=True)
class Packing:
    """The packing of a word of a type."""

    word: DType
    slots: tuple[BitPosition, ...]

    def group(self, slot: BitPosition) -> tuple[BitPosition, ...]:
        """The slots that share the exponent of one, itself among them."""
        if not slot.group:
            return (slot,)
        return tuple(each for each in self.slots if each.group == slot.group)
