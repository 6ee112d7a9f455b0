"""Contributions to adjoints that are zero where nothing depends on a value, however it is used."""

from __future__ import annotations

import re

import numpy as np

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
