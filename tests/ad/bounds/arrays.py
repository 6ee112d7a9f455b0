"""Bounds that stand in arrays, or are their shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

import octants as qd
from tests.ad.bounds.program import ITEMS, Program, integers, pair, program, turn


@program
def scalar_field() -> Program:
    x, y = pair()
    bound = qd.field(qd.i32, shape=())

    @qd.kernel
    def kernel():
        for i in x:
            v = x[i]
            for _ in range(bound[None]):
                v = turn(v)
            y[i] = v

    def prepare(n: int) -> Any:
        bound[None] = n
        return (), [n] * ITEMS

    return Program(kernel, x, y, prepare)


@program
def indexed_field() -> Program:
    x, y = pair()
    bounds = qd.field(qd.i64, shape=ITEMS)

    @qd.kernel
    def kernel():
        for i in x:
            v = x[i]
            for _ in range(bounds[i]):
                v = turn(v)
            y[i] = v

    def prepare(n: int) -> Any:
        trips = [n * k // 2 for k in range(ITEMS)]
        bounds.from_numpy(np.array(trips))
        return (), trips

    return Program(kernel, x, y, prepare)


@program
def shape() -> Program:
    x, y = pair()

    @qd.kernel
    def kernel(a: qd.types.ndarray(dtype=qd.i32, ndim=2)):
        for i in x:
            v = x[i]
            for _ in range(a.shape[1]):
                v = turn(v)
            y[i] = v

    return Program(kernel, x, y, lambda n: ((qd.ndarray(qd.i32, (2, n + 1)),), [n + 1] * ITEMS))


@program
def constant_index() -> Program:
    x, y = pair()

    @qd.kernel
    def kernel(a: qd.types.ndarray(dtype=qd.i32, ndim=2)):
        for i in x:
            v = x[i]
            for _ in range(a[1, 2]):
                v = turn(v)
            y[i] = v

    return Program(kernel, x, y, lambda n: ((integers([[1, 2, 3], [4, 5, n]]),), [n] * ITEMS))


@program
def loop_index() -> Program:
    x, y = pair()

    @qd.kernel
    def kernel(a: qd.types.ndarray(dtype=qd.i32, ndim=2)):
        for i in x:
            v = x[i]
            for j in range(a.shape[1]):
                for _ in range(a[i, j]):
                    v = turn(v)
            y[i] = v

    def prepare(n: int) -> Any:
        counts = np.arange(ITEMS * 3).reshape(ITEMS, 3) * n % 11
        return (integers(counts),), counts.sum(axis=1).tolist()

    return Program(kernel, x, y, prepare, lambda n: 3 + max(k * n % 11 for k in range(ITEMS * 3)))


@program
def computed_index() -> Program:
    x, y = pair()

    @qd.kernel
    def kernel(a: qd.types.ndarray(dtype=qd.i32, ndim=1)):
        for i in x:
            v = x[i]
            for _ in range(a[i // 2]):
                v = turn(v)
            y[i] = v

    def prepare(n: int) -> Any:
        counts = [n, 2 * n, 5]
        return (integers(counts),), [counts[i // 2] for i in range(ITEMS)]

    return Program(kernel, x, y, prepare)


@program
def stashed_index() -> Program:
    x, y = pair()
    places = qd.field(qd.i32, shape=ITEMS)

    @qd.kernel
    def kernel(a: qd.types.ndarray(dtype=qd.i32, ndim=1)):
        for i in x:
            k = places[i]
            v = x[i]
            for _ in range(a[k]):
                v = turn(v)
            y[i] = v

    def prepare(n: int) -> Any:
        places.from_numpy(np.array([4, 0, 3, 1, 2], np.int32))
        counts = [n, 0, 7, 2 * n, 1]
        return (integers(counts),), [counts[k] for k in (4, 0, 3, 1, 2)]

    return Program(kernel, x, y, prepare)


@program
def index_of_an_index() -> Program:
    x, y = pair()

    @qd.kernel
    def kernel(
        a: qd.types.ndarray(dtype=qd.i32, ndim=1), b: qd.types.ndarray(dtype=qd.i32, ndim=1)
    ):
        for i in x:
            v = x[i]
            for _ in range(a[b[i]]):
                v = turn(v)
            y[i] = v

    def prepare(n: int) -> Any:
        counts, places = [n, 3, 2 * n], [2, 2, 1, 0, 1]
        return (integers(counts), integers(places)), [counts[k] for k in places]

    return Program(kernel, x, y, prepare)


@program
def differences() -> Program:
    x, y = pair()
    start, stop = qd.field(qd.i32, shape=ITEMS), qd.field(qd.i32, shape=ITEMS + 7)

    @qd.kernel
    def kernel():
        for i in x:
            v = x[i]
            for _ in range(start[i], stop[i]):
                v = turn(v)
            y[i] = v

    def prepare(n: int) -> Any:
        begin = np.array([0, 5, -7, 100, 9], np.int32)
        length = np.array([n, -3, 2 * n, 1, 0], np.int32)
        start.from_numpy(begin)
        stop.from_numpy(np.concatenate([begin + length, np.full(7, 1000)]).astype(np.int32))
        return (), np.maximum(length, 0).tolist()

    return Program(kernel, x, y, prepare)


@program
def nested_shapes() -> Program:
    x, y = pair()

    @qd.kernel
    def kernel(a: qd.types.ndarray(dtype=qd.i32, ndim=2)):
        for i in x:
            v = x[i]
            for _, _ in qd.ndrange(a.shape[0], a.shape[1]):
                v = turn(v)
            y[i] = v

    def prepare(n: int) -> Any:
        return (qd.ndarray(qd.i32, (3, n + 1)),), [3 * (n + 1)] * ITEMS

    return Program(kernel, x, y, prepare, lambda n: 3 + n + 1)


@program
def inner_struct_for() -> Program:
    x, y = pair()
    grid = qd.field(qd.i32, shape=(3, 4))

    @qd.kernel
    def kernel(n: qd.i32):
        for i in x:
            v = x[i]
            for j, k in grid:
                if (j * 4 + k) % 3 < n % 4:
                    v = turn(v)
            y[i] = v

    def prepare(n: int) -> Any:
        return (n,), [4 * min(3, n % 4)] * ITEMS

    return Program(kernel, x, y, prepare, lambda n: 3 + 4)
