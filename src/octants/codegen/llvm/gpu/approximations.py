"""Fast functions of f32 by instructions of NVIDIA's GPUs, which `fast_math` allows.

The instructions for sine and cosine have an error of 2**-20.9 or less near zero, growing with the
angle: beyond `FAR` the functions of `mathlib` take their place. The instructions for powers of two
and for quotients are within two ulp.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from octants.codegen import arithmetic
from octants.codegen.llvm.function_text import FunctionText, RootEstimate
from octants.codegen.llvm.gpu.function_text import ThreadText
from octants.codegen.llvm.math_functions import MathCall
from octants.codegen.llvm.rsqrt_estimates import unless_slow
from octants.codegen.llvm.types_and_literals import float_literal
from octants.ir import ops
from octants.mathlib.coefficients import TANH
from octants.mathlib.fast_by_estimates import FAR
from octants.mathlib.function_registry import function
from octants.types.scalars import convert, f32


def _instruction(f: FunctionText, name: str, x: str, kind: str = "approx") -> str:
    name = f"@llvm.nvvm.{name}.{kind}.f"
    f.text.declare(name, "float", "float")
    return f.call(name, "float", [("float", x)])


def _sine_or_cosine(name: str) -> Callable[[FunctionText, str], str]:
    """Return the writer of a sine or cosine: an instruction for small operands, else a call."""

    def write(f: FunctionText, x: str) -> str:
        near = _instruction(f, name, x)
        size = f.intrinsic("fabs", "float", [("float", x)])
        is_near = f.apply("fcmp olt", "float", size, float_literal(FAR))

        def far() -> str:
            found: str = f.table[MathCall](f, MathCall(function(name, f32, True), [x], " noinline"))
            return found

        return unless_slow(f, near, is_near, far)

    return write


_TO_BINARY = math.log2(math.e)
_HIGH = convert(_TO_BINARY, f32)
_ONE = float_literal(1.0)


def _exp(f: FunctionText, x: str) -> str:
    """Compute 2**(x log2(e)), and to first order the rounding error of that product."""
    high, low = float_literal(_HIGH), float_literal(convert(_TO_BINARY - _HIGH, f32))
    power = f.apply("fmul", "float", x, high)
    found = _instruction(f, "ex2", power)
    lost = _fma(f, x, high, f.apply("fneg", "float", power))
    lost = _fma(f, x, low, lost)
    share = f.apply("fmul", "float", lost, float_literal(convert(math.log(2), f32)))
    better = _fma(f, found, share, found)
    is_usual = f.apply("fcmp ord", "float", better, better)  # false for zero times infinity
    return f.choose(is_usual, "float", better, found)


def _fma(f: FunctionText, *operands: str) -> str:
    return f.intrinsic("fma", "float", [("float", x) for x in operands])


def _tanh(f: FunctionText, x: str) -> str:
    """Compute `mathlib.fast_by_estimates.tanh`."""
    size = f.intrinsic("fabs", "float", [("float", x)])
    power = f.apply("fmul", "float", size, float_literal(convert(2.0 * _TO_BINARY, f32)))
    below = f.apply("fadd", "float", _instruction(f, "ex2", power), _ONE)
    large = f.apply("fsub", "float", _ONE, quotient(f, float_literal(2.0), below))
    square = f.apply("fmul", "float", x, x)
    *rest, total = map(float_literal, TANH[24])
    for coefficient in reversed(rest):
        total = _fma(f, total, square, coefficient)
    small = _fma(f, f.apply("fmul", "float", size, square), total, size)
    is_small = f.apply("fcmp olt", "float", size, float_literal(convert(0.6, f32)))
    found = f.choose(is_small, "float", small, large)
    return f.intrinsic("copysign", "float", [("float", found), ("float", x)])


FAST: dict[str, Callable[[FunctionText, str], str]] = {
    "sin": _sine_or_cosine("sin"),
    "cos": _sine_or_cosine("cos"),
    "cos_beside_sin": _sine_or_cosine("cos"),
    "exp": _exp,
    "exp2": lambda f, x: _instruction(f, "ex2", x),
    "tanh": _tanh,
}


ESTIMATES: dict[str, Callable[[FunctionText, str], str]] = {
    "sin_estimate": lambda f, x: _instruction(f, "sin", x),
    "cos_estimate": lambda f, x: _instruction(f, "cos", x),
}
"""The instructions for sines and cosines of small angles."""


def _root(f: FunctionText, _: int, x: str) -> str:
    return _instruction(f, "rsqrt", x)


ROOT = RootEstimate(_root, 1, 22, total=True)
"""1 / sqrt(x), to two ulp."""


def unary(f: FunctionText, op: ops.Unary) -> None:
    """Write a unary function. A root of a number that is never subnormal skips the scaling."""
    if isinstance(f, ThreadText) and op.result in f.normal_roots:
        assert f.gpu.normal_root is not None
        f.bind(op.result, f.gpu.normal_root(f, f.use(op.x)))
    else:
        arithmetic.unary(f, op)


def normal_root(f: FunctionText, x: str) -> str:
    """Compute 1 / sqrt(x), like `ROOT`, for numbers that are not subnormal."""
    return _instruction(f, "rsqrt", x, "approx.ftz")


def quotient(f: FunctionText, x: str, y: str) -> str:
    """Divide, to two ulp. Subnormal, infinite and other operands are as they should be."""
    f.text.declare("@llvm.nvvm.div.full", "float", "float, float")
    return f.call("@llvm.nvvm.div.full", "float", [("float", x), ("float", y)])
