"""Minimal cases of what the fuzzer found; each was wrong, or refused, once."""

from __future__ import annotations

import numpy as np

import octants as qd


def test_a_value_between_two_loops_that_depends_on_an_argument() -> None:
    @qd.kernel
    def kernel(x: qd.types.ndarray(qd.f64, 1), m: qd.i32):
        for _ in range(3):
            pass
        n = m + 1
        for _ in range(12):
            x[3] += n

    x = np.zeros(4)
    kernel(x, 4)
    assert x[3] == 60


def test_a_loop_in_a_condition_that_folds_is_serial() -> None:
    x = qd.field(qd.i32, shape=4)

    @qd.kernel
    def folded():
        if 1 == 1:
            for i in range(4):
                x[i] += 1

    @qd.kernel
    def static():
        if qd.static(1 == 1):
            for i in range(4):
                x[i] += 1

    folded()
    static()
    assert x.to_numpy().tolist() == [2, 2, 2, 2]
    assert "parallel_for" not in folded.inspect().stages["frontend"]
    assert "parallel_for" in static.inspect().stages["frontend"]


def test_an_atomic_minimum_beside_a_load_that_is_overwritten() -> None:
    x = qd.field(qd.f64, shape=4, needs_grad=True)
    least = qd.field(qd.f64, shape=(), needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def kernel():
        for i in x:
            qd.atomic_min(least[None], 2 * x[i])
            x[i] = qd.sin(x[i])

    @qd.kernel
    def total():
        for i in x:
            loss[None] += (i + 1) * x[i]
        loss[None] += 10 * least[None]

    start = np.array([0.1, 0.2, -0.3, 0.4])
    x.from_numpy(start)
    least.fill(5)
    with qd.ad.Tape(loss=loss):
        kernel()
        kernel()
        total()
    once = np.sin(start)
    expected = np.cos(once) * np.cos(start) * np.arange(1, 5)
    expected[2] += 20
    np.testing.assert_allclose(x.grad.to_numpy(), expected, rtol=1e-13)


def test_two_arguments_that_are_one_array() -> None:
    @qd.kernel
    def kernel(
        a: qd.types.ndarray(qd.f64, 1),
        b: qd.types.ndarray(qd.f64, 1),
        y: qd.types.ndarray(qd.f64, 1),
    ):
        for i in range(4):
            a[i] = 2 * b[i]
            y[i] = b[i]

    x, y = np.ones(4), np.zeros(4)
    kernel(x, x, y)
    assert y.tolist() == [2, 2, 2, 2]


def test_the_adjoint_of_a_number_of_f16_that_a_loop_reads_is_summed_in_f32() -> None:
    x = qd.field(qd.f32, shape=2, needs_grad=True)
    y = qd.field(qd.f32, shape=500, needs_grad=True)

    @qd.kernel
    def spread():
        half = qd.cast(x[1], qd.f16)
        for i in y:
            y[i] = half * (i % 3)

    x.fill(0.3)
    seeds = np.linspace(-1, 1.2, 500).astype(np.float32)
    y.grad.from_numpy(seeds)
    spread()
    spread.grad()
    expected = (seeds.astype(np.float64) * (np.arange(500) % 3)).sum()
    np.testing.assert_allclose(x.grad[1], expected, rtol=1e-5)


def test_a_number_of_work_items_that_changes_on_a_tape() -> None:
    """A GPU took the bounds of one part of a kernel, from another part, for constants."""
    for numbers in ((2, 0), (3, 0, 1), (1, 4, 2)):
        x = qd.ndarray(qd.f64, shape=(5,), needs_grad=True)
        n = qd.field(qd.i32, shape=())

        @qd.kernel
        def square(x: qd.types.ndarray(qd.f64, 1), n: qd.template()):
            for i in range(n[None]):
                x[i] = x[i] * x[i]

        values = np.arange(1.0, 6.0)
        x.from_numpy(values)
        with qd.ad.Tape():
            for number in numbers:
                n[None] = number
                square(x, n)
            x.grad.fill(1.0)
        powers = 2.0 ** np.array([sum(i < number for number in numbers) for i in range(5)])
        np.testing.assert_allclose(x.grad.to_numpy(), powers * values ** (powers - 1))


def test_a_loop_without_iterations_divides_by_its_counter() -> None:
    x, f = (qd.field(qd.f64, shape=2, needs_grad=True) for _ in range(2))

    @qd.kernel
    def kernel(n: qd.i32):
        for i in range(1, 1):
            x[i] = f[n // i]

    x.fill(3.0)
    kernel(1)
    kernel.grad(1)
    assert x.to_numpy().tolist() == [3.0, 3.0]
