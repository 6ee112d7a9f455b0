"""Less usual forms that programs have all the same."""

import dataclasses
import math

import numpy as np


def fields_by_keywords(qd):
    a = qd.field(dtype=float, shape=(np.int64(2), 3))
    b = qd.Vector.field(n=3, dtype=qd.f32, shape=(2,))
    c = qd.Matrix.field(n=2, m=2, dtype=qd.i32, shape=2)
    d = qd.Vector.field(2, dtype=int, shape=[3, 1])
    e = qd.ndarray(dtype=qd.f32, shape=(2,))
    return [a.shape, b.shape, c.shape, d.shape, e.shape, b.n, c.m]


def components_of_elements(qd):
    v, m = qd.Vector.field(3, qd.f32, 2), qd.Matrix.field(2, 2, qd.f32, 2)

    @qd.kernel
    def f():
        for i in v:
            v[i][0] = i
            v[i].y += 2
            v[i].zx += qd.Vector([1.0, 5.0])
            m[i][0, 1] = 4
            m[i][1, 0] -= v[i][1]
            m[i] *= 2

    f()
    return [v.to_numpy(), m.to_numpy()]


def elements_are_swapped(qd):
    x, v = qd.field(qd.i32, 4), qd.Vector.field(2, qd.f32, 2)

    @qd.kernel
    def f():
        for i in x:
            x[i] = i
        for _ in range(1):
            x[0], x[3] = x[3], x[0]
            v[0] = [1, 2]
            v[0], v[1] = v[1], v[0]

    f()
    return [x.to_numpy(), v.to_numpy()]


def structs_are_swapped(qd):
    S = qd.types.struct(a=qd.i32, v=qd.math.vec2)
    x = S.field(shape=3)

    @qd.kernel
    def f():
        for i in x:
            x[i] = S(a=i, v=[i, 1])
        for _ in range(1):
            t = x[0]
            x[0] = x[2]
            x[2] = t
            x[1].v.x -= 7
            x[1].v *= 2

    f()
    return [x.a.to_numpy(), x.v.to_numpy()]


def components_on_the_host(qd):
    v, m = qd.Vector.field(2, qd.f32, 2), qd.Matrix.field(2, 2, qd.f32, (1, 2))
    v[0].x = 3
    v[1][1] = 4
    v[1] += 1
    m[0, 1][0, 1] = 5
    return [v.to_numpy(), m.to_numpy(), v[0, 0] if False else v[0][0], m[0, 1][0, 1]]


def members_on_the_host(qd):
    S = qd.types.struct(a=qd.i32, v=qd.math.vec2)
    x = S.field(shape=2)
    x[0].a = 3
    x[0].v = [1, 2]
    x[1].v[1] = 5
    x.a[1] = 8
    x[1].a += 1
    return [x.a.to_numpy(), x.v.to_numpy(), x[1].a, x[0].v]


def atomics_of_vectors(qd):
    v = qd.Vector.field(2, qd.i32, ())

    @qd.kernel
    def f():
        for i in range(10):
            v[None] += [1, i]
            qd.atomic_max(v[None][0], 5)
            qd.atomic_add(v[None], qd.Vector([1, 1]))

    f()
    return v[None][1]


def hash_of_u32(qd):
    @qd.kernel
    def f(seed: qd.u32) -> qd.u32:
        state = seed * qd.u32(747796405) + qd.u32(2891336453)
        word = ((state >> ((state >> qd.u32(28)) + qd.u32(4))) ^ state) * qd.u32(277803737)
        return (word >> qd.u32(22)) ^ word

    return [f(1), f(12345), f(4294967295)]


def hash_of_wang(qd):
    @qd.func
    def h(seed: qd.u32):
        seed = (seed ^ 61) ^ (seed >> 16)
        seed *= 9
        seed = seed ^ (seed >> 4)
        seed *= 0x27D4EB2D
        seed = seed ^ (seed >> 15)
        return seed

    @qd.kernel
    def f(x: qd.u32) -> qd.f32:
        return h(x) / 4294967296.0

    return [f(1), f(99)]


