"""``debug="nan"``: the first NaN or infinity that a kernel stores is an error at its line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.options import make_options
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.devices import ON_GPU
from tests.golden_files import check_golden, without_lines

GPU = pytest.param("emulated GPU", marks=pytest.mark.skipif(ON_GPU, reason="a GPU is at hand"))


@pytest.fixture(autouse=True, params=["scalar", "lanes", GPU])
def runtime(request: Any) -> Iterator[None]:
    options: dict[str, Any] = {"debug": "nan", "log_level": "error"}
    if request.param == "emulated GPU":
        with emulated_gpu(total=1 << 26):
            qd.init(arch=qd.cuda, **options)
            yield
    else:
        qd.init(arch=qd.cpu, simd="always" if request.param == "lanes" else "never", **options)
        yield
    qd.reset()


@qd.kernel
def divide(x: qd.template(), by: qd.f64):
    for i, j in x:
        x[i, j] = x[i, j] / qd.cast(by - i - j, x.dtype)


@qd.kernel
def slopes(x: qd.template(), loss: qd.template()):
    for i in x:
        loss[None] += qd.asin(x[i])


@qd.kernel
def swing(x: qd.template(), loss: qd.template(), n: qd.i32):
    for i in x:
        v = x[i]
        for _ in range(n):
            v = v * v * 2.0
        loss[None] += v


@qd.kernel
def add(x: qd.template(), much: qd.f32):
    for _ in range(64):
        x[None] += much


@qd.kernel
def move(p: qd.template(), by: qd.f32):
    for i in p:
        p[i] += qd.Vector([0.0, by])


@qd.kernel
def reciprocal(x: qd.f32) -> qd.f32:
    return 1 / x


@qd.kernel
def forget(x: qd.template()):
    for i in x:
        x[i] = qd.math.inf


def error(function: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(qd.OctantsAssertionError, match="OCT446") as caught:
        function(*arguments)
        qd.sync()
    return without_lines(str(caught.value))


@pytest.mark.parametrize("dtype", [qd.f16, qd.f32, qd.f64], ids=str)
def test_a_quotient_that_is_infinite(dtype: Any) -> None:
    x = qd.field(dtype, shape=(5, 7))
    x.fill(1)
    divide(x, 100.0)
    text = error(divide, x, 9.0)
    assert "kernel `divide`: inf is stored in `x[3, 6]`" in text
    assert "x[i, j] = x[i, j] / " in text
    x.fill(0)
    assert "nan is stored in `x[3, 6]`" in error(divide, x, 9.0)
    x.fill(1)
    divide(x, 100.0)  # the launch after an error is sound
    qd.sync()


def test_a_gradient_that_is_infinite() -> None:
    x, loss = qd.field(qd.f32, shape=6, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)
    x.fill(0.5)
    x[4] = 1.0

    def differentiate() -> None:
        with qd.ad.Tape(loss=loss):
            slopes(x, loss)

    check_golden("errors/OCT446_not_finite", error(differentiate))
    x[4] = 0.25
    differentiate()
    assert np.allclose(x.grad.to_numpy(), 1 / np.sqrt(1 - x.to_numpy() ** 2), rtol=1e-5)


def test_a_gradient_that_overflows_in_a_loop() -> None:
    x, loss = qd.field(qd.f32, shape=3, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)
    x.from_numpy(np.array([0.25, 0.5, 0.25], np.float32))
    loss.grad[None] = 1e30
    swing(x, loss, 20)
    text = error(swing.grad, x, loss, 40)
    assert "kernel `swing`: inf is added to the gradient of `x[1]`" in text
    assert "v = x[i]" in text


def test_a_sum_that_overflows() -> None:
    x = qd.field(qd.f32, ())
    add(x, 1e36)
    assert np.isclose(x[None], 64e36)
    assert "inf is stored in `x`" in error(add, x, 5e37)
    assert "nan is added to `x`" in error(add, x, float("nan"))


def test_components_and_results() -> None:
    p = qd.Vector.field(2, qd.f32, shape=4)
    p.fill(3e38)
    assert "inf is stored in `p[0][1]`" in error(move, p, 3e38)
    assert reciprocal(4.0) == 0.25
    assert "-inf is stored in what the kernel returns" in error(reciprocal, -0.0)


def test_constants_and_integers_are_not_checked() -> None:
    x, n = qd.field(qd.f32, shape=4), qd.field(qd.i32, shape=4)
    forget(x)

    @qd.kernel
    def count() -> qd.i32:
        for i in n:
            n[i] = 0x7F800000
        return n[3]

    assert count() == 0x7F800000
    assert np.isinf(x.to_numpy()).all()


def test_the_option() -> None:
    chosen = make_options({"debug": "nan"}, {})
    assert chosen.checks_finite
    assert not chosen.in_debug_mode
    assert not chosen.checks_bounds
    assert make_options({}, {"OCTANTS_DEBUG": "nan"}).checks_finite
    assert make_options({"debug": True}, {}).in_debug_mode
    assert not make_options({"debug": True}, {}).checks_finite
    with pytest.raises(qd.OctantsRuntimeError, match='bool or "nan"'):
        make_options({"debug": "inf"}, {})
