"""What branches yield for their reverse: floats, but no indices that are computed again."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

import octants as qd

N = 12


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    yield
    qd.reset()


@qd.kernel
def upwind(c: qd.types.ndarray(), u: qd.types.ndarray(), y: qd.types.ndarray(), sign: qd.i32):
    for i in range(3, N - 3):
        slope = c[i] - c[i - 1]
        if u[i] < 0.0:
            slope = c[i + 1] ** 2 - c[i]
            if u[i] < -0.5:
                further = i + sign * 2
                slope += c[further] ** 2 * c[further - 1]
                if u[i] < -0.8:
                    slope += c[2 * further - 2 * i + 4] ** 2
        y[None] += slope * u[i]


def test_no_index_is_exported() -> None:
    arrays = [qd.ndarray(qd.f64, shape, needs_grad=True) for shape in (N, N, ())]
    text = upwind.inspect(*arrays, 1, mode="reverse").stages["reverse"]
    assert re.search(r"= if\(", text)
    assert not re.search(r"i(32|64)[^=\n]* = if\(", text)


@pytest.mark.parametrize("sign", [1, -1])
def test_gradients_are_those_of_finite_differences(sign: int) -> None:
    rng = np.random.default_rng(3)
    c, u = rng.uniform(0.5, 1.5, N), rng.uniform(-1.0, 0.3, N)
    arrays = [qd.ndarray(qd.f64, shape, needs_grad=True) for shape in (N, N, ())]

    def loss(*values: np.ndarray) -> float:
        for array, value in zip(arrays, values, strict=False):
            array.from_numpy(value)
        arrays[2].fill(0.0)
        upwind(*arrays, sign)
        return float(arrays[2].to_numpy())

    loss(c, u)
    with qd.ad.Tape(arrays[2]):
        upwind(*arrays, sign)
    gradient = arrays[0].grad.to_numpy()
    for k in range(N):
        step = 1e-6 * (np.arange(N) == k)
        difference = (loss(c + step, u) - loss(c - step, u)) / 2e-6
        np.testing.assert_allclose(gradient[k], difference, rtol=1e-6, atol=1e-8)
