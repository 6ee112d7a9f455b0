"""Sines and cosines of f32 by sums and products, for machines that estimate them by instructions.

Such an instruction takes as long as several additions. Where a loop does little else, computing
some by a polynomial keeps both units of the machine busy.
"""

from __future__ import annotations

import math

from octants.lazy_dataclass import dataclass
from octants.mathlib.fast_by_estimates import FAR
from octants.mathlib.ir_number import Number
from octants.types.scalars import convert, f32


@dataclass(frozen=True)
class Series:
    """Polynomials of the square of x: sin(x) / x, and cos(x).

    They are valid for |x| up to `size` and take `more` operations than the instruction, whose
    precision they have.
    """

    size: float
    more: int
    sin: tuple[float, ...]
    cos: tuple[float, ...]


_SERIES = (
    Series(
        1.0,
        3,
        (0.99999990542, -0.1666654029, 0.00832877103, -0.000192299238),
        (0.99999981155, -0.49999395279, 0.04163632912, -0.00134007047),
    ),
    Series(
        1.6,
        4,
        (0.99999994879, -0.16666632626, 0.00833268099, -0.00019789078, 2.56920668e-06),
        (0.99999994417, -0.49999890534, 0.04166323074, -0.00138510737, 2.309409014e-05),
    ),
    Series(
        3.2,
        6,
        (
            0.99999950916,
            -0.16666531394,
            0.00833226693,
            -0.00019805137,
            2.69583527e-06,
            -2.020740036e-08,
        ),
        (
            0.99999998607,
            -0.49999986589,
            0.0416664557,
            -0.0013887643,
            2.476644905e-05,
            -2.7045535939e-07,
            1.7123655154e-09,
        ),
    ),
    Series(  # through an angle in revolutions
        FAR,
        9,
        (6.28318282, -41.3414214, 81.59618388, -76.58010059, 41.20539512, -12.27126271),
        (
            0.99999999,
            -19.73920453,
            64.93911898,
            -85.45016555,
            60.16783173,
            -25.96831331,
            6.52961042,
        ),
    ),
)
_TO_REVOLUTIONS = convert(1 / (2 * math.pi), f32)
_WHOLE = 1.5 * 2.0**23
"""Adding and subtracting this rounds a number to an integer."""


def series(size: float) -> Series:
    """Return the polynomials for |x| up to ``size``; a ``size`` from `FAR` on counts as `FAR`."""
    return next((each for each in _SERIES if size <= each.size), _SERIES[-1])


def polynomial(fn: str, x: Number, chosen: Series) -> Number:
    """The "sin" or "cos" of an f32 by polynomials."""
    if chosen is _SERIES[-1]:
        turns = x.times_plus(_TO_REVOLUTIONS, _WHOLE) - _WHOLE
        x = x.times_plus(_TO_REVOLUTIONS, -turns)
    square = x * x
    *others, last = (convert(each, f32) for each in (chosen.sin if fn == "sin" else chosen.cos))
    total = x.lift(last)
    for each in reversed(others):
        total = square.times_plus(total, each)
    return total * x if fn == "sin" else total