def large_unsigned_literals(qd):
    @qd.kernel
    def f(x: qd.u32) -> qd.u32:
        return x & qd.u32(0xFFFF0000)

    @qd.kernel
    def g(x: qd.u64) -> qd.u64:
        return x ^ qd.u64(0x9E3779B97F4A7C15)

    return [f(0xDEADBEEF), g(1)]


def shifts_beyond_the_width(qd):
    @qd.kernel
    def f(n: qd.i32) -> qd.i64:
        return qd.i64(1) << n

    return [f(33), f(62)]


def numpy_constants_of_modules(qd):
    @qd.kernel
    def f() -> qd.f64:
        return np.pi + math.pi + math.tau

    return f()


def attributes_of_classes(qd):
    class Config:
        n = 3
        scale = 0.5

        class Inner:
            k = 7

    @qd.kernel
    def f() -> qd.f32:
        s = 0.0
        for i in range(Config.n):
            s += Config.scale
        return s + Config.Inner.k

    return f()


def strings_as_templates(qd):
    table = {"a": 1, "b": 20}

    @qd.kernel
    def f(mode: qd.template()) -> qd.i32:
        s = 0
        if qd.static(mode == "a"):
            s = 100
        s += table[mode]
        return s

    return [f("a"), f("b")]


def types_of_closures(qd):
    kind, vec = qd.f64, qd.types.vector(2, qd.i32)

    @qd.kernel
    def f(x: kind) -> vec:
        y = qd.cast(x, kind) / 3
        return vec(y * 9, kind(1.5) * 2)

    return f(2.0)


def kernels_made_in_a_loop(qd):
    kernels = []
    for k in range(3):

        @qd.kernel
        def f(x: qd.i32, c: qd.template()) -> qd.i32:
            return x + c

        kernels.append((f, k))
    return [g(10, k) for g, k in kernels]


def vectors_from_lists(qd):
    @qd.kernel
    def f() -> qd.f32:
        a = qd.Vector([0.0] * 3)
        b = qd.Vector([1.0 for _ in range(3)])
        c = qd.Vector([1, 2, 3], dt=qd.f32)
        d = qd.Vector([0, 1, 2], qd.i32)
        a[1] = 0.5
        return a.sum() + b.sum() * 10 + c.dot(b) * 100 + d[2] / 4

    return f()


def matrices_from_vectors(qd):
    @qd.kernel
    def f() -> qd.f32:
        a, b = qd.Vector([1.0, 2.0]), qd.Vector([3.0, 4.0])
        m = qd.Matrix([a, b]) if False else qd.Matrix.rows([a, b])
        n = qd.Matrix([[a[0], b[0]], [a[1], b[1]]])
        return (m - n).norm() + m[0, 1] * 10

    return f()


def vectors_of_conditions(qd):
    @qd.kernel
    def f() -> qd.types.vector(3, qd.i32):
        v = qd.Vector([1, -2, 3])
        positive = v > 0
        return qd.select(positive, v, -v) * 10 + qd.cast(positive, qd.i32)

    return f()


def casts_of_vectors(qd):
    @qd.kernel
    def f() -> qd.f32:
        v = qd.Vector([1.7, -2.7])
        a = qd.cast(v, int)
        b = v.cast(qd.i32)
        c = qd.floor(v)
        d = qd.floor(v, qd.i32)
        return a.sum() + b[1] * 10 + c[1] * 100 + d[1] * 1000

    return f()


def norms_with_epsilon(qd):
    @qd.kernel
    def f() -> qd.f32:
        v = qd.Vector([0.0, 0.0])
        return v.norm(1e-2) + v.normalized(1e-3)[0] + v.norm_inv(1e-1)

    return f()


def loops_over_lengths(qd):
    v = qd.Vector.field(3, qd.f32, 2)

    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for i in v:
            for k in qd.static(range(v.n)):
                v[i][k] = k
                s += k
        for k in range(len(v.shape)):
            s += 100
        return s + v.shape[0]

    return f()


