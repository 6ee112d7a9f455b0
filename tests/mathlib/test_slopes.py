"""The cosine that shares the work of a sine: near enough for a derivative, wherever it is."""

from __future__ import annotations

import numpy as np
import pytest

from octants.ir.builder import Builder
from octants.ir.core import Module, Value
from octants.target import ALWAYS, NEVER
from octants.types.scalars import DType, f32, f64
from tests.codegen.compiled import Compiled, ndarray, parallel


def values(x: np.ndarray, dtype: DType, fn: str, fast_math: bool, simd: str) -> np.ndarray:
    """A function of numbers, by a kernel that computes their sines as well."""
    arrays = [ndarray(name, dtype) for name in ("x", "y", "s")]

    def domain(b: Builder) -> tuple[Value, Value]:
        return b.index(0), b.shape(arrays[0], 0)

    def body(b: Builder, i: Value) -> None:
        value = b.load(arrays[0], [i])
        b.store(arrays[2], [i], b.unary("sin", value))
        b.store(arrays[1], [i], b.unary(fn, value))

    kernel = Module("slope", arrays, tasks=[parallel("slope_0", domain, body)])
    data = {"x": x, "y": np.zeros_like(x), "s": np.zeros_like(x)}
    Compiled(kernel, simd=simd, fast_math=fast_math).run(data)
    return data["y"]


def angles(count: int = 200_000) -> np.ndarray:
    random = np.random.default_rng(3)
    sizes = 10.0 ** random.uniform(-8, 9, count)
    near = np.pi / 2 * random.integers(-60_000, 60_000, count) * random.choice([1, 1 + 1e-7], count)
    return np.concatenate([random.choice([-1, 1], count) * sizes, near])


@pytest.mark.parametrize("simd", [NEVER, ALWAYS])
def test_the_error_is_small_beside_one(simd: str) -> None:
    x = angles().astype(np.float32)
    found = values(x, f32, "cos_beside_sin", True, simd).astype(np.float64)
    assert np.abs(found - np.cos(x.astype(np.float64))).max() < 2e-7
    even = values(-x, f32, "cos_beside_sin", True, simd)
    np.testing.assert_array_equal(even, found.astype(np.float32))


@pytest.mark.parametrize(("dtype", "fast_math"), [(f32, False), (f64, True)])
def test_elsewhere_it_is_the_cosine(dtype: DType, fast_math: bool) -> None:
    x = angles(2000).astype(dtype.numpy)
    found = values(x, dtype, "cos_beside_sin", fast_math, ALWAYS)
    np.testing.assert_array_equal(found, values(x, dtype, "cos", fast_math, ALWAYS))


def test_what_is_no_angle_has_none() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32)
    found = values(x, f32, "cos_beside_sin", True, ALWAYS)
    assert np.isnan(found[:3]).all()
    np.testing.assert_array_equal(found[3:], [1.0, 1.0])
