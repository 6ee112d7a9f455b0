"""Arithmetic on floats. Each operation rounds to its type at once; nothing is contracted."""

from __future__ import annotations

from collections.abc import Callable

from octants.codegen.code import Code, Operand
from octants.codegen.structured import halves
from octants.codegen.structured.body import register
from octants.types.scalars import DType, f16, f32, f64, i32, i64, u1, u32

Emit = Callable[..., Operand]


def rounded(code: Code, dtype: DType, x: Operand) -> Operand:
    """A result that may have more bits than its type: that is so for f16 alone."""
    return halves.round_float(code, x) if dtype is f16 else x


def exact(fn: str) -> Emit:
    """An instruction whose result has no more bits than its operand."""
    return lambda code, dtype, *operands: code.apply(fn, register(dtype), *operands)


def _instruction(fn: str) -> Emit:
    apply = exact(fn)
    return lambda code, dtype, *operands: rounded(code, dtype, apply(code, dtype, *operands))


ADD, SUBTRACT, MULTIPLY, DIVIDE = map(_instruction, ("add", "sub", "mul", "div"))
FLOOR, TRUNC, NEGATE, ABSOLUTE = map(exact, ("floor", "trunc", "neg", "abs"))
_SQUARE_ROOT = _instruction("sqrt")


def compare(code: Code, fn: str, dtype: DType, a: Operand, b: Operand) -> Operand:
    """A comparison of two numbers of a type."""
    return code.compare(fn, register(dtype), a, b)


def number(code: Code, value: float, dtype: DType) -> Operand:
    """A number that the type can hold."""
    return code.constant(value, register(dtype))


def _rsqrt(code: Code, dtype: DType, x: Operand) -> Operand:
    return DIVIDE(code, dtype, number(code, 1.0, dtype), _SQUARE_ROOT(code, dtype, x))


def _sign(code: Code, dtype: DType, x: Operand) -> Operand:
    """Zeros and NaN are their own sign."""
    zero, kind = number(code, 0.0, dtype), register(dtype)
    above = compare(code, "gt", dtype, x, zero)
    below = compare(code, "lt", dtype, x, zero)
    negative = code.choose(below, kind, number(code, -1.0, dtype), x)
    return code.choose(above, kind, number(code, 1.0, dtype), negative)


