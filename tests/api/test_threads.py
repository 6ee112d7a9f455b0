"""Several threads of a program compile and launch kernels at the same time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import octants as qd
from octants.cached_property import cached_property

LONG = 60.0
"""Seconds in which each of these tests ends, unless threads wait for each other."""


def run(works: list[Callable[[], Any]]) -> list[Any]:
    """What each work gives on a thread of its own."""
    results: list[Any] = [None] * len(works)

    def keep(position: int) -> None:
        results[position] = works[position]()

    threads = [threading.Thread(target=keep, args=(k,), daemon=True) for k in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert not any(thread.is_alive() for thread in threads), "threads wait for each other"
    return results


def test_an_attribute_waits_for_no_other_object() -> None:
    class Lazy:
        def __init__(self, compute: Callable[[], int]) -> None:
            self.compute = compute

        @cached_property
        def value(self) -> int:
            return self.compute()

    is_read = threading.Event()
    waiting = Lazy(lambda: is_read.wait(LONG) and 1)

    def read_another() -> int:
        found = Lazy(lambda: 2).value
        is_read.set()
        return found

    assert run([lambda: waiting.value, read_another]) == [1, 2]


def test_the_first_value_is_that_of_all_threads() -> None:
    class Lazy:
        @cached_property
        def value(self) -> object:
            barrier.wait(LONG)
            return object()

    barrier, lazy = threading.Barrier(3), Lazy()
    found = run([lambda: lazy.value] * 3)
    assert all(each is lazy.value for each in found)


def test_attributes_hold_no_lock_of_the_class() -> None:
    package = Path(qd.__file__).parent
    users = [
        path for path in package.rglob("*.py") if "functools.cached_property" in path.read_text()
    ]
    assert [path.name for path in users] == ["cached_property.py"]  # which says why


def test_threads_compile_kernels_and_gradients() -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False)
    points = np.linspace(0.0, 2.0, 50)

    def slopes(factor: float) -> np.ndarray:
        x = qd.ndarray(qd.f64, 50, needs_grad=True)
        total = qd.ndarray(qd.f64, (), needs_grad=True)

        @qd.kernel
        def add(x: qd.types.ndarray(), total: qd.types.ndarray(), factor: qd.f64):
            for i in x:
                total[None] += qd.sin(factor * x[i])

        x.from_numpy(points)
        for _ in range(3):
            add(x, total, factor)
            x.grad.fill(0.0)
            total.grad.fill(1.0)
            add.grad(x, total, factor)
        return x.grad.to_numpy()

    factors = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    found = run([lambda factor=factor: slopes(factor) for factor in factors])
    for factor, slope in zip(factors, found, strict=True):
        np.testing.assert_allclose(slope, factor * np.cos(factor * points), atol=1e-12)


def test_a_thread_with_arrays_of_its_own_while_another_one_has_a_tape() -> None:
    """The tape does not see its launches and writes, which may happen at any time."""
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    interval = sys.getswitchinterval()

    @qd.kernel
    def add(x: qd.types.ndarray(), total: qd.types.ndarray()):
        for i in x:
            total[None] += x[i] * x[i]

    def arrays() -> tuple[Any, Any]:
        return qd.ndarray(qd.f64, 8, needs_grad=True), qd.ndarray(qd.f64, (), needs_grad=True)

    is_done = threading.Event()

    def compute() -> int:
        x, total = arrays()
        count = 0
        while not is_done.is_set():
            count += 1
            x.fill(count % 5)
            total.fill(0.0)
            add(x, total)
            assert total[None] == 8.0 * (count % 5) ** 2
        return count

    def differentiate() -> int:
        x, total = arrays()
        try:
            for k in range(150):
                x.fill(k % 7)
                with qd.ad.Tape(loss=total):
                    add(x, total)
                assert x.grad.to_numpy().tolist() == [2.0 * (k % 7)] * 8
        finally:
            is_done.set()
        return k + 1

    sys.setswitchinterval(1e-5)
    try:
        found = run([compute, compute, differentiate])
    finally:
        is_done.set()
        sys.setswitchinterval(interval)
    assert all(found)


def test_a_thread_with_arrays_of_its_own_does_not_interrupt_a_tape() -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64)

    @qd.kernel
    def square(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x, y, z = (qd.ndarray(qd.f64, 3, needs_grad=True) for _ in range(3))
    own, used = qd.ndarray(qd.f64, 3, needs_grad=True), qd.ndarray(qd.f64, 3, needs_grad=True)
    x.fill(2.0)
    for written in (own, own, own, own, y):
        with qd.ad.Tape() as tape:
            square(x, y)
            stops = tape._stops
            run([lambda written=written: (square(used, written), written.fill(0.5))])
            assert (tape._stops > stops) == (written is y)
            square(y, z)
            z.grad.fill(1.0)
        assert written.to_numpy().tolist() == [0.5] * 3
    assert x.grad.to_numpy().tolist() == [0.0] * 3  # written by the other thread
