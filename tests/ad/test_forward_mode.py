"""Forward mode on the host side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.golden_files import check_golden


class World:
    def __init__(self) -> None:
        self.x = qd.field(qd.f64, 3, needs_dual=True)
        self.y = qd.field(qd.f64, 3, needs_dual=True)
        self.s = qd.field(qd.f64, (), needs_dual=True)
        self.loss = qd.field(qd.f64, 2, needs_dual=True)
        self.plain = qd.field(qd.f64, 3)
        self.x.from_numpy(np.array([1.0, 2.0, 3.0]))

    @qd.kernel
    def f(self):
        for i in self.x:
            self.loss[0] += self.x[i] ** 2
            self.loss[1] += self.x[i] * self.s[None]

    @qd.kernel
    def square(self):
        for i in self.x:
            self.y[i] = self.x[i] * self.x[i]

    @qd.kernel
    def accumulate(self):
        for i in self.x:
            self.loss[0] += self.y[i]


def test_jacobian_vector_product() -> None:
    w = World()
    w.s[None] = 10
    with qd.ad.FwdMode(loss=w.loss, param=w.x, seed=[1.0, 0.0, 2.0]):
        w.f()
    assert w.loss.dual.to_numpy().tolist() == [2 * 1 + 2 * 2 * 3, 10 + 20]
    assert w.x.dual.to_numpy().tolist() == [0, 0, 0]
    assert w.loss.to_numpy().tolist() == [14, 60]


def test_the_seed_of_one_element_is_one() -> None:
    w = World()
    with qd.ad.FwdMode(loss=[w.loss], param=w.s):
        w.f()
    assert w.loss.dual.to_numpy().tolist() == [0, 6]


def test_several_parameters() -> None:
    w = World()
    w.s[None] = 10
    with qd.ad.FwdMode(loss=w.loss, param=[w.x, w.s], seed=[[1, 0, 0], [1]]):
        w.f()
    assert w.loss.dual.to_numpy().tolist() == [2, 10 + 6]


def test_duals_are_cleared_before() -> None:
    w = World()
    for _ in range(2):
        w.loss.fill(0)
        with qd.ad.FwdMode(loss=w.loss, param=w.x, seed=[1, 0, 0]):
            w.f()
        assert w.loss.dual[0] == 2
    with qd.ad.FwdMode(loss=w.loss, param=w.x, seed=[1, 0, 0], clear_gradients=False):
        w.f()
    assert w.loss.dual[0] == 4


def test_through_several_launches_and_host_writes() -> None:
    w = World()
    with qd.ad.FwdMode(loss=w.loss, param=w.x, seed=[1, 1, 1]):
        w.square()
        w.accumulate()
        w.y.fill(7)
        w.accumulate()
        w.square()
        w.y[0] = 1
        w.accumulate()
    assert w.loss.dual[0] == 2 * (1 + 2 + 3) + 2 * (2 + 3)


def test_copy_from_copies_the_dual() -> None:
    w = World()
    with qd.ad.FwdMode(loss=w.loss, param=w.x, seed=[1, 1, 1]):
        w.y.copy_from(w.x)
        w.accumulate()
    assert w.loss.dual[0] == 3


def test_no_grad_runs_without_tangents() -> None:
    w = World()
    with qd.ad.FwdMode(loss=w.loss, param=w.x, seed=[1, 1, 1]):
        qd.ad.no_grad(w.f)()
    assert w.loss.dual.to_numpy().tolist() == [0, 0]
    assert w.loss[0] == 14


def test_ndarrays() -> None:
    @qd.kernel
    def cube(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 3

    x, y = (qd.ndarray(qd.f64, 2, needs_dual=True) for _ in range(2))
    x.fill(2)
    with qd.ad.FwdMode(loss=y, param=x, seed=[1, 2]):
        cube(x, y)
    assert y.dual.to_numpy().tolist() == [12, 24]


def test_the_mode_ends_with_its_body() -> None:
    w = World()
    with pytest.raises(KeyError), qd.ad.FwdMode(loss=w.loss, param=w.x, seed=[1, 0, 0]):
        raise KeyError
    w.f()
    assert w.loss.dual.to_numpy().tolist() == [0, 0]
    assert w.x.dual.to_numpy().tolist() == [0, 0, 0]


def nested(w: World) -> None:
    with qd.ad.FwdMode(loss=w.loss, param=w.s), qd.ad.FwdMode(loss=w.loss, param=w.s):
        pass


ERRORS: dict[str, Callable[[World], Any]] = {
    "OCT310_nested": nested,
    "OCT316_missing_seed": lambda w: qd.ad.FwdMode(loss=w.loss, param=w.x),
    "OCT316_short_seed": lambda w: qd.ad.FwdMode(loss=w.loss, param=w.x, seed=[1.0]),
    "OCT316_number_of_seeds": lambda w: qd.ad.FwdMode(loss=w.loss, param=[w.x, w.s], seed=[[1.0]]),
    "OCT317_loss_without_dual": lambda w: qd.ad.FwdMode(loss=w.plain, param=w.s),
    "OCT317_parameter_without_dual": lambda w: qd.ad.FwdMode(loss=w.loss, param=w.plain),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error(name: str) -> None:
    with pytest.raises(qd.OctantsRuntimeError) as caught:
        ERRORS[name](World())
    check_golden(f"errors/{name}", str(caught.value))


# -- clearing -------------------------------------------------------------------------------------


def test_clear_all_gradients() -> None:
    x = qd.field(qd.f64, 2, needs_grad=True, needs_dual=True)
    a = qd.ndarray(qd.f64, 2, needs_grad=True)
    for array in (x, x.grad, x.dual, a.grad):
        array.fill(3)
    qd.ad.clear_all_gradients()
    assert [float(array[0]) for array in (x, x.grad, x.dual, a.grad)] == [3, 0, 3, 0]
    qd.ad.clear_all_gradients(qd.types.enums.SNodeGradType.DUAL)
    assert x.dual[0] == 0
    qd.ad.clear_all_gradients(qd.types.enums.SNodeGradType.PRIMAL)
    assert x[0] == 0
