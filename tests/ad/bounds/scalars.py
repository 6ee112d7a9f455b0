"""Bounds that are constants, scalar arguments, or computed from them."""

from __future__ import annotations

from typing import Any

import numpy as np

import octants as qd
from tests.ad.bounds.program import ITEMS, Program, pair, program, turn


@program
def constant() -> Program:
    x, y = pair()

    @qd.kernel
    def kernel():
        for i in x:
            v = x[i]
            for _ in range(17):
                v = turn(v)
            y[i] = v

    return Program(kernel, x, y, lambda n: ((), [17] * ITEMS))


@program
def wide_argument() -> Program:
    x, y = pair()

    @qd.kernel
    def kernel(n: qd.i64):
        for i in x:
            v = x[i]
            for _ in range(n):
                v = turn(v)
            y[i] = v

    return Program(kernel, x, y, lambda n: ((n,), [n] * ITEMS))


@program
def far_from_zero() -> Program:
    x, y = pair()

    @qd.kernel
    def kernel(start: qd.i32, stop: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(start, stop):
                v = turn(v)
            y[i] = v

    return Program(kernel, x, y, lambda n: ((2**31 - 100, 2**31 - 100 + n), [n] * ITEMS))


@program
def steps() -> Program:
    x, y = pair()

    @qd.kernel
    def kernel(n: qd.i32, step: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(n, -n, -step):
                v = turn(v)
            y[i] = v

    return Program(kernel, x, y, lambda n: ((n, 3), [len(range(n, -n, -3))] * ITEMS))


@program
def triangular() -> Program:
    x, y = pair()

    @qd.kernel
    def kernel(n: qd.i32):
        for i in x:
            v = x[i]
            for j in range(n):
                for _ in range(j):
                    v = turn(v)
            y[i] = v

    def slots(n: int) -> int:
        return n + max(n - 1, 0)

    return Program(kernel, x, y, lambda n: ((n,), [n * (n - 1) // 2] * ITEMS), slots)


@program
def product_and_maximum() -> Program:
    x, y = pair()
    bounds = qd.field(qd.i32, shape=2)

    @qd.kernel
    def kernel(n: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(max(bounds[0] * i, n * bounds[1], 2)):
                v = turn(v)
            y[i] = v

    def prepare(n: int) -> Any:
        bounds.from_numpy(np.array([n, 3], np.int32))
        return (n // 2,), [max(n * i, n // 2 * 3, 2) for i in range(ITEMS)]

    return Program(kernel, x, y, prepare)


@program
def square_root() -> Program:
    x, y = pair()

    @qd.kernel
    def kernel(a: qd.f64):
        for i in x:
            v = x[i]
            for _ in range(int(qd.sqrt(a)) + i):
                v = turn(v)
            y[i] = v

    return Program(kernel, x, y, lambda n: ((n * n + 0.5,), [n + i for i in range(ITEMS)]))


@program
def locals_and_components() -> Program:
    x, y = pair()
    sides = qd.Vector.field(3, qd.i32, shape=ITEMS)

    @qd.kernel
    def kernel(n: qd.i32):
        for i in x:
            count = n + i
            pair = qd.Vector([count, 2 * count])
            v = x[i]
            for _ in range(count):
                v = turn(v)
            for _ in range(pair[1]):
                v = turn(v)
            for _ in range(sides[i][2]):
                v = turn(v)
            y[i] = v

    def prepare(n: int) -> Any:
        sides.from_numpy(np.arange(3 * ITEMS).reshape(ITEMS, 3).astype(np.int32) % 5)
        return (n,), [3 * (n + i) + (3 * i + 2) % 5 for i in range(ITEMS)]

    def slots(n: int) -> int:  # one loop after the other: all are on the tape
        return max(3 * (n + i) + (3 * i + 2) % 5 for i in range(ITEMS))

    return Program(kernel, x, y, prepare, slots)


@qd.func
def repeated(v: qd.f64, count: qd.i32) -> qd.f64:
    for _ in range(count):
        v = turn(v)
    return v


@program
def parameter_of_a_func() -> Program:
    x, y = pair()

    @qd.kernel
    def kernel(n: qd.i32):
        for i in x:
            y[i] = repeated(repeated(x[i], n), i)

    def slots(n: int) -> int:
        return n + ITEMS - 1

    return Program(kernel, x, y, lambda n: ((n,), [n + i for i in range(ITEMS)]), slots)
