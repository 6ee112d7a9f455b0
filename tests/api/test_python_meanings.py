"""What peers refuse and Octants gives the meaning that it has in Python; docs/migration.md."""

# ruff: noqa: RET503

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


def test_parameters_and_indices_are_variables() -> None:
    @qd.kernel
    def run(a: qd.i32 = 3) -> qd.i32:
        a += 1
        total = 0
        for i in range(a):
            i = i * 2
            total += i
        if total > 12:
            return a
        return total + (a in (4, 5))

    assert [run(), run(1), run(4), run(5)] == [13, 2, 5, 6]


def test_conditions_lambdas_and_returns_without_annotation() -> None:
    @qd.kernel
    def run(x: qd.f32):
        double = lambda y: y * 2  # noqa: E731
        i = 0
        while not (double(x) - i and i > 5):
            i += 1
        if i == 7:
            return i
        return -i

    assert (run(3.0), run(1.0)) == (7, -6)


def test_sizes_count_elements() -> None:
    field, vectors = qd.field(qd.f32, (3, 4)), qd.Vector.ndarray(3, qd.f32, (2, 3))

    @qd.kernel
    def sizes(a: qd.types.ndarray(ndim=1), b: qd.types.ndarray(ndim=3), v: qd.Tensor) -> qd.i64:
        for i in range(a.size):
            a[i] += 1.0
        for i in range(b.size):
            a[i % a.size] += 1.0
        return b.size * 10000 + v.size * 100 + field.size

    a = np.zeros(5, np.float32)
    assert sizes(a, np.zeros((2, 3, 4), np.float32), vectors) == 240612
    assert a.tolist() == [6, 6, 6, 6, 5]
    assert sizes(a, np.zeros((0, 3, 4), np.float32), field) == 1212


def test_arrays_of_either_kind_fit() -> None:
    class Plain:
        @qd.kernel
        def fill(self, x: qd.template(), y: qd.types.ndarray()):
            for i in x:
                x[i] = y[i] = i

    for x in (qd.field(np.int32, 3), qd.ndarray(qd.i32, 3)):
        for y in (qd.field(np.int32, 3), qd.ndarray(qd.i32, 3)):
            Plain().fill(x, y)
            assert x.to_numpy().tolist() == y.to_numpy().tolist() == [0, 1, 2]


def test_references_to_variables_of_the_caller() -> None:
    x = qd.field(qd.f32, 2)

    @qd.experimental.real_func
    def add(total: qd.ref(qd.f32), y: qd.f32) -> qd.i32:
        total += y
        if total > 2.0:
            return 1
        return 0

    @qd.kernel
    def run() -> qd.types.vector(3, qd.f32):
        total = 0.5
        first = add(total, 1.0)
        second = add(total, 1.0)
        add(x[1], 4.0)
        return qd.Vector([total, first, second])

    assert run().to_list() == [2.5, 0.0, 1.0]
    assert x.to_numpy().tolist() == [0.0, 4.0]


def test_what_peers_pass_over_is_an_error() -> None:
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def number(a: qd.i32) -> qd.i32:
        return a

    @qd.kernel
    def floats(a: qd.f32):
        for _ in range(a):
            pass

    @qd.kernel
    def other_type():
        a = 1
        a = qd.Vector([1, 2])  # noqa: F841

    @qd.real_func
    def partly(a: qd.i32) -> qd.i32:
        if a > 2:
            return a

    @qd.kernel
    def call() -> qd.i32:
        return partly(1)

    with pytest.raises(qd.OctantsArgumentError, match="out of the range"):
        number(2**40)
    with pytest.raises(qd.OctantsHostIndexError):
        x[-1] = 1
    with pytest.raises(qd.OctantsTypeError, match="OCT135"):
        floats(2.5)
    with pytest.raises(qd.OctantsTypeError, match="OCT130"):
        other_type()
    with pytest.raises(qd.OctantsSyntaxError, match="OCT154"):
        call()
    with pytest.raises(qd.OctantsValueError, match="OCT513"):
        qd.root.dense(qd.ijk, (4, 4))


def test_lambdas_have_defaults_and_keywords() -> None:
    def run(a, b):
        scale = 1.0
        add = lambda u, v=2.0, *, w=scale + a: u * v + w  # noqa: E731
        only = lambda u, /: u * scale  # noqa: E731
        scale = 10.0
        return add(a) + 100.0 * add(b, 3.0) + add(v=a, u=b, w=b) + only(a)

    call = qd.func(run)

    @qd.kernel
    def in_kernel(a: qd.f64, b: qd.f64) -> qd.f64:
        return call(a, b)

    assert in_kernel(0.3, 0.7) == pytest.approx(run(0.3, 0.7), rel=1e-6)


def test_whether_an_array_has_a_gradient_is_known_at_compile_time() -> None:
    pairs = qd.types.struct(a=qd.f32, b=qd.f32)
    plain, with_grad = (pairs.field(shape=2, needs_grad=needs) for needs in (False, True))

    @qd.kernel
    def run(x: qd.types.ndarray(), y: qd.template()) -> qd.i32:
        found = 0
        if qd.static(x.grad is not None):
            found += 1
        if qd.static(y.grad is not None and y.grad.shape[0] == 3):
            found += 10
        if qd.static(plain.grad is None and plain.a.grad is None):
            found += 100
        if qd.static(with_grad.grad is not None):
            found += 1000
        return found

    without, having = (qd.ndarray(qd.f32, 3, needs_grad=needs) for needs in (False, True))
    fields = [qd.field(qd.f32, 3, needs_grad=needs) for needs in (False, True)]
    found = [run(x, y) for y in fields for x in (without, having)]
    assert found == [1100, 1101, 1110, 1111]


def test_number_of_a_stated_type_is_not_rounded_to_the_default_first() -> None:
    @qd.kernel
    def stated() -> qd.f64:
        x: qd.f64 = 0.1
        return x

    @qd.kernel
    def returned(n: qd.i32) -> qd.f64:
        if n > 0:
            return 0.1
        return 0.2

    @qd.kernel
    def several() -> (qd.f64, qd.i32, qd.f32):
        return 0.1, 7, 0.1

    assert stated() == returned(1) == 0.1
    assert returned(0) == 0.2
    assert several() == (0.1, 7, float(np.float32(0.1)))