def bounds_change_in_the_loop(qd):
    @qd.kernel
    def f() -> qd.i32:
        s = 0
        n = 3
        for _ in range(1):
            for i in range(n):
                n = 10
                s += i
        return s

    return f()


def conditions_of_while(qd):
    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        n = 0
        while 0 < x < 100 and not (x == 13 or n > 20):
            x = x * 2 if x % 2 == 1 else x + 3
            n += 1
        return n

    return [f(1), f(50), f(13), f(-1)]


def nested_breaks(qd):
    @qd.kernel
    def f() -> qd.i32:
        n = 0
        for _ in range(1):
            for i in range(5):
                for j in range(5):
                    if j > i:
                        break
                    n += 1
                if i == 3:
                    break
        return n

    return f()


def funcs_without_a_result(qd):
    x = qd.field(qd.i32, 3)

    @qd.func
    def put(i, value):
        x[i] = value

    @qd.kernel
    def f():
        for i in x:
            put(i, i * i)

    f()
    return x.to_numpy()


def funcs_that_return_structs(qd):
    S = qd.types.struct(a=qd.i32, v=qd.math.vec2)

    @qd.func
    def make(k):
        return S(a=k, v=qd.math.vec2(k, 1))

    @qd.func
    def both(k):
        return make(k), k + 1

    @qd.kernel
    def f() -> qd.f32:
        s, n = both(3)
        return s.a + s.v.x * 10 + n * 100

    return f()


def funcs_with_a_dtype(qd):
    @qd.func
    def read(x, kind: qd.template()):
        return qd.cast(x, kind)

    @qd.kernel
    def f() -> qd.f32:
        return read(2.7, qd.i32) + read(0.5, qd.f32)

    return f()


def funcs_with_star_arguments(qd):
    @qd.func
    def total(*values):
        s = 0
        for v in qd.static(values):
            s += v
        return s

    @qd.kernel
    def f() -> qd.i32:
        return total(1, 2, 3)

    return f()


def objects_that_call_each_other(qd):
    @qd.data_oriented
    class Material:
        def __init__(self, e):
            self.e = e

        @qd.func
        def stress(self, x):
            return self.e * x

    @qd.data_oriented
    class Body:
        def __init__(self, material):
            self.material = material
            self.x = qd.field(qd.f32, 3)

        @qd.kernel
        def step(self, dt: qd.f32):
            for i in self.x:
                self.x[i] += dt * self.material.stress(i + 1.0)

    bodies = [Body(Material(2.0)), Body(Material(5.0))]
    for b in bodies:
        b.step(0.5)
    return [b.x.to_numpy() for b in bodies]


def dataclasses_that_are_data_oriented(qd):
    @qd.data_oriented
    @dataclasses.dataclass
    class A:
        n: int
        k: float = 0.5

        @qd.kernel
        def f(self) -> qd.f32:
            return self.n * self.k

    return [A(3).f(), A(3, 2.0).f()]


def overridden_methods(qd):
    @qd.data_oriented
    class A:
        @qd.func
        def g(self, x):
            return x

        @qd.kernel
        def f(self, x: qd.i32) -> qd.i32:
            return self.g(x) * 2

    @qd.data_oriented
    class B(A):
        @qd.func
        def g(self, x):
            return x + 100

    return [A().f(1), B().f(1)]


def templates_of_methods(qd):
    @qd.data_oriented
    class A:
        def __init__(self):
            self.x, self.y = qd.field(qd.f32, 2), qd.field(qd.f32, 3)

        @qd.kernel
        def fill(self, f: qd.template(), k: qd.f32):
            for I in qd.grouped(f):
                f[I] = k

        def run(self):
            self.fill(self.x, 1)
            self.fill(self.y, 2.5)

    a = A()
    a.run()
    return [a.x.to_numpy(), a.y.to_numpy()]