def _floordiv(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
    return FLOOR(code, dtype, DIVIDE(code, dtype, a, b))


def _mod(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
    return SUBTRACT(code, dtype, a, MULTIPLY(code, dtype, _floordiv(code, dtype, a, b), b))


def _truncdiv(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
    return TRUNC(code, dtype, DIVIDE(code, dtype, a, b))


def _lesser(fn: str) -> Emit:
    """The second operand if it is strictly better, or if the first one is a NaN."""

    def emit(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
        better = compare(code, fn, dtype, b, a)
        second = code.apply("or", u1, better, compare(code, "ne", dtype, a, a))
        return code.choose(second, register(dtype), b, a)

    return emit


# -- products with their errors -----------------------------------------------------------------

_SPLITTERS = {f32: 4097.0, f64: 134217729.0}  # 2**12 + 1, 2**27 + 1


def _product_error(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
    """In the next wider type, where a product is exact, if there is one."""
    product = MULTIPLY(code, dtype, a, b)
    if dtype is f16:
        return rounded(code, f16, code.apply("sub", f32, code.apply("mul", f32, a, b), product))
    if dtype is f32 and code.has_f64:
        wide = [code.convert(x, f32, f64) for x in (a, b, product)]
        error = code.apply("sub", f64, code.apply("mul", f64, *wide[:2]), wide[2])
        return code.convert(error, f64, f32)
    return _error_by_halves(code, dtype, a, b, product)


def _error_by_halves(code: Code, dtype: DType, a: Operand, b: Operand, product: Operand) -> Operand:
    """After Dekker, 1971."""

    def split(x: Operand) -> tuple[Operand, Operand]:
        scaled = code.apply("mul", dtype, x, code.constant(_SPLITTERS[dtype], dtype))
        high = code.apply("sub", dtype, scaled, code.apply("sub", dtype, scaled, x))
        return high, code.apply("sub", dtype, x, high)

    (ah, al), (bh, bl) = split(a), split(b)
    rest = code.apply("sub", dtype, code.apply("mul", dtype, ah, bh), product)
    for one, other in ((ah, bl), (al, bh), (al, bl)):
        rest = code.apply("add", dtype, rest, code.apply("mul", dtype, one, other))
    return rest


def _sum_error(code: Code, dtype: DType, a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """a + b, and what its rounding has taken away."""
    total = code.apply("add", dtype, a, b)
    part = code.apply("sub", dtype, total, a)
    first = code.apply("sub", dtype, a, code.apply("sub", dtype, total, part))
    return total, code.apply("add", dtype, first, code.apply("sub", dtype, b, part))


def _add_to_odd(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
    """a + b, rounded to the neighbour whose last bit is set if it is not exact."""
    bits = i64 if dtype is f64 else i32
    zero, one = code.constant(0.0, dtype), code.constant(1, bits)
    total, error = _sum_error(code, dtype, a, b)
    word = code.bitcast(total, dtype, bits)
    grows = code.compare("gt", dtype, total, zero)
    rises = code.compare("gt", dtype, error, zero)
    step = code.choose(code.apply("xor", u1, grows, rises), bits, code.constant(-1, bits), one)
    even = code.compare("eq", bits, code.apply("and", bits, word, one), code.constant(0, bits))
    moves = code.apply("and", u1, even, code.compare("ne", dtype, error, zero))
    odd = code.choose(moves, bits, code.apply("add", bits, word, step), word)
    return code.bitcast(odd, bits, dtype)


def fused(code: Code, dtype: DType, x: Operand, y: Operand, z: Operand) -> Operand:
    """x * y + z, rounded once; in f64 only where nothing leaves the range of normal numbers.

    After Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008. Machines need
    not round their own instruction once.
    """
    if dtype is f32 and code.has_f64:
        a, b, c = (code.convert(operand, f32, f64) for operand in (x, y, z))
        product = code.apply("mul", f64, a, b)
        exact_sum, plain = _add_to_odd(code, f64, product, c), code.apply("add", f64, product, c)
        return code.convert(_if_finite(code, f64, exact_sum, plain), f64, f32)
    product = code.apply("mul", dtype, x, y)
    error = _product_error(code, dtype, x, y)
    high, low = _sum_error(code, dtype, z, error)
    total, rest = _sum_error(code, dtype, product, high)
    exact_sum = code.apply("add", dtype, total, _add_to_odd(code, dtype, low, rest))
    return _if_finite(code, dtype, exact_sum, code.apply("add", dtype, product, z))


def _if_finite(code: Code, dtype: DType, exact_sum: Operand, plain: Operand) -> Operand:
    """The exact sum, unless the plain one is no finite number, or zero."""
    size, zero = code.apply("abs", dtype, plain), code.constant(0.0, dtype)
    finite = code.compare("lt", dtype, size, code.constant(float("inf"), dtype))
    some = code.compare("gt", dtype, size, zero)
    return code.choose(code.apply("and", u1, finite, some), dtype, exact_sum, plain)


# -- the exact remainder ------------------------------------------------------------------------


def _remainder(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
    """C's `fmod`, which is exact: by subtracting the divisor times powers of two."""
    kind = register(dtype)

    def make(inner: Code, operands: list[Operand]) -> Operand:
        return _long_division(inner, kind, *operands)

    return rounded(code, dtype, code.call(f"fmod.{kind}", [kind, kind], kind, make, [a, b]))


def _long_division(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
    """The divisor is doubled as far as it fits, and halved again; no difference is rounded."""
    size, divisor = code.apply("abs", dtype, a), code.apply("abs", dtype, b)
    zero, infinity = code.constant(0.0, dtype), code.constant(float("inf"), dtype)
    rest, part = code.variable(dtype), code.variable(dtype)
    code.write(rest, size)
    code.write(part, divisor)
    defined = code.apply(
        "and",
        u1,
        code.compare("lt", dtype, size, infinity),
        code.compare("gt", dtype, divisor, zero),
    )
    divides = code.apply("and", u1, defined, code.compare("lt", dtype, divisor, infinity))

    def fits_twice() -> Operand:
        more = code.apply("sub", dtype, size, code.read(part))
        return code.apply("and", u1, divides, code.compare("le", dtype, code.read(part), more))

    def is_left() -> Operand:
        large = code.compare("ge", dtype, code.read(part), divisor)
        return code.apply("and", u1, divides, large)

    def step() -> None:
        left, taken = code.read(rest), code.read(part)
        fits = code.compare("le", dtype, taken, left)
        less = code.apply("sub", dtype, left, taken)
        code.write(rest, code.choose(fits, dtype, less, left))
        code.write(part, code.apply("mul", dtype, taken, code.constant(0.5, dtype)))

    code.loop(fits_twice, lambda: code.write(part, _twice(code, dtype, code.read(part))))
    code.loop(is_left, step)
    found = _with_sign(code, dtype, code.read(rest), a)
    return code.choose(defined, dtype, found, code.apply("div", dtype, zero, zero))


def _twice(code: Code, dtype: DType, x: Operand) -> Operand:
    return code.apply("add", dtype, x, x)


def _with_sign(code: Code, dtype: DType, size: Operand, sign: Operand) -> Operand:
    """A number that is not negative, with the sign of another one, be it zero."""
    bits = i64 if dtype is f64 else u32
    mask = code.constant(-(1 << 63) if dtype is f64 else 1 << 31, bits)
    top = code.apply("and", bits, code.bitcast(sign, dtype, bits), mask)
    return code.bitcast(code.apply("or", bits, code.bitcast(size, dtype, bits), top), bits, dtype)


BINARY: dict[str, Emit] = {
    "add": ADD,
    "sub": SUBTRACT,
    "mul": MULTIPLY,
    "div": DIVIDE,
    "floordiv": _floordiv,
    "mod": _mod,
    "truncdiv": _truncdiv,
    "truncmod": _remainder,
    "mul_error": _product_error,
    "min": _lesser("lt"),
    "max": _lesser("gt"),
}

UNARY: dict[str, Emit] = {
    "neg": NEGATE,
    "abs": ABSOLUTE,
    "sign": _sign,
    "floor": FLOOR,
    "ceil": exact("ceil"),
    "round": exact("round"),
    "trunc": TRUNC,
    "sqrt": _SQUARE_ROOT,
    "rsqrt": _rsqrt,
}
