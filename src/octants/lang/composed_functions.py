"""Random numbers and floating point, in terms of simpler functions of the language."""

from __future__ import annotations

from math import pi
from typing import Any

from octants.lang.atomics_and_random import random
from octants.lang.library_function_marks import library_function
from octants.lang.scalar_functions import abs, cast, cos, exp2, floor, log, log2, select, sqrt  # noqa: A004


@library_function
def randn(dt: Any = None) -> Any:
    """A random number of the standard normal distribution, from two uniform ones (Box, Muller)."""
    radius = sqrt(-2 * log(1 - random(dt)))
    return radius * cos(2 * pi * random(dt))


@library_function
def frexp(x: Any) -> Any:
    """A mantissa m with 0.5 <= abs(m) < 1 and an integer e with ``x == m * 2 ** e``.

    Zero, infinities and NaN are given back with the exponent 0.
    """
    size = abs(x)
    is_regular = (size > 0) & (size < float("inf"))
    exponent = floor(log2(select(is_regular, size, 1))) + 1
    half = floor(exponent / 2)
    # In two steps, because the power of a subnormal number's exponent overflows.
    mantissa = x * exp2(-half) * exp2(half - exponent)
    too_large, too_small = abs(mantissa) >= 1, abs(mantissa) < 0.5
    mantissa = select(too_large, mantissa / 2, select(too_small, mantissa * 2, mantissa))
    exponent = select(too_large, exponent + 1, select(too_small, exponent - 1, exponent))
    return select(is_regular, mantissa, x), cast(select(is_regular, exponent, 0), int)
