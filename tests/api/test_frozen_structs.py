"""Launches with structs of arrays that never change, and with structs that do."""

from __future__ import annotations

import dataclasses
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.arguments import argument_recognition


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


@dataclasses.dataclass(frozen=True)
class Inner:
    a: qd.Tensor
    b: qd.Tensor
    c: qd.Tensor


@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner
    d: qd.Tensor
    e: qd.Tensor
    f: qd.Tensor
    g: qd.Tensor


@dataclasses.dataclass
class Changing:
    inner: Inner
    d: qd.Tensor
    e: qd.Tensor
    f: qd.Tensor
    g: qd.Tensor


WEIGHTS = np.arange(1, 8)


@qd.kernel
def total(s: Outer, weight: int) -> int:
    first = s.inner.a[0] + 2 * s.inner.b[0] + 3 * s.inner.c[0]
    return weight * (first + 4 * s.d[0] + 5 * s.e[0] + 6 * s.f[0] + 7 * s.g[0])


@qd.kernel
def add_one(s: Outer):
    for i in range(4):
        s.g[i] += 1


def field(value: int) -> Any:
    made = qd.field(qd.i32, shape=4)
    made.fill(value)
    return made


def ndarray(value: int) -> Any:
    made = qd.ndarray(qd.i32, shape=4)
    made.fill(value)
    return made


def struct(make: Callable[[int], Any], first: int = 0, kind: Any = Outer) -> Any:
    made = [make(first + k) for k in range(7)]
    return kind(Inner(*made[:3]), *made[3:])


def expected(first: int = 0) -> int:
    return int(WEIGHTS @ (first + np.arange(7)))


FORMS = pytest.mark.parametrize("make", [field, ndarray, lambda value: np.full(4, value, np.int32)])
OWN = pytest.mark.parametrize("make", [field, ndarray])


@FORMS
def test_each_launch_gets_its_struct(make: Callable[[int], Any]) -> None:
    one, other = struct(make), struct(make, 10)
    for k in range(3):
        assert total(one, k) == k * expected()
        assert total(one, 1) == expected()
        assert total(other, k) == k * expected(10)
    for _ in range(3):
        add_one(one)
        add_one(other)
    assert [int(each.g[0]) for each in (one, other)] == [9, 19]


