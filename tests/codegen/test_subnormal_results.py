"""Subnormal results: with `fast_math` those of adjoints may be zero on x64, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.codegen.llvm.llvmlite_driver import is_x64
from tests.codegen.compiled import TARGET
from tests.devices import on_cpu

pytestmark = on_cpu
FLUSHES = is_x64(TARGET)
TINY = np.finfo(np.float32).tiny


def powers(count: int) -> Any:
    """1, 2**-20, 2**-40, ..."""
    return np.ldexp(np.float32(1), -20 * np.arange(count)).astype(np.float32)


def shrunk(function: Callable[..., Any] | None = None) -> tuple[Any, Any]:
    """Ones that are halved 0, 20, 40, ... times, and the adjoints of these ones.

    A function is applied to the ones beside that; its adjoints are zero.
    """
    x, y, z = (qd.field(qd.f32, shape=8, needs_grad=True) for _ in range(3))

    @qd.kernel
    def shrink():
        for i in x:
            v = x[i]
            for _ in range(i * 20):
                v *= 0.5
            y[i] = v
            if qd.static(function is not None):
                z[i] = function(x[i])

    x.fill(1.0)
    shrink()
    y.grad.fill(1.0)
    shrink.grad()
    return y.to_numpy(), x.grad.to_numpy()


@pytest.mark.parametrize("fast_math", [True, False])
@pytest.mark.parametrize(("threads", "simd"), [(1, "never"), (1, "always"), (3, "auto")])
def test_adjoints_and_values(fast_math: bool, threads: int, simd: str) -> None:
    qd.init(arch=qd.cpu, fast_math=fast_math, cpu_max_num_threads=threads, simd=simd)
    values, adjoints = shrunk()
    np.testing.assert_array_equal(values, powers(8))
    wanted = powers(8)
    assert TINY * np.float32(0.5) != 0  # the mode of numpy has not changed
    if fast_math and FLUSHES:
        wanted[wanted < TINY] = 0
    np.testing.assert_array_equal(adjoints, wanted)


@qd.func
def quotient(v):
    return v / (0.5 + v * v)


@qd.func
def root(v):
    return qd.sqrt(v + 1.0)


@qd.func
def branch(v):
    return v if v * v > 0.0 else 2.0 * v


@qd.func
def logarithm(v):
    return qd.log(1.0 + v)


@pytest.mark.parametrize("function", [quotient, root, branch, logarithm])
def test_adjoints_beside_what_may_magnify(function: Callable[..., Any]) -> None:
    qd.init(arch=qd.cpu)
    _, adjoints = shrunk(function)
    np.testing.assert_array_equal(adjoints, powers(8))


def test_gravity_of_the_sun_on_neptune() -> None:
    """The third power of the reciprocal distance is subnormal."""
    qd.init(arch=qd.cpu)
    x = qd.Vector.field(3, qd.f32, shape=1, needs_grad=True)
    a = qd.Vector.field(3, qd.f32, shape=1)
    energy = qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.kernel
    def attract():
        for i in a:
            a[i] = -1.327e20 * x[i] / x[i].norm() ** 3

    @qd.kernel
    def potential():
        for i in a:
            energy[None] += -1.327e20 / qd.sqrt(x[i].dot(x[i]) + 1e6)

    x[0] = [4.5e12, 0.0, 0.0]
    attract()
    with qd.ad.Tape(loss=energy):
        potential()
    wanted = 1.327e20 / 4.5e12**2
    assert a[0][0] == pytest.approx(-wanted, rel=1e-4)
    assert x.grad[0][0] == pytest.approx(wanted, rel=1e-4)


def in_order(g, m, big, x):
    """The product of g and m is subnormal."""
    return g * m * big * x * x


def reversed_order(g, m, big, x):
    """The adjoint of m is subnormal."""
    return g * (m * (big * x * x))


def summed(g, m, big, x):
    """What a loop carries is subnormal."""
    scale = m
    for _ in range(2):
        scale *= g
    return scale * big * x * x


def in_vector(g, m, big, x):
    """A component of a vector is subnormal."""
    v = qd.Vector([g, m, big, x, x, 1.0, 1.0, 1.0])
    for k in range(1, 8):
        v[k] *= v[k - 1]
    return v[7]


@pytest.mark.parametrize("simd", ["never", "always"])
@pytest.mark.parametrize("energy", [in_order, reversed_order, summed, in_vector])
@pytest.mark.parametrize(
    ("dtype", "g", "m", "big"),
    [(qd.f32, 6.67e-11, 9.1e-31, 2e30), (qd.f64, 6.67e-110, 9.1e-206, 2e300)],
)
def test_products_of_subnormal_products(
    dtype: Any, g: float, m: float, big: float, energy: Callable[..., Any], simd: str
) -> None:
    """They are ordinary numbers, as are their derivatives."""
    qd.init(arch=qd.cpu, default_fp=dtype, simd=simd)
    x, mass = (qd.field(dtype, shape=8, needs_grad=True) for _ in range(2))
    total = qd.field(dtype, shape=(), needs_grad=True)
    function = qd.func(energy)

    @qd.kernel
    def add_up(g: dtype, big: dtype):
        for i in x:
            total[None] += function(g, mass[i], big, x[i])

    x.fill(2.0)
    mass.fill(m)
    factor = g**0.5 if energy is summed else g
    with qd.ad.Tape(loss=total):
        add_up(factor, big)
    assert total[None] == pytest.approx(32 * g * big * m, rel=1e-3)
    np.testing.assert_allclose(x.grad.to_numpy(), 4 * g * big * m, rtol=1e-3)
    np.testing.assert_allclose(mass.grad.to_numpy(), 4 * g * big, rtol=1e-3)
