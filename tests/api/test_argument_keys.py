"""Kernels tell fields from ndarrays, whatever numbers these are known by."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.arguments.parameters import template_key, tensor_key
from octants.types import weak_references


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


def pair(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """A field and an ndarray that have the same number, each in a sequence of its own."""
    ndarray = qd.ndarray(qd.f64, 3, needs_grad=True)
    field = qd.field(qd.f64, 3, needs_grad=True)
    monkeypatch.setattr(weak_references, "_numbers", itertools.count(ndarray.argument_key))
    assert weak_references.number_of(field) == ndarray.argument_key
    return field, ndarray


@pytest.mark.parametrize("is_field_first", [False, True])
def test_a_field_and_an_ndarray_with_the_same_number(
    is_field_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @qd.kernel
    def double(x: qd.Tensor):
        for i in range(3):
            x[i] = 2 * x[i]

    @qd.kernel
    def add_squares(x: qd.Tensor, loss: qd.Tensor):
        for i in range(3):
            loss[None] += x[i] * x[i]

    arrays = pair(monkeypatch)
    loss = qd.field(qd.f64, (), needs_grad=True)
    for x in arrays if is_field_first else reversed(arrays):
        for _ in range(2):
            x.from_numpy(np.array([1.0, 2.0, 3.0]))
            loss.from_numpy(np.array(0.0))
            with qd.ad.Tape(loss=loss):
                double(x)
                add_squares(x, loss)
            assert x.to_numpy().tolist() == [2, 4, 6]
            assert loss.to_numpy() == 56
            assert x.grad.to_numpy().tolist() == [8, 16, 24]


@pytest.mark.parametrize("key_of", [tensor_key, template_key])
def test_arguments_of_different_kinds_have_different_keys(
    key_of: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    field, ndarray = pair(monkeypatch)
    number = ndarray.argument_key
    others = [number, float(number), str(number), np.int64(number), (number,), np.zeros(3), None]
    keys = [key_of(value) for value in (field, ndarray, object(), *others)]
    assert len({*keys}) == len(keys)
