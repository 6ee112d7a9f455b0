"""Bare gradients of tasks that initialise what they overwrite, which needs no copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd

N = 4


@qd.data_oriented
class World:
    """Inputs, scratch, outputs."""

    def __init__(self) -> None:
        self.x = qd.field(qd.f64, N, needs_grad=True)
        self.s = qd.field(qd.f64, N, needs_grad=True)
        self.out = qd.field(qd.f64, N, needs_grad=True)
        self.loss = qd.field(qd.f64, (), needs_grad=True)


@qd.kernel
def iterate(w: qd.template()):
    for i in w.s:
        w.s[i] = 0.0
        for j in range(N):
            w.s[i] += w.x[j] * w.x[i]
            w.s[i] = qd.sin(w.s[i]) * w.s[i]
        w.out[i] = w.s[i] ** 2


@qd.kernel
def in_branches(w: qd.template()):
    for i in w.s:
        w.s[i] = 1.0
        for j in range(N):
            if w.x[j] > 0:
                w.s[i] = w.s[i] * w.x[j] + 1.0
        w.s[i] = qd.sqrt(w.s[i] + 2.0)
        w.out[i] = 1 / w.s[i]


@qd.kernel
def in_another_task(w: qd.template()):
    for i in w.out:
        w.out[i] = w.x[i] * w.x[i]
    for i in w.s:
        w.s[i] = w.out[i]
        w.s[i] *= w.s[i] * w.out[i]
        w.s[i] = w.s[i] ** 3 + w.x[i]


@qd.kernel
def serial(w: qd.template()):
    qd.loop_config(serialize=True)
    for i in range(N):
        w.s[0] = w.x[i]
        w.s[0] = w.s[0] * w.s[0]
        w.out[i] = qd.exp(w.s[0])


@qd.kernel
def in_each_iteration(w: qd.template()):
    for i in range(1):
        for j in range(N):
            w.s[j] = w.x[j]
            w.s[j] = w.s[j] * w.s[j]
            w.out[j] = w.s[j] * w.x[i]


@qd.kernel
def total(w: qd.template()):
    for i in range(N):
        w.loss[None] += (i + 1) * w.out[i] * w.out[i] + 0.5 * w.s[i] * w.s[i]


FINE = [iterate, in_branches, in_another_task, serial, in_each_iteration]


@pytest.mark.parametrize("kernel", FINE, ids=lambda kernel: kernel.name)
def test_the_gradient_is_that_of_a_tape(kernel: Any) -> None:
    w = World()
    w.x.from_numpy(np.array([0.7, -0.4, 1.2, 0.9]))
    with qd.ad.Tape(loss=w.loss, grad_check=[w.x]):
        kernel(w)
        total(w)
    wanted, scratch, outputs = w.x.grad.to_numpy(), w.s.to_numpy(), w.out.to_numpy()
    for array in (w.x, w.s, w.out):
        array.grad.fill(0.0)
    w.loss.grad[None] = 1.0
    kernel(w)
    total(w)
    total.grad(w)
    kernel.grad(w)
    assert w.x.grad.to_numpy() == pytest.approx(wanted, rel=1e-12)
    assert w.s.to_numpy().tolist() == scratch.tolist()
    assert w.out.to_numpy().tolist() == outputs.tolist()


def test_arrays_stay_as_they_are_where_the_program_trusts_them() -> None:
    w = World()
    w.x.fill(0.5)
    iterate(w)
    w.s.fill(7.0)
    w.out.grad.fill(1.0)
    iterate.grad.using(on_overwrite="trust")(w)
    assert w.s.to_numpy().tolist() == [7.0] * N


@qd.kernel
def before_it_is_stored(w: qd.template()):
    for i in w.s:
        w.out[i] = w.s[i] * w.x[i]
        w.s[i] = w.x[i]
        w.s[i] = w.s[i] * w.s[i]


@qd.kernel
def only_in_a_branch(w: qd.template()):
    for i in w.s:
        if w.x[i] > 0:
            w.s[i] = 1.0
        w.s[i] = w.s[i] * w.s[i] * w.x[i]


@qd.kernel
def by_another_task(w: qd.template()):
    for i in w.s:
        w.s[i] = w.x[i]
    for i in w.s:
        w.s[i] = w.s[i] * w.s[i]


@qd.kernel
def overwritten_later(w: qd.template()):
    for i in w.s:
        w.s[i] = w.x[i]
        for _ in range(3):
            w.s[i] = w.s[i] * w.s[i]
        w.out[i] = w.s[i]
    for i in w.s:
        w.s[i] = 0.0


@qd.kernel
def another_element(w: qd.template()):
    for _ in range(1):
        for j in range(N - 1):
            w.s[j] = w.x[j]
            w.s[j + 1] = w.s[j + 1] * w.s[j + 1]


NOT_FINE = [
    before_it_is_stored,
    only_in_a_branch,
    by_another_task,
    overwritten_later,
    another_element,
]


@pytest.mark.parametrize("kernel", NOT_FINE, ids=lambda kernel: kernel.name)
def test_what_was_there_before_matters(kernel: Any) -> None:
    w = World()
    kernel(w)
    with pytest.raises(qd.OctantsCompilationError, match="OCT301"):
        kernel.grad(w)
