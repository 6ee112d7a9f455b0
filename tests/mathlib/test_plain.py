"""The short ways of machines without a fused operation, as numpy's numbers tell of them."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from octants.mathlib.argument_reduction import USUAL
from octants.mathlib.function_registry import PLAIN
from octants.types.scalars import f32
from tests.mathlib import bounds
from tests.mathlib.compiled_functions import bits, evaluate_arrays, units
from tests.mathlib.samples import numbers
from tests.mathlib.test_special_values import UNARY_CASES

SHORT = functools.partial(evaluate_arrays, fast_math=True)
WAVES = pytest.mark.parametrize("fn", ["sin", "cos"])
NAMES = [name for name, _ in PLAIN]
FAR = np.float32(USUAL[24])


def angles() -> np.ndarray:
    """Those that the short way is good for, and the first ones beyond."""
    rng = np.random.default_rng(2)
    quarters = np.arange(4000) * (math.pi / 2)
    near = [(quarters * (1 + d)).astype(np.float32) for d in rng.uniform(-1, 1, 12) * 1e-7]
    sizes = (rng.uniform(0, 7000, 60_000), 2.0 ** rng.uniform(-60, 13, 60_000))
    ends = FAR + np.arange(-50, 50, dtype=np.float32) * np.spacing(FAR)
    x = np.concatenate([*near, *(each.astype(np.float32) for each in sizes), ends])
    return np.concatenate([x, -x])


@WAVES
def test_errors_of_sines(fn: str) -> None:
    x = angles()
    exact = getattr(np, fn)(x.astype(np.longdouble)).astype(np.float64)
    found = SHORT(fn, f32, x)
    assert units(found, exact).max() <= bounds.PLAIN[fn]
    assert np.abs(found).max() == 1.0
    mirrored = SHORT(fn, f32, -x)
    assert bits(-mirrored if fn == "sin" else mirrored).tolist() == bits(found).tolist()


@WAVES
def test_beyond_the_limit_it_is_the_strict_function(fn: str) -> None:
    beyond = np.nextafter(FAR, np.float32(np.inf))
    x = np.concatenate([[beyond, -beyond], np.geomspace(beyond, 3e38, 2000)]).astype(np.float32)
    assert bits(SHORT(fn, f32, x)).tolist() == bits(evaluate_arrays(fn, f32, x)).tolist()
    assert SHORT(fn, f32, angles()).tolist() != evaluate_arrays(fn, f32, angles()).tolist()


@pytest.mark.parametrize("fn", ["exp", "log"])
def test_errors(fn: str) -> None:
    x = numbers(fn, f32, 200_000)
    with np.errstate(all="ignore"):
        exact = getattr(np, fn)(x.astype(np.longdouble)).astype(np.float64)
        usual = np.isfinite(exact) & (np.abs(exact) < 3e38) & (np.abs(exact) > 2e-38)
    assert usual.sum() > 200_000
    assert units(SHORT(fn, f32, x[usual]), exact[usual]).max() <= bounds.PLAIN[fn]


@pytest.mark.parametrize("fn", NAMES)
def test_limits(fn: str) -> None:
    cases = [*UNARY_CASES[fn], (math.nan, math.nan)]
    x, wanted = (np.array(column, np.float32) for column in zip(*cases, strict=True))
    assert bits(SHORT(fn, f32, x)).tolist() == bits(wanted).tolist()


def test_the_cosine_beside_a_sine() -> None:
    x = angles()
    found = SHORT("cos_beside_sin", f32, x)
    assert np.abs(found - np.cos(x.astype(np.float64))).max() < 2e-7
    assert bits(SHORT("cos_beside_sin", f32, -x)).tolist() == bits(found).tolist()
    limits = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32)
    wanted = np.array([np.nan, np.nan, np.nan, 1.0, 1.0], np.float32)
    assert bits(SHORT("cos_beside_sin", f32, limits)).tolist() == bits(wanted).tolist()
