"""What Python does while a kernel is compiled: static, closures, templates, comprehensions."""

from __future__ import annotations

import math
import types as python_types
from typing import Any

import numpy as np
import pytest

from octants.diagnostics.exceptions import OctantsCompilationError, OctantsTypeError
from octants.frontend import build
from octants.ir import ops
from octants.lang.directives import (
    grouped,
    ndrange,
    static,
    static_assert,
    static_print,
    template,
)
from octants.types.matrix_values import Vector
from octants.types.scalars import f32, f64, i32, i64
from octants.types.specialisation_signature import ScalarType, TemplateValue
from tests.frontend.frontend_programs import agree, compile_kernel, define, func, launch, run

SIZE = 3
TABLE = {"a": 1.5, "b": (2, 4)}


def kinds_of(built: Any) -> set[type]:
    return {type(op) for op in built.module.walk()}


# -- static ----------------------------------------------------------------------------------------


def test_static_conditions_keep_one_branch() -> None:
    def kernel(x):
        if static(SIZE > 2 and x is not None):
            y = x[0] + 1.0
        else:
            y = undefined  # type: ignore[name-defined]  # noqa: F821
        z = x[1] if SIZE == 3 else no_such_thing  # type: ignore[name-defined]  # noqa: F821
        return y + z

    agree(kernel, np.array([1.0, 2.0]))
    assert ops.If not in kinds_of(compile_kernel(kernel, np.zeros(2)))


def test_static_loops_over_everything() -> None:
    def kernel(x, n):
        s = 0.0
        for i, j in static(ndrange(2, (1, 3))):
            s = s * 2.0 + x[i * j]
        for i, value in static(enumerate((0.5, n, x[0]))):
            s = s * 2.0 + i * value
        for a, (b, c) in static(zip((1, 2), ((3, 4), (5, 6)), strict=True)):
            s = s * 2.0 + a * b - c
        for key in static(TABLE["b"]):
            s += key
        for i in static([k * k for k in range(SIZE) if k != 1]):
            s = s * 2.0 + x[i % 3]
        for v in (1.0, 2.0):
            s = s * 1.5 + v
        return s

    agree(kernel, np.array([1.0, 2.0, 3.0]), 2)


def test_static_vectors_of_indices() -> None:
    def kernel(x):
        s = 0.0
        for offset in static(grouped(ndrange((-1, 2), 2))):
            s = s * 2.0 + x[1 + offset[0], offset[1]] * offset.x
        return s

    x = np.arange(6.0).reshape(3, 2)
    wanted = 0.0
    for i in (-1, 0, 1):
        for j in (0, 1):
            wanted = wanted * 2.0 + x[1 + i, j] * i
    assert run(kernel, x) == wanted


def test_what_is_known_counts_as_static() -> None:
    def kernel(n):
        k = 2
        s = 0
        for i in static(range(k + 1)):
            s += i
        if static(k == 2):
            s += n
        return s

    agree(kernel, 5)


def test_static_of_run_time_values_is_an_error() -> None:
    for text in ("static(n)", "static(n > 2)"):
        kernel = define(
            f"def kernel(n):\n    if {text}:\n        return 1\n    return 2\n", static=static
        )
        with pytest.raises(OctantsTypeError, match="must be known"):
            compile_kernel(kernel, 1)


def test_dicts_and_sets_inside_static() -> None:
    def kernel(n):
        return n * static({1: 2.5, 2: 3.5}[SIZE - 1]) + static(len({SIZE, 3, 4}))

    agree(kernel, 2)


