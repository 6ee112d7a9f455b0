"""Torch tensors as arguments; with a fake where torch is not installed."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.arguments import parameters
from tests.api import fake_torch
from tests.devices import on_cpu, shares_memory


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


@pytest.fixture(params=["torch", "fake"])
def make(request: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "torch":
        torch = pytest.importorskip("torch")
        return lambda values, **options: torch.tensor(values, dtype=torch.float32, **options)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=fake_torch.Tensor))
    monkeypatch.setattr(parameters, "_ARRAY_KEYS", dict(parameters._ARRAY_KEYS))
    return fake_torch.tensor


def _add_up_0(y: qd.types.ndarray(), loss: qd.types.ndarray()):
    for i in y:
        loss[None] += y[i]


def _add_up_1(y: qd.types.ndarray(), loss: qd.types.ndarray()):
    for i in y:
        loss[0] += y[i]


@qd.kernel
def square(x: qd.types.ndarray(), y: qd.types.ndarray()):
    for i in x:
        y[i] = x[i] * x[i]


@qd.kernel
def total(x: qd.types.ndarray(), loss: qd.types.ndarray()):
    for i in x:
        loss[None] += x[i]


def test_written_in_place(make: Any) -> None:
    x, y = make([1.0, 2.0]), make([0.0, 0.0])
    square(x, y)
    assert y.numpy().tolist() == [1, 4]
    square(y, np.zeros(2, np.float32))


def test_gradients_reach_tensors_that_require_them(make: Any) -> None:
    x = make([1.0, 2.0], requires_grad=True)
    y = make([0.0, 0.0], requires_grad=True)
    loss = qd.ndarray(qd.f32, (), needs_grad=True)
    for times in (1, 2):
        with qd.ad.Tape(loss=loss):
            square(x, y)
            total(y, loss)
        assert x.grad.numpy().tolist() == [2 * times, 4 * times]
        assert y.grad.numpy().tolist() == [0, 0]


def test_a_launch_makes_the_gradients_that_are_required(make: Any) -> None:
    x, y = make([1.0, 2.0], requires_grad=True), make([0.0, 0.0], requires_grad=True)
    square(x, y)
    assert y.detach().numpy().tolist() == [1, 4]
    assert x.grad.numpy().tolist() == [0, 0]
    y.grad.numpy()[:] = [1, 10]
    square.grad(x, y)
    assert x.grad.numpy().tolist() == [2, 40]
    constant = make([1.0, 2.0])
    square(constant, y)
    assert constant.grad is None


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_tensor_is_the_loss_of_a_tape(make: Any, shape: tuple[int, ...]) -> None:
    x, y = make([1.0, 2.0], requires_grad=True), make([0.0, 0.0], requires_grad=True)
    loss = make(np.full(shape, 7.0), requires_grad=True)

    add_up = qd.kernel(_add_up_0 if shape == () else _add_up_1)
    for times in (1, 2):  # torch's gradients add up
        with qd.ad.Tape(loss=loss):
            square(x, y)
            add_up(y, loss)
        assert loss.detach().numpy().sum() == 5
        assert x.grad.numpy().tolist() == [2 * times, 4 * times]


def test_tensors_that_cannot_be_a_loss(make: Any) -> None:
    with pytest.raises(qd.OctantsRuntimeError, match="requires no gradient"):
        qd.ad.Tape(loss=make([1.0]))
    with pytest.raises(qd.OctantsRuntimeError, match=r"has the shape \(2,\)"):
        qd.ad.Tape(loss=make([1.0, 2.0], requires_grad=True))


def test_a_tensor_that_is_overwritten(make: Any) -> None:
    x = make([1.0, 2.0], requires_grad=True)
    loss = qd.ndarray(qd.f32, (), needs_grad=True)
    with qd.ad.Tape(loss=loss):
        square(x, x)
        square(x, x)
        total(x, loss)
    assert x.grad.numpy().tolist() == [4, 32]
    assert x.detach().numpy().tolist() == [1, 16]


def test_one_without_gradient_is_a_constant(make: Any) -> None:
    x, y = make([1.0, 2.0]), make([0.0, 0.0], requires_grad=True)
    loss = qd.ndarray(qd.f32, (), needs_grad=True)
    with qd.ad.Tape(loss=loss):
        square(x, y)
        total(y, loss)
    assert x.grad is None


FORMS = {
    "transposed": lambda x: x.T,
    "every other": lambda x: x[::2, 1::2],
    "part": lambda x: x[1:3, 1:],
}


@qd.kernel
def wave(x: qd.types.ndarray(qd.f32, ndim=2), y: qd.types.ndarray(qd.f32, ndim=2)):
    for i, j in x:
        y[i, j] = qd.sin(x[i, j]) * (1 + i + 10 * j)


@qd.kernel
def weighted(y: qd.types.ndarray(qd.f32, ndim=2), loss: qd.types.ndarray()):
    for i, j in y:
        loss[None] += y[i, j] * y[i, j] * (i + 1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gradient", ["none yet", "row-major", "strided", "shared"])
def test_gradients_of_tensors_of_any_strides(form: str, gradient: str) -> None:
    torch = pytest.importorskip("torch")
    x = FORMS[form](0.1 * torch.arange(24.0).reshape(4, 6)).requires_grad_()
    y = torch.empty(tuple(x.shape)[::-1]).T.requires_grad_()
    start = {
        "none yet": None,
        "row-major": torch.ones(*x.shape),
        "strided": torch.ones(*tuple(x.shape)[::-1]).T,
        "shared": torch.ones(1).expand(*x.shape),
    }[gradient]
    x.grad = start
    loss = qd.ndarray(qd.f32, (), needs_grad=True)
    with qd.ad.Tape(loss=loss):
        wave(x, y)
        weighted(y, loss)
    i, j = np.indices(x.shape)
    factor, values = 1 + i + 10 * j, x.detach().double().numpy()
    expected = 2 * (i + 1) * factor**2 * np.sin(values) * np.cos(values) + (start is not None)
    assert np.allclose(y.detach().numpy(), factor * np.sin(values), rtol=1e-5)
    assert np.allclose(x.grad.numpy(), expected, rtol=1e-4, atol=1e-4)
    assert gradient in ("none yet", "shared") or x.grad is start
    assert not y.grad.any()


def test_a_strided_tensor_that_is_overwritten() -> None:
    torch = pytest.importorskip("torch")
    whole = torch.tensor([[1.0, 5.0], [2.0, 6.0]])
    x = whole[:, 0].requires_grad_()
    loss = qd.ndarray(qd.f32, (), needs_grad=True)
    with qd.ad.Tape(loss=loss):
        square(x, x)
        square(x, x)
        total(x, loss)
    assert x.grad.tolist() == [4, 32]
    assert whole.tolist() == [[1, 5], [16, 6]]


def test_views_that_interleave_lie_apart() -> None:
    torch = pytest.importorskip("torch")
    whole = torch.tensor([3.0, 0.0, 4.0, 0.0])
    x, y = whole[::2].requires_grad_(), whole[1::2].requires_grad_()
    loss = qd.ndarray(qd.f32, (), needs_grad=True)
    with qd.ad.Tape(loss=loss):
        square(x, y)
        total(y, loss)
    assert x.grad.tolist() == [6, 8]
    assert whole.tolist() == [3, 9, 4, 16]
    with (
        pytest.raises(qd.OctantsRuntimeError, match="share memory"),
        qd.ad.Tape(loss=loss),
    ):
        square(whole[:2], whole[1:3])


def test_one_memory_in_two_shapes_is_not_one_array() -> None:
    torch = pytest.importorskip("torch")
    whole = torch.arange(6.0)
    loss = qd.ndarray(qd.f32, (), needs_grad=True)
    one, other = whole.reshape(2, 3), whole.reshape(3, 2)

    @qd.kernel
    def products(x: qd.types.ndarray(qd.f32, 2), y: qd.types.ndarray(qd.f32, 2)) -> qd.f32:
        return x[0, 2] * y[2, 0]

    one.requires_grad_()
    other.requires_grad_()
    with qd.ad.Tape(loss=products):
        assert products(one, other) == 2 * 4
    assert one.grad.tolist() == [[0, 0, 4], [0, 0, 0]]
    assert other.grad.tolist() == [[0, 0], [0, 0], [2, 0]]
    with pytest.raises(qd.OctantsRuntimeError, match="share memory"), qd.ad.Tape(loss=loss):
        wave(one, other)
    square_matrix = whole[:4].reshape(2, 2).requires_grad_()
    with pytest.raises(qd.OctantsRuntimeError, match="share memory"), qd.ad.Tape(loss=loss):
        wave(square_matrix, square_matrix.detach().T)


@shares_memory
def test_one_memory_seen_as_two_types_has_no_derivative() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.0, 2.0])
    bits = x.numpy().view(np.int32)
    loss = qd.ndarray(qd.f32, (), needs_grad=True)

    @qd.kernel
    def clear(x: qd.types.ndarray(), bits: qd.types.ndarray()):
        for i in x:
            bits[i] = qd.i32(x[i]) & 0

    with pytest.raises(qd.OctantsRuntimeError, match="share memory"), qd.ad.Tape(loss=loss):
        clear(x, bits)
    assert x.tolist() == [1, 2]
    clear(x, bits)
    assert x.tolist() == [0, 0]


def test_negated_views() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    y = torch.zeros(2)
    with pytest.raises(qd.OctantsRuntimeTypeError, match="resolve_neg"):
        square(x, y)
    square(x.resolve_neg(), y)
    assert y.tolist() == [4, 16]


def test_tensors_on_meta() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(3, device="meta")
    with pytest.raises(qd.OctantsRuntimeTypeError, match="no elements"):
        square(x, torch.ones(3))


def test_sparse_tensors() -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.tensor([1.0, 3.0]), torch.zeros(2)
    with pytest.raises(qd.OctantsRuntimeTypeError, match="to_dense"):
        square(x.to_sparse(), y)
    square(x.to_sparse().to_dense(), y)
    assert y.tolist() == [1, 9]
    with pytest.raises(qd.OctantsRuntimeTypeError, match="sparse"):
        square(torch.eye(2).to_sparse_csr(), y)  # it has no answer to `is_contiguous`
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor([x, y[:1]], layout=layout)
        with pytest.raises(qd.OctantsRuntimeTypeError, match="nested"):
            square(nested, y)


@on_cpu
def test_errors() -> None:
    fake = types.SimpleNamespace(Tensor=fake_torch.Tensor)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", fake)
        patch.setattr(parameters, "_ARRAY_KEYS", dict(parameters._ARRAY_KEYS))
        good = fake_torch.tensor([1.0])
        with pytest.raises(qd.OctantsRuntimeTypeError, match=r"pass `x.cpu\(\)`"):
            square(fake_torch.tensor([1.0], device="cuda"), good)
        with pytest.raises(qd.OctantsRuntimeTypeError, match="no counterpart"):
            square(fake_torch.Tensor(np.zeros(4, np.complex64)), good)


def test_a_gradient_that_gets_other_memory_during_a_tape() -> None:
    torch = pytest.importorskip("torch")

    @qd.kernel
    def add_squares(x: qd.types.ndarray(ndim=1), loss: qd.types.ndarray(ndim=1)):
        for i in x:
            loss[0] += x[i] * x[i]

    x, loss = (torch.ones(n, requires_grad=True) for n in (4, 1))
    x.grad, loss.grad = torch.zeros(4), torch.zeros(1)
    before = x.grad.data
    with qd.ad.Tape(loss=loss):
        add_squares(x, loss)
        x.grad.data = torch.full((4,), 7.0)
    assert x.grad.tolist() == [9.0] * 4
    assert before.tolist() == [0.0] * 4
