"""Bounds that data decide, and that others change between launches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.ad.bounds.program import ITEMS, Program, pair, program, turn


@program
def while_on_data() -> Program:
    x, y = pair()
    work = qd.field(qd.i32, shape=(ITEMS, 64))

    @qd.kernel
    def kernel():
        for i in x:
            v, k = x[i], 0
            while work[i, k] > 0:
                v = turn(v)
                k += 1
            y[i] = v

    def prepare(n: int) -> Any:
        trips = [n, 3, 0, n // 2, n + 1]
        work.from_numpy((np.arange(64) < np.array(trips)[:, None]).astype(np.int32))
        return (), trips

    return Program(kernel, x, y, prepare)


@program
def while_with_break() -> Program:
    x, y = pair()
    bounds = qd.field(qd.i32, shape=ITEMS)

    @qd.kernel
    def kernel():
        for i in x:
            v, k = x[i], 0
            while True:
                if k >= bounds[i]:
                    break
                v = turn(v)
                k += 1
            y[i] = v

    def prepare(n: int) -> Any:
        trips = [n, 3, 0, n // 2, n + 1]
        bounds.from_numpy(np.array(trips, np.int32))
        return (), trips

    def slots(n: int) -> int:  # v and k, also of the turn that breaks
        return 2 * (max(3, n + 1) + 1)

    return Program(kernel, x, y, prepare, slots)


@program
def written_by_a_kernel() -> Program:
    x, y = pair()
    bound = qd.field(qd.i32, shape=ITEMS)

    @qd.kernel
    def choose(n: qd.i32):
        for i in bound:
            bound[i] = n + 2 * i

    @qd.kernel
    def kernel():
        for i in x:
            v = x[i]
            for _ in range(bound[i]):
                v = turn(v)
            y[i] = v

    choose(1)

    def prepare(n: int) -> Any:
        choose(n)
        return (), [n + 2 * i for i in range(ITEMS)]

    return Program(kernel, x, y, prepare)


@program
def numpy_memory() -> Program:
    x, y = pair()
    bounds = np.zeros(ITEMS, np.int32)

    @qd.kernel
    def kernel(a: qd.types.ndarray(dtype=qd.i32, ndim=1)):
        for i in x:
            v = x[i]
            for _ in range(a[i]):
                v = turn(v)
            y[i] = v

    def prepare(n: int) -> Any:
        bounds[:] = [n, 1, 2 * n, 0, 3]
        return (bounds,), bounds.tolist()

    return Program(kernel, x, y, prepare)


@program
def torch_memory() -> Program:
    torch = pytest.importorskip("torch")
    program = numpy_memory()
    bounds = torch.zeros(ITEMS, dtype=torch.int32)

    def prepare(n: int) -> Any:
        bounds.copy_(torch.tensor([n, 1, 2 * n, 0, 3], dtype=torch.int32))
        return (bounds,), bounds.tolist()

    return Program(program.kernel, program.x, program.y, prepare)