@OWN
def test_a_struct_that_is_known_is_not_compared(
    make: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    define: Callable[..., Any] = argument_recognition.define

    def note(name: str, *rest: Any) -> Any:
        names.append(name)
        return define(name, *rest)

    monkeypatch.setattr(argument_recognition, "define", note)
    one, other = struct(make), struct(make, 10)
    for _ in range(5):
        assert total(one, 1) == expected()
    assert names == []
    if make is ndarray:  # fields are a part of the kernel
        for _ in range(5):
            assert total(other, 1) == expected(10)
        assert sorted(names) == ["is_frozen", "is_like"]


@FORMS
def test_a_struct_that_changes_is_looked_at(make: Callable[[int], Any]) -> None:
    s = struct(make, kind=Changing)
    assert total(s, 1) == expected()
    s.g = make(100)
    assert total(s, 1) == expected() + 7 * 94
    s.inner = Inner(make(1), s.inner.b, s.inner.c)
    assert total(s, 1) == expected() + 7 * 94 + 1
    s.e, s.d = s.d, s.e
    assert total(s, 1) == expected() + 7 * 94


def test_a_struct_that_changes_after_one_that_does_not() -> None:
    arrays = [ndarray(k) for k in range(7)]
    total.inspect(Outer(Inner(*arrays[:3]), *arrays[3:]), 1)
    s = Changing(Inner(*arrays[:3]), *arrays[3:])
    assert total(s, 1) == expected()
    assert total(s, 1) == expected()
    s.g = ndarray(100)
    assert total(s, 1) == expected() + 7 * 94
    assert total(Outer(Inner(*arrays[:3]), *arrays[3:]), 1) == expected()
    s.f = ndarray(50)
    assert total(s, 1) == expected() + 7 * 94 + 6 * 45


@OWN
def test_a_frozen_struct_that_holds_one_which_changes(make: Callable[[int], Any]) -> None:
    @dataclasses.dataclass
    class Loose:
        a: qd.Tensor
        b: qd.Tensor

    @dataclasses.dataclass(frozen=True)
    class Holder:
        loose: Loose
        c: qd.Tensor
        d: qd.Tensor

    @qd.kernel
    def digits(s: Holder) -> int:
        return s.loose.a[0] + 10 * s.loose.b[0] + 100 * s.c[0] + 1000 * s.d[0]

    s = Holder(Loose(make(1), make(2)), make(3), make(4))
    assert digits(s) == 4321
    s.loose.a, s.loose.b = s.loose.b, s.loose.a
    assert digits(s) == 4312
    s.loose.a = make(7)
    assert digits(s) == 4317


def test_a_frozen_struct_with_a_property_instead_of_a_member() -> None:
    class Later(Inner):
        arrays: tuple[Any, ...] = ()

        @property
        def a(self) -> Any:
            return type(self).arrays[0]

    later = object.__new__(Later)
    vars(later).update(b=ndarray(1), c=ndarray(2))
    s = Outer(later, *(ndarray(k) for k in range(3, 7)))
    for value in (0, 5, 9):
        Later.arrays = (ndarray(value),)
        assert total(s, 1) == expected() + value


def test_members_that_are_not_octants_arrays() -> None:
    s = Outer(Inner(*(ndarray(k) for k in range(3))), *(ndarray(k) for k in range(3, 6)), None)  # type: ignore[call-arg]
    numbers = np.full(4, 6, np.int32)
    s = dataclasses.replace(s, g=numbers)
    assert total(s, 1) == expected()
    numbers.resize(4000, refcheck=False)
    numbers[:] = 7
    assert total(s, 1) == expected() + 7


def test_numbers_in_a_struct() -> None:
    @dataclasses.dataclass(frozen=True)
    class Mixed:
        x: qd.Tensor
        y: qd.Tensor
        k: int
        flag: qd.template()

    @qd.kernel
    def mix(s: Mixed) -> int:
        result = s.x[0] + s.k
        if qd.static(s.flag):
            result += s.y[0]
        return result

    x, y = ndarray(1), ndarray(10)
    for k, flag in [(5, True), (5, False), (6, True), (np.int32(7), True)]:
        s = Mixed(x, y, k, flag)
        for _ in range(2):
            assert mix(s) == 1 + int(k) + (10 if flag else 0)


def test_launches_keep_no_struct_alive() -> None:
    first = struct(ndarray)
    total(first, 1)
    total(first, 1)
    reference, array = weakref.ref(first), weakref.ref(first.g)
    del first
    gc.collect()
    assert reference() is None
    assert array() is None
    for k in range(3):
        other = struct(ndarray, k)
        for _ in range(3):
            assert total(other, 1) == expected(k)


def test_a_struct_from_before_init() -> None:
    s = struct(ndarray)
    assert total(s, 1) == expected()
    qd.init(arch=qd.cpu, log_level="error")
    fresh = struct(ndarray, 3)
    assert total(fresh, 1) == expected(3)
    with pytest.raises(qd.OctantsError, match="init"):
        total(s, 1)
    assert total(fresh, 1) == expected(3)


def test_a_launch_after_one_that_failed() -> None:
    one, other = struct(ndarray), struct(ndarray, 10)
    assert total(one, 1) == expected()
    with pytest.raises(qd.OctantsError, match="cannot be converted"):
        total(other, "2")
    assert total(one, 1) == expected()
    assert total(other, True) == expected(10)
    assert total(one, 2) == 2 * expected()


def test_structs_of_several_threads() -> None:
    structs = [struct(ndarray, 10 * k) for k in range(4)]
    add_one(struct(ndarray))

    def launch_many(s: Any) -> None:
        for _ in range(200):
            add_one(s)

    threads = [threading.Thread(target=launch_many, args=(each,)) for each in structs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.g.to_numpy().tolist() for each in structs] == [
        [206 + 10 * k] * 4 for k in range(4)
    ]


def test_gradients_with_structs() -> None:
    @dataclasses.dataclass(frozen=True)
    class Pair:
        x: qd.Tensor
        y: qd.Tensor
        z: qd.Tensor

    @qd.kernel
    def multiply(s: Pair):
        for i in range(4):
            s.z[None] += s.x[i] * s.y[i]

    for make in (qd.ndarray, qd.field):
        arrays = [make(qd.f64, shape=shape, needs_grad=True) for shape in (4, 4, ())]
        pairs = [Pair(*arrays), Pair(arrays[1], arrays[0], arrays[2])]
        arrays[0].from_numpy(np.arange(4.0))
        arrays[1].from_numpy(np.arange(1.0, 5.0))
        for pair in (*pairs, *pairs):
            with qd.ad.Tape(arrays[2]):
                multiply(pair)
            assert arrays[0].grad.to_numpy().tolist() == [1.0, 2.0, 3.0, 4.0]
            assert arrays[1].grad.to_numpy().tolist() == [0.0, 1.0, 2.0, 3.0]
