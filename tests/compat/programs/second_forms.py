"""More forms: recursion of templates, in-place forms, aliases of names, loops, dtypes as values."""

import numpy as np


def vector_of_booleans_as_a_mask(qd):
    @qd.kernel
    def f() -> qd.types.vector(3, qd.i32):
        v = qd.Vector([3, -1, 2])
        return qd.cast(v > 0, qd.i32) * v

    return f()


def local_matrices_by_a_run_time_row(qd):
    @qd.kernel
    def f(k: qd.i32) -> qd.math.vec2:
        m = qd.Matrix([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        return qd.Vector([m[k, 0], m[k, 1]])

    return [f(0), f(2)]


def in_place_division_of_vectors(qd):
    @qd.kernel
    def f() -> qd.math.vec2:
        v = qd.Vector([3.0, 5.0])
        v /= 2
        v -= qd.Vector([0.5, 0.25])
        v **= 2
        return v

    return f()


def in_place_floor_division_of_fields(qd):
    x = qd.field(qd.i32, 3)
    x.from_numpy(np.array([7, 8, 17], np.int32))

    @qd.kernel
    def f():
        for i in x:
            x[i] //= 3
            x[i] <<= 2

    f()
    return x.to_numpy()


def update_of_an_index_with_a_side_effect(qd):
    x, n = qd.field(qd.i32, 4), qd.field(qd.i32, ())

    @qd.func
    def following():
        n[None] += 1
        return n[None] - 1

    @qd.kernel
    def f():
        for _ in range(1):
            x[following()] += 5
            x[following()] += 7

    f()
    return [x.to_numpy(), n[None]]


def loop_variables_of_nested_scopes(qd):
    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for _ in range(1):
            for i in range(3):
                t = i
                for j in range(t):
                    s += 10 * i + j
        return s

    return f()


def name_of_a_loop_is_used_again(qd):
    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for _ in range(1):
            for i in range(3):
                s += i
            for i in range(2, 4):
                s += i * 10
        return s

    return f()


def variable_of_a_loop_hides_another_type(qd):
    @qd.kernel
    def f() -> qd.f32:
        s = 0.5
        for _ in range(1):
            for k in range(3):
                a = k * 0.5
                s += a
            for k in range(3):
                a = k
                s += a
        return s

    return f()


def parallel_loop_after_a_serial_one(qd):
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def f(n: qd.i32) -> qd.i32:
        total = 0
        k = 3
        for i in x:
            x[i] = i * n + k
        for i in x:
            total += x[i]
        return total

    return f(2)


def several_loops_of_one_kernel(qd):
    x, y = qd.field(qd.f32, 5), qd.field(qd.f32, 5)

    @qd.kernel
    def f():
        for i in x:
            x[i] = i
        for i in y:
            y[i] = x[4 - i] * 2
        for i in x:
            x[i] += y[i]

    f()
    return [x.to_numpy(), y.to_numpy()]


def constants_of_a_module(qd):
    import math

    @qd.kernel
    def f(x: qd.f32) -> qd.f32:
        return x * math.pi + math.e + qd.math.pi

    return f(2)


def defaults_of_int_and_float(qd):
    @qd.kernel
    def f(a: int, b: float) -> float:
        return int(b) + float(a) / 4

    return f(3, 2.75)


def casts_by_dtypes_as_functions(qd):
    @qd.kernel
    def f(x: qd.f32) -> qd.i32:
        return qd.i32(x) + qd.i64(x * 2) + qd.u8(300.0 - x * 0)

    return f(3.75)


def maximum_of_many(qd):
    @qd.kernel
    def f(a: qd.f32, b: qd.i32) -> qd.f32:
        return qd.max(a, b, 2.5, 1) * 10 + min(a, b, 7)

    return [f(1.5, 3), f(9, -2)]


def absolute_value_of_the_least_integer(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.i32:
        return abs(a)

    return [f(-(2**31)), f(-5)]


def negation_of_unsigned(qd):
    @qd.kernel
    def f(a: qd.u32) -> qd.u32:
        return -a

    return [f(1), f(0)]


def inverted_booleans_and_integers(qd):
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def f(a: qd.i32, b: qd.u8):
        x[0] = ~a
        x[1] = ~b
        x[2] = not a
        x[3] = int(a > 2) ^ 1

    f(5, 3)
    return x.to_numpy()


def products_of_mixed_vectors(qd):
    @qd.kernel
    def f() -> qd.math.vec3:
        a, b = qd.Vector([1, 2, 3]), qd.Vector([0.5, 1.5, 2.5])
        return a * b + b // 1 + a % 2

    return f()


def dot_of_integers(qd):
    @qd.kernel
    def f() -> qd.i32:
        return qd.Vector([1, 2, 3]).dot(qd.Vector([4, -5, 6]))

    return f()


def norm_of_integers(qd):
    @qd.kernel
    def f() -> qd.f32:
        return qd.Vector([3, 4]).norm()

    return f()


def mean_of_integers(qd):
    @qd.kernel
    def f() -> qd.f32:
        v = qd.Vector([1, 2, 4])
        return v.sum() / 3

    return f()


def trace_of_a_product(qd):
    @qd.kernel
    def f() -> qd.f32:
        a = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
        return (a @ a.inverse()).trace() + (a * a).sum() + (a @ a)[1, 0]

    return f()


def polar_decomposition(qd):
    @qd.kernel
    def f() -> qd.math.mat2:
        r, _ = qd.polar_decompose(qd.Matrix([[1.0, 0.5], [0.0, 2.0]]))
        return r

    return f()


def singular_values(qd):
    @qd.kernel
    def f() -> qd.f32:
        u, s, v = qd.svd(qd.Matrix([[1.0, 0.5], [0.0, 2.0]]))
        return s[0, 0] * s[1, 1] + (u @ s @ v.transpose())[0, 1]

    return f()


def symmetric_eigenvalues(qd):
    @qd.kernel
    def f() -> qd.math.vec2:
        values, _ = qd.sym_eig(qd.Matrix([[2.0, 1.0], [1.0, 3.0]]))
        return qd.Vector([values.min(), values.max()])

    return f()


def solved_systems(qd):
    @qd.kernel
    def f() -> qd.math.vec3:
        a = qd.Matrix([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 4.0]])
        return qd.solve(a, qd.Vector([1.0, 2.0, 3.0]))

    return f()


def rotations_by_quaternions_of_matrices(qd):
    @qd.kernel
    def f() -> qd.math.vec3:
        r = qd.math.rotation3d(0.1, 0.2, 0.3)
        p = r @ qd.math.vec4(1, 2, 3, 1)
        return p.xyz

    return f()


def refraction_and_reflection(qd):
    @qd.kernel
    def f() -> qd.math.vec3:
        v, n = qd.math.normalize(qd.math.vec3(1, -1, 0.5)), qd.math.vec3(0, 1, 0)
        return qd.math.reflect(v, n) + qd.math.refract(v, n, 0.9) * 10

    return f()


def lengths_and_distances(qd):
    @qd.kernel
    def f() -> qd.f32:
        a, b = qd.math.vec2(1, 2), qd.math.vec2(4, 6)
        return qd.math.length(a) + qd.math.distance(a, b) * 10 + qd.math.dot(a, b) * 100

    return f()


def sums_of_a_field_of_vectors(qd):
    v, total = qd.Vector.field(3, qd.f32, 10), qd.Vector.field(3, qd.f32, ())

    @qd.kernel
    def f():
        for i in v:
            v[i] = [i, 2 * i, 1]
        for i in v:
            total[None] += v[i]

    f()
    return total[None]


def field_of_matrices_times_vectors(qd):
    m, v = qd.Matrix.field(2, 2, qd.f32, 3), qd.Vector.field(2, qd.f32, 3)

    @qd.kernel
    def f():
        for i in m:
            m[i] = [[i, 1], [0, 2]]
            v[i] = m[i] @ qd.Vector([1.0, i])

    f()
    return v.to_numpy()


def fields_assigned_by_rows(qd):
    m = qd.Matrix.field(2, 2, qd.f32, 2)

    @qd.kernel
    def f():
        for i in m:
            m[i][0, :] = [1, i]
            m[i][:, 1] += 5

    f()
    return m.to_numpy()


def reads_beyond_in_debug(qd):
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def f(i: qd.i32) -> qd.i32:
        return x[i]

    return f(4)


reads_beyond_in_debug.options = {"debug": True}


def negative_index_in_debug(qd):
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def f(i: qd.i32):
        x[i] = 1

    f(-1)
    qd.sync()


negative_index_in_debug.options = {"debug": True}


def constant_negative_index_of_a_field(qd):
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def f():
        x[-1] = 1

    f()
    return x.to_numpy()


def kernels_of_u8_images(qd):
    image = qd.Vector.field(3, qd.u8, (2, 2))

    @qd.kernel
    def f():
        for i, j in image:
            image[i, j] = [100 * i, 200, 300 * j]

    f()
    return image.to_numpy()


def floats_into_u8(qd):
    x = qd.field(qd.u8, 3)

    @qd.kernel
    def f(a: qd.f32):
        x[0] = qd.cast(a * 255, qd.u8)
        x[1] = int(a * 100)
        x[2] = qd.u8(a * 200 + 0.5)

    f(0.75)
    return x.to_numpy()


def halves_in_ndarrays(qd):
    a = qd.ndarray(qd.f16, 4)

    @qd.kernel
    def f(a: qd.types.ndarray(dtype=qd.f16, ndim=1)):
        for i in a:
            a[i] = i / 3.0

    f(a)
    return a.to_numpy()


def torch_arguments_are_changed(qd):
    import torch

    t = torch.arange(6, dtype=torch.float32).reshape(2, 3)

    @qd.kernel
    def f(x: qd.types.ndarray(dtype=qd.f32, ndim=2)):
        for i, j in x:
            x[i, j] = x[i, j] * 2 + i

    f(t)
    return t.numpy()


def numpy_of_64_bits_into_arguments_of_any_type(qd):
    a = np.arange(4, dtype=np.int64)

    @qd.kernel
    def f(x: qd.types.ndarray()) -> qd.i64:
        s = qd.i64(0)
        for i in x:
            s += x[i] * 3000000000
        return s

    return f(a)


def arrays_of_shape_zero(qd):
    @qd.kernel
    def f(x: qd.types.ndarray()) -> qd.i32:
        n = 0
        for i in x:
            n += 1
        return n

    return f(np.zeros(0, np.float32))


def kernel_prints_nothing_and_returns_none(qd):
    @qd.kernel
    def f():
        pass

    return f()
