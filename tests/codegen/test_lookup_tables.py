"""Long vectors that are read by a run-time index; those of constants are tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd

LENGTHS = (9, 10, 33, 100)
OTHER_TYPES = (qd.f32, qd.f16, qd.i8, qd.u64, qd.u1)


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    yield
    qd.reset()


def both(kernel: Any, *arguments: Any) -> tuple[Any, Any]:
    """What a kernel makes of its first argument as machine code, and interpreted."""
    results = []
    for arch in (qd.cpu, qd.python):
        qd.init(arch=arch, default_fp=qd.f64, log_level="error")
        given = [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]
        kernel(*given)
        results.append(given[0])
    return results[0], results[1]


@pytest.mark.parametrize(
    ("dtype", "n"),
    [
        *((qd.f64, n) for n in LENGTHS),
        *((dtype, 10) for dtype in OTHER_TYPES),
        *(
            pytest.param(dtype, n, marks=pytest.mark.slow)
            for dtype in OTHER_TYPES
            for n in LENGTHS
            if n != 10
        ),
    ],
)
def test_a_vector_that_changes(n: int, dtype: Any) -> None:
    @qd.kernel
    def walk(out: qd.types.ndarray(), steps: qd.i32):
        for i in out:
            v = qd.Vector([qd.cast(0, dtype)] * n)
            k = i % n
            for s in range(steps):
                v[k] = qd.cast(v[(k * 7 + s) % n] + v[k] + s, dtype)
                if s % 3 == 0:
                    k = (k * 5 + 3 + qd.i32(v[s % n])) % n
            out[i] = qd.cast(v[0] + 3 * v[n - 1] + 5 * v[k], out.dtype)

    found, expected = both(walk, np.zeros(11), 17)
    assert np.array_equal(found, expected)
    assert found.any()


@pytest.mark.parametrize("n", LENGTHS)
def test_a_vector_of_constants(n: int) -> None:
    table = [float(k * k % 17) - 3 for k in range(n)]

    @qd.kernel
    def look_up(out: qd.types.ndarray(), first: qd.i64):
        for i in out:
            v = qd.Vector(table)
            out[i] = v[i + first] + 0.5 * v[n - 1 - i]

    found, expected = both(look_up, np.zeros(2 * n), -3)
    assert np.array_equal(found, expected)
    assert np.array_equal(found[3:n], np.array(table)[: n - 3] + 0.5 * np.array(table)[::-1][3:])
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    text = look_up.inspect(np.zeros(1), 0).llvm_ir
    assert text.count(" = select ") < 6
    assert "private unnamed_addr constant" in text


def test_rows_and_columns_of_a_matrix() -> None:
    @qd.kernel
    def pick(out: qd.types.ndarray(), x: qd.types.ndarray()):
        for i in out:
            m = qd.Matrix([[x[i + 12 * r + c] for c in range(3)] for r in range(12)])
            for s in range(12):
                m[s, i % 3] = m[11 - s, (i + s) % 3] * 0.5 + m[(s * i) % 12, 0]
            out[i] = m[i % 12, i % 3]

    found, expected = both(pick, np.zeros(30), np.random.default_rng(3).random(200))
    assert np.array_equal(found, expected)


def test_the_gradient_through_a_table() -> None:
    n = 12
    x = qd.field(qd.f64, shape=n, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def mix():
        for i in range(4):
            v = qd.Vector([x[k] for k in range(n)])
            total = 0.0
            for s in range(9):
                k = (i * 5 + s * s) % n
                v[k] = qd.sin(v[(k + s) % n]) * v[k]
                total += v[(s * 7 + i) % n] ** 2
            loss[None] += total

    start = 0.5 + np.random.default_rng(5).random(n)
    x.from_numpy(start)
    with qd.ad.Tape(loss=loss):
        mix()
    gradient = x.grad.to_numpy()

    def value(k: int, step: float) -> float:
        x.from_numpy(start + step * np.eye(n)[k])
        loss[None] = 0
        mix()
        return float(loss[None])

    differences = [(value(k, 1e-6) - value(k, -1e-6)) / 2e-6 for k in range(n)]
    assert np.allclose(gradient, differences, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("simd", ["never", "always"])
def test_a_vector_and_an_index_that_all_work_items_share(simd: str) -> None:
    @qd.kernel
    def pick(out: qd.types.ndarray(), first: qd.i32, at: qd.i32):
        for i in out:
            v = qd.Vector([first, 3, first * first, 5, 1, 0, first, 2, 7, 4])
            if i % 3 > 0:
                out[i] += v[at]

    qd.init(arch=qd.cpu, simd=simd, default_fp=qd.f64, log_level="error")
    found = np.zeros(37)
    pick(found, 9, 2)
    assert found.tolist() == [81.0 * (i % 3 > 0) for i in range(37)]
