"""A gradient ends at an array that has none, whatever the optimiser makes of the kernel."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import octants as qd

pytestmark = pytest.mark.filterwarnings("ignore:the (gradient|tangent) ends")


@pytest.fixture(params=["field", "ndarray", "numpy"])
def plain(request: Any) -> Any:
    """An array without a gradient."""
    if request.param == "numpy":
        return np.zeros(3)
    return qd.field(qd.f64, 3) if request.param == "field" else qd.ndarray(qd.f64, 3)


@pytest.fixture
def xy() -> Any:
    x, y = (qd.field(qd.f64, 3, needs_grad=True, needs_dual=True) for _ in range(2))
    x.from_numpy(np.array([2.0, 3.0, 4.0]))
    return x, y


@qd.kernel
def in_one_loop(x: qd.Tensor, plain: qd.Tensor, y: qd.Tensor):
    for i in range(3):
        plain[i] = 2 * x[i]
        y[i] = plain[i] * x[i]


@qd.kernel
def in_two_loops(x: qd.Tensor, plain: qd.Tensor, y: qd.Tensor):
    for i in range(3):
        plain[i] = 2 * x[i]
    for i in range(3):
        y[i] = plain[i] * x[i]


@qd.kernel
def in_a_serial_loop(x: qd.Tensor, plain: qd.Tensor, y: qd.Tensor):
    for i in range(3):
        for _ in range(2):
            plain[i] = 2 * x[i]
            y[i] = plain[i] * x[i]


@qd.kernel
def in_a_branch(x: qd.Tensor, plain: qd.Tensor, y: qd.Tensor):
    for i in range(3):
        if x[i] > 0:
            plain[i] = 2 * x[i]
            if x[i] > 1:
                y[i] = plain[i] * x[i]


@qd.kernel
def by_an_atomic(x: qd.Tensor, plain: qd.Tensor, y: qd.Tensor):
    for i in range(3):
        plain[i] = 0.0
        plain[i] += 2 * x[i]
        y[i] = plain[i] * x[i]


@qd.kernel
def fill(x: qd.Tensor, plain: qd.Tensor):
    for i in range(3):
        plain[i] = 2 * x[i]


@qd.kernel
def use(x: qd.Tensor, plain: qd.Tensor, y: qd.Tensor):
    for i in range(3):
        y[i] = plain[i] * x[i]


def in_two_kernels(x: Any, plain: Any, y: Any) -> None:
    fill(x, plain)
    use(x, plain, y)


KERNELS = [in_one_loop, in_two_loops, in_a_serial_loop, in_a_branch, by_an_atomic]
ALL = [*KERNELS, in_two_kernels]


@pytest.mark.parametrize("kernel", ALL, ids=lambda k: getattr(k, "name", "in_two_kernels"))
def test_reverse_mode(kernel: Any, plain: Any, xy: Any) -> None:
    x, y = xy
    with qd.ad.Tape():
        kernel(x, plain, y)
        y.grad.fill(1)
    assert y.to_numpy().tolist() == [8, 18, 32]
    assert x.grad.to_numpy().tolist() == [4, 6, 8]


@pytest.mark.parametrize("kernel", ALL, ids=lambda k: getattr(k, "name", "in_two_kernels"))
def test_forward_mode(kernel: Any, plain: Any, xy: Any) -> None:
    x, y = xy
    with qd.ad.FwdMode(loss=y, param=x, seed=[1.0, 1.0, 1.0]):
        kernel(x, plain, y)
    assert y.dual.to_numpy().tolist() == [4, 6, 8]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_bare_gradient(kernel: Any, xy: Any) -> None:
    x, y = xy
    plain = qd.field(qd.f64, 3)
    kernel(x, plain, y)
    y.grad.fill(1)
    kernel.grad(x, plain, y)
    assert x.grad.to_numpy().tolist() == [4, 6, 8]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("has", ["grad", "dual"])
def test_each_mode_by_itself(kernel: Any, has: str, xy: Any) -> None:
    """An array with a gradient and no dual carries the one and ends the other."""
    x, y = xy
    middle = qd.field(qd.f64, 3, **{f"needs_{has}": True})
    ended, carried = [4, 6, 8], [8, 12, 16]
    with qd.ad.Tape():
        kernel(x, middle, y)
        y.grad.fill(1)
    assert x.grad.to_numpy().tolist() == (carried if has == "grad" else ended)
    with qd.ad.FwdMode(loss=y, param=x, seed=[1.0, 1.0, 1.0]):
        kernel(x, middle, y)
    assert y.dual.to_numpy().tolist() == (carried if has == "dual" else ended)


def test_locals_of_the_kernel_carry_gradients_between_its_loops(xy: Any) -> None:
    x, y = xy

    @qd.kernel
    def kernel():
        total = 0.0
        for i in range(3):
            total += x[i]
        scale = total * 2
        for i in range(3):
            y[i] = scale * x[i]

    with qd.ad.Tape():
        kernel()
        y.grad.fill(1)
    assert x.grad.to_numpy().tolist() == [2 * (9 + 9)] * 3


def test_integers_carry_none_as_ever(xy: Any) -> None:
    x, y = xy
    count = qd.field(qd.i32, 3)

    @qd.kernel
    def kernel():
        for i in range(3):
            count[i] = qd.cast(x[i], qd.i32)
            y[i] = count[i] * x[i]

    with qd.ad.Tape():
        kernel()
        y.grad.fill(1)
    assert x.grad.to_numpy().tolist() == [2, 3, 4]


def test_the_value_is_still_not_loaded_again(xy: Any) -> None:
    """What is stored and read back costs no load, and what overwrites it later no error."""
    x, y = xy
    plain = qd.field(qd.f64, 3)

    @qd.kernel
    def kernel():
        for i in range(3):
            plain[i] = qd.sin(x[i])
            y[i] = plain[i] * x[i]
            plain[i] = 0.0

    kernel()
    y.grad.fill(1)
    kernel.grad()
    assert x.grad.to_numpy() == pytest.approx(np.sin([2.0, 3.0, 4.0]))
    text = kernel.inspect().stages["simplify"]
    assert f"load<@{'plain'}" not in text
    assert "bitcast" in text


def test_kernels_without_derivatives_are_simplified_as_before() -> None:
    plain, other = qd.field(qd.f64, 3), qd.field(qd.f64, 3)

    @qd.kernel
    def kernel():
        for i in range(3):
            plain[i] = other[i] + 1.0
            other[i] = plain[i] * 2.0

    text = kernel.inspect().stages["simplify"]
    assert "load<@plain" not in text
    assert "bitcast" not in text


def test_gradients_of_arguments_end_there_too() -> None:
    plain = qd.field(qd.f64, ())

    @qd.kernel
    def kernel(a: qd.f64) -> qd.f64:
        plain[None] = 2 * a
        return plain[None] * a

    assert kernel(3.0) == 18
    assert kernel.grad.using(argument_gradients=True)(3.0) == {"a": 6.0}


def test_a_warning_tells_of_it(xy: Any) -> None:
    x, y = xy
    plain = qd.field(qd.f64, 3)
    for kernel in KERNELS:
        with pytest.warns(qd.OctantsWarning, match=f"ends at `plain`.*`{kernel.name}`"):
            with qd.ad.Tape():
                kernel(x, plain, y)


def test_no_warning_without_a_gradient_that_ends(xy: Any) -> None:
    x, y = xy
    plain = qd.field(qd.f64, 3)

    @qd.kernel
    def constant():
        for i in range(3):
            plain[i] = 2.0
            y[i] = plain[i] * x[i]

    @qd.kernel
    def unread():
        for i in range(3):
            plain[i] = x[i]
            y[i] = 3.0 * x[i]

    @qd.kernel
    def stopped():
        for i in range(3):
            plain[i] = x[i]
            y[i] = qd.stop_grad(x[i]) * x[i]

    for kernel in (constant, unread, stopped):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with qd.ad.Tape():
                kernel()
