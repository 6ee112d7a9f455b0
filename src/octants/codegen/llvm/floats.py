"""Arithmetic on floats. Each operation rounds to its type at once; nothing is contracted.

There are no fast-math flags: a replay must give the bits of what it replays, and LLVM may treat two
copies of an operation that carries such flags differently.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.codegen.llvm import halves
from octants.codegen.llvm.function import FunctionText
from octants.codegen.llvm.text import float_literal
from octants.types.scalars import DType, f16, f64

Emit = Callable[..., str]

ZERO, ONE = float_literal(0.0), float_literal(1.0)


def rounded(f: FunctionText, dtype: DType, operand: str) -> str:
    """A result that may have more bits than its type: that is so for f16 alone."""
    return halves.round_float(f, operand) if dtype is f16 else operand


def _instruction(name: str) -> Emit:
    def emit(f: FunctionText, dtype: DType, *operands: str) -> str:
        result = f.assign(f"{name} {f.type(dtype)} {', '.join(operands)}")
        return rounded(f, dtype, result)

    return emit


def intrinsic(f: FunctionText, name: str, type: str, *operands: str) -> str:
    """Call an intrinsic that has one type for its operands and its result."""
    suffix = {"float": "f32", "double": "f64"}.get(type, type)
    arguments = ", ".join([type] * len(operands))
    name = f.text.declare(f"@llvm.{name}.{suffix}", type, arguments)
    return f.assign(f"call {type} {name}({', '.join(f'{type} {x}' for x in operands)})")


def _exact(name: str) -> Emit:
    """An intrinsic whose result has no more bits than its operand."""
    return lambda f, dtype, *operands: intrinsic(f, name, f.type(dtype), *operands)


def _library(name: str) -> Emit:
    def emit(f: FunctionText, dtype: DType, *operands: str) -> str:
        return rounded(f, dtype, f.machine.library(f, name, f.type(dtype), list(operands)))

    return emit


def _sqrt(f: FunctionText, dtype: DType, x: str) -> str:
    return rounded(f, dtype, intrinsic(f, "sqrt", f.type(dtype), x))


def _rsqrt(f: FunctionText, dtype: DType, x: str) -> str:
    return DIVIDE(f, dtype, ONE, _sqrt(f, dtype, x))


def _sign(f: FunctionText, dtype: DType, x: str) -> str:
    """Zeros and NaN are their own sign."""
    register = f.type(dtype)
    unit = intrinsic(f, "copysign", register, ONE, x)
    has_sign = f.assign(f"fcmp one {register} {x}, {ZERO}")
    return f.assign(f"select i1 {has_sign}, {register} {unit}, {register} {x}")


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
        better = f.assign(f"fcmp {predicate} {register} {b}, {a}")
        is_nan = f.assign(f"fcmp uno {register} {a}, {ZERO}")
        second = f.assign(f"or i1 {better}, {is_nan}")
        return f.assign(f"select i1 {second}, {register} {b}, {register} {a}")

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
    "truncmod": _library("fmod"),
    "min": _lesser("olt"),
    "max": _lesser("ogt"),
    "pow": _library("pow"),
    "atan2": _library("atan2"),
}

_LIBRARY = (
    "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh"
    " exp exp2 expm1 log log2 log10 log1p cbrt erf"
).split()

UNARY: dict[str, Emit] = {name: _library(name) for name in _LIBRARY} | {
    "neg": lambda f, dtype, x: f.assign(f"fneg {f.type(dtype)} {x}"),
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
            halves.round_to_odd(f, x) if target is f16 else f.assign(f"fptrunc double {x} to float")
        )
        return rounded(f, target, narrow)
    if target is f64:
        return f.assign(f"fpext float {x} to double")
    return rounded(f, target, x)
