"""Nests whose records are stored, where work items of all lengths run in the lanes of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.ad.record_buffers import check_gradient

ITEMS = 19
LENGTHS = np.random.default_rng(5).integers(0, 9, 11)


@qd.kernel
def counted(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
    for i in range(x.shape[0]):
        v = x[i]
        for j in range(4):
            w = v * 0.5
            if v > 0.6:
                for _ in range(n[(3 * i + j) % n.shape[0]]):
                    w = qd.sin(w)
            v = 0.5 * v + 0.3 * w
        y[i] = v


@qd.kernel
def ragged(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
    for i in range(x.shape[0]):
        v = x[i]
        for j in range(n[i % n.shape[0]] * 2):
            w = v * 0.5
            for _ in range(n[(3 * i + j) % n.shape[0]]):
                w = qd.sin(w)
            v = 0.5 * v + 0.3 * w
        y[i] = v


@qd.kernel
def until(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
    for i in range(x.shape[0]):
        v, j = x[i], 0
        while j < n[i % n.shape[0]] * 2:
            w = v * 0.5
            if v > 0.3:
                for _ in range(n[(3 * i + j) % n.shape[0]]):
                    w = qd.sin(w)
            v = 0.5 * v + 0.3 * w
            j += 1
        y[i] = v


@qd.kernel
def broken_off(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
    for i in range(x.shape[0]):
        v = x[i]
        for _ in range(n[i % n.shape[0]] * 2):
            w = v * 0.5
            for _ in range(4):
                w = qd.sin(w)
            v = 0.5 * v + 0.3 * w
            if v < 0.04:
                break
        y[i] = v


@qd.kernel
def deep(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
    for i in range(x.shape[0]):
        v = x[i]
        for h in range(n[i % n.shape[0]]):
            for j in range(h):
                for _ in range(n[(i + j) % n.shape[0]]):
                    v = qd.sin(v)
                v *= 1.3
            if v > 0.3:
                while v > 0.25:
                    for _ in range(n[(i + h) % n.shape[0]]):
                        v = v * qd.cos(v) + 0.05
                    v *= 0.5
        y[i] = v


BUDGETS = (0, 4096, 1000, 200, 16)
OFTEN = [*((ragged, budget) for budget in BUDGETS), (deep, 0), (deep, 200)]
OFTEN += [(counted, 200), (until, 1000), (broken_off, 4096)]
OTHERS = [
    (kernel, budget)
    for kernel in (deep, counted, until, broken_off)
    for budget in BUDGETS
    if (kernel, budget) not in OFTEN
]


@pytest.mark.parametrize(
    ("kernel", "budget"),
    [*OFTEN, *(pytest.param(*each, marks=pytest.mark.slow) for each in OTHERS)],
)
def test_lanes_give_the_gradients_of_single_work_items(kernel: Any, budget: int) -> None:
    found = []
    for simd, nests in (("never", "replay"), ("always", "store"), ("always", "auto")):
        qd.init(
            arch=qd.cpu,
            default_fp=qd.f64,
            simd=simd,
            ad_stack_nests=nests,
            ad_stack_budget_bytes=budget,
            fast_math=False,
            cpu_max_num_threads=1,
        )
        x, y = (qd.ndarray(qd.f64, shape=ITEMS, needs_grad=True) for _ in range(2))
        n = qd.ndarray(qd.i32, shape=len(LENGTHS))
        n.from_numpy(LENGTHS)
        x.from_numpy(np.linspace(0.2, 1.5, ITEMS))
        y.grad.fill(1)
        kernel.grad(x, y, n)
        found.append(x.grad.to_numpy())
    np.testing.assert_allclose(found[1:], found[:1] * 2, rtol=1e-12)
    check_gradient(lambda: kernel(x, y, n), lambda: kernel.grad(x, y, n), x, y)


@pytest.mark.parametrize("simd", ["auto", "always"])
def test_lanes_that_record_different_sizes_on_two_sides(simd: str) -> None:
    """The columns of lanes are not the same in both records, which begin at one place."""
    qd.init(arch=qd.cpu, default_fp=qd.f64, simd=simd, cpu_max_num_threads=1)

    @qd.kernel
    def sides(x: qd.Tensor, y: qd.Tensor, n: qd.Tensor):
        for i in range(x.shape[0]):
            v, k = x[i], 1
            if n[i % n.shape[0]] % 2 == 0:
                for _ in range(n[i % n.shape[0]]):
                    k = k * 3 % 5
                    v = v * (1.0 + 0.01 * k)
                    v = qd.sin(v)
            else:
                for _ in range(n[i % n.shape[0]]):
                    v = qd.cos(v)
            y[i] = v

    x, y = (qd.ndarray(qd.f64, shape=ITEMS, needs_grad=True) for _ in range(2))
    n = qd.ndarray(qd.i32, shape=len(LENGTHS))
    n.from_numpy(LENGTHS)
    x.from_numpy(np.linspace(0.2, 1.5, ITEMS))
    check_gradient(lambda: sides(x, y, n), lambda: sides.grad(x, y, n), x, y)
