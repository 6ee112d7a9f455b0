"""Gradients of weights that all work items read, one after the other; on all archs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.ad.differences import check_tape
from tests.seeds import each_once

ITEMS = (1, 8, 45, 129)


@pytest.fixture(autouse=True)
def start() -> Iterator[None]:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    yield
    qd.reset()


def weights_of(kind: str, shape: tuple[int, ...]) -> Any:
    """An array of numbers of a shape, in a layout."""
    if kind == "ndarray":
        return qd.ndarray(qd.f64, shape, needs_grad=True)
    if kind == "field":
        return qd.field(qd.f64, shape, needs_grad=True)
    made = qd.field(qd.f64, needs_grad=True)
    rows, columns = shape
    tree = qd.root.dense(qd.j, columns).dense(qd.i, rows)
    tree.place(made, made.grad)
    return made


def fill(array: Any, seed: int) -> Any:
    values = np.random.default_rng(seed).normal(size=array.shape)
    array.from_numpy(values)
    return values


@pytest.mark.parametrize(
    ("length", "kind"), each_once([3, 8, 13, 33], ["ndarray", "field", "columns first"])
)
def test_matrix_times_vector(length: int, kind: str) -> None:
    weights = weights_of(kind, (length, length))
    most = ITEMS[-1]
    start, result = (qd.field(qd.f64, s, needs_grad=True) for s in ((most, length), (most,)))

    @qd.kernel
    def product(w: qd.template(), n: qd.i32, count: qd.i32):
        for item in range(n):
            h = qd.Vector.zero(qd.f64, length)
            for j in range(length):
                h[j] = qd.sin(start[item, j])
            total = 0.0
            for i in range(length):
                s = 0.0
                for j in range(count):
                    s += w[i, j] * h[j]
                total += qd.tanh(s)
            result[item] = total

    w, x = fill(weights, 0), fill(start, 1)
    for items in ITEMS:
        for count in (length, length - 2, 0):
            for array in (weights, start):
                array.grad.fill(0.0)
            result.grad.fill(1.0)
            product.grad(weights, items, count)
            h = np.sin(x[:items, :count])
            adjoint = 1 - np.tanh(h @ w[:, :count].T) ** 2
            wanted = np.zeros((length, length))
            wanted[:, :count] = adjoint.T @ h
            assert weights.grad.to_numpy() == pytest.approx(wanted, rel=1e-12, abs=1e-12)
            wanted = np.zeros((most, length))
            wanted[:items, :count] = adjoint @ w[:, :count] * np.cos(x[:items, :count])
            assert start.grad.to_numpy() == pytest.approx(wanted, rel=1e-12, abs=1e-12)


def test_several_weights_in_an_iteration() -> None:
    """Neighbours of a row, elements of another matrix, and one that not all work items reach."""
    rows, columns, items = 6, 12, 70
    inner, outer = (weights_of(kind, (rows, columns)) for kind in ("field", "ndarray"))
    x = qd.field(qd.f64, items, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def evaluate(outer: qd.types.ndarray(qd.f64, 2)):
        for item in x:
            for i in range(rows):
                s = 0.1
                for k in range(columns // 4):
                    s += inner[i, 4 * k] * x[item] + inner[i, 4 * k + 1] * qd.sin(x[item])
                    s += inner[i, 4 * k + 2] * qd.cos(x[item]) * inner[i, 4 * k + 3]
                    if item % 3 != k:
                        s += outer[i, k] * x[item]
                for c in qd.static(range(3)):
                    loss[None] += qd.sin(s) * outer[c, i] / items

    for seed, array in enumerate((inner, outer, x)):
        fill(array, seed)
    check_tape(lambda: evaluate(outer), (inner, outer, x), loss)


@pytest.mark.parametrize("dtype", [qd.i32, qd.i64, qd.f32, qd.f64], ids=str)
def test_sums_of_the_forward_run(dtype: Any) -> None:
    """In steps of two, backwards, and into components of vectors."""
    items, length = 1000, 25
    sums, pairs = qd.field(dtype, 2 * length), qd.Vector.field(2, dtype, length)

    @qd.kernel
    def add(trips: qd.i32):
        for item in range(items):
            for j in range(trips):
                sums[2 * j] += item % 7
                sums[2 * length - 1 - 2 * j] += 1
                pairs[trips - 1 - j] += qd.Vector([item % 5, j])

    sevens, fives = (sum(item % n for item in range(items)) for n in (7, 5))
    for trips in (0, 1, 7, 8, length):
        sums.fill(0)
        pairs.fill(0)
        add(trips)
        wanted = np.zeros(2 * length, dtype.numpy)
        wanted[: 2 * trips : 2] += sevens
        wanted[2 * length - 1 - 2 * np.arange(trips)] += items
        assert sums.to_numpy().tolist() == wanted.tolist()
        found = pairs.to_numpy()[:trips]
        rest = np.arange(trips)[::-1] * items
        assert found.tolist() == [[fives, each] for each in rest.tolist()]
