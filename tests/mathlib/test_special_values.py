"""Zeros, infinities, NaN and the ends of domains, as C99 has them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from octants.types.scalars import DType, f32, f64
from tests.mathlib.compiled_functions import bits, compiled

INF, NAN, PI = math.inf, math.nan, math.pi

UNARY_CASES: dict[str, list[tuple[float, float]]] = {
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (1.0, PI / 2), (-1.0, -PI / 2), (1.5, NAN), (-INF, NAN)],
    "acos": [(1.0, 0.0), (-1.0, PI), (0.0, PI / 2), (1.5, NAN), (-2.0, NAN), (INF, NAN)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (INF, PI / 2), (-INF, -PI / 2), (1.0, PI / 4)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (1e4, INF), (-1e4, -INF)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (1e4, INF)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (50.0, 1.0)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "acosh": [(1.0, 0.0), (0.5, NAN), (-1.0, NAN), (INF, INF), (-INF, NAN)],
    "atanh": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (INF, NAN)],
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (1e4, INF), (-1e4, 0.0)],
    "exp2": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (1e4, INF), (-1e4, 0.0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (1e4, INF), (-1e4, -1.0)],
    "log": [(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (-1.0, NAN), (INF, INF), (-INF, NAN)],
    "log2": [(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (-1.0, NAN), (INF, INF), (-INF, NAN)],
    "log10": [(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (-1.0, NAN), (INF, INF), (-INF, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (-2.0, NAN), (INF, INF), (-INF, NAN)],
    "cbrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (27.0, 3.0), (-8.0, -2.0)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (10.0, 1.0), (-10.0, -1.0)],
}

POW_CASES = [
    (0.0, 3.0, 0.0), (-0.0, 3.0, -0.0), (0.0, -3.0, INF), (-0.0, -3.0, -INF),
    (0.0, 2.5, 0.0), (-0.0, 2.5, 0.0), (-0.0, -2.0, INF), (-0.0, -2.5, INF),
    (0.0, INF, 0.0), (0.0, -INF, INF), (-1.0, INF, 1.0), (-1.0, -INF, 1.0),
    (1.0, NAN, 1.0), (1.0, INF, 1.0), (NAN, 0.0, 1.0), (NAN, -0.0, 1.0), (INF, 0.0, 1.0),
    (-8.0, 1.0 / 3.0, NAN), (-2.0, 3.0, -8.0), (-2.0, 2.0, 4.0), (-2.0, -1.0, -0.5),
    (0.5, INF, 0.0), (0.5, -INF, INF), (2.0, INF, INF), (2.0, -INF, 0.0),
    (-0.5, INF, 0.0), (-2.0, INF, INF), (-INF, -3.0, -0.0), (-INF, -2.0, 0.0),
    (-INF, 3.0, -INF), (-INF, 2.0, INF), (-INF, 0.5, INF), (INF, 2.0, INF), (INF, -2.0, 0.0),
    (NAN, 1.0, NAN), (2.0, NAN, NAN), (-1.0, NAN, NAN), (0.0, 0.0, 1.0), (-3.0, 0.0, 1.0),
    (2.0, 1e30, INF), (2.0, -1e30, 0.0), (-2.0, 1e30, INF), (0.999, 1e30, 0.0),
]  # fmt: skip

ATAN2_CASES = [
    (0.0, 1.0, 0.0), (-0.0, 1.0, -0.0), (0.0, -1.0, PI), (-0.0, -1.0, -PI),
    (0.0, 0.0, 0.0), (-0.0, 0.0, -0.0), (0.0, -0.0, PI), (-0.0, -0.0, -PI),
    (1.0, 0.0, PI / 2), (-1.0, 0.0, -PI / 2), (1.0, -0.0, PI / 2), (1.0, 1.0, PI / 4),
    (1.0, -1.0, 3 * PI / 4), (-1.0, -1.0, -3 * PI / 4), (1.0, INF, 0.0), (-1.0, INF, -0.0),
    (1.0, -INF, PI), (-1.0, -INF, -PI), (INF, 1.0, PI / 2), (-INF, -1.0, -PI / 2),
    (INF, INF, PI / 4), (-INF, INF, -PI / 4), (INF, -INF, 3 * PI / 4), (-INF, -INF, -3 * PI / 4),
    (NAN, 1.0, NAN), (1.0, NAN, NAN), (NAN, INF, NAN), (INF, NAN, NAN), (0.0, NAN, NAN),
]  # fmt: skip

FLOATS = pytest.mark.parametrize("dtype", [f32, f64], ids=str)


@pytest.mark.parametrize("fast_math", [False, True])
@FLOATS
@pytest.mark.parametrize("fn", UNARY_CASES)
def test_functions_of_one_number(fn: str, dtype: DType, fast_math: bool) -> None:
    cases = [*UNARY_CASES[fn], (NAN, NAN)]
    x, wanted = (np.array(column, dtype.numpy) for column in zip(*cases, strict=True))
    assert bits(compiled(fn, dtype, fast_math)(x)).tolist() == bits(wanted).tolist()


@FLOATS
@pytest.mark.parametrize(("fn", "cases"), [("pow", POW_CASES), ("atan2", ATAN2_CASES)])
def test_functions_of_two_numbers(
    fn: str, cases: list[tuple[float, float, float]], dtype: DType
) -> None:
    x, y, wanted = (np.array(column, dtype.numpy) for column in zip(*cases, strict=True))
    found = compiled(fn, dtype)(x, y)
    different = bits(found) != bits(wanted)
    assert not different.any(), (x[different], y[different], found[different])


@pytest.mark.parametrize("fast_math", [False, True])
@pytest.mark.parametrize("fn", ["sin", "cos"])
def test_no_sine_is_beyond_one(fn: str, fast_math: bool) -> None:
    """So that the square root of 1 - sin(x)**2 is a number; near the extremes, and odd or even."""
    middles = np.arange(-60_000, 60_000) * (PI / 2)
    x = np.concatenate([(middles + d).astype(np.float32) for d in (0.0, 1e-4, -3e-4, 1e-3)])
    found = compiled(fn, f32, fast_math)(x)
    assert np.abs(found).max() == 1.0
    mirrored = compiled(fn, f32, fast_math)(-x)
    assert bits(-mirrored if fn == "sin" else mirrored).tolist() == bits(found).tolist()


def test_no_quick_sine_is_beyond_one_near_a_quarter_turn() -> None:
    """Every f32 there: no comparison cuts the polynomial off."""
    words = np.arange(np.float32(1.55).view(np.uint32), np.float32(1.5825).view(np.uint32))
    angles = words.astype(np.uint32).view(np.float32)
    assert np.abs(compiled("sin", f32, True)(angles)).max() == 1.0
    small = np.arange(0, np.float32(0.012).view(np.uint32), 4001, dtype=np.uint32)
    assert compiled("cos", f32, True)(small.view(np.float32)).max() == 1.0


@FLOATS
def test_results_that_leave_the_range_do_so_gradually(dtype: DType) -> None:
    """exp, exp2 and pow go through subnormal numbers, and give infinity where rounding does."""
    info = np.finfo(dtype.numpy)
    least = -149.0 if dtype is f32 else -1074.0
    x = np.array([least, least - 0.9, least - 1.0, 128.0 if dtype is f32 else 1024.0], dtype.numpy)
    found = compiled("exp2", dtype)(x)
    smallest = float(info.smallest_subnormal)
    assert found.tolist() == [smallest, smallest, 0.0, INF]
    two = np.full_like(x, 2.0)
    assert compiled("pow", dtype)(two, x).tolist() == found.tolist()
    top = np.array([math.log(float(info.max))], dtype.numpy)
    top = np.nextafter(top, dtype.numpy.type(0))
    assert np.isfinite(compiled("exp", dtype)(top)).all()
    assert np.isinf(compiled("exp", dtype)(np.nextafter(top, 2 * top) * (1 + info.eps))).all()
