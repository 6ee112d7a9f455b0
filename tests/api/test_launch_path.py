"""What a warm call does, and what it must notice although it does next to nothing."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.launch.warm import warm_call
from octants.runtime.arguments import launch_function


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


@qd.kernel
def scale(x: qd.types.ndarray(), factor: float):
    for i in x:
        x[i] = x[i] * factor


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that are generated for launches, as they are."""
    names: list[str] = []
    for module in (warm_call, launch_function):
        define: Callable[..., Any] = module.define

        def count(name: str, *rest: Any, define: Callable[..., Any] = define) -> Any:
            names.append(name)
            return define(name, *rest)

        monkeypatch.setattr(module, "define", count)
    return names


# -- once for each specialisation -----------------------------------------------------------------


def test_functions_are_generated_once_for_each_specialisation(generated: list[str]) -> None:
    @qd.kernel
    def double(x: qd.types.ndarray()):
        for i in x:
            x[i] = x[i] * 2

    arrays = [make(qd.f32) for make in (lambda d: qd.ndarray(d, 3), lambda d: qd.ndarray(d, 5))]
    arrays += [np.ones(3, np.float32), qd.ndarray(qd.i32, 3)]
    for _ in range(5):
        for array in arrays:
            double(array)
    assert sorted(generated) == ["entry"] * 3 + ["launch"] * 3 + ["recognise"] * 3


def test_arguments_in_turn_find_their_own_code() -> None:
    singles, doubles = qd.ndarray(qd.f32, 4), qd.ndarray(qd.f64, 4)
    numbers, matrix = np.ones(4), np.ones((2, 2), np.float32)
    every: list[Any] = [singles, doubles, numbers, matrix]
    singles.fill(1.0)
    doubles.fill(1.0)

    @qd.kernel
    def double(x: qd.types.ndarray()):
        for at in qd.grouped(x):
            x[at] = x[at] * 2.0

    for _ in range(3):
        for array in every:
            double(array)
    assert all((np.asarray(array) == 8.0).all() for array in every)


def test_launches_leave_no_memory_behind() -> None:
    x, y = qd.field(qd.f32, shape=4), qd.ndarray(qd.f32, 4)
    numbers = np.ones(4, np.float32)

    @qd.kernel
    def mix(a: qd.types.ndarray(), b: qd.types.ndarray(), c: float) -> float:
        for i in x:
            x[i] += a[i] + b[i] * c
        return x[0]

    def many(count: int) -> int:
        for _ in range(count):
            mix(y, numbers, 0.5)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        many(300)  # as many as a queue of a device holds
        grown = []
        for _ in range(3):  # a table of something else may grow once
            before = many(10)
            grown.append(many(2000) - before)
        assert min(grown) < 2000
    finally:
        tracemalloc.stop()


# -- what is noticed ------------------------------------------------------------------------------


def test_an_array_whose_memory_has_moved() -> None:
    x = np.ones(4, np.float32)
    scale(x, 2.0)
    x.resize((4000,), refcheck=False)
    x[:] = 1.0
    scale(x, 3.0)
    assert (x == 3.0).all()


def test_an_array_whose_shape_strides_or_flags_have_changed() -> None:
    x = np.arange(6, dtype=np.float32)

    @qd.kernel
    def total(x: qd.types.ndarray()) -> float:
        s = 0.0
        for at in qd.grouped(x):
            s += x[at] * (at[0] + 1)
        return s

    assert total(x) == sum(k * (k + 1) for k in range(6))
    grid = np.asfortranarray(x.reshape(2, 3))
    assert total(grid) == 0 + 1 + 2 + 2 * (3 + 4 + 5)
    scale(x, 1.0)
    x.flags.writeable = False
    with pytest.raises(qd.OctantsError, match="read-only"):
        scale(x, 1.0)


def test_a_tensor_that_was_given_other_memory() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(4)
    scale(x, 2.0)
    x.set_(torch.ones(9))
    scale(x, 3.0)
    assert (x == 3.0).all() and len(x) == 9
    x.requires_grad_(True)
    scale(x, 2.0)
    assert (x == 6.0).all()


def test_an_array_from_before_init() -> None:
    x = qd.ndarray(qd.f32, 4)
    scale(x, 2.0)
    qd.init(arch=qd.cpu, log_level="error")
    fresh = qd.ndarray(qd.f32, 4)
    scale(fresh, 2.0)
    with pytest.raises(qd.OctantsError, match="init"):
        scale(x, 2.0)


def test_a_tree_of_fields_that_was_destroyed() -> None:
    x = qd.field(qd.f32)
    builder = qd.FieldsBuilder()
    builder.dense(qd.i, 4).place(x)
    tree = builder.finalize()

    @qd.kernel
    def fill():
        for i in x:
            x[i] = 1.0

    fill()
    tree.destroy()
    with pytest.raises(qd.OctantsError, match="destroyed"):
        fill()


def test_wrong_arguments_after_right_ones() -> None:
    x = qd.ndarray(qd.f32, 4)
    scale(x, 2.0)
    with pytest.raises(qd.OctantsError, match="cannot be converted"):
        scale(x, "2")
    with pytest.raises(qd.OctantsError, match="not an array"):
        scale(2.0, 2.0)
    with pytest.raises(qd.OctantsError, match="arguments for 2 parameters"):
        scale(x, 2.0, 3.0)
    scale(x=x, factor=2.0)


