"""The scalar types of the language, and how two of them combine."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np


class Kind(enum.Enum):
    """The families of numbers of scalar types."""

    BOOL = "bool"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"


class DType:
    """A scalar type of the language; one object per type, compared by identity.

    Called in a kernel, it converts: ``qd.f32(x)``.
    """

    __slots__ = ("bits", "is_float", "kind", "name", "numpy", "size")

    def __init__(self, name: str, kind: Kind, bits: int, numpy_type: type) -> None:
        self.name = name
        self.kind = kind
        self.is_float = kind is Kind.FLOAT
        self.bits = bits
        self.numpy: np.dtype[Any] = np.dtype(numpy_type)
        self.size = max(1, bits // 8)  # bytes in memory

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer; ``u1`` is not."""
        return self.kind is Kind.SIGNED or self.kind is Kind.UNSIGNED

    @property
    def is_signed(self) -> bool:
        return self.kind is Kind.SIGNED or self.kind is Kind.FLOAT

    @property
    def is_bool(self) -> bool:
        return self.kind is Kind.BOOL

    def __call__(self, value: Any) -> Any:
        """Convert a Python number on the host, as the language would in a kernel."""
        return convert(value, self)

    def __repr__(self) -> str:
        return self.name

    def to_string(self) -> str:
        """The name of the type: ``"f32"``."""
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return by_name, (self.name,)

    def __deepcopy__(self, memo: object) -> DType:
        return self

    def __copy__(self) -> DType:
        return self


u1 = DType("u1", Kind.BOOL, 1, np.bool_)
i8 = DType("i8", Kind.SIGNED, 8, np.int8)
i16 = DType("i16", Kind.SIGNED, 16, np.int16)
i32 = DType("i32", Kind.SIGNED, 32, np.int32)
i64 = DType("i64", Kind.SIGNED, 64, np.int64)
u8 = DType("u8", Kind.UNSIGNED, 8, np.uint8)
u16 = DType("u16", Kind.UNSIGNED, 16, np.uint16)
u32 = DType("u32", Kind.UNSIGNED, 32, np.uint32)
u64 = DType("u64", Kind.UNSIGNED, 64, np.uint64)
f16 = DType("f16", Kind.FLOAT, 16, np.float16)
f32 = DType("f32", Kind.FLOAT, 32, np.float32)
f64 = DType("f64", Kind.FLOAT, 64, np.float64)

ALL = (u1, i8, i16, i32, i64, u8, u16, u32, u64, f16, f32, f64)
_BY_NAME = {dtype.name: dtype for dtype in ALL}
_BY_NUMPY = {dtype.numpy: dtype for dtype in ALL}


def by_name(name: str) -> DType:
    """The type called ``name``; ``KeyError`` if there is none."""
    return _BY_NAME[name]


def from_numpy(dtype: Any) -> DType:
    """The type with the layout of a numpy dtype; ``KeyError`` if there is none."""
    if not isinstance(dtype, (np.dtype, type, str)):
        raise KeyError(dtype)  # older versions of numpy would take the `dtype` that it has
    return _BY_NUMPY[np.dtype(dtype)]


def promote(a: DType, b: DType) -> DType:
    """The type of ``a op b``.

    A float beats an integer; of two of a family the wider one wins; of two integers of one
    width the unsigned one wins.
    """
    if a is b:
        return a
    if a.is_float or b.is_float:
        if a.is_float and b.is_float:
            return a if a.bits > b.bits else b
        return a if a.is_float else b
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    return a if a.kind is Kind.UNSIGNED else b


def convert(value: Any, dtype: DType) -> Any:
    """``value`` as a Python number that ``dtype`` can hold, with the language's conversion.

    Integers wrap; a float becomes an integer by truncation and saturates (NaN gives 0); a float
    is rounded to the width of the type.
    """
    if dtype.kind is Kind.FLOAT:
        if dtype.bits == 64 or value is None:  # numpy's f32 takes None for NaN
            return float(value)
        if (
            isinstance(value, int) and -(1 << 63) <= value < 1 << 64
        ):  # rounded once, not by way of f64
            value = np.int64(value) if value < 1 << 63 else np.uint64(value)
        with np.errstate(over="ignore"):
            return float(dtype.numpy.type(value))
    if dtype.kind is Kind.BOOL:
        return bool(value)
    low, high = integer_range(dtype)
    if isinstance(value, (float, np.floating)):
        if value != value:
            return 0
        if value <= low:
            return low
        return high if value >= high else int(value)
    wrapped = int(value) & ((1 << dtype.bits) - 1)
    return wrapped - (1 << dtype.bits) if wrapped > high else wrapped


def convert_values(values: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """The numbers of an array with the language's conversion; see `convert`."""
    if values.dtype == dtype.numpy:
        return values
    if values.dtype.kind == "f" and dtype.is_integer:
        return _truncate(values, dtype)
    with np.errstate(over="ignore"):
        return values.astype(dtype.numpy)


def _truncate(values: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    low, high = integer_range(dtype)
    wide = values.astype(np.float64)
    too_high, too_low = wide >= float(high), wide <= float(low)
    inside = ~(too_high | too_low | np.isnan(wide))
    result = np.asarray(np.where(inside, wide, 0).astype(dtype.numpy))
    result[too_high] = high
    result[too_low] = low
    return result


def register_type(dtype: DType) -> DType:
    """The type in which a value of a type is computed with: f32 for an f16, else the type."""
    return f32 if dtype is f16 else dtype


def integer_range(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    if dtype.kind is Kind.SIGNED:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def holds(dtype: DType, number: Any) -> bool:
    """Whether an integer type can hold a number."""
    low, high = integer_range(dtype)
    return bool(low <= number <= high)
