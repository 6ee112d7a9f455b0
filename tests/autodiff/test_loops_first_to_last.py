"""Loops of the backward sweep that only sum: in which order they run, and their gradients."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.autodiff.improve.narrow_counters import narrow_counters
from octants.autodiff.reverse import reverse
from octants.ir.printer import to_text
from octants.target import Capabilities
from tests.ir.parser import parse

N, M = 5, 7


def _of_a_sum(x: Any, w: Any, y: Any) -> Any:
    @qd.kernel
    def kernel():
        for i in y:
            s = 0.0
            for j in range(i + 2):
                for k in range(j):
                    s += qd.sin(x[i] + 0.1 * k) * w[k]
            y[i] = s

    return kernel


def _of_a_vector(x: Any, w: Any, y: Any) -> Any:
    @qd.kernel
    def kernel():
        for i in y:
            v = qd.Vector.zero(qd.f64, 9)
            for j in range(M):
                v[(j * j) % 9] += x[i] * w[j]
            s = 0.0
            for j in range(M):
                s += v[j] * v[j]
            y[i] = s

    return kernel


def _of_guarded_products(x: Any, w: Any, y: Any) -> Any:
    """The rows of a product are stored one by one, last first; each adds to all components."""

    @qd.kernel
    def kernel():
        for i in y:
            v = qd.Vector.zero(qd.f64, 9)
            for k in range(9):
                v[k] += x[i]
            u = qd.Vector.zero(qd.f64, 9)
            for j in range(9):
                t = 0.0
                for k in range(9):
                    t += w[(j + k) % M] * v[k]
                u[j] = qd.sin(t)
            s = 0.0
            for j in range(9):
                s += u[j]
            y[i] = s

    return kernel


def _of_a_recurrence(x: Any, w: Any, y: Any) -> Any:
    @qd.kernel
    def kernel():
        for i in y:
            v = x[i]
            for j in range(M):
                v = qd.sin(v) * w[j]
            y[i] = v

    return kernel


def _reverse(kernel: Any) -> str:
    return str(kernel.inspect(mode="reverse").stages["reverse"])


@pytest.mark.parametrize(
    ("make", "last_first"),
    [(_of_a_sum, 0), (_of_a_vector, 1), (_of_guarded_products, 2), (_of_a_recurrence, 1)],
)
def test_order_and_gradient(make: Any, last_first: int) -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False)
    x, w, y = (qd.field(qd.f64, shape, needs_grad=True) for shape in (N, M, N))
    random = np.random.default_rng(3)
    x.from_numpy(random.normal(size=N))
    w.from_numpy(random.normal(size=M))
    kernel = make(x, w, y)
    y.grad.from_numpy(weights := random.normal(size=N))
    kernel.grad()
    for array in (x, w):
        found, value = array.grad.to_numpy(), array.to_numpy()
        for k in range(len(value)):
            ends = []
            for step in (1e-5, -1e-5):
                moved = value.copy()
                moved[k] += step
                array.from_numpy(moved)
                kernel()
                ends.append(weights @ y.to_numpy())
            array.from_numpy(value)
            assert found[k] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-8)
    # Two differences give the number of the iteration where the last one is first.
    assert len(re.findall(": i64 = binary<sub>", _reverse(kernel))) == 2 * last_first


def _gradient(nests: str) -> tuple[list[float], str]:
    """The gradient of sums of functions of sums, which may be stored, and its last loop."""
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False, simd="never", ad_stack_nests=nests)
    x, y = (qd.field(qd.f64, N, needs_grad=True) for _ in range(2))

    @qd.kernel
    def kernel():
        for i in y:
            z = x[i]
            for _ in range(M):
                total = z
                for j in range(4):
                    part = z
                    for k in range(j):
                        part += 0.2 * qd.sin(qd.sin(z + 0.1 * k) + 0.3 * j)
                    total += 0.2 * qd.sin(part)
                z = 0.5 * z + 0.3 * qd.sin(total)
            y[i] = z

    x.from_numpy(np.linspace(-0.6, 0.9, N))
    y.grad.fill(1.0)
    kernel.grad()
    return x.grad.to_numpy().tolist(), _reverse(kernel)


def test_sums_around_loops_have_the_same_bits_if_these_run_again() -> None:
    (stored, text), (replayed, other) = map(_gradient, ("store", "replay"))
    assert text != other
    assert stored == replayed


def test_counters_that_nothing_needs_are_narrow() -> None:
    """Blocks of a recurrence that a GPU keeps in registers run with a constant trip count."""
    capabilities = Capabilities(local_record_bytes=256)
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False)
    x, w, y = (qd.field(qd.f64, shape, needs_grad=True) for shape in (N, M, N))

    @qd.kernel
    def kernel():
        for i in y:
            v = x[i]
            for _ in range(100):
                v = v * w[0] + 0.1
            y[i] = v

    module = kernel.specialise(()).module
    text = to_text(reverse(module, capabilities).module)
    first_sweep = text[: text.index("load<@y, adjoint>")]
    assert re.search(r"    %\d+: f64 = for\(.*: i32, ", first_sweep)


def test_counters_that_something_needs_in_i64_stay() -> None:
    text = """\
kernel @k
array @x: i64, 1, field, () [primal]
array @n: i32, 0, field, () [primal]
serial @k_0 {
  %0: i64 = constant<0>()
  %1: i32 = load<@n, primal>()
  %2: i64 = cast(%1)
  for(%0, %2) { (%3: i64):
    %4: i32 = cast(%3)
    store<@x, primal>(%3, %4)
    yield()
  }
  yield()
}
"""
    module = parse(text)
    narrow_counters(module)
    assert to_text(module) == text


@pytest.mark.parametrize("bound", ["constant<2147483648>()", "load<@m, primal>()"])
def test_bounds_that_may_exceed_an_i32_stay(bound: str) -> None:
    text = f"""\
kernel @k
array @x: f32, 1, field, () [primal]
array @m: i64, 0, field, () [primal]
serial @k_0 {{
  %0: i64 = constant<0>()
  %1: f32 = constant<1.0>()
  %2: i64 = {bound}
  for(%0, %2) {{ (%3: i64):
    %4: i32 = cast(%3)
    store<@x, primal>(%1, %4)
    yield()
  }}
  yield()
}}
"""
    module = parse(text)
    narrow_counters(module)
    assert to_text(module) == text
