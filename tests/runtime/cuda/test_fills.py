"""Fills of fields on a fake GPU: little goes there from the host."""

from __future__ import annotations

import numpy as np
import pytest

import octants as qd
from tests.runtime.cuda.whole import Gpu, gpu

__all__ = ["gpu"]


@pytest.mark.parametrize("value", [0.0, -0.0, 2.5])
def test_a_fill_is_copied_by_the_gpu(gpu: Gpu, value: float) -> None:
    gpu.init()
    x = qd.Vector.field(3, qd.f32, 100_000)
    x.fill(1.0)
    gpu.fake.calls.clear()
    x.fill(value)
    sent, copied = (gpu.fake.calls[name] for name in ("cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync"))
    is_zero = not np.signbit(value) and value == 0
    assert (sent, copied) == ((0, 0) if is_zero else (1, 5))
    found = x.to_numpy()
    assert (found == value).all()
    assert (np.signbit(found) == np.signbit(value)).all()


def test_a_fill_with_a_vector_or_of_a_part(gpu: Gpu) -> None:
    gpu.init()
    x = qd.Vector.field(2, qd.f64, (3, 4))
    x.fill(7.0)
    x.fill(qd.Vector([1.0, 2.0]))
    x[1, 2] = qd.Vector([0.0, 5.0])
    expected = np.tile(np.array([1.0, 2.0]), (3, 4, 1))
    expected[1, 2] = 0, 5
    assert (x.to_numpy() == expected).all()


def test_gradients_are_cleared_by_one_call_each(gpu: Gpu) -> None:
    gpu.init()
    fields = [qd.field(qd.f32, (5, 7), needs_grad=True) for _ in range(3)]
    for x in fields:
        x.grad.fill(3.0)
    gpu.fake.calls.clear()
    qd.ad.clear_all_gradients()
    assert gpu.fake.calls["cuMemsetD8Async"] == 3
    assert all((x.grad.to_numpy() == 0).all() for x in fields)
