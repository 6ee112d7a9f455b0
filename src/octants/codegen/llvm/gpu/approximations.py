"""Fast functions of f32 by instructions of NVIDIA's GPUs, which `fast_math` allows.

The instructions for sine and cosine have an error of 2**-20.9 or less near zero, growing with the
angle: beyond `FAR` the functions of `mathlib` take their place. The instructions for powers of two
and for quotients are within two ulp.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from octants.analysis.floats import slow_paths
from octants.codegen import arithmetic
from octants.codegen.llvm import math_functions
from octants.codegen.llvm.function_text import FunctionText, RootEstimate
from octants.codegen.llvm.gpu.function_text import ThreadText
from octants.codegen.llvm.math_functions import MathCall
from octants.codegen.llvm.rsqrt_estimates import unless_slow
from octants.codegen.llvm.types_and_literals import float_literal
from octants.ir import ops
from octants.ir.ops.arithmetic import BOUNDED
from octants.lowering.math_function_bodies import lower_function
from octants.mathlib.fast_by_estimates import FAR
from octants.mathlib.function_registry import function
from octants.types.scalars import f32


def _instruction(f: FunctionText, name: str, x: str, kind: str = "approx") -> str:
    name = f"@llvm.nvvm.{name}.{kind}.f"
    f.text.declare(name, "float", "float")
    return f.call(name, "float", [("float", x)])


def _sine_or_cosine(name: str) -> Callable[[FunctionText, str], str]:
    """Return the writer of a sine or cosine: an instruction for small operands, else a call."""

    def write(f: FunctionText, x: str) -> str:
        if f.in_slow_path:
            exact = _out_of_line(f, name, functools.partial(guarded, attribute=" alwaysinline"))
            return f.call(exact, "float", [("float", x)], " noinline")
        return guarded(f, x, " noinline")

    def guarded(f: FunctionText, x: str, attribute: str) -> str:
        near = _instruction(f, name, x)
        size = f.intrinsic("fabs", "float", [("float", x)])
        is_near = f.apply("fcmp olt", "float", size, float_literal(FAR))

        def far() -> str:
            found: str = f.table[MathCall](f, MathCall(function(name, f32, True), [x], attribute))
            return found

        return unless_slow(f, near, is_near, far)

    return write


def _out_of_line(f: FunctionText, name: str, write: Callable[[FunctionText, str], str]) -> str:
    """Return the name of a function that computes a sine or cosine, its test included."""

    def make(_: object, name: str) -> str:
        inner = FunctionText(f.kernel, f.machine, f.scalar_table, 0)
        inner.start("start")
        found = write(inner, "%x0")
        head = f"define internal float {name}(float %x0) {math_functions.ATTRIBUTES}"
        return math_functions.finished(inner, head, f"ret float {found}")

    return f.text.helper(f"@octants.math.exact.{name}", make)


def _in_line(name: str) -> Callable[[FunctionText, str], str]:
    """Return the writer of a function of `mathlib.fast_by_estimates`, at the place of its use."""

    def write(f: FunctionText, x: str) -> str:
        wanted = lower_function(f.code.legal, function(name, f32, True, "unflushed"))
        return f.inlined(wanted.block, [x])[0]

    return write


FAST: dict[str, Callable[[FunctionText, str], str]] = {
    "sin": _sine_or_cosine("sin"),
    "cos": _sine_or_cosine("cos"),
    "cos_beside_sin": _sine_or_cosine("cos"),
    "exp": _in_line("exp"),
    "exp2": _in_line("exp2"),
    "tanh": _in_line("tanh"),
}

ESTIMATES: dict[str, Callable[[FunctionText, str], str]] = {
    "sin_estimate": lambda f, x: _instruction(f, "sin", x),
    "cos_estimate": lambda f, x: _instruction(f, "cos", x),
    "exp2_estimate": lambda f, x: _instruction(f, "ex2", x),
}
"""The instructions for sines and cosines of small angles, and for powers of two."""

FAST |= {fn: ESTIMATES[name] for fn, name in slow_paths.ESTIMATES.items() if fn in BOUNDED}


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
