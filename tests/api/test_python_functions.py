"""Functions that were written for Python - not decorated - called in kernels."""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.cache.digest import Digest


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


def square(x):
    return x * x + 1


def grown(x, n):
    total = 0.0
    for _ in range(n):
        if total > 100:
            break
        total += x
    return total


def next_of(n, x):
    n += 1
    return n * x


def typed(x: float, k: int) -> float:
    return x * k


def first_set(v):
    v[0] = 5.0
    return v.sum()


def both(x):
    return x, x + 1


def apply(function, x):
    return function(x)


def times(k):
    def inner(x):
        return x * k

    return inner


class Law:
    scale = 2.0

    def __init__(self, k: float) -> None:
        self.k = k

    @staticmethod
    def shifted(x):
        return x + 100

    @classmethod
    def scaled(cls, x):
        return x * cls.scale

    def of(self, x):
        return x * self.k

    def __call__(self, x):
        return x - self.k


def nested(x):
    return (lambda x: x + 1)(x) * 10  # noqa: PLC3002


law = Law(3.0)
power = lambda x, n=2: x**n  # noqa: E731
pair = [
    lambda x: x + 1,
    lambda x: x * 2,
]
tripled = qd.func(lambda x: x * 3)
thrice = functools.partial(grown, n=3)
at_least = functools.partial(qd.max, 2.5)
seven = times(7)


def test_functions_are_inlined() -> None:
    @qd.kernel
    def run(x: qd.f32, out: qd.types.ndarray()):
        out[0] = square(x)
        out[1] = power(x) + power(x, n=3)
        out[2] = grown(x, 4)
        out[3] = next_of(2, x)
        out[4] = typed(x, 2)
        out[5] = Law.shifted(x) + law.shifted(x)
        out[6] = law.scaled(x)
        out[7] = law.of(x)
        out[8] = law(x)
        out[9] = seven(x)
        out[10] = thrice(x)
        out[11] = at_least(x - 1)
        out[12] = pair[0](x) + pair[1](x)
        out[13] = nested(x)
        out[14] = tripled(x) + apply(tripled, x) + apply(lambda y: y * 2, x)
        out[15] = both(x)[1]
        out[16] = square(2) + qd.static(square(3))

    out = np.zeros(17)
    run(3.0, out)
    expected = [10, 36, 12, 9, 6, 206, 6, 9, 0, 21, 9, 2.5, 10, 40, 24, 4, 15]
    assert out.tolist() == expected


def test_numbers_stay_numbers_and_vectors_are_values() -> None:
    @qd.kernel
    def run(x: qd.f64) -> (qd.f64, qd.f64, qd.f64):
        v = qd.Vector([x, 4.0], qd.f64)
        total = first_set(v)
        return typed(x, 0.1), total, v[0]

    assert run(0.3) == (0.3 * 0.1, 9.0, 0.3)


def test_functions_that_work_on_arrays_run_in_the_kernel() -> None:
    x, y = qd.field(qd.f32, 4), qd.field(qd.f32, 4)

    class Holder:
        def __init__(self) -> None:
            self.x = x

        def get(self, i):
            return self.x[i]

        def through(self, i):
            return self.get(i) + read(i)

    def read(i):
        return x[i]

    def write(i):
        y[i] = read(i) * 2

    def noise():
        return qd.random()

    holder = Holder()

    @qd.kernel
    def run() -> qd.f32:
        x[1] = 5
        write(1)
        return holder.through(1) + holder.get(1) + read(1) + y[1] * (noise() < 2)

    assert run() == 30
    x[1] = 0  # what a host read at compile time would have seen
    assert run() == 30


def test_gradients_go_through_functions() -> None:
    x = qd.field(qd.f32, 3, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)
    x.from_numpy(np.array([1, 2, 3], np.float32))

    @qd.kernel
    def run():
        for i in x:
            loss[None] += seven(square(x[i])) + power(x[i], 3)

    with qd.ad.Tape(loss):
        run()
    assert np.allclose(x.grad.to_numpy(), [14 + 3, 28 + 12, 42 + 27])


def test_closures_and_partials_that_change_are_seen() -> None:
    factor = 2.0

    def scaled(x):
        return x * factor

    @qd.kernel
    def run(x: qd.f32) -> qd.f32:
        return scaled(x)

    assert run(3.0) == 6
    factor = 5.0
    assert run(3.0) == 15


def test_what_cannot_be_compiled_says_so() -> None:
    def prints(x):
        try:
            return x
        finally:
            pass

    @qd.kernel
    def builtin(x: qd.f32) -> qd.f32:
        return sorted([x, 1.0])[1]

    @qd.kernel
    def library(x: qd.f32) -> qd.f32:
        return np.sin(x)

    @qd.kernel
    def syntax(x: qd.f32) -> qd.f32:
        return prints(x)

    with pytest.raises(qd.OctantsTypeError, match="`sorted` is a Python function"):
        builtin(1.0)
    with pytest.raises(qd.OctantsTypeError, match=r"use `qd\.sin`"):
        library(1.0)
    with pytest.raises(qd.OctantsSyntaxError, match=r"in `prints`"):
        syntax(1.0)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no columns")