def test_static_assert_and_print(capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(n):
        static_assert(SIZE == 3, "size")
        static_print("compiling", n, SIZE)
        return n

    run(kernel, 1)
    assert capsys.readouterr().out == "compiling an i32 3\n"

    def wrong(n):
        static_assert(SIZE == 4, "size")

    with pytest.raises(OctantsCompilationError, match="static assertion failed: size"):
        compile_kernel(wrong, 1)


# -- names -----------------------------------------------------------------------------------------


def test_closures_globals_and_modules() -> None:
    factor = 2.5
    shape = (2, 3)
    vector = Vector([1.0, 2.0])
    flags = python_types.SimpleNamespace(deep=python_types.SimpleNamespace(value=7), on=True)

    def kernel(n):
        s = n * factor + SIZE + math.pi * shape[1] + flags.deep.value
        if flags.on:
            s += vector[1] * vector.x
        return s + (vector * 2.0)[0]

    built = compile_kernel(kernel, 2)
    assert launch(built, 2)[0] == pytest.approx(5 + 3 + math.pi * 3 + 7 + 2 + 2)
    reads = {(read.kind, read.name): read.value for read in built.reads}
    assert reads["closure", "factor"] == 2.5
    assert reads["global", "SIZE"] == 3
    assert reads["attribute", "value"] == 7


def test_methods_and_attributes_of_objects() -> None:
    class Model:
        gain = 3.0

        def __init__(self, n: int) -> None:
            self.n = n
            self.weights = (1.0, 2.0)

        @func
        def scaled(self, x):
            return x * self.gain

        @staticmethod
        @func
        def plus(x, y):
            return x + y

        @property
        def half(self) -> float:
            return self.n / 2

        def kernel(self, a):
            s = 0.0
            for i in range(self.n):
                s = s + self.scaled(a) + self.weights[1] * i
            return self.plus(s, self.half)

    model = Model(4)
    types = [ScalarType(f64)]
    built = build(Model.kernel, types, default_float=f64, bound_self=model)
    same = build(Model.kernel, [TemplateValue(model), *types], default_float=f64)
    for each in (built, same):
        position = [ScalarType(f64)] if each is built else [None, ScalarType(f64)]
        arguments = [1.5] if len(position) == 1 else [None, 1.5]
        assert launch(each, *arguments)[0] == model.kernel(1.5)


def test_templates_specialise() -> None:
    @func
    def power(x, n: template()):
        if static(n == 0):
            return 1.0
        if static(n % 2 == 1):
            return x * power(x, n - 1)
        return power(x * x, n // 2)

    def kernel(x, n: template(), flag):
        if flag:
            return power(x, n)
        return -1.0

    def typed(n, flag):
        kinds = [ScalarType(f64), TemplateValue(n), TemplateValue(flag)]
        return build(kernel, kinds, default_float=f64)

    assert launch(typed(10, True), 1.5)[0] == pytest.approx(1.5**10)
    assert launch(typed(10, False), 1.5)[0] == -1.0


def test_functions_are_values() -> None:
    @func
    def square(x):
        return x * x

    @func
    def apply(f: template(), x):
        return f(x) + f(1.0)

    def kernel(x):
        double = lambda a, b=2.0: a * 2.0  # noqa: E731
        table = (square, double)
        s = apply(square, x)
        for f in static(table):
            s = s * 3.0 + f(x) if static(f is square) else s * 3.0 + f(x, 1.0)
        return s

    agree(kernel, 2.5)


def test_endless_recursion_is_an_error() -> None:
    @func
    def deeper(x):
        return deeper(x + 1.0)

    def kernel(x):
        return deeper(x)

    with pytest.raises(OctantsCompilationError, match="at compile time ends the recursion"):
        compile_kernel(kernel, 1.0)


def test_default_and_named_arguments() -> None:
    @func
    def line(x, slope=2.0, *, shift: f32 = 1):
        return x * slope + shift

    def kernel(x):
        pair = (x, 3.0)
        return line(x) + line(x, shift=4.0) * 10 + line(slope=x, x=2.0) + line(*pair)

    agree(kernel, 1.5)


@pytest.mark.parametrize(
    "call", ["f()", "f(1, 2, 3)", "f(1, z=2)", "f(1, x=2)", "f(**{})", "chr(n)", "n()"]
)
def test_wrong_calls(call: str) -> None:
    text = f"""
@func
def f(x, y=1):
    return x + y

def kernel(n):
    return {call}
"""
    with pytest.raises(OctantsCompilationError):
        compile_kernel(define(text), 1)


def test_python_functions_run_at_compile_time() -> None:
    def area(n: int) -> float:
        return sum(k * 0.5 for k in range(n))

    def kernel(x):
        n = math.gcd(12, 18)
        return x * area(4) + math.sqrt(16.0) + max(SIZE, n) + len(TABLE) + abs(-2)

    agree(kernel, 2.0)


def test_errors_of_python_code_are_compile_errors() -> None:
    def kernel(n):
        return n + 1 // (SIZE - 3)

    with pytest.raises(OctantsTypeError, match="ZeroDivisionError"):
        compile_kernel(kernel, 1)


# -- types of numbers ------------------------------------------------------------------------------


def test_literals_take_the_default_types() -> None:
    def kernel(n):
        a = 1
        b = 2.5
        return a, b, n * 3, n / 2, 4000000000

    built = build(kernel, [ScalarType(i32)], default_int=i32, default_float=f32)
    assert [kind.dtype for kind in built.return_types] == [i32, f32, i32, f32, i64]
    built = build(kernel, [ScalarType(i32)], default_int=i64, default_float=f64)
    assert [kind.dtype for kind in built.return_types] == [i64, f64, i64, f64, i64]


@pytest.mark.parametrize("number", [np.uint8(200), np.int16(200), np.uint64(200), np.int64(200)])
def test_integers_of_numpy_are_numbers_of_python(number: Any) -> None:
    """They do not wrap, neither among themselves nor beside numbers of the kernel."""
    pair = np.array([200, 100]).astype(number.dtype)

    def kernel(n, m: template()):
        trips = 0
        for _ in static(range(m + 100)):
            trips += 1
        held = m
        held += 100
        return (
            m + 100,
            5 - m,
            -m,
            m * m,
            m << 4,
            m + n,
            pair[0] + pair[1] + pair[0],
            max(m, 300) + abs(m),
            static(m * 300),
            held,
            trips,
            m == 456,
            300 if m + 100 > 256 else 0,
        )

    built = build(kernel, [ScalarType(i32), TemplateValue(number)])
    found = launch(built, 3)
    assert found[0] == (300, -195, -200, 40000, 3200, 203, 500, 500, 60000, 300, 300, False, 300)


def test_floats_of_numpy_are_numbers_of_python() -> None:
    def kernel(x, m: template()):
        return m * 0.1, x * m, math.sqrt(m) + m

    number = np.float32(0.1)
    exact = float(number)
    built = build(kernel, [ScalarType(f64), TemplateValue(number)], default_float=f64)
    found = launch(built, 1.0)
    assert found[0] == (exact * 0.1, exact, math.sqrt(exact) + exact)


def test_a_variable_keeps_the_type_of_its_first_value() -> None:
    def kernel(n):
        a = n
        a = 2.75
        b = 1.0
        b = n
        c: f64 = n
        d: i32 = 3.9
        e: float = 1
        c /= 2
        a += 1.75
        return a, b, c, d, e

    built = build(kernel, [ScalarType(i32)])
    assert [kind.dtype for kind in built.return_types] == [i32, f32, f64, i32, f32]
    assert launch(built, 3)[0] == (3, 3.0, 1.5, 3, 1.0)


def test_parameters_of_functions_are_typed() -> None:
    @func
    def half(n: i32):
        n = n + 1.5
        return n / 2

    def kernel(x):
        return half(x)

    assert run(kernel, 2.9) == 1.5


def test_elements_of_lists_may_be_assigned() -> None:
    def kernel(x, n):
        v = [1.0, 2.0, x[0]]
        v[1] = v[2]
        for i in range(n):
            v[i % 3] += v[1] * 0.5
            if v[0] > 3.0:
                v[2] = -v[0]
        m = [[1, 2], [3, n]]
        m[0][1] = m[1][1] + 1
        w = [0.5, 0.25]
        w[0], w[1] = w[1], w[0]
        w[-1] -= 1.0
        x[1] = v[0] + 10.0 * v[1] + 100.0 * v[2]
        return m[0][1] + 10 * m[1][1], w[0], w[1]

    for n in (0, 4, 7):
        agree(kernel, np.array([0.75, 0.0]), n)


def test_a_list_is_copied_by_an_assignment() -> None:
    def kernel(x):
        v = [x[0], 2.0]
        w = v
        w[0] = 9.0
        return v[0], w[0]

    assert run(kernel, np.array([3.0])) == (3.0, 9.0)
