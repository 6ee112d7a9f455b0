"""Contributions to adjoints that are zero where nothing depends on a value, however it is used."""

from __future__ import annotations

import re

import numpy as np
import pytest

import octants as qd


def test_guards_are_around_sums() -> None:
    """A product is part of the sum that it adds to, and the guard chooses between two sums."""
    qd.init(arch=qd.cpu, offline_cache=False, log_level="error")
    x, w, y = (qd.field(qd.f32, 3, needs_grad=True) for _ in "xwy")

    @qd.kernel
    def kernel():
        for i in x:
            a = x[i] * w[i]
            b = x[i] * y[i]
            c = x[i] * 3.0
            y[i] = qd.select(w[i] > 0.0, a, b) + qd.select(y[i] > 0.0, b, c)

    text = kernel.inspect(mode="reverse").stages["reverse"]
    sums = re.findall(r"(%\d+): f32 = fma\(%\d+, %\d+, (%\d+)\)", text)
    guarded = [f"select({{}}, {found}, {before})" for found, before in sums]
    lines = [re.sub(r"select\(%\d+", "select({}", line) for line in text.splitlines()]
    assert sum(any(each in line for line in lines) for each in guarded) >= 2


def test_an_infinity_on_the_other_side_contributes_nothing() -> None:
    qd.init(arch=qd.cpu, offline_cache=False, log_level="error")
    x, w, y = (qd.field(qd.f32, 3, needs_grad=True) for _ in "xwy")
    w.from_numpy(np.array([0.0, 2.0, np.inf], np.float32))
    x.from_numpy(np.array([1.0, 2.0, 3.0], np.float32))

    @qd.kernel
    def kernel():
        for i in x:
            # Both are functions of x[i]; those of the other side have infinite derivatives.
            large = x[i] * (1.0 / w[i]) + x[i] * w[i]
            y[i] = qd.select(w[i] == 2.0, large, 5.0 * x[i])

    kernel()
    y.grad.fill(1.0)
    kernel.grad()
    assert x.grad.to_numpy().tolist() == [5.0, 2.5, 5.0]


@pytest.mark.parametrize(("trips", "found"), [(0, 0.0), (3, 0.0), (9, 7.0)])
def test_what_no_iteration_uses_contributes_nothing(trips: int, found: float) -> None:
    """Passes move it before the loop, where its derivative may be an infinity."""
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False, log_level="error")
    x, y = (qd.field(qd.f64, 4, needs_grad=True) for _ in "xy")

    @qd.kernel
    def loaded_in_the_branch(trips: qd.i32):
        for i in x:
            total = 0.0
            for k in range(trips):
                if k == 7:
                    total += k * (x[i] + 1.0 / x[i] + qd.sqrt(x[i]) ** 2 - 1.0 / x[i])
            y[i] = total

    @qd.kernel
    def loaded_before(trips: qd.i32):
        for i in x:
            total, root, value = 0.0, x[i] ** 3, x[i]
            for k in range(trips):
                if k == 7:
                    total += k * (qd.log(value) + root / 3.0 + qd.log(value)) / 3.0
            y[i] = total

    @qd.kernel
    def loop_that_may_not_run(trips: qd.i32):
        for i in x:
            total, value = 0.0, x[i]
            for k in range(trips - 3):
                total += qd.select(k == 0, 7.0, 0.0) * qd.log(value)
            y[i] = total

    expected = {
        loaded_in_the_branch: 2.0 * found,
        loaded_before: found,
        loop_that_may_not_run: found,
    }
    for kernel, derivative in expected.items():
        x.from_numpy(np.array([0.0, 1.0, np.inf, np.nan]))
        kernel(trips)
        y.grad.fill(1.0)
        x.grad.fill(0.0)
        kernel.grad(trips)
        gradient = x.grad.to_numpy()
        np.testing.assert_allclose(gradient[1], derivative, rtol=1e-12)
        if found == 0.0:
            assert gradient.tolist() == [0.0] * 4
