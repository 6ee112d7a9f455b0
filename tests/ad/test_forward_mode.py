"""Forward mode on the host side."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.devices import DISCRETE, shares_memory
from tests.golden_files import check_golden


class World:
    def __init__(self) -> None:
        self.x = qd.field(qd.f64, 3, needs_dual=True)
        self.y = qd.field(qd.f64, 3, needs_dual=True)
        self.s = qd.field(qd.f64, (), needs_dual=True)
        self.loss = qd.field(qd.f64, 2, needs_dual=True)
        self.plain = qd.field(qd.f64, 3)
        self.x.from_numpy(np.array([1.0, 2.0, 3.0]))

    def used(self) -> Any:
        """A field without a dual that has been used."""
        self.plain = qd.field(qd.f64, 3)
        self.plain.fill(0)
        return self.plain

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


def overwrite_by(way: str, x: Any) -> None:
    """Write sevens to all elements of a field or ndarray of vectors of two, from the host."""
    elements = list(np.ndindex(x.shape))
    values = np.full((*x.shape, *x.element_shape), 7.0)
    if way == "fill":
        x.fill(7)
    elif way == "from_numpy":
        x.from_numpy(values)
    elif way == "from_torch":
        x.from_torch(pytest.importorskip("torch").tensor(values))
    elif way == "from_dlpack":
        x.from_dlpack(values)
    elif way == "copy_from":
        other = qd.ndarray(x.dtype, x.shape) if not x.element_shape else None
        other = other or qd.Vector.ndarray(2, x.dtype, x.shape)
        other.fill(7)
        x.copy_from(other)
    elif way == "element":
        for index in elements:
            x[index] = 7 if not x.element_shape else [7, 7]
    elif way == "component":
        for index in elements:
            for k in range(x.element_shape[0]):
                x[index][k] = 7
    elif way == "scalar field":
        for index in elements:
            for k in range(x.element_shape[0]):
                x.get_scalar_field(k)[index] = 7
    else:
        x.to_numpy(copy=False)[...] = 7
        x.mark_written()


WAYS = ("fill", "from_numpy", "from_torch", "from_dlpack", "copy_from", "element")
MADE = {
    "field": lambda: qd.field(qd.f64, (2, 3), needs_dual=True),
    "field of vectors": lambda: qd.Vector.field(2, qd.f64, (2, 3), needs_dual=True),
    "0-D field": lambda: qd.field(qd.f64, (), needs_dual=True),
    "ndarray": lambda: qd.ndarray(qd.f64, (2, 3), needs_dual=True),
    "ndarray of vectors": lambda: qd.Vector.ndarray(2, qd.f64, (2, 3), needs_dual=True),
    "member": lambda: qd.types.struct(v=qd.f64, w=qd.f64).field((2, 3), needs_dual=True).v,
}


@pytest.mark.parametrize("kind", MADE)
def test_a_host_write_ends_the_tangent(kind: str) -> None:
    """As it ends the adjoint; a parameter's too, once a launch has used it."""
    x = MADE[kind]()
    first = qd.field(qd.f64, (), needs_dual=True)
    loss = qd.field(qd.f64, (), needs_dual=True)
    width = len(x.element_shape)
    size = int(np.prod((*x.shape, *x.element_shape)))

    @qd.kernel
    def scale(x: qd.Tensor):
        for I in qd.grouped(x):
            x[I] = first[None] * x[I]

    @qd.kernel
    def total(x: qd.Tensor):
        for I in qd.grouped(x):
            loss[None] += qd.Vector([1.0, 1.0]).dot(x[I]) if qd.static(width) else x[I]

    ways = [*WAYS, *(["component"] if width else []), *([] if DISCRETE else ["view"])]
    if kind == "field of vectors":
        ways.append("scalar field")
    for way, is_parameter in itertools.product(ways, (False, True)):
        x.fill(1)
        first[None] = 2
        param, seed = (x, [1.0] * size) if is_parameter else (first, [1.0])
        with qd.ad.FwdMode(loss=loss, param=param, seed=seed):
            scale(x)
            total(x)
            assert loss.dual[None] == size * (2 if is_parameter else 1)
            overwrite_by(way, x)
            total(x)
            assert loss.dual[None] == size * (2 if is_parameter else 1), way
            scale(x)
            total(x)
            after = loss.dual[None] - size * (2 if is_parameter else 1)
        assert after == (0 if is_parameter else 7 * size), way


