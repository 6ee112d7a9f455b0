"""Several threads of a program compile and launch kernels at the same time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.cached_property import cached_property
from tests.golden_files import check_golden, without_lines

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
    texts = [path.read_text() for path in package.rglob("*.py")]
    assert not any("@functools.cached_property" in text for text in texts)  # see `cached_property`


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
            before = tape._divergences
            run([lambda written=written: (square(used, written), written.fill(0.5))])
            assert (tape._divergences > before) == (written is y)
            square(y, z)
            z.grad.fill(1.0)
        assert written.to_numpy().tolist() == [0.5] * 3
    assert x.grad.to_numpy().tolist() == [0.0] * 3  # written by the other thread


def test_threads_that_overwrite_what_a_tape_of_another_one_needs() -> None:
    """The tape saves it first; what threads change of the tape, they change one at a time."""
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    interval, count = sys.getswitchinterval(), 6

    @qd.kernel
    def scale(x: qd.types.ndarray(), factors: qd.types.ndarray(), total: qd.types.ndarray()):
        for i in x:
            total[None] += x[i] * factors[i]

    @qd.kernel
    def step(y: qd.types.ndarray()):
        for i in y:
            y[i] = 0.9 * y[i] * y[i] + 0.1

    @qd.kernel
    def put(factors: qd.types.ndarray(), value: qd.f64):
        for i in factors:
            factors[i] = value

    x, y = (qd.ndarray(qd.f64, 8, needs_grad=True) for _ in range(2))
    total = qd.ndarray(qd.f64, (), needs_grad=True)
    first, others = ([qd.ndarray(qd.f64, 8) for _ in range(count)] for _ in range(2))

    def gradient(thread: threading.Thread | None = None) -> list[float]:
        for k in range(count):
            first[k].fill(1.0 + k)
            others[k].fill(0.5 + k)
        y.fill(0.5)
        x.fill(2.0)
        with qd.ad.Tape(loss=total):
            for k in range(count):
                scale(x, first[k], total)
            if thread is not None:
                thread.start()
            for _ in range(8):
                for k in range(count):
                    scale(x, others[k], total)
                step(y)
            scale(x, y, total)
            if thread is not None:
                thread.join(LONG)
        return x.grad.to_numpy().tolist()

    errors: list[Exception] = []

    def overwrite() -> None:
        try:
            for k in range(3 * count):
                if k % 2:
                    first[k % count].fill(100.0 + k)
                else:
                    put(first[k % count], 100.0 + k)
        except Exception as error:
            errors.append(error)

    wanted = gradient()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(150):
            assert gradient(threading.Thread(target=overwrite, daemon=True)) == wanted
            assert not errors
            ends = [first[k].to_numpy()[0] for k in range(count)]
            assert ends == [112.0 + k for k in range(count)]
    finally:
        sys.setswitchinterval(interval)


def test_functions_that_a_tape_records_in_another_way_are_those_of_its_thread() -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64)

    @qd.kernel
    def square(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    is_inside, may_end = threading.Event(), threading.Event()
    x, y, own = (qd.ndarray(qd.f64, 3, needs_grad=True) for _ in range(3))
    x.fill(3.0)

    def work() -> None:
        square(own, own)
        is_inside.set()
        may_end.wait(LONG)

    replaced = qd.ad.grad_replaced(work)
    qd.ad.grad_for(replaced)(lambda: pytest.fail("it is not on the tape"))
    for function in (qd.ad.no_grad(work), replaced):
        is_inside.clear()
        may_end.clear()
        thread = threading.Thread(target=function, daemon=True)
        with qd.ad.Tape():
            thread.start()
            assert is_inside.wait(LONG)
            square(x, y)
            may_end.set()
            thread.join(LONG)
            y.grad.fill(1.0)
        assert x.grad.to_numpy().tolist() == [6.0] * 3


@pytest.mark.parametrize("repeated", [1, 9])
def test_a_thread_writes_arrays_of_numpy_while_another_one_has_a_tape(repeated: int) -> None:
    """Before the tape needs them, while it does, and in its backward pass."""
    qd.init(arch=qd.cpu, default_fp=qd.f64)

    @qd.kernel
    def square(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    class Waits:
        """An entry whose reverse runs while another thread works."""

        def reverse(self, _: Any) -> None:
            run([lambda: square(own, own)])

    x, y = (qd.ndarray(qd.f64, 3, needs_grad=True) for _ in range(2))
    for _ in range(repeated):
        own, weights = np.full(3, 2.0), np.full(3, 3.0)
        x.fill(3.0)
        with qd.ad.Tape() as tape:
            run([lambda: square(own, own)])
            square(x, y)
            tape.append(Waits())
            run([lambda: square(own, own), lambda: square(weights, weights)])
            weigh(weights, y)
            run([lambda: square(weights, weights)])
            y.grad.fill(1.0)
        assert own.tolist() == [2.0**8] * 3
        assert x.grad.to_numpy().tolist() == [54.0] * 3
        assert weights.tolist() == [81.0] * 3


@qd.kernel
def weigh(w: qd.types.ndarray(), y: qd.types.ndarray()):
    for i in y:
        y[i] *= w[i]


def test_a_thread_that_writes_what_the_backward_pass_needs() -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64)

    @qd.kernel
    def square(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x, y, z, own = (qd.ndarray(qd.f64, 3, needs_grad=True) for _ in range(4))
    errors: list[Any] = []

    def write() -> None:
        own.fill(1.0)
        square(own, own)
        for write in (lambda: x.fill(5.0), lambda: square(own, x)):
            with pytest.raises(qd.OctantsRuntimeError, match="OCT492") as caught:
                write()
            errors.append(caught.value)

    class Waits:
        """An entry whose reverse runs while another thread works."""

        def reverse(self, _: Any) -> None:
            run([write])

    x.fill(3.0)
    with qd.ad.Tape() as tape:
        square(x, y)
        tape.append(Waits())
        square(y, z)
        z.grad.fill(1.0)
    check_golden("errors/OCT492_written_during_reverse", without_lines(str(errors[0])))
    assert len(errors) == 2
    assert x.to_numpy().tolist() == [3.0] * 3
    assert x.grad.to_numpy().tolist() == [4.0 * 27.0] * 3