def lists_of_fields_as_templates(qd):
    x, y = qd.field(qd.f32, 2), qd.field(qd.f32, 2)

    @qd.kernel
    def f(fields: qd.template()):
        for k in qd.static(range(2)):
            for i in fields[k]:
                fields[k][i] = k + 1

    f((x, y))
    return [x.to_numpy(), y.to_numpy()]


def matrices_as_kernel_arguments(qd):
    @qd.kernel
    def f(m: qd.math.mat3, v: qd.math.vec3) -> qd.math.vec3:
        return m @ v

    return f(qd.math.mat3([[1, 2, 3], [4, 5, 6], [7, 8, 9]]), qd.math.vec3(1, 0, -1))


def annotations_of_none(qd):
    x = qd.field(qd.i32, ())

    @qd.kernel
    def f(k: qd.i32) -> None:
        x[None] = k

    return [f(3), x[None]]


def unary_operators(qd):
    @qd.kernel
    def f(x: qd.f32, n: qd.i32) -> qd.f32:
        a = -x + +n - -n
        b = ~n
        c = not n
        return a * 100 + b * 10 + c

    return [f(1.5, 2), f(1.5, 0)]


def scalars_of_a_zero_dimensional_field(qd):
    x = qd.field(qd.f32, ())

    @qd.kernel
    def f():
        x[None] += 2.5
        x[()] *= 2

    f()
    return x[None]


def loops_over_a_zero_dimensional_field(qd):
    x = qd.field(qd.f32, ())

    @qd.kernel
    def f():
        for I in qd.grouped(x):
            x[I] = 3

    f()
    return x[None]


def numpy_of_other_orders(qd):
    x = qd.field(qd.f32, (2, 3))
    x.from_numpy(np.arange(6, dtype=np.float32).reshape(3, 2).T)
    return x.to_numpy()


def torch_views_as_arguments(qd):
    import torch

    t = torch.zeros(4, 4)

    @qd.kernel
    def f(x: qd.types.ndarray(ndim=1)):
        for i in x:
            x[i] = i + 1

    f(t[1])
    return t.numpy()


def static_ranges_of_fields(qd):
    x = qd.field(qd.i32, (2, 2))

    @qd.kernel
    def f():
        for i, j in qd.static(qd.ndrange(*x.shape)):
            x[i, j] = i * 2 + j

    f()
    return x.to_numpy()


def python_functions_at_compile_time(qd):
    def offsets(n):
        return [(k, k * k) for k in range(n)]

    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for a, b in qd.static(offsets(4)):
            s += a * 10 + b
        return s

    return f()


def constants_of_compile_time(qd):
    n = 3

    @qd.kernel
    def f() -> qd.i32:
        k = qd.static(n * 2 + 1)
        m = qd.static(max(n, 10))
        v = qd.Vector([0] * n)
        return k + m + v.sum() + n

    return f()


def returned_vectors_of_funcs(qd):
    @qd.func
    def barycentric(p, a, b):
        t = (p - a).dot(b - a) / (b - a).norm_sqr()
        return qd.Vector([1 - t, t])

    @qd.kernel
    def f() -> qd.math.vec2:
        return barycentric(qd.Vector([1.0, 1.0]), qd.Vector([0.0, 0.0]), qd.Vector([4.0, 0.0]))

    return f()


def prints_of_expressions(qd):
    @qd.kernel
    def f(a: qd.i32):
        print(f"{a + 1} {a * 2:4d} {a=}")
        print("a", "b", a, end="")
        print(" end")

    f(3)
    qd.sync()


def assert_with_values(qd):
    @qd.kernel
    def f(a: qd.i32):
        for i in range(3):
            assert a > i, f"{a} is not above {i}"

    f(2)
    qd.sync()


assert_with_values.options = {"debug": True}


def division_by_zero_of_floats(qd):
    @qd.kernel
    def f(x: qd.f32, y: qd.f32) -> qd.f32:
        return x / y

    return [f(1, 0), f(-1, 0)]


