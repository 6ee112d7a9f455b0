"""The errors of compiled functions against mpmath, and their bits against the interpreter's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from octants.mathlib import function_registry
from octants.mathlib.evaluate_with_numpy import evaluate
from octants.mathlib.function_registry import BINARY, FUNCTIONS, UNARY
from octants.types.scalars import DType, f16, f32, f64
from tests.mathlib.bounds import BOUNDS, FAST, bound
from tests.mathlib.compiled_functions import bits, compiled, evaluate_arrays
from tests.mathlib.samples import EVEN, ODD, error, exact, numbers, pairs, random_bits

FLOATS = pytest.mark.parametrize("dtype", [f32, f64], ids=str)
MANY = 20_000
"""Samples of a kind for comparisons of bits."""
FEW = 120
"""Samples of a kind for comparisons with mpmath."""


def is_defined(fn: str, *operands: float) -> bool:
    """Whether mpmath can be asked: the limits are in test_special_values."""
    if not all(map(math.isfinite, operands)):
        return False
    x = operands[0]
    if fn in ("log", "log2", "log10"):
        return x > 0
    if fn == "log1p":
        return x > -1
    if fn in ("asin", "acos"):
        return abs(x) <= 1
    if fn == "atanh":
        return abs(x) < 1
    if fn == "acosh":
        return x >= 1
    if fn == "pow":
        return x > 0 or (x < 0 and operands[1] == round(operands[1]))
    return not (fn == "atan2" and operands == (0.0, 0.0))


def is_representable(fn: str, *operands: float) -> bool:
    """Whether the result is not so large that mpmath would take its time over it."""
    if fn in ("exp", "exp2", "expm1", "sinh", "cosh"):
        return abs(operands[0]) < 5000
    if fn == "pow" and operands[0]:
        return abs(operands[1] * math.log2(abs(operands[0]))) < 5000
    return True


def samples(fn: str, dtype: DType, count: int) -> tuple[Any, ...]:
    return (numbers(fn, dtype, count),) if fn in UNARY else pairs(fn, dtype, count)


@pytest.mark.parametrize(
    ("fn", "dtype", "fast_math"),
    [*((fn, dtype, False) for fn in FUNCTIONS for dtype in (f32, f64)),
     *((fn, dtype, True) for fn, dtype in function_registry.FAST)],
)  # fmt: skip
def test_errors_are_within_the_stated_bounds(fn: str, dtype: DType, fast_math: bool) -> None:
    operands = samples(fn, dtype, FEW)
    found = compiled(fn, dtype, fast_math)(*operands).tolist()
    worst: tuple[float, Any] = (0.0, ())
    compared = 0
    cases = zip(*(x.tolist() for x in operands), strict=True)
    for result, case in zip(found, cases, strict=True):
        if is_defined(fn, *case) and is_representable(fn, *case):
            worst = max(worst, (error(result, exact(fn, *case), dtype), case))
            compared += 1
    assert compared > FEW
    assert worst[0] <= bound(fn, dtype, fast_math), worst


@FLOATS
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_the_interpreter_gives_the_same_bits(fn: str, dtype: DType) -> None:
    operands = samples(fn, dtype, MANY)
    found, wanted = compiled(fn, dtype)(*operands), evaluate_arrays(fn, dtype, *operands)
    different = bits(found) != bits(wanted)
    assert not different.any(), [x[different][:5] for x in operands]
    for place in np.random.default_rng(3).integers(0, len(found), 40):
        one = evaluate(fn, dtype, *(x[place].item() for x in operands))
        assert bits(np.array(one, dtype.numpy)) == bits(found[place])


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_f16_is_f32_rounded(fn: str) -> None:
    rng = np.random.default_rng(5)
    halves = rng.integers(0, 1 << 16, 400, dtype=np.uint16).view(np.float16).tolist()
    operands = [halves] if fn in UNARY else [halves, halves[::-1]]
    for case in zip(*operands, strict=True):
        with np.errstate(all="ignore"):
            wanted = np.float16(evaluate(fn, f32, *case))
        assert np.array_equal(np.float16(evaluate(fn, f16, *case)), wanted, equal_nan=True)


@FLOATS
@pytest.mark.parametrize("fn", [*ODD, *EVEN])
def test_symmetry(fn: str, dtype: DType) -> None:
    x = np.concatenate([numbers(fn, dtype, MANY), random_bits(dtype, MANY, 9)])
    run = compiled(fn, dtype)
    found, mirrored = run(x), run(-x)
    assert np.array_equal(bits(mirrored), bits(-found if fn in ODD else found))


# Doubles and singles that are unusually near to multiples of pi / 2, and huge ones.
HARD_ANGLES = [
    6381956970095103.0 * 2.0**797,
    5.319372648326541e255,
    1.6e308,
    2.0**1023,
    16367173.0 * 2.0**72,
    1e22,
    6000.0,
    6000.0005,
    1.0e6,
    1000000.0000000001,
    math.pi,
    math.pi / 2,
    3 * math.pi / 4,
]


@FLOATS
@pytest.mark.parametrize("fn", ["sin", "cos", "tan"])
def test_hard_angles(fn: str, dtype: DType) -> None:
    with np.errstate(all="ignore"):
        x = np.array(HARD_ANGLES, dtype.numpy)
    x = x[np.isfinite(x)]
    x = np.concatenate([x, np.nextafter(x, dtype.numpy.type(np.inf)), np.nextafter(x, 0 * x)])
    for angle, found in zip(x.tolist(), compiled(fn, dtype)(x).tolist(), strict=True):
        assert error(found, exact(fn, angle), dtype) <= bound(fn, dtype), angle


@FLOATS
def test_powers_of_the_base_are_exact(dtype: DType) -> None:
    exponents = np.arange(-140 if dtype is f32 else -1060, 127 if dtype is f32 else 1023)
    powers = np.ldexp(dtype.numpy.type(1), exponents)
    whole = exponents.astype(dtype.numpy)
    assert np.array_equal(compiled("exp2", dtype)(whole), powers)
    assert np.array_equal(compiled("log2", dtype)(powers), whole)
    assert np.array_equal(compiled("pow", dtype)(np.full_like(whole, 2), whole), powers)
    tens = np.array([10.0**k for k in range(11 if dtype is f32 else 23)], dtype.numpy)
    assert np.array_equal(compiled("log10", dtype)(tens), np.arange(len(tens)))
    cubes = np.arange(-200, 200).astype(dtype.numpy)
    assert np.array_equal(compiled("cbrt", dtype)(cubes**3), cubes)


def test_every_function_has_a_bound() -> None:
    assert set(BOUNDS) == set(FUNCTIONS) == set(UNARY) | set(BINARY)
    assert {(fn, f32) for fn in FAST} == set(function_registry.FAST)