def test_lambdas_of_one_line_are_told_apart() -> None:
    pair = [lambda x: x + 1, lambda x: x * 2]

    def hashed(value: Any) -> Any:
        digest = Digest()
        digest.value(value)
        return digest.text

    assert hashed(pair[0]) != hashed(pair[1])


def doubled(function):
    @functools.wraps(function)
    def wrapper(value):
        return 2 * function(value)

    return wrapper


class Negated:
    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, a):
        return -self.function(a)


@doubled
@qd.func
def doubled_func(x):
    return x + 1


@doubled
def doubled_function(x):
    return x + 2


@Negated
@qd.func
def negated_func(x):
    return x + 3


@functools.wraps(doubled_func)
def star(*values):
    return doubled_func(*values)


doubled_fract = doubled(qd.math.fract)
fixed_func = functools.update_wrapper(functools.partial(qd.func(grown), n=3), grown)


def test_wrappers_are_called_in_place_of_what_they_wrap() -> None:
    """`functools.wraps` copies the marks, the module and the signature of a function."""

    @qd.kernel
    def run(x: qd.f32, out: qd.types.ndarray()):
        out[0] = doubled_func(x)
        out[1] = doubled_function(x)
        out[2] = negated_func(x)
        out[3] = doubled_fract(x)
        out[4] = fixed_func(x)

    out = np.zeros(5)
    run(2.25, out)
    assert out.tolist() == [6.5, 8.5, -5.25, 0.5, 6.75]

    @qd.kernel
    def call_star(x: qd.f32) -> qd.f32:
        return star(x)

    with pytest.raises(qd.OctantsSyntaxError, match="OCT103: `doubled_func` takes a variable"):
        call_star(1.0)


BINARY = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow]
BINARY += [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
BINARY += [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]
UNARY = [operator.neg, operator.pos, operator.invert, operator.abs, operator.not_]


def test_the_functions_of_operator_are_operators() -> None:
    @qd.kernel
    def run(a: qd.i32, b: qd.i32, out: qd.types.ndarray()):
        for k in qd.static(range(len(BINARY))):
            out[k] = int(BINARY[k](a, b))
        for k in qd.static(range(len(UNARY))):
            out[len(BINARY) + k] = int(UNARY[k](a))
        out[len(BINARY) + len(UNARY)] = int(10 * operator.truediv(a, b))

    out = np.zeros(len(BINARY) + len(UNARY) + 1, np.int32)
    for a, b in ((7, 2), (-7, 3), (2, 2)):
        run(a, b, out)
        expected = [int(function(a, b)) for function in BINARY] + [int(f(a)) for f in UNARY]
        assert out.tolist() == [*expected, int(10 * a / b)]


def test_functions_of_math_take_numbers_of_the_run() -> None:
    def look(x, y):
        whole = math.floor(x) * 100 + math.ceil(x) * 10 + math.trunc(x)
        return whole / 2 + math.atan2(x, y) + math.isnan(x - x) + math.isinf(x / y)

    @qd.kernel
    def call(x: qd.f64, y: qd.f64) -> qd.f64:
        return look(x, y)

    for x, y in ((2.5, 1.5), (-2.5, 1.5), (3.0, -0.5)):
        assert call(x, y) == pytest.approx(look(x, y), rel=1e-12)


def test_map_and_reduce_call_their_function() -> None:
    @qd.func
    def twice(x):
        return 2.0 * x

    @qd.kernel
    def run(x: qd.f32, v: qd.math.vec3) -> qd.f32:
        a, b = map(twice, (x, 3.0))
        rest = functools.reduce(operator.add, v, 100.0)
        return a + b + rest + functools.reduce(lambda p, q: p * q, [x, x, 2])

    assert run(5.0, [1.0, 2.0, 3.0]) == 10 + 6 + 106 + 50


def test_operators_and_applied_functions_with_wrong_arguments() -> None:
    for wrong in (
        lambda x: operator.add(x),  # type: ignore[call-arg]
        lambda x: map(x),
        lambda x: functools.reduce(max, []),  # noqa: ARG005
    ):

        @qd.kernel
        def run(x: qd.f32):
            wrong(x)

        with pytest.raises(qd.OctantsError, match="OCT153"):
            run(1.0)


def test_an_error_of_a_property_shows_the_line_of_the_kernel() -> None:
    class Settings:
        @property
        def steps(self):
            raise ValueError("no file")

    settings = Settings()

    @qd.kernel
    def read() -> qd.i32:
        return settings.steps

    message = r"OCT122: ValueError at compile time: no file\n.*"
    with pytest.raises(qd.OctantsTypeError, match=message):
        read()