def integer_overflow_wraps(qd):
    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        return x * x + 1

    return [f(1 << 16), f(1 << 15)]


def i8_and_u8_loops(qd):
    x = qd.field(qd.u8, 300)

    @qd.kernel
    def f():
        for i in x:
            x[i] = i

    f()
    return [x[255], x[256], x[299]]


def sums_of_u8(qd):
    x = qd.field(qd.u8, 4)
    x.fill(200)

    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for i in x:
            s += x[i]
        return s + (x[0] + x[1])

    return f()


def i64_indices(qd):
    x = qd.field(qd.i32, 10)

    @qd.kernel
    def f(n: qd.i64):
        for i in range(n):
            x[i] = i

    f(5)
    return x.to_numpy()


def f64_everywhere(qd):
    x = qd.field(qd.f64, 3)

    @qd.kernel
    def f(k: qd.f64):
        for i in x:
            x[i] = qd.sin(k * i) + 1 / 3

    f(1.0)
    return x.to_numpy()


f64_everywhere.options = {"default_fp": "f64"}


def wrong_number_of_indices(qd):
    x = qd.field(qd.i32, (2, 3))

    @qd.kernel
    def f():
        x[0] = 1

    f()


def assignment_to_a_literal_tuple(qd):
    @qd.kernel
    def f():
        t = (1, 2)
        t[0] = 3

    f()


def variable_is_read_too_early(qd):
    @qd.kernel
    def f() -> qd.i32:
        a = b + 1  # noqa: F821
        return a

    f()


def method_that_is_not_there(qd):
    x = qd.field(qd.i32, 2)

    @qd.kernel
    def f():
        x.nothing()

    f()


def matrices_of_other_shapes(qd):
    @qd.kernel
    def f():
        a = qd.Matrix([[1, 2], [3, 4]])
        b = qd.Vector([1, 2, 3])
        c = a @ b  # noqa: F841

    f()


def vectors_of_other_lengths(qd):
    @qd.kernel
    def f():
        c = qd.Vector([1, 2]) + qd.Vector([1, 2, 3])  # noqa: F841

    f()


def index_beyond_a_vector(qd):
    @qd.kernel
    def f() -> qd.i32:
        v = qd.Vector([1, 2])
        return v[2]

    f()


def float_as_index(qd):
    x = qd.field(qd.i32, 2)

    @qd.kernel
    def f():
        x[0.5] = 1

    f()


def kernel_with_star_arguments(qd):
    @qd.kernel
    def f(*args: qd.i32):
        pass

    f(1)


def unknown_loop_option(qd):
    @qd.kernel
    def f():
        qd.loop_config(no_such_option=1)
        for i in range(3):
            pass

    f()


def loop_option_without_a_loop(qd):
    @qd.kernel
    def f() -> qd.i32:
        qd.loop_config(serialize=True)
        return 1

    return f()


def yield_in_kernel(qd):
    @qd.kernel
    def f():
        for i in range(3):
            yield i

    f()


def string_in_kernel(qd):
    @qd.kernel
    def f() -> qd.i32:
        s = "abc"
        return len(s)

    return f()


def dict_in_kernel(qd):
    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        d = {"a": x, "b": 2}
        return d["a"] + d["b"]

    return f(1)


def set_in_kernel(qd):
    @qd.kernel
    def f():
        s = {1, 2}  # noqa: F841

    f()


def import_in_kernel(qd):
    @qd.kernel
    def f():
        import os  # noqa: F401

    f()


def numpy_call_in_kernel(qd):
    @qd.kernel
    def f(x: qd.f32) -> qd.f32:
        return np.sin(x)

    return f(0.5)


def numpy_call_of_constants_in_kernel(qd):
    @qd.kernel
    def f() -> qd.f32:
        return np.sin(0.5)

    return f()


def math_call_in_kernel(qd):
    @qd.kernel
    def f(x: qd.f32) -> qd.f32:
        return math.sin(x)

    return f(0.5)
