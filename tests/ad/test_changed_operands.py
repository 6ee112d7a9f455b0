"""A bare gradient notices that its operands were written after the kernel's last launch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.golden_files import check_golden

N = 4
START = np.array([0.5, 1.5, -2.0, 3.0])


@qd.kernel
def square(x: qd.Tensor, y: qd.Tensor):
    for i in range(N):
        y[i] = x[i] * x[i]


@qd.kernel
def double(x: qd.Tensor):
    for i in range(N):
        x[i] = 2 * x[i]


@qd.kernel
def step(x: qd.Tensor, t: qd.i32):
    for i in range(N):
        x[t + 1, i] = x[t, i] * x[t, i]


@qd.kernel
def clear_row(x: qd.Tensor, t: qd.i32):
    for i in range(N):
        x[t, i] = 0.0


def make(kind: str, *shape: int) -> Any:
    make_one = qd.field if kind == "field" else qd.ndarray
    made = make_one(qd.f64, shape, needs_grad=True)
    made.from_numpy(np.broadcast_to(START, shape).copy())
    return made


@pytest.fixture(params=["field", "ndarray"])
def kind(request: Any) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def errors() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def changed(kernel: Any, *arguments: Any) -> str:
    with pytest.raises(qd.OctantsRuntimeError, match="OCT305") as caught:
        kernel.grad(*arguments)
    return str(caught.value)


def test_a_write_of_the_host(kind: str) -> None:
    x, y = make(kind, N), make(kind, N)
    square(x, y)
    y.grad.fill(1.0)
    square.grad(x, y)
    assert x.grad.to_numpy() == pytest.approx(2 * START)
    for write in (lambda: x.fill(2.0), lambda: x.from_numpy(START), x.mark_written):
        write()
        assert "by the host" in changed(square, x, y)
        square(x, y)
        square.grad(x, y)
    x[2] = 7.0
    changed(square, x, y)
    square.grad.using(on_overwrite="trust")(x, y)


@qd.kernel
def scale_first(before: qd.Tensor, x: qd.Tensor, y: qd.Tensor):
    y[0] = x[0] * x[0] * before[2]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_arguments_that_are_one_array(kind: str, index: int) -> None:
    """What any of them reads must not change."""
    x, y = make(kind, N), make(kind, N)
    scale_first(x, x, y)
    x[index] = 7.0
    if index == 1:
        scale_first.grad(x, x, y)
    else:
        changed(scale_first, x, x, y)


def test_what_the_gradient_does_not_read_may_change(kind: str) -> None:
    x, y, other = make(kind, N), make(kind, N), make(kind, N)
    square(x, y)
    y.fill(0.0)
    double(y)
    other.fill(0.0)
    x.grad.fill(0.0)
    y.grad.fill(1.0)
    square.grad(x, y)
    assert x.grad.to_numpy() == pytest.approx(2 * START)


def test_another_kernel(kind: str) -> None:
    x, y = make(kind, N), make(kind, N)
    square(x, y)
    double(x)
    assert "kernel `double`" in changed(square, x, y)
    square(x, y)
    square.grad(x, y)


def test_a_kernel_that_may_have_computed_it_again_is_a_warning(kind: str) -> None:
    x, y, z = make(kind, N), make(kind, N), make(kind, N)
    square(x, y)
    square(y, z)
    double(z)
    square(x, y)
    double(z)
    with pytest.warns(qd.OctantsWarning, match=r"OCT305.*by .* `square`") as caught:
        square.grad(y, z)
        square.grad(y, z)
    assert len(caught) == 1


def test_a_loop_bound_in_memory(kind: str) -> None:
    @qd.kernel
    def some(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
        for i in range(n[0]):
            y[i] = 3 * x[i]

    x, y = make(kind, N), make(kind, N)
    n = (qd.field if kind == "field" else qd.ndarray)(qd.i32, 1)
    n[0] = N
    some(x, y, n)
    n[0] = 2
    assert "`n`" in changed(some, x, y, n)


def test_rows(kind: str) -> None:
    x = make(kind, 6, N)
    for t in range(4):
        step(x, t)
    x[5, 0] = 1.0
    clear_row(x, 5)
    for t in reversed(range(4)):
        step.grad(x, t)
    x[2, 0] = 1.0
    step.grad(x, 3)
    changed(step, x, 2)


def test_a_row_that_another_kernel_has_cleared(kind: str) -> None:
    x = make(kind, 6, N)
    for t in range(4):
        step(x, t)
    clear_row(x, 2)
    step.grad(x, 3)
    assert "`clear_row`" in changed(step, x, 2)


def test_a_later_launch_of_the_kernel_itself() -> None:
    x = make("field", 2, N)

    @qd.kernel
    def swap(s: qd.i32, t: qd.i32):
        for i in range(N):
            x[t, i] = x[s, i] * x[s, i]

    swap(0, 1)
    swap(1, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            swap.grad(1, 0)
        except qd.OctantsCompilationError:  # its own overwriting, which compiling sees
            return
    with pytest.warns(qd.OctantsWarning, match="a later launch of `swap`"):
        swap.grad(0, 1)


def test_checks_that_passed_are_not_taken_for_later_ones(kind: str) -> None:
    x, y, z = make(kind, N), make(kind, N), make(kind, N)
    for _ in range(3):
        square(x, y)
        square.grad(x, y)
        square.grad(x, y)  # nothing has run since
    z.fill(1.0)
    square.grad(x, y)
    double(z)
    square.grad(x, y)
    double(x)
    assert "kernel `double`" in changed(square, x, y)
    square(x, y)
    square.grad(x, y)
    square(y, z)
    square.grad(x, y)
    square(x, y)
    square.grad(x, y)
    x.fill(2.0)
    assert "by the host" in changed(square, x, y)


def test_checks_that_passed_are_of_the_same_integers(kind: str) -> None:
    x = make(kind, 6, N)
    for _ in range(2):
        step(x, 2)
        step.grad(x, 2)
    step(x, 1)  # writes row 2
    with pytest.warns(qd.OctantsWarning, match="a later launch of `step`"):
        step.grad(x, 2)
    step.grad(x, 1)
    step(x, 2)
    step.grad(x, 2)


def test_a_gradient_without_a_launch_is_of_what_memory_holds(kind: str) -> None:
    x, y, z = make(kind, N), make(kind, N), make(kind, N)
    x.fill(5.0)
    y.grad.fill(1.0)
    square.grad(x, y)
    assert x.grad.to_numpy().tolist() == [10.0] * N
    square(x, y)
    z.from_numpy(START)
    y.grad.fill(1.0)
    if kind == "ndarray":  # never launched with these; of fields, that is another kernel
        square.grad(z, y)
        assert z.grad.to_numpy() == pytest.approx(2 * START)


def test_a_program_may_trust_what_it_changes() -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error", on_overwrite="trust")
    x, y = make("field", N), make("field", N)
    square(x, y)
    x.fill(3.0)
    y.grad.fill(1.0)
    square.grad(x, y)
    assert x.grad.to_numpy().tolist() == [6.0] * N


def test_text() -> None:
    x, y = make("ndarray", N), make("ndarray", N)
    square(x, y)
    x.fill(3.0)
    check_golden("errors/OCT305_changed", changed(square, x, y))


@qd.kernel
def scale(x: qd.Tensor, y: qd.Tensor, t: qd.i32, a: qd.types.vector(2, qd.f32)):
    for i in range(N):
        y[t, i] = a[0] * a[1] * qd.random(qd.f64) * x[i]


def test_random_numbers_are_those_of_the_last_launch(kind: str) -> None:
    qd.init(arch=qd.cpu, log_level="error")
    x, y, others = make(kind, N), make(kind, 2, N), make(kind, 2, N)
    scale(x, y, 0, [1.0, 0.1])
    for _ in range(2):
        y.grad.fill(1.0)
        x.grad.fill(0.0)
        scale.grad(x, y, 0, [1.0, 0.1])
        np.testing.assert_allclose(x.grad.to_numpy(), y.to_numpy()[0] / START)
    for later in ((x, y, 1, [1.0, 0.1]), (x, y, 0, [1.0, 0.2]), (x, others, 0, [1.0, 0.1])):
        scale(x, y, 0, [1.0, 0.1])
        scale(*later)
        if kind == "ndarray" or later[1] is y:
            with pytest.raises(qd.OctantsRuntimeError) as caught:
                scale.grad(x, y, 0, [1.0, 0.1])
            check_golden("errors/OCT376_other_random_numbers", str(caught.value))
    scale.grad.using(on_overwrite="trust")(x, y, 0, [1.0, 0.1])
    scale(x, y, 0, [1.0, 0.1])
    scale.grad(x, y, 0, [1.0, 0.1])
