"""Torch tensors as arguments; with a stand-in where torch is not installed."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime import arguments
from tests.api import fake_torch


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


@pytest.fixture(params=["torch", "stand-in"])
def make(request: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "torch":
        torch = pytest.importorskip("torch")
        return lambda values, **options: torch.tensor(values, dtype=torch.float32, **options)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=fake_torch.Tensor))
    monkeypatch.setattr(arguments, "_ARRAY_KEYS", dict(arguments._ARRAY_KEYS))
    return fake_torch.tensor


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


def test_errors() -> None:
    fake = types.SimpleNamespace(Tensor=fake_torch.Tensor)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", fake)
        patch.setattr(arguments, "_ARRAY_KEYS", dict(arguments._ARRAY_KEYS))
        good = fake_torch.tensor([1.0])
        with pytest.raises(qd.OctantsRuntimeTypeError, match=r"pass `x.cpu\(\)`"):
            square(fake_torch.tensor([1.0], device="cuda"), good)
        with pytest.raises(qd.OctantsRuntimeTypeError, match="not contiguous"):
            square(fake_torch.Tensor(np.zeros(4, np.float32)[::2]), good)
        with pytest.raises(qd.OctantsRuntimeTypeError, match="no counterpart"):
            square(fake_torch.Tensor(np.zeros(4, np.complex64)), good)
