"""The meaning of scalar operations at their edges."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from octants.ir.random_draws import bits, drawn, philox, stream
from octants.ir.scalar_semantics import bitcast, evaluate
from octants.types import scalars
from octants.types.scalars import DType, convert, f16, f32, f64, i8, i32, i64, promote, u1, u8, u32

CASES = [
    ("floordiv", i32, (-7, 2), -4),
    ("mod", i32, (-7, 2), 1),
    ("truncdiv", i32, (-7, 2), -3),
    ("truncmod", i32, (-7, 2), -1),
    ("floordiv", i32, (5, 0), 0),
    ("mod", i32, (5, 0), 5),
    ("floordiv", i32, (-(2**31), -1), -(2**31)),
    ("truncdiv", i32, (-(2**31), -1), -(2**31)),
    ("add", i8, (127, 1), -128),
    ("mul", u8, (16, 17), 16),
    ("neg", u32, (1,), 2**32 - 1),
    ("shl", i32, (1, 33), 2),
    ("shr", i32, (-8, 1), -4),
    ("ushr", i32, (-8, 1), 2**31 - 4),
    ("pow", i32, (3, 4), 81),
    ("pow", i32, (-2, 3), -8),
    ("pow", i32, (2, -1), 0),
    ("pow", i32, (-1, -3), -1),
    ("popcount", i32, (-1,), 32),
    ("clz", i32, (1,), 31),
    ("round", f32, (2.5,), 2.0),
    ("mod", f64, (-7.0, 2.0), 1.0),
    ("min", f32, (math.nan, 1.0), 1.0),
    ("max", f32, (1.0, math.nan), 1.0),
    ("sign", f32, (-0.5,), -1.0),
    ("add", f32, (1.0, 2.0**-24), 1.0),
    ("add", f16, (2048.0, 1.0), 2048.0),
    ("not", u1, (True,), False),
    ("lt", f32, (math.nan, 1.0), False),
    ("ne", f32, (math.nan, math.nan), True),
]


@pytest.mark.parametrize(("fn", "dtype", "operands", "expected"), CASES)
def test_evaluate(fn: str, dtype: DType, operands: tuple[float, ...], expected: float) -> None:
    assert evaluate(fn, dtype, *operands) == expected


def test_conversions() -> None:
    assert convert(3.9, i32) == 3
    assert convert(-3.9, i32) == -3
    assert convert(1e20, i32) == 2**31 - 1
    assert convert(math.nan, i32) == 0
    assert convert(300, u8) == 44
    assert convert(0.1, f32) == pytest.approx(0.1, abs=1e-8)
    assert convert(0.1, f32) != 0.1
    assert convert(1e10, f16) == math.inf
    assert convert(0.5, u1) is True


def test_promotion_is_symmetric_and_idempotent() -> None:
    for a in scalars.ALL:
        for b in scalars.ALL:
            if a.bits != b.bits or a is b:
                assert promote(a, b) is promote(b, a)
            assert promote(promote(a, b), b) is promote(a, b)
    assert promote(i64, f32) is f32
    assert promote(i32, u32) is u32
    assert promote(f16, f32) is f32


def test_bitcast() -> None:
    assert bitcast(1.0, f32, i32) == 0x3F800000
    assert bitcast(0x3F800000, u32, f32) == 1.0


@pytest.mark.parametrize("dtype", [f16, f32, f64], ids=str)
def test_the_error_of_a_product_is_exact(dtype: DType) -> None:
    numbers = np.random.default_rng(1).uniform(-2.0, 2.0, (200, 2)).astype(dtype.numpy)
    for a, b in numbers.tolist():
        error = Fraction(a) * Fraction(b) - Fraction(evaluate("mul", dtype, a, b))
        assert evaluate("mul_error", dtype, a, b) == convert(float(error), dtype)
    assert evaluate("mul_error", dtype, math.inf, 2.0) != evaluate("mul_error", dtype, 2.0, 2.0)


def test_philox_known_answers() -> None:
    """From the known-answer file of Random123, philox4x32 with 7 and 10 rounds."""
    ones = 0xFFFFFFFF
    for rounds, zeros, full in (
        (
            7,
            (0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48),
            (0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662),
        ),
        (
            10,
            (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
    ):
        assert philox((0, 0, 0, 0), (0, 0), rounds=rounds) == zeros
        assert philox((ones, ones, ones, ones), (ones, ones), rounds=rounds) == full


def test_split_mix_known_answers() -> None:
    """The first outputs of SplitMix64 with the seed 0, which adds before it mixes."""
    outputs = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [bits(0, draw) for draw in (1, 2, 3)] == outputs


def test_draws_look_independent() -> None:
    """Neighbours in each coordinate of a position: their bits agree in half of the places."""
    base = np.array([7, 3, 1, 1000, 5])
    for axis in range(5):
        words = []
        for k in range(400):
            *position, number = (int(x) for x in base + k * (np.arange(5) == axis))
            words.append(bits(stream(*position), number))
        changed = [(a ^ b).bit_count() for a, b in itertools.pairwise(words)]
        assert abs(np.mean(changed) - 32) < 1
        ones = np.array([[word >> bit & 1 for bit in range(64)] for word in words])
        assert np.abs(ones.mean(0) - 0.5).max() < 0.12
        correlations = np.corrcoef(ones.T) - np.eye(64)
        assert np.abs(correlations).max() < 0.25


def test_draws_are_in_range_and_differ() -> None:
    for dtype in (f16, f32, f64):
        values = [drawn(dtype, stream(1, 2, 3, item), 0) for item in range(200)]
        assert all(0 <= value < 1 for value in values)
        assert len(set(values)) > 150
        assert 0.3 < sum(values) / 200 < 0.7
    integers = [drawn(i32, stream(1, 2, 3, 4), k) for k in range(100)]
    assert min(integers) < 0 < max(integers)
