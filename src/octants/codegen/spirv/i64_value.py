"""A 64-bit integer on devices that only have 32-bit integers."""

from __future__ import annotations

from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType


@dataclass(frozen=True, slots=True)
class Pair:
    """Two u32 that are an i64 or u64 together; `value` is the number if that is a constant.

    For a variable it has the variables of both halves.
    """

    low: int
    high: int
    value: int | None = None


def is_wide(dtype: DType) -> bool:
    """Return whether numbers of a type are pairs."""
    return dtype.bits == 64 and not dtype.is_float
