"""Arithmetic on floats. Each operation rounds to its type at once; nothing is contracted.

There are no fast-math flags: a replay must give the bits of what it replays, and LLVM may treat two
copies of an operation that carries such flags differently.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.codegen.llvm import halves, library
from octants.codegen.llvm.estimates import ReciprocalRoot
from octants.codegen.llvm.function import FunctionText
from octants.codegen.llvm.text import float_literal
from octants.mathlib import table
from octants.types.scalars import DType, f16, f64

Emit = Callable[..., str]

ZERO, ONE = float_literal(0.0), float_literal(1.0)


def rounded(f: FunctionText, dtype: DType, operand: str) -> str:
    """A result that may have more bits than its type: that is so for f16 alone."""
    return halves.round_float(f, operand) if dtype is f16 else operand


def _instruction(name: str) -> Emit:
    def emit(f: FunctionText, dtype: DType, *operands: str) -> str:
        return rounded(f, dtype, f.apply(name, f.type(dtype), *operands))

    return emit


def intrinsic(f: FunctionText, name: str, type: str, *operands: str) -> str:
    """Call an intrinsic that has one type for its operands and its result."""
    return f.intrinsic(name, type, [(type, x) for x in operands])


def _exact(name: str) -> Emit:
    """An intrinsic whose result has no more bits than its operand."""
    return lambda f, dtype, *operands: intrinsic(f, name, f.type(dtype), *operands)


def _library(name: str) -> Emit:
    """A function of our own library."""

    def emit(f: FunctionText, dtype: DType, *operands: str) -> str:
        return rounded(f, dtype, library.call(f, name, dtype, list(operands)))

    return emit


def _remainder(f: FunctionText, dtype: DType, a: str, b: str) -> str:
    """C's `fmod`, which is exact; how long it takes depends on the operands."""
    return rounded(f, dtype, f.machine.library(f, "fmod", f.type(dtype), [a, b]))


def _product_error(f: FunctionText, dtype: DType, a: str, b: str) -> str:
    """By a fused operation, which rounds once; f32 on machines without one by way of f64."""
    register = f.type(dtype)
    product = MULTIPLY(f, dtype, a, b)
    if dtype is f64 or f.machine.has_fused:
        negated = f.apply("fneg", register, product)
        return rounded(f, dtype, intrinsic(f, "fma", register, a, b, negated))
    wide = [f.convert("fpext", "float", x, "double") for x in (a, b, product)]
    error = SUBTRACT(f, f64, MULTIPLY(f, f64, *wide[:2]), wide[2])
    return rounded(f, dtype, f.convert("fptrunc", "double", error, "float"))


def _sqrt(f: FunctionText, dtype: DType, x: str) -> str:
    return rounded(f, dtype, intrinsic(f, "sqrt", f.type(dtype), x))


def _rsqrt(f: FunctionText, dtype: DType, x: str) -> str:
    """The quotient, unless `fast_math` allows an estimate, and the machine has one."""
    estimate = f.machine.reciprocal_root if f.text.fast_math and dtype is not f64 else None
    if estimate is None:
        return DIVIDE(f, dtype, ONE, _sqrt(f, dtype, x))
    root: str = f.table[ReciprocalRoot](f, ReciprocalRoot(x, estimate))
    return rounded(f, dtype, root)


def _sign(f: FunctionText, dtype: DType, x: str) -> str:
    """Zeros and NaN are their own sign."""
    register = f.type(dtype)
    unit = intrinsic(f, "copysign", register, ONE, x)
    has_sign = f.apply("fcmp one", register, x, ZERO)
    return f.choose(has_sign, register, unit, x)


def _floordiv(f: FunctionText, dtype: DType, a: str, b: str) -> str:
    return FLOOR(f, dtype, DIVIDE(f, dtype, a, b))


def _mod(f: FunctionText, dtype: DType, a: str, b: str) -> str:
    return SUBTRACT(f, dtype, a, MULTIPLY(f, dtype, _floordiv(f, dtype, a, b), b))


def _truncdiv(f: FunctionText, dtype: DType, a: str, b: str) -> str:
    return TRUNC(f, dtype, DIVIDE(f, dtype, a, b))


def _lesser(predicate: str) -> Emit:
    """The second operand if it is strictly better, or if the first one is a NaN."""

    def emit(f: FunctionText, dtype: DType, a: str, b: str) -> str:
        register = f.type(dtype)
        better = f.apply(f"fcmp {predicate}", register, b, a)
        is_nan = f.apply("fcmp uno", register, a, ZERO)
        second = f.apply("or", "i1", better, is_nan)
        return f.choose(second, register, b, a)

    return emit


SUBTRACT, MULTIPLY, DIVIDE = _instruction("fsub"), _instruction("fmul"), _instruction("fdiv")
FLOOR, TRUNC = _exact("floor"), _exact("trunc")

BINARY: dict[str, Emit] = {
    "add": _instruction("fadd"),
    "sub": SUBTRACT,
    "mul": MULTIPLY,
    "div": DIVIDE,
    "floordiv": _floordiv,
    "mod": _mod,
    "truncdiv": _truncdiv,
    "truncmod": _remainder,
    "mul_error": _product_error,
    "min": _lesser("olt"),
    "max": _lesser("ogt"),
} | {name: _library(name) for name in table.BINARY}

UNARY: dict[str, Emit] = {name: _library(name) for name in table.UNARY | table.SLOPES} | {
    "neg": lambda f, dtype, x: f.apply("fneg", f.type(dtype), x),
    "abs": _exact("fabs"),
    "sign": _sign,
    "floor": FLOOR,
    "ceil": _exact("ceil"),
    "round": _exact("rint"),
    "trunc": TRUNC,
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
}

COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def convert(f: FunctionText, x: str, source: DType, target: DType) -> str:
    """A float as another type of float."""
    if source is f64:
        narrow = (
            halves.round_to_odd(f, x)
            if target is f16
            else f.convert("fptrunc", "double", x, "float")
        )
        return rounded(f, target, narrow)
    if target is f64:
        return f.convert("fpext", "float", x, "double")
    return rounded(f, target, x)
