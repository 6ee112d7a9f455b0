"""Fast functions of f32 by instructions of NVIDIA's GPUs, which `fast_math` allows.

The instructions for sine and cosine have an error of 2**-20.9 or less near zero, growing with the
angle: beyond `FAR` the functions of `mathlib` take their place. The instructions for powers of two
and for quotients are within two ulp.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from octants.analysis.subnormals import normal_numbers
from octants.codegen import arithmetic
from octants.codegen.llvm.function_text import FunctionText, RootEstimate
from octants.codegen.llvm.gpu.function_text import ThreadText
from octants.codegen.llvm.math_functions import MathCall
from octants.codegen.llvm.rsqrt_estimates import unless_slow
from octants.codegen.llvm.types_and_literals import float_literal
from octants.ir import ops
from octants.ir.core import Task, Value
from octants.lazy_dataclass import dataclass
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
        if f.guards is not None:
            f.guards.append(is_near)
            return near if f.series is None else computed(f, name, x, f.series)

        def far() -> str:
            found: str = f.table[MathCall](f, MathCall(function(name, f32, True), [x], " noinline"))
            return found

        return unless_slow(f, near, is_near, far)

    return write


@dataclass(frozen=True)
class Series:
    """Polynomials of the square of x: sin(x) / x, and cos(x).

    They are valid for |x| up to `size` and take `more` operations than the instruction.
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
_TO_REVOLUTIONS = float_literal(convert(1 / (2 * math.pi), f32))
_WHOLE = float_literal(1.5 * 2.0**23)
"""Adding and subtracting this rounds a number to an integer."""


def series(size: float) -> Series:
    """Return the polynomials for |x| up to ``size``; a ``size`` from `FAR` on counts as `FAR`."""
    return next((each for each in _SERIES if size <= each.size), _SERIES[-1])


def computed(f: FunctionText, name: str, x: str, chosen: Series) -> str:
    """Compute a sine or cosine by sums and products.

    It is as exact as the instruction, which takes a GPU as long as eight additions: computing some
    with each keeps both units busy.
    """
    if chosen is _SERIES[-1]:
        shifted = _fma(f, x, _TO_REVOLUTIONS, _WHOLE)
        turns = f.apply("fsub", "float", shifted, _WHOLE)
        x = _fma(f, x, _TO_REVOLUTIONS, f.apply("fneg", "float", turns))
    square = f.apply("fmul", "float", x, x)
    coefficients = chosen.sin if name == "sin" else chosen.cos
    *others, total = (float_literal(convert(each, f32)) for each in coefficients)
    for each in reversed(others):
        total = _fma(f, square, total, each)
    return f.apply("fmul", "float", total, x) if name == "sin" else total


_TO_BINARY = math.log2(math.e)
_HIGH = convert(_TO_BINARY, f32)


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


WAVES = frozenset(("sin", "cos", "cos_beside_sin"))
"""The functions with slow paths."""

FAST: dict[str, Callable[[FunctionText, str], str]] = {
    "sin": _sine_or_cosine("sin"),
    "cos": _sine_or_cosine("cos"),
    "cos_beside_sin": _sine_or_cosine("cos"),
    "exp": _exp,
    "exp2": lambda f, x: _instruction(f, "ex2", x),
}


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


def normal_roots(task: Task) -> set[Value]:
    """Return the results of 1 / sqrt(x) of f32 in a task's body where x is never subnormal."""
    roots = [op for op in task.body.walk() if isinstance(op, ops.Unary) and op.fn == "rsqrt"]
    normal = normal_numbers(task.body) if roots else set()
    return {op.result for op in roots if op.x in normal}


def normal_root(f: FunctionText, x: str) -> str:
    """Compute 1 / sqrt(x), like `ROOT`, for numbers that are not subnormal."""
    return _instruction(f, "rsqrt", x, "approx.ftz")


def quotient(f: FunctionText, x: str, y: str) -> str:
    """Divide, to two ulp. Subnormal, infinite and other operands are as they should be."""
    f.text.declare("@llvm.nvvm.div.full", "float", "float, float")
    return f.call("@llvm.nvvm.div.full", "float", [("float", x), ("float", y)])