def test_a_parameter_that_is_set_in_the_body_keeps_its_direction() -> None:
    w = World()
    with qd.ad.FwdMode(loss=w.loss, param=w.x, seed=[1, 1, 1]):
        w.x.fill(5)
        w.x[0] = 4
        w.f()
    assert w.loss.dual[0] == 2 * (4 + 5 + 5)


def test_what_a_parameter_is_copied_to_depends_on_it() -> None:
    w = World()
    with qd.ad.FwdMode(loss=w.loss, param=w.x, seed=[1, 1, 1]):
        w.y.copy_from(w.x)
        w.x.fill(5)  # a copy uses it as a launch does
        w.accumulate()
        w.f()
    assert w.loss.dual[0] == 3


def test_a_host_write_ends_the_tangent_of_a_gradient() -> None:
    x = qd.field(qd.f64)
    qd.root.dense(qd.i, 2).place(x, x.grad, x.dual, x.grad.dual)
    with qd.ad.FwdMode(loss=x, param=x, seed=[1, 1]):
        x.grad.dual.fill(3)
        x.grad[1] = 0
        assert x.grad.dual.to_numpy().tolist() == [3, 0]
        x.grad.copy_from(x)
        assert x.grad.dual.to_numpy().tolist() == [1, 1]


@shares_memory
def test_unannounced_writes_by_torch_are_an_error() -> None:
    pytest.importorskip("torch")
    w = World()
    shared = w.y.to_torch(copy=False)
    with qd.ad.FwdMode(loss=w.loss, param=w.x, seed=[1, 1, 1]):
        w.square()
        shared[0] = 7
        with pytest.raises(qd.OctantsRuntimeError, match="OCT320"):
            w.accumulate()
        w.y.mark_written(0)
        w.accumulate()
    assert w.loss.dual[0] == 2 * (2 + 3)


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


@qd.kernel
def double(x: qd.Tensor, y: qd.Tensor):
    for i in range(3):
        y[i] = 2.0 * x[i]


@pytest.mark.parametrize("given", [{}, {"needs_grad": True}])
def test_a_tangent_that_ends_at_an_array_without_a_dual_is_reported(given: Any) -> None:
    w = World()
    middle = qd.field(qd.f64, 3, **given)
    with qd.ad.FwdMode(loss=w.y, param=w.x, seed=[1, 1, 1]):
        double(w.x, middle)
        with pytest.warns(qd.OctantsWarning, match="the tangent ends at `y`.*`needs_dual=True`"):
            double(middle, w.y)
    assert w.y.dual.to_numpy().tolist() == [0, 0, 0]


@pytest.mark.parametrize("form", ["no_grad", "overwritten", "from a constant"])
def test_a_tangent_that_does_not_end_is_not_reported(
    form: str, recwarn: pytest.WarningsRecorder
) -> None:
    w = World()
    middle = qd.field(qd.f64, 3)
    with qd.ad.FwdMode(loss=w.y, param=w.x, seed=[1, 1, 1]):
        if form == "no_grad":
            qd.ad.no_grad(double)(w.x, middle)
        elif form == "overwritten":
            double(w.x, middle)
            middle.fill(3.0)
        else:
            double(w.plain, middle)
        double(middle, w.y)
        double(w.x, w.y)
    assert w.y.dual.to_numpy().tolist() == [2, 2, 2]
    assert not recwarn.list


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
    "OCT317_used_before": lambda w: qd.ad.FwdMode(loss=w.used(), param=w.s),
    "OCT317_ndarray": lambda w: qd.ad.FwdMode(loss=w.loss, param=qd.ndarray(qd.f64, 2)),
    "OCT317_integers": lambda w: qd.ad.FwdMode(loss=qd.field(qd.i32, 2), param=w.s),
    "OCT317_kernel": lambda w: qd.ad.FwdMode(loss=w.f, param=w.s),
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
