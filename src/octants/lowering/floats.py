"""Operations on floats in terms of those that machines have. Each rounds at once, to its type."""

from __future__ import annotations

import functools
import math

from octants.lowering.legal_operations import Legal, Rule
from octants.mathlib.double_word import exact_sum
from octants.mathlib.float_formats import format_of
from octants.mathlib.ir_number import Number, select
from octants.types.scalars import f16, f32, f64


def sign(x: Number) -> Number:
    """Zeros and NaN are their own sign."""
    return select(x > 0.0, x.lift(1.0), select(x < 0.0, x.lift(-1.0), x))


def floordiv(a: Number, b: Number) -> Number:
    """The floor of the quotient."""
    return (a / b).apply("floor")


def truncdiv(a: Number, b: Number) -> Number:
    """The quotient towards zero."""
    return (a / b).apply("trunc")


def mod(a: Number, b: Number) -> Number:
    """Each of its operations is rounded."""
    return a - floordiv(a, b) * b


def truncmod(a: Number, b: Number) -> Number:
    """C's `fmod`, which is exact."""
    return Number(a.build, a.build.call("remainder", [a.value, b.value], a.type))


def _extreme(fn: str) -> Rule:
    """The second operand if it is strictly better, or if the first one is a NaN."""
    return lambda a, b: select(b.compare(fn, a) | a.is_nan, b, a)


RULES: dict[str, Rule] = {
    "sign": sign,
    "floordiv": floordiv,
    "truncdiv": truncdiv,
    "mod": mod,
    "truncmod": truncmod,
    "min": _extreme("lt"),
    "max": _extreme("gt"),
}


def through_f32(fn: str) -> Rule:
    """A function of f16 as one of f32, rounded."""
    return lambda x, *others: x.to(f32).apply(fn, *(y.to(f32) for y in others)).to(x.type)


@functools.cache
def rule_of_f16(fn: str) -> Rule:
    """Those that are made of other functions round each of them to f16."""
    return RULES[fn] if fn in RULES and fn != "truncmod" else through_f32(fn)


# -- what depends on the target -----------------------------------------------------------------


def rsqrt(legal: Legal, x: Number) -> Number:
    """Rounded twice, but for an f16 where the target has it for f32."""
    if x.type is f16 and ("rsqrt", f32) in legal.functions:
        return through_f32("rsqrt")(x)
    return 1.0 / x.sqrt()


def trunc(_: Legal, x: Number) -> Number:
    """The whole number next to x on the side of zero."""
    if x.type is f16:
        return through_f32("trunc")(x)
    return select(x < 0.0, x.apply("ceil"), x.apply("floor"))


def to_nearest(_: Legal, x: Number) -> Number:
    """The whole number that is nearest; of two, the even one."""
    if x.type is f16:
        return through_f32("round")(x)
    below = x.apply("floor")
    half, distance = below * 0.5, x - below
    is_odd = half.apply("floor").differs(half)
    goes_up = (distance > 0.5) | (distance.equals(0.5) & is_odd)
    return select(goes_up, x.apply("ceil"), below)


def product_error(legal: Legal, a: Number, b: Number) -> Number:
    """By a fused operation; or in the next wider type, where a product is exact; or by halves."""
    if a.type is f16:
        return (a.to(f32) * b.to(f32) - (a * b).to(f32)).to(f16)
    if a.type in legal.fused:
        return a.times_plus(b, -(a * b))
    if a.type is f32 and legal.has_f64:
        x, y, product = (each.to(f64) for each in (a, b, a * b))
        return (x * y - product).to(f32)
    return _error_by_halves(a, b)


_SPLITTERS = {f32: 4097.0, f64: 134217729.0}  # 2**12 + 1, 2**27 + 1


def _error_by_halves(a: Number, b: Number) -> Number:
    """After Dekker, 1971; where nothing leaves the range of normal numbers."""

    def split(x: Number) -> tuple[Number, Number]:
        scaled = x * _SPLITTERS[x.type]
        high = scaled - (scaled - x)
        return high, x - high

    (ah, al), (bh, bl) = split(a), split(b)
    return ((ah * bh - a * b) + ah * bl + al * bh) + al * bl


def fused(legal: Legal, x: Number, y: Number, z: Number) -> Number:
    """x * y + z, rounded once; in f64 only where nothing leaves the range of normal numbers.

    After Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008. Machines need
    not round their own instruction once.
    """
    if x.type is f32 and legal.has_f64:
        a, b, c = (operand.to(f64) for operand in (x, y, z))
        product = a * b
        return _if_finite(_add_to_odd(product, c), product + c).to(f32)
    product, error = x * y, product_error(legal, x, y)
    upper = exact_sum(z, error)
    total = exact_sum(product, upper.high)
    return _if_finite(total.high + _add_to_odd(upper.low, total.low), product + z)


def _add_to_odd(a: Number, b: Number) -> Number:
    """a + b, rounded to the neighbour whose last bit is set if it is not exact."""
    bits = format_of(a).integer
    total = exact_sum(a, b)
    word = total.high.read_as(bits)
    step = select((total.high > 0.0) ^ (total.low > 0.0), word.lift(-1), 1)
    moves = (word & 1).equals(0) & total.low.differs(0.0)
    return select(moves, word + step, word).read_as(a.type)


def _if_finite(exact: Number, plain: Number) -> Number:
    """The exact sum; the plain one where that is no finite number, and for the sign of a zero."""
    return select((abs(plain) < math.inf) & exact.differs(0.0), exact, plain)


def approximate_div(legal: Legal, a: Number, b: Number) -> Number:
    """A product with the reciprocal, which takes no branch, or the exact quotient.

    The reciprocal is the square of 1 / sqrt(b), and a Newton step. The product is right to two ulp
    if that root is, and b is between 2**-126 and 2**126. Zeros, infinities and NaN take no step.
    """
    if b.type not in legal.fma or ("rsqrt", b.type) not in legal.functions:
        return a / b
    bits = format_of(b).integer
    root = abs(b).apply("rsqrt")
    sign = b.read_as(bits) & -(1 << b.type.bits - 1)
    near = ((root * root).read_as(bits) | sign).read_as(b.type)
    missing = (-b).times_plus(near, 1.0)
    better = near.times_plus(missing, near)
    return a * select(abs(missing) < 0.5, better, near)


BY_TARGET: dict[str, Rule] = {
    "approximate_div": approximate_div,
    "mul_error": product_error,
    "round": to_nearest,
    "rsqrt": rsqrt,
    "trunc": trunc,
}
"""Rules that take what is legal first."""
