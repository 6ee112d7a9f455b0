"""Quantised types, for `BitpackedFields` and `quant_array`: ``qd.types.quant.int(bits=5)``."""

from __future__ import annotations

import builtins
import math
from typing import Any

from octants.diagnostics.quant_errors import WrongQuantType
from octants.types.default_types import resolve
from octants.types.quantised_types import QuantFixed, QuantFloat, QuantInt
from octants.types.scalars import DType, f32, f64, i32, i64, u32, u64


def int(  # noqa: A001
    bits: builtins.int, signed: bool = True, compute: Any = None
) -> QuantInt:
    """The type of integers of `bits` bits; what is stored wraps.

    Args:
        bits: from 1 to 64.
        signed: whether they can be negative.
        compute: the integer type that loads give; i32 if it holds all of them, else the narrowest
            that does.

    Raises:
        OctantsValueError: for bits or a type that cannot be.
    """
    count = _bits("quant.int", "bits", bits, 1, 64)
    dtype = _dtype("quant.int", compute, _integer(count, signed))
    if not dtype.is_integer:
        raise WrongQuantType("quant.int", f"`compute` is an integer type, not {dtype}").at()
    return QuantInt(count, bool(signed), dtype)


def fixed(
    bits: builtins.int,
    signed: bool = True,
    max_value: builtins.float = 1.0,
    compute: Any = None,
    scale: builtins.float | None = None,
) -> QuantFixed:
    """The type of multiples of a number that fit in `bits` bits; stores take the nearest one.

    Args:
        bits: from 1 to 53, the sign among them.
        signed: whether they can be negative: from ``-max_value`` on, else from 0.
        max_value: what all numbers are below.
        compute: the type that loads give: f32, or f64.
        scale: the number that all are multiples of, in place of `max_value`.

    Raises:
        OctantsValueError: for bits, a type or a scale that cannot be.
    """
    count = _bits("quant.fixed", "bits", bits, 1, 53)
    dtype = _dtype("quant.fixed", compute, f32)
    if dtype not in (f32, f64):
        raise WrongQuantType("quant.fixed", f"`compute` is f32 or f64, not {dtype}").at()
    step = max_value / 2 ** (count - bool(signed)) if scale is None else scale
    if not (step > 0 and math.isfinite(step) and math.isfinite(dtype(1 / dtype(step)))):
        problem = f"the numbers cannot be multiples of {step}"
        raise WrongQuantType("quant.fixed", problem).at()
    return QuantFixed(count, bool(signed), dtype, builtins.float(step))


def float(  # noqa: A001
    exp: builtins.int, frac: builtins.int, signed: bool = True, compute: Any = None
) -> QuantFloat:
    """The type of floats with an exponent of `exp` bits and a fraction of `frac` bits.

    The bias of the exponent is ``2 ** (exp - 1) - 1``; there are no subnormal numbers. With fewer
    than 8 bits there is no infinity either: what is too large becomes the largest number.

    Args:
        exp: from 1 to 8.
        frac: the bits of the fraction, and of the sign if there is one: 1 to 23, signed 2 to 24.
        signed: whether they can be negative.
        compute: f32, the type that loads give.

    Raises:
        OctantsValueError: for bits or a type that cannot be.
    """
    exponent = _bits("quant.float", "exp", exp, 1, 8)
    sign = bool(signed)
    fraction = _bits("quant.float", "frac", frac, 1 + sign, 23 + sign)
    dtype = _dtype("quant.float", compute, f32)
    if dtype is not f32:
        raise WrongQuantType("quant.float", f"`compute` is f32, not {dtype}").at()
    return QuantFloat(exponent + fraction, sign, dtype, exponent, fraction - sign)


def _bits(what: str, name: str, given: Any, low: builtins.int, high: builtins.int) -> builtins.int:
    is_integer = hasattr(given, "__index__") and not isinstance(given, bool)
    if not is_integer or not low <= given <= high:
        problem = f"`{name}` is an integer from {low} to {high}, not {given!r}"
        raise WrongQuantType(what, problem).at()
    return builtins.int(given)


def _dtype(what: str, given: Any, default: DType) -> DType:
    if given is None:
        return default
    try:
        return resolve(given)
    except TypeError:
        raise WrongQuantType(what, f"`compute` is a scalar type, not {given!r}").at() from None


def _integer(bits: builtins.int, signed: bool) -> DType:
    """The type that holds all integers of some bits, i32 if that does."""
    if bits + (not signed) <= 32:
        return i32
    if bits <= 32:
        return u32
    return u64 if bits == 64 and not signed else i64