def test_a_tape_that_becomes_active() -> None:
    x = qd.field(qd.f32, shape=(), needs_grad=True)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.kernel
    def square():
        loss[None] += x[None] ** 2

    x[None] = 3.0
    for _ in range(2):
        square()
        with qd.ad.Tape(loss):
            square()
        assert x.grad[None] == 6.0
    square()
    assert loss[None] == 18.0


def test_what_a_kernel_raises_is_not_taken_for_unknown_arguments() -> None:
    calls = []

    class Recorder:
        paused = 0

        def launch(self, specialisation: Any, arguments: tuple[Any, ...]) -> Any:
            calls.append(arguments)
            raise ValueError("from within")

    x = qd.ndarray(qd.f32, 4)
    scale(x, 2.0)
    state = warm_call.driver.state
    state.recorder = Recorder()
    try:
        with pytest.raises(ValueError, match="from within"):
            scale(x, 2.0)
    finally:
        state.recorder = None
    assert len(calls) == 1


def test_launches_of_several_threads_keep_their_arguments_apart() -> None:
    arrays = [np.zeros(8, np.int64) for _ in range(4)]

    @qd.kernel
    def add(x: qd.types.ndarray(), amount: qd.i64):
        for i in x:
            x[i] += amount

    add(np.zeros(8, np.int64), 0)

    def launch_many(array: Any, amount: int) -> None:
        for _ in range(400):
            add(array, amount)

    threads = [
        threading.Thread(target=launch_many, args=(array, number + 1))
        for number, array in enumerate(arrays)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [array.tolist() for array in arrays] == [[400 * (k + 1)] * 8 for k in range(4)]


@pytest.mark.parametrize(
    "given", [[1, 2], (1, 2), qd.Vector([1, 2]), np.array([1, 2]), [[1], [2]], [np.int8(1), 2]]
)
def test_a_vector_in_every_form(given: Any) -> None:
    @qd.kernel
    def weigh(v: qd.types.vector(2, qd.i32), w: qd.types.vector(2, qd.f32)) -> qd.f32:
        return v[0] * 10 + v[1] + w[0] - w[1]

    for _ in range(2):
        assert weigh(given, given) == 11.0
    assert weigh(given, (1e60, 0.0)) == np.inf
    assert weigh((True, False), (0.5, False)) == 10.5


@pytest.mark.parametrize("wrong", [(1.5, 2), (1, 2, 3), ("1", 2), (None, 1), 3, (2**31, 0)])
def test_a_vector_that_does_not_fit_after_one_that_does(wrong: Any) -> None:
    @qd.kernel
    def first(v: qd.types.vector(2, qd.i32), of: qd.types.vector(2, qd.u1)) -> qd.i32:
        return v[0] if of[0] else v[1]

    assert first((1, 2), (True, False)) == 1
    with pytest.raises(qd.OctantsError):
        first(wrong, (True, False))
    with pytest.raises(qd.OctantsError):
        first((1, 2), ("true", 0.5))
    assert first((1, 2), (False, 1)) == 2


def test_a_returned_vector_is_a_value_of_its_own() -> None:
    @qd.kernel
    def pair(k: qd.i32) -> qd.types.vector(2, qd.f32):
        return qd.Vector([k + 0.1, 2.0])

    one, other = pair(1), pair(2)
    assert isinstance(one, qd.Vector)
    assert one.declared_dtype is qd.f32
    one[1] = 5.0
    assert (one[0], one[1], other[1]) == (float(np.float32(1.1)), 5.0, 2.0)


def test_a_launch_copies_the_numbers_that_arrays_of_numpy_have_now() -> None:
    @qd.kernel
    def add(p: qd.types.ndarray(qd.f32, ndim=1), q: qd.types.ndarray(qd.f32, ndim=1), s: qd.f32):
        for i in p:
            p[i] += s * q[i]

    for count in (5, 5, 8, 400_000, 5):  # other arrays, and some too large to be kept
        p, q = np.zeros(count, np.float32), np.ones(count, np.float32)
        for k in range(4):
            q[:] = k
            add(p, q, 2.0)
        assert (p == 12).all()
        add(q, p, 1.0)
        assert (q == 15).all()
        assert (p == 12).all()
    add(p, p, 1.0)
    assert (p == 24).all()
    numbers = np.arange(10, dtype=np.float32)
    add(numbers[::2], numbers[1::2].copy(), 1.0)
    assert numbers.tolist() == [1, 1, 5, 3, 9, 5, 13, 7, 17, 9]


def test_an_array_that_is_passed_twice_leaves_later_ones_their_own_copies() -> None:
    @qd.kernel
    def add(p: qd.types.ndarray(qd.f32, ndim=1), q: qd.types.ndarray(qd.f32, ndim=1)):
        for i in p:
            p[i] += q[i]

    p = np.ones(5, np.float32)
    add(p, p)
    assert (p == 2).all()
    a, b = np.full(5, 10, np.float32), np.full(5, 3, np.float32)
    add(a, b)
    assert (a == 13).all()
    assert (b == 3).all()
