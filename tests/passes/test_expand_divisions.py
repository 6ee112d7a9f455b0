"""Divisions by constants: products that give the same quotients, or nearly the same."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver, options
from octants.ir import reciprocals
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.arithmetic.expand_divisions import expand_divisions
from octants.simplify import simplify
from octants.types.scalars import by_name
from tests.ir.parser import parse
from tests.mathlib.compiled_functions import units

DIVISORS = (3.0, -7.0, 10.0, 49.0, 0.026, 1e-20, -1e15, 0.9999999)


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    yield
    qd.reset()


def start(fast_math: bool = True, **more: Any) -> driver.Capabilities:
    qd.init(arch=qd.cpu, fast_math=fast_math, log_level="error", **more)
    return driver.capabilities(options.current())


# -- reciprocals --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_two_parts_are_the_reciprocal(dtype: str) -> None:
    kind = by_name(dtype)
    digits = 24 if dtype == "f32" else 53
    for divisor in map(float, map(kind.numpy.type, DIVISORS)):
        parts = reciprocals.in_two_parts(divisor, kind)
        assert parts is not None
        assert all(float(kind.numpy.type(part)) == part for part in parts)
        assert all(part * divisor > 0 for part in parts)
        error = abs(Fraction(parts[0]) + Fraction(parts[1]) - 1 / Fraction(divisor))
        assert error * abs(Fraction(divisor)) < Fraction(2) ** (1 - 2 * digits)


@pytest.mark.parametrize("divisor", [0.0, float("inf"), float("nan"), 1e-39, 1e38])
def test_there_are_no_parts_of_what_is_too_large_or_too_small(divisor: float) -> None:
    assert reciprocals.in_two_parts(divisor, by_name("f32")) is None


@pytest.mark.parametrize(
    ("dtype", "divisor", "found"),
    [("f32", 8.0, True), ("f32", -0.5, True), ("f32", 3.0, False), ("f32", 0.0, False),
     ("f32", 2.0**127, False), ("f32", 2.0**-126, True), ("f16", 2.0**15, False),
     ("f64", 2.0**1023, False), ("f64", float("inf"), False), ("f64", float("nan"), False)],
)  # fmt: skip
def test_reciprocals_of_powers_of_two_are_exact(dtype: str, divisor: float, found: bool) -> None:
    assert reciprocals.is_exact(divisor, by_name(dtype)) == found


# -- what is changed ----------------------------------------------------------------------------


def module(divisor: float, dtype: str) -> Any:
    return parse(
        f"kernel @k\narray @x: {dtype}, 0, field, () [primal]\nserial @k_0 {{\n"
        f"  %0: {dtype} = load<@x, primal>()\n  %1: {dtype} = constant<{divisor}>()\n"
        f"  %2: {dtype} = binary<div>(%0, %1)\n  store<@x, primal>(%2)\n  yield()\n}}\n"
    )


@pytest.mark.parametrize(
    ("dtype", "divisor", "kept"),
    [("f32", 3.0, False), ("f64", 3.0, False), ("f16", 3.0, True), ("f32", 0.0, True),
     ("f32", 1e38, True), ("f64", 1e38, False), ("f32", "inf", True)],
)  # fmt: skip
def test_divisions_by_constants_are_expanded(dtype: str, divisor: Any, kept: bool) -> None:
    found = module(divisor, dtype)
    expand_divisions(found)
    verify(found)
    assert ("<div>" in to_text(found)) == kept


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_divisions_by_powers_of_two_are_products(dtype: str) -> None:
    found = module(-4.0, dtype)
    simplify(found)
    verify(found)
    assert "constant<-0.25>" in to_text(found) and "<div>" not in to_text(found)


# -- what comes of it ---------------------------------------------------------------------------


def quotients(dtype: Any, divisor: float, x: Any) -> tuple[Any, Any]:
    """Quotients that decide on something, and those that do not."""

    @qd.kernel
    def divide(
        x: qd.types.ndarray(dtype, ndim=1),
        decided: qd.types.ndarray(dtype, ndim=1),
        free: qd.types.ndarray(dtype, ndim=1),
        cell: qd.types.ndarray(qd.i32, ndim=1),
    ):
        for i in x:
            q = x[i] / divisor
            decided[i] = q
            cell[i] = qd.cast(qd.floor(qd.min(qd.max(q, -100.0), 100.0)), qd.i32)
            free[i] = (x[i] + 0.0) / divisor

    decided, free, cell = np.empty_like(x), np.empty_like(x), np.empty(x.size, np.int32)
    divide(x, decided, free, cell)
    return decided, free


def numbers(dtype: Any) -> Any:
    """Numbers of all sizes from 2**-40 to 2**11, with signs."""
    generator = np.random.default_rng(5)
    x = generator.uniform(1.0, 2.0, 200_000).astype(dtype)
    scale = np.ldexp(dtype(1.0), generator.integers(-40, 10, x.size))
    return x * scale.astype(dtype) * generator.choice([-1.0, 1.0], x.size).astype(dtype)


@pytest.mark.parametrize("divisor", DIVISORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_quotients_that_decide_are_rounded_correctly(dtype: Any, divisor: float) -> None:
    start()
    kind = qd.f32 if dtype is np.float32 else qd.f64
    x = numbers(dtype)
    with np.errstate(all="ignore"):
        expected = x / dtype(divisor)
        decided, free = quotients(kind, divisor, x)
    normal = np.abs(expected) > (1e-30 if dtype is np.float32 else 1e-290)
    wrong = decided[normal] != expected[normal]
    assert wrong.mean() < 1e-4
    assert (np.abs(decided - expected) <= np.spacing(np.abs(expected)))[normal].all()
    exact = x.astype(np.longdouble) / np.longdouble(dtype(divisor))
    assert units(free[normal], exact[normal].astype(np.float64)).max() <= 1.5


@pytest.mark.parametrize("divisor", [3.0, 10.0, -49.0, 0.026])
@pytest.mark.parametrize("fast_math", [True, False])
def test_exact_quotients_are_exact(divisor: float, fast_math: bool) -> None:
    """So the number of a cell never falls short of an integer."""
    start(fast_math)
    whole = np.arange(-4096, 4096)
    for kind, dtype in ((qd.f32, np.float32), (qd.f64, np.float64)):
        x = (whole * np.float64(np.float16(divisor))).astype(dtype)
        decided, _ = quotients(kind, float(np.float16(divisor)), x)
        np.testing.assert_array_equal(decided, whole.astype(dtype))


@pytest.mark.parametrize("divisor", [3.0, -49.0])
def test_limits_are_those_of_divisions(divisor: float) -> None:
    start()
    for kind, dtype in ((qd.f32, np.float32), (qd.f64, np.float64)):
        x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype)
        with np.errstate(all="ignore"):
            expected = x / dtype(divisor)
        for found in quotients(kind, divisor, x):
            np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(np.signbit(found[:4]), np.signbit(expected[:4]))


def test_without_fast_math_quotients_have_the_bits_of_divisions() -> None:
    start(fast_math=False)
    x = numbers(np.float32)
    for divisor in (3.0, 8.0, -0.25):
        for found in quotients(qd.f32, divisor, x):
            np.testing.assert_array_equal(found, x / np.float32(divisor))


def test_derivatives_know_quotients() -> None:
    machine = start()
    x, y = (qd.field(qd.f64, 4, needs_grad=True) for _ in range(2))
    x.from_numpy(np.array([0.5, 4.0, 7.5, -3.0]))

    @qd.kernel
    def f():
        for i in x:
            q = x[i] / 3.0
            if q > 1.0:
                q = q * x[i] / 7.0
            y[i] = q

    f()
    y.grad.fill(1.0)
    f.grad()
    expected = [1 / 3, 8.0 / 21, 15.0 / 21, 1 / 3]
    np.testing.assert_allclose(x.grad.to_numpy(), expected, rtol=1e-15)
    if machine.fuses:
        assert "<div>" not in f.inspect(mode="reverse").stages["finish"]
