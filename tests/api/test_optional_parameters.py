"""Parameters ``T | None``: arrays or None, which is known at compile time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Optional

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(log_level="error")
    yield
    qd.reset()


@qd.kernel
def add_any(x: qd.Tensor | None, out: qd.types.ndarray(qd.f64, 1)):
    for i in range(3):
        if qd.static(x is not None):
            out[i] += x[i]
        else:
            out[i] += 100.0


@qd.kernel
def add_imported(x: Optional[qd.Tensor], out: qd.types.ndarray(qd.f64, 1)):  # noqa: UP045
    for i in range(3):
        out[i] += qd.static(100.0 if x is None else 0.0)
        if qd.static(x is not None):
            out[i] += x[i]


@qd.kernel
def add_array(x: qd.types.ndarray(ndim=1) | None, out: qd.types.NDArray[qd.f64, 1]):
    for i in range(3):
        if qd.static(x is None):
            out[i] += 100.0
        else:
            out[i] += x[i]


@qd.kernel
def add_template(x: qd.Template | None, out: qd.types.NDArray[qd.f64, 1]):
    for i in range(3):
        if qd.static(x is not None):
            out[i] += x[i]
        else:
            out[i] += 100.0


@qd.kernel
def add_if_true(x: qd.Tensor | None, out: qd.types.NDArray[qd.f64, 1]):
    for i in range(3):
        if qd.static(x):
            out[i] += x[i]
        out[i] += 50.0 if qd.static(not x) else 0.0
        if qd.static(not (x and True)):
            out[i] += 50.0


def arrays() -> list[Any]:
    made = [qd.field(qd.f32, 3), qd.ndarray(qd.f64, 3)]
    for number, array in enumerate(made):
        array.fill(number + 1)
    return made


@pytest.mark.parametrize("add", [add_any, add_imported, add_array, add_template, add_if_true])
def test_none_or_an_array(add: Any) -> None:
    out = np.zeros(3)
    given = [None, *arrays()]
    if add is not add_template:
        given += [np.full(3, 4, np.float32), np.full(3, 5.0)]
    for _ in range(2):
        for x in given:
            add(x, out)
    once = 100 + 1 + 2 + (4 + 5) * (add is not add_template)
    assert out.tolist() == [2 * once] * 3


@qd.kernel
def total(x: qd.types.ndarray(dtype=qd.math.vec3, ndim=1) | None = None) -> qd.f32:
    result = 0.0
    if qd.static(x is not None):
        for i in x:
            result += x[i].sum()
    return result


def test_elements_and_defaults() -> None:
    ones = np.ones((4, 3), np.float32)
    assert [total(), total(ones), total(None), total(ones[:2])] == [0, 12, 0, 6]
    with pytest.raises(qd.OctantsArgumentError, match="argument `x`"):
        total(np.ones(3, np.float32))


@dataclasses.dataclass(frozen=True)
class Body:
    mass: qd.types.NDArray[qd.f32, 1]
    drag: qd.types.NDArray[qd.f32, 1] | None


@qd.func
def resistance(drag: qd.Tensor | None, i: qd.i32):
    result = 0.5
    if qd.static(drag is not None):
        result = drag[i]
    return result


@qd.kernel
def weigh(body: Body, loss: qd.template()):
    for i in body.mass:
        loss[None] += body.mass[i] ** 2 * resistance(body.drag, i)


def test_members_functions_and_gradients() -> None:
    mass, drag = (qd.ndarray(qd.f32, 2, needs_grad=True) for _ in range(2))
    loss = qd.field(qd.f32, (), needs_grad=True)
    mass.fill(3)
    drag.fill(2)
    with qd.ad.Tape(loss):
        weigh(Body(mass, None), loss)
        weigh(Body(mass, drag), loss)
    assert loss[None] == 2 * 9 * (0.5 + 2)
    assert mass.grad.to_numpy().tolist() == [6 * 2.5] * 2
    assert drag.grad.to_numpy().tolist() == [9.0] * 2


def test_numbers_cannot_be_optional() -> None:
    def kernel(x: float | None):
        pass

    with pytest.raises(qd.OctantsSyntaxError, match=r"`float \| None`, which kernels cannot use"):
        qd.kernel(kernel)
