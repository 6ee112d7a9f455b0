"""Loops whose condition is tested at the end of iterations: bit by bit what other loops give."""

from __future__ import annotations

import numpy as np

import octants as qd
from tests.vulkan.test_speculation import Results, assert_same_bits, vulkan  # noqa: F401

COUNT = 37


def test_what_the_last_iteration_computed() -> None:
    """Work items leave a loop one by one; Mesa's driver goes on computing in their lanes."""

    def run() -> Results:
        x = qd.field(qd.f32, shape=COUNT)
        most = qd.field(qd.i32, shape=COUNT)
        found = qd.Vector.field(5, qd.f32, shape=COUNT)
        x.from_numpy(np.linspace(0.1, 1.9, COUNT).astype(np.float32))
        most.from_numpy((np.arange(COUNT) * 7 % 11).astype(np.int32))

        @qd.kernel
        def leave():
            for i in x:
                last, sine, j = 0.0, 0.0, 0
                goes_on = True
                while goes_on:  # surely once
                    last = x[i] * j + 1.0
                    if x[i] * j > 1.5:
                        sine = qd.sin(last)
                    j += 1
                    goes_on = j < most[i]
                wave = 0.0
                for k in range(50):
                    wave = qd.cos(x[i] * k)
                    if k >= most[i] + 2:
                        break
                inner = 0.0
                for k in range(most[i]):  # perhaps not at all
                    n = k
                    while n > 1:
                        inner = x[i] * n
                        n = n // 2
                found[i] = qd.Vector([last, sine, qd.cast(j, qd.f32), wave, inner])

        leave()
        return [found.to_numpy()]

    (found,) = assert_same_bits(run, fast_math=False)
    x = np.linspace(0.1, 1.9, COUNT).astype(np.float32)
    trips = np.maximum(np.arange(COUNT) * 7 % 11, 1)
    np.testing.assert_allclose(found[:, 0], x * (trips - 1) + 1, rtol=1e-6)
    np.testing.assert_array_equal(found[:, 2], trips)


def test_gradients_of_such_loops() -> None:
    def run() -> Results:
        x = qd.field(qd.f32, shape=COUNT, needs_grad=True)
        loss = qd.field(qd.f32, shape=(), needs_grad=True)
        x.from_numpy(np.linspace(0.1, 1.9, COUNT).astype(np.float32))

        @qd.kernel
        def shrink():
            for i in x:
                v, last = x[i], 0.0
                while v > 0.05:
                    last = v * v
                    v *= 0.7
                x[i] = v + last
            for _ in range(1):
                for i in range(COUNT):
                    loss[None] += x[i]

        with qd.ad.Tape(loss=loss):
            shrink()
        return [x.to_numpy(), x.grad.to_numpy()]

    assert_same_bits(run, fast_math=False)
