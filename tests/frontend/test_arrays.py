"""Fields, arrays, vectors and structs: which elements are read and written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from octants import interpreter
from octants.diagnostics.exceptions import OctantsIndexError, OctantsNameError, OctantsTypeError
from octants.frontend import build
from octants.ir import ops
from octants.ir.core import Companion, Module
from octants.ir.verifier import verify
from octants.lang.directives import grouped, loop_config, ndrange, static
from octants.types.matrix_values import Matrix, Vector
from octants.types.scalars import f32, f64, i32, i64, u8, u32
from octants.types.specialisation_signature import (
    ArgumentSource,
    NdarrayType,
    ScalarType,
    StructArgument,
)
from octants.types.structs import StructType
from tests.frontend.frontend_programs import Field, agree, compile_kernel, define, func, launch, run


def filled(dtype, shape, element_shape=()) -> Field:
    field = Field(dtype, shape, element_shape)
    field.data[...] = np.arange(field.data.size).reshape(field.data.shape) + 1
    return field


def run_on_fields(function, *arguments):
    return launch(compile_kernel(function, *arguments), *arguments)[0]


def operations(module: Module, kind: type) -> int:
    return sum(isinstance(op, kind) for op in module.walk())


# -- loops over arrays -----------------------------------------------------------------------------


def test_loops_over_fields() -> None:
    x, y = filled(f64, (3, 4)), Field(f64, (3, 4))

    def kernel():
        for i, j in x:
            y[i, j] = x[i, j] * 10 + i - j
        for I in grouped(y):
            y[I] += I[0] * 1000

    run_on_fields(kernel)
    i, j = np.indices((3, 4))
    np.testing.assert_array_equal(y.data, x.data * 10 + i - j + i * 1000)


def test_loops_over_arguments_of_any_rank() -> None:
    def kernel(x, y):
        for i in x:
            x[i] += i
        for i, j in y:
            y[i, j] = i * 10 + j
        loop_config(serialize=True)
        for I in grouped(y):
            x[0] = x[0] * 0.5 + y[I]

    x, y = np.zeros(3), np.zeros((2, 3))
    run(kernel, x, y)
    wanted = 0.0
    for value in (0, 1, 2, 10, 11, 12):
        wanted = wanted * 0.5 + value
    np.testing.assert_array_equal(x, [wanted, 1.0, 2.0])
    np.testing.assert_array_equal(y, [[0, 1, 2], [10, 11, 12]])


def test_a_loop_over_a_scalar_field_has_one_iteration() -> None:
    x = Field(f64, ())

    def kernel():
        for I in grouped(x):
            x[I] += 1.0
        for _ in range(2):
            x[None] += 0.5

    run_on_fields(kernel)
    assert x.data == 2.0


def test_offsets_of_fields() -> None:
    x = Field(f64, (4,))
    x.offset = (-2,)

    def kernel():
        for i in x:
            x[i] += i
        x[-2] += 100.0

    run_on_fields(kernel)
    np.testing.assert_array_equal(x.data, [98.0, -1.0, 0.0, 1.0])


def test_wide_domains_have_wide_counters() -> None:
    x = Field(u8, (1 << 16, 1 << 16))

    def kernel():
        for i, j in x:
            x[i, j] = 1

    loop = next(
        op for op in compile_kernel(kernel).module.walk() if isinstance(op, ops.ParallelFor)
    )
    assert loop.lower.type is i64


# -- indices ---------------------------------------------------------------------------------------


def test_negative_indices_count_from_the_end() -> None:
    x = filled(f64, (3,))

    def kernel(y):
        y[-1] = x[-1] + x[-3]
        y[0] = y[-2]

    y = np.arange(4.0)
    run_on_fields(kernel, y)
    np.testing.assert_array_equal(y, [2.0, 1.0, 2.0, 4.0])


def test_indices_of_all_integer_types() -> None:
    x = filled(f64, (300,))

    def kernel(n):
        a = u8(n)
        b = u32(n + 5)
        c = i64(7)
        return x[a] + x[b] * 1000 + x[c] + x[n > 2]

    assert run_on_fields(kernel, 200) == 201 + 206000 + 8 + 2


def test_a_vector_is_several_indices() -> None:
    x = filled(f64, (3, 4, 2))

    def kernel(n):
        I = Vector([n, n + 1])
        return x[I, 1] + x[(n, 2, 0)] * 100 + x[Vector([1, 1]), n]

    assert run_on_fields(kernel, 1) == x.data[1, 2, 1] + 100 * x.data[1, 2, 0] + x.data[1, 1, 1]


@pytest.mark.parametrize("index", ["1, 2", "3", "-4", "1.5", "n * 1.0", "0:2", "None"])
def test_wrong_indices(index: str) -> None:
    x = Field(f64, (3,))
    kernel = define(f"def kernel(n):\n    return x[{index}]\n", x=x)
    with pytest.raises((OctantsIndexError, OctantsTypeError)):
        compile_kernel(kernel, 1)


# -- elements --------------------------------------------------------------------------------------


def test_only_the_named_components_are_touched() -> None:
    x = filled(f64, (2,), (2, 3))

    def kernel(k):
        x[1][0, 2] = 50.0
        x[0][k, 1] += 100.0
        x[1][1][0] = 60.0
        return x[0][1, k]

    built = compile_kernel(kernel, 1)
    assert operations(built.module, ops.Load) == 2
    assert operations(built.module, ops.Store) == 3
    before = x.data.copy()
    result, _ = launch(built, 1)
    before[1, 0, 2], before[1, 1, 0] = 50.0, 60.0
    before[0, 1, 1] += 100.0
    assert result == before[0, 1, 1]
    np.testing.assert_array_equal(x.data, before)


def test_swizzles_are_places() -> None:
    x = filled(f64, (2,), (3,))

    def kernel(k):
        x[0].z = 9.0
        x[1].xy += 10.0
        v = Vector([1.0, 2.0, 3.0])
        v.zx = Vector([5.0, 6.0])
        v[k] += 0.5
        v.y *= 2.0
        x[0].xy = v.zy
        return v.x + v.y * 100.0

    assert run_on_fields(kernel, 1) == 6.0 + 100 * 5.0
    np.testing.assert_array_equal(x.data, [[5.0, 5.0, 9.0], [14.0, 15.0, 6.0]])


def test_whole_elements_are_copied() -> None:
    x = filled(f64, (2,), (2,))

    def kernel():
        a = x[0]
        b = a
        a[0] = 100.0
        x[0] = x[1]
        x[1] = b
        x[1] += a * 0.5
        x[0] -= 1.0

    run_on_fields(kernel)
    np.testing.assert_array_equal(x.data, [[2.0, 3.0], [51.0, 3.0]])


def test_swaps_read_before_they_write() -> None:
    def kernel(x):
        x[0], x[1] = x[1], x[0]
        a, b = x[0], x[1]
        a, b = b, a
        x[2] = a * 10 + b

    agree(kernel, np.array([1.0, 2.0, 3.0]))


def test_run_time_components_of_locals() -> None:
    def kernel(n):
        m = Matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        for i in range(2):
            for j in range(3):
                m[i, j] += i * 10 + j
        m[n, 0] = 70.0
        m[0, n] = 80.0
        m[n] = Vector([7.0, 8.0, 9.0])
        s = 0.0
        for i, j in ndrange(2, 3):
            s = s * 2.0 + m[i, j]
        return s + m[:, 1][n] + m[0, 1:][0]

    data = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]) + np.array([[0.0, 1, 2], [10, 11, 12]])
    data[0, 1] = 80.0
    data[1] = [7.0, 8.0, 9.0]
    wanted = 0.0
    for value in data.ravel():
        wanted = wanted * 2.0 + value
    assert run(kernel, 1) == wanted + 8.0 + 80.0


def test_a_run_time_index_of_a_local_is_checked_in_debug_mode() -> None:
    def kernel(n):
        v = Vector([1.0, 2.0])
        return v[n]

    built = compile_kernel(kernel, 1, debug=True)
    assert launch(built, 1)[0] == 2.0
    with pytest.raises(interpreter.AssertionFailed, match="index 2"):
        launch(built, 2)


def test_vectors_as_arguments_and_return_values() -> None:
    def kernel(v, n):
        if n > 0:
            return v * 2.0, n
        return v, -1

    kinds = [ScalarType(f32, (2,)), ScalarType(i32)]
    built = build(kernel, kinds, returns=(ScalarType(f64, (2,)), ScalarType(i32)))
    verify(built.module)
    assert built.returns_tuple
    (vector, number), _ = launch(built, np.array([1.5, 2.0]), 3)
    np.testing.assert_array_equal(vector, [3.0, 4.0])
    assert number == 3


# -- companions and attributes ---------------------------------------------------------------------


def test_gradients_are_arrays() -> None:
    x = filled(f64, (3,))

    def kernel():
        for i in x:
            x.grad[i] += x[i]  # type: ignore[attr-defined]

    run_on_fields(kernel)
    np.testing.assert_array_equal(x.gradient, x.data)


def test_a_missing_gradient_is_an_error() -> None:
    def kernel(x):
        x.grad[0] = 1.0

    with pytest.raises(OctantsNameError, match="needs_grad=True"):
        compile_kernel(kernel, np.zeros(2))


def test_shapes_are_numbers_of_fields_and_values_of_arguments() -> None:
    x = Field(f64, (3, 4))

    def kernel(y):
        s = 0
        for _ in static(range(x.shape[1])):
            s += 1
        n, m = y.shape
        for d in static(range(len(y.shape))):
            s = s * 10 + y.shape[d]
        return s * 100 + n * 10 + m + x.shape[0] + y.shape[-1]

    assert run_on_fields(kernel, np.zeros((5, 6))) == 45600 + 56 + 3 + 6


# -- structs ---------------------------------------------------------------------------------------


def test_structs_of_arrays_and_numbers_as_arguments() -> None:
    @dataclass
    class State:
        x: object
        scale: object

    @func
    def double(state, i):
        state.x[i] *= state.scale

    def kernel(state, n):
        for i in range(n):
            double(state, i)

    members = (("x", NdarrayType(f64, 1)), ("scale", ScalarType(f64)))
    built = build(kernel, [StructArgument(members, State), ScalarType(i32)], default_float=f64)
    verify(built.module)
    assert built.sources[0] == ArgumentSource(0, ("x",))
    assert built.sources[1] == ArgumentSource(0, ("scale",))
    x = np.ones(3)
    data = {"state_x": x, "state_scale": np.array(3.0), "n": np.array(2)}
    interpreter.run(built.module, data)
    np.testing.assert_array_equal(x, [3.0, 3.0, 1.0])


def test_struct_values() -> None:
    @func
    def moved(self, by):
        self.position += by
        return self.mass

    Body = StructType({"mass": f64, "position": MatrixOf2()}, {"moved": moved})

    def kernel(n):
        body = Body(mass=2.0, position=Vector([1.0, 2.0]))
        other = body
        for i in range(n):
            body.mass *= 2.0
            body.position.x += i
            body.position[1] = body.mass
            body.moved(0.5)
        if n > 2:
            other = body
        return body.mass + body.position.x * 10 + body.position.y * 100 + other.mass * 1000

    for n in (0, 3):
        mass, x, y = 2.0, 1.0, 2.0
        for i in range(n):
            mass *= 2.0
            x += i + 0.5
            y = mass + 0.5
        other = mass if n > 2 else 2.0
        assert run(kernel, n) == mass + x * 10 + y * 100 + other * 1000


def MatrixOf2():
    from octants.types.matrix_types import vector

    return vector(2, f64)


# -- sources ---------------------------------------------------------------------------------------


def test_a_field_is_one_array_however_it_is_found() -> None:
    x = filled(f64, (3,))

    class Holder:
        def __init__(self):
            self.x = x
            self.n = 3

    holder = Holder()

    def kernel(y):
        for i in range(holder.n):
            holder.x[i] += x[i] + y[i]

    built = compile_kernel(kernel, x)
    assert len(built.module.arrays) == 1
    names = {(read.kind, read.name) for read in built.reads}
    assert names >= {("closure", "x"), ("closure", "holder"), ("attribute", "n")}
    assert Companion.ADJOINT in built.module.arrays[0].layouts


def test_len_of_an_array() -> None:
    def kernel(x, y):
        y[0] = len(x) * 10 + len(y)

    y = np.zeros(3)
    launch(compile_kernel(kernel, np.zeros((4, 5)), y), np.zeros((4, 5)), y)
    assert y[0] == 43


def test_the_shape_of_elements_is_called_in_kernels() -> None:
    @func
    def width(x):
        return static(x.element_shape()[0]) if static(x.element_shape() != []) else 0

    def kernel(x, y):
        y[0] = width(x) * 10 + width(y)

    x, y = filled(f32, (2,), (3,)), filled(f32, (1,))
    assert run_on_fields(kernel, x, y) is None
    assert y.data[0] == 30
