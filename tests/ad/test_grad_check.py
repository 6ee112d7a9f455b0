"""``grad_check``: gradients against central differences."""

from __future__ import annotations

import numpy as np
import pytest

import octants as qd
from octants.ad.tapes import gradient_check
from tests.golden_files import check_golden


class World:
    def __init__(self) -> None:
        self.x = qd.field(qd.f64, 3, needs_grad=True)
        self.loss = qd.field(qd.f64, (), needs_grad=True)
        self.x.from_numpy(np.array([0.5, 1.0, 1.5]))

    @qd.kernel
    def f(self, factor: qd.f64):
        for i in self.x:
            self.x[i] = qd.sin(self.x[i]) * factor
        for i in self.x:
            self.loss[None] += self.x[i] ** 2


def test_right_gradients_pass_and_arrays_stay() -> None:
    w = World()
    with qd.ad.Tape(loss=w.loss, grad_check=[w.x]):
        w.f(2.0)
        w.f(0.5)
    first = 2 * np.sin([0.5, 1.0, 1.5])
    assert w.x.to_numpy() == pytest.approx(0.5 * np.sin(first))
    assert w.loss[None] == pytest.approx((first**2).sum() + (w.x.to_numpy() ** 2).sum())


def test_a_wrong_gradient_is_found() -> None:
    w = World()

    @qd.kernel
    def wrong():
        for i in w.x:
            w.loss[None] += qd.stop_grad(w.x[i]) * w.x[i]

    with pytest.raises(qd.OctantsAssertionError) as caught:
        with qd.ad.Tape(loss=w.loss, grad_check=[w.x]):
            wrong()
    assert str(caught.value).startswith("OCT318: the gradient of field of f64 at 0 is 0.5, but")
    assert w.loss[None] == pytest.approx(0.25 + 1 + 2.25)


def test_steps_are_those_of_the_type() -> None:
    x = qd.field(qd.f32, 2, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)
    x.fill(100)

    @qd.kernel
    def f():
        for i in x:
            loss[None] += qd.log(x[i])

    with qd.ad.Tape(loss=loss, grad_check=[x]):
        f()
    assert gradient_check._STEP["f32"] > gradient_check._STEP["f64"]


def test_what_cannot_be_checked() -> None:
    w = World()
    with pytest.raises(qd.OctantsRuntimeError) as caught:
        with qd.ad.Tape(loss=w.loss, grad_check=[w.x]):
            w.f(1.0)
            w.x.fill(1)
            w.f(1.0)
    check_golden("errors/OCT322_host_write", str(caught.value))
    with pytest.raises(qd.OctantsRuntimeError, match="OCT322"):
        qd.ad.Tape(loss=w.loss, grad_check=[qd.field(qd.f64, 1)])
