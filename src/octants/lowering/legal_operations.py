"""The operations that a target has instructions for, and the form of lowering rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from octants.lazy_dataclass import dataclass
from octants.mathlib.ir_number import Number
from octants.types import scalars
from octants.types.scalars import DType

Rule: TypeAlias = Callable[..., Number]
"""It takes the operands of an operation and builds what has its result."""

FAMILIES = ("signed", "unsigned", "float", "f16", "u1")

INTEGERS = tuple(dtype for dtype in scalars.ALL if dtype.is_integer)
SIGNED_INTEGERS = tuple(dtype for dtype in INTEGERS if dtype.is_signed)
UNSIGNED_INTEGERS = tuple(dtype for dtype in INTEGERS if not dtype.is_signed)
FLOATS = (scalars.f32, scalars.f64)


def family(dtype: DType) -> str:
    """One of `FAMILIES`: types of one family have the same rules."""
    if dtype is scalars.f16 or dtype is scalars.u1:
        return dtype.name
    return dtype.kind.value


EXACT = ("neg", "abs", "floor", "ceil", "round", "trunc")
"""Functions of floats whose results have no more bits than their operands."""


def table(*rows: tuple[Iterable[DType], Iterable[str]]) -> frozenset[tuple[str, DType]]:
    """Each function of a row for each type of it."""
    return frozenset((fn, dtype) for types, names in rows for dtype in types for fn in names)


def casts(sources: Iterable[DType], targets: Iterable[DType]) -> frozenset[tuple[DType, DType]]:
    """All casts from some types to others."""
    return frozenset((a, b) for a in sources for b in targets if a is not b)


@dataclass(frozen=True, eq=False)
class Legal:
    """The operations that a target has instructions for; all others are lowered to these.

    `functions` are those of `Unary`, `Binary` and `Compare` by the type of their operands, `casts`
    pairs of types. `Fma` of the types in `fma` stays; of those in `fused` it rounds once, whatever
    asks for it. A target without f64 has `has_f64` false.

    Constants, selections, bitcasts and calls are legal everywhere, as are all casts between f16 and
    f32: in a register an f16 may be an f32.
    """

    functions: frozenset[tuple[str, DType]]
    casts: frozenset[tuple[DType, DType]]
    fma: frozenset[DType] = frozenset()
    fused: frozenset[DType] = frozenset()
    has_f64: bool = True
