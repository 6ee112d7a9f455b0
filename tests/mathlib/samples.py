"""Where functions are tried, and what they should give there by mpmath."""

from __future__ import annotations

import functools
import math
from typing import Any

import mpmath
import numpy as np

from octants.types.scalars import DType

ODD = "sin tan asin atan sinh tanh asinh atanh cbrt erf".split()
EVEN = ("cos", "cosh")

LIMITS = {"exp": 745.0, "exp2": 1075.0, "expm1": 720.0, "sinh": 712.0, "cosh": 712.0}
DOMAINS = {
    "asin": (-1.0, 1.0), "acos": (-1.0, 1.0), "atanh": (-1.0, 1.0), "acosh": (1.0, 1e9),
    "log": (0.0, 1e9), "log2": (0.0, 1e9), "log10": (0.0, 1e9), "log1p": (-1.0, 1e9),
}  # fmt: skip


def random_bits(dtype: DType, count: int, seed: int) -> Any:
    """Numbers of all exponents and signs, the special ones included."""
    kind = np.uint32 if dtype.bits == 32 else np.uint64
    words = np.random.default_rng(seed).integers(0, 1 << dtype.bits, count, dtype=kind)
    return words.view(dtype.numpy)


@functools.cache
def numbers(fn: str, dtype: DType, count: int) -> Any:
    """All exponents; the function's domain; both sides of its hard places."""
    rng = np.random.default_rng(7)
    low, high = DOMAINS.get(fn, (-LIMITS.get(fn, 20.0), LIMITS.get(fn, 20.0)))
    wide = rng.uniform(low, min(high, 1e3), count)
    small = rng.uniform(-1.0, 1.0, count) * 2.0 ** rng.uniform(-12, 0, count)
    near_one = 1.0 + small / 2
    angles = rng.integers(1, 1 << 20, count) * (math.pi / 2)
    parts = [wide, small, near_one, angles, rng.normal(0.0, 2.0, count)]
    with np.errstate(all="ignore"):
        exact = [x.astype(dtype.numpy) for x in parts]
        neighbours = [np.nextafter(x, dtype.numpy.type(0)) for x in exact[3:4]]
    special = [0.0, -0.0, 1.0, -1.0, 0.5, math.inf, -math.inf, math.nan]
    special += [float(np.finfo(dtype.numpy).tiny), float(np.finfo(dtype.numpy).max)]
    ends = np.array(special, dtype.numpy)
    return np.concatenate([random_bits(dtype, count, 1), *exact, *neighbours, ends])


@functools.cache
def pairs(fn: str, dtype: DType, count: int) -> tuple[Any, Any]:
    """For `pow`: results of all sizes, bases near one; for `atan2`: all ratios."""
    rng = np.random.default_rng(11)
    x, y = random_bits(dtype, count, 2), random_bits(dtype, count, 3)
    base = np.exp(rng.normal(0.0, 3.0, count))
    if fn == "pow":
        largest = 150.0 if dtype.bits == 32 else 1075.0
        exponent = rng.uniform(-largest, largest, count) / np.log2(base)
        near = 1.0 + rng.uniform(-1.0, 1.0, count) * 2.0 ** rng.uniform(-20, -1, count)
        other = rng.uniform(-100.0, 100.0, count) / np.log2(near)
        firsts, seconds = [base, near, -base], [exponent, other, rng.integers(-20, 20, count)]
    else:
        firsts = [base, rng.normal(size=count), rng.normal(size=count)]
        seconds = [-base[::-1], rng.normal(size=count), rng.normal(size=count) * 1e-3]
    kind = dtype.numpy
    x = np.concatenate([x, *(part.astype(kind) for part in firsts)])
    return x, np.concatenate([y, *(part.astype(kind) for part in seconds)])


def _cbrt(x: Any) -> Any:
    return mpmath.sign(x) * mpmath.cbrt(abs(x))


MPMATH = {
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "log2": lambda x: mpmath.log(x, 2),
    "cbrt": _cbrt,
    "pow": mpmath.power,
}


def exact(fn: str, *operands: float) -> Any:
    """The value in mpmath's numbers, of finite operands inside the domain."""
    function = MPMATH.get(fn) or getattr(mpmath, fn)
    with mpmath.workprec(200 if fn not in ("sin", "cos", "tan") else 1400):
        return function(*(mpmath.mpf(x) for x in operands))


def error(found: float, value: Any, dtype: DType) -> float:
    """The distance in units of the last digit; infinite for results wrongly special."""
    digits, least = (24, -149) if dtype.bits == 32 else (53, -1074)
    largest = mpmath.mpf(2) ** (128 if dtype.bits == 32 else 1024)
    if isinstance(value, mpmath.mpc) or mpmath.isnan(value):
        return 0.0 if math.isnan(found) else math.inf
    if math.isinf(found):
        edge = largest * (1 - mpmath.mpf(2) ** -digits)
        return 0.0 if abs(value) >= edge and (found > 0) == (value > 0) else math.inf
    if value == 0:
        return 0.0 if found == 0 else math.inf
    exponent = max(int(mpmath.floor(mpmath.log(abs(value), 2))) - digits + 1, least)
    return float(abs(mpmath.mpf(found) - value) / mpmath.mpf(2) ** exponent)
