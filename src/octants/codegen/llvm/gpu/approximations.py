"""Functions of f32 that GPUs of NVIDIA have instructions for, which `fast_math` allows.

The instructions for sine and cosine are off by 2**-20.9 or less near zero, and by more the larger
the angle: beyond `FAR` the functions of our own library take their place. That for powers of two
is within two units of the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from octants.analysis.normal import normal_numbers
from octants.codegen.llvm import arithmetic
from octants.codegen.llvm.estimates import unless_rare
from octants.codegen.llvm.function import Estimate, FunctionText
from octants.codegen.llvm.gpu.text import ThreadText
from octants.codegen.llvm.library import Call
from octants.codegen.llvm.text import float_literal
from octants.ir import ops
from octants.ir.core import Task, Value
from octants.mathlib.table import function
from octants.types.scalars import convert, f32

FAR = 64.0
"""Where they do."""


def _instruction(f: FunctionText, name: str, x: str, kind: str = "approx") -> str:
    name = f"@llvm.nvvm.{name}.{kind}.f"
    f.text.declare(name, "float", "float")
    return f.call(name, "float", [("float", x)])


def _wave(name: str) -> Callable[[FunctionText, str], str]:
    def write(f: FunctionText, x: str) -> str:
        near = _instruction(f, name, x)
        size = f.intrinsic("fabs", "float", [("float", x)])
        is_near = f.apply("fcmp olt", "float", size, float_literal(FAR))
        if f.doubts is not None:
            f.doubts.append(is_near)
            return computed(f, name, x) if f.computes else near

        def far() -> str:
            found: str = f.table[Call](f, Call(function(name, f32, True), [x], " noinline"))
            return found

        return unless_rare(f, near, is_near, far)

    return write


# Those of the sine over x, and of the cosine, in powers of the square of x, whose unit is a turn.
_SERIES = {
    "sin": (6.28318282, -41.3414214, 81.59618388, -76.58010059, 41.20539512, -12.27126271),
    "cos": (
        0.99999999,
        -19.73920453,
        64.93911898,
        -85.45016555,
        60.16783173,
        -25.96831331,
        6.52961042,
    ),
}
_TO_TURNS = float_literal(convert(1 / (2 * math.pi), f32))
_WHOLE = float_literal(1.5 * 2.0**23)
"""What is added to a number, and taken away again, to round it to an integer."""


def computed(f: FunctionText, name: str, x: str) -> str:
    """A sine or cosine of a number that is below `FAR`, by sums and products.

    It is right to as many digits as the instruction, which takes a GPU as long as eight sums: so
    some by the one way and some by the other are there earlier than all by one.
    """
    shifted = _fma(f, x, _TO_TURNS, _WHOLE)
    turns = f.apply("fsub", "float", shifted, _WHOLE)
    rest = _fma(f, x, _TO_TURNS, f.apply("fneg", "float", turns))
    square = f.apply("fmul", "float", rest, rest)
    *others, total = (float_literal(convert(each, f32)) for each in _SERIES[name])
    for each in reversed(others):
        total = _fma(f, square, total, each)
    return f.apply("fmul", "float", total, rest) if name == "sin" else total


_TO_BINARY = math.log2(math.e)
_HIGH = convert(_TO_BINARY, f32)


def _exp(f: FunctionText, x: str) -> str:
    """2**(x log2(e)), and what the rounding of that product has lost, to first order."""
    high, low = float_literal(_HIGH), float_literal(convert(_TO_BINARY - _HIGH, f32))
    power = f.apply("fmul", "float", x, high)
    found = _instruction(f, "ex2", power)
    lost = _fma(f, x, high, f.apply("fneg", "float", power))
    lost = _fma(f, x, low, lost)
    share = f.apply("fmul", "float", lost, float_literal(convert(math.log(2), f32)))
    better = _fma(f, found, share, found)
    is_usual = f.apply("fcmp ord", "float", better, better)  # not where it is zero times infinity
    return f.choose(is_usual, "float", better, found)


def _fma(f: FunctionText, *operands: str) -> str:
    return f.intrinsic("fma", "float", [("float", x) for x in operands])


WAVES = frozenset(("sin", "cos", "cos_beside_sin"))
"""Functions that have rare ways."""

QUICK: dict[str, Callable[[FunctionText, str], str]] = {
    "sin": _wave("sin"),
    "cos": _wave("cos"),
    "cos_beside_sin": _wave("cos"),
    "exp": _exp,
    "exp2": lambda f, x: _instruction(f, "ex2", x),
}


def _root(f: FunctionText, _: int, x: str) -> str:
    return _instruction(f, "rsqrt", x)


ROOT = Estimate(_root, 1, 22, total=True)
"""1 / sqrt(x), to two units of the last digit."""


def unary(f: FunctionText, op: ops.Unary) -> None:
    """As elsewhere, but for roots of what is not subnormal: that need not be looked for."""
    if isinstance(f, ThreadText) and op.result in f.normal_roots:
        assert f.gpu.normal_root is not None
        f.bind(op.result, f.gpu.normal_root(f, f.use(op.x)))
    else:
        arithmetic.unary(f, op)


def normal_roots(task: Task) -> set[Value]:
    """The results of 1 / sqrt(x) in the body of a task where x is of f32 and never subnormal."""
    roots = [op for op in task.body.walk() if isinstance(op, ops.Unary) and op.fn == "rsqrt"]
    normal = normal_numbers(task.body) if roots else set()
    return {op.result for op in roots if op.x in normal}


def normal_root(f: FunctionText, x: str) -> str:
    """1 / sqrt(x), like `ROOT` for numbers that are not subnormal."""
    return _instruction(f, "rsqrt", x, "approx.ftz")
