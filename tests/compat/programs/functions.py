"""Kernels, funcs, their parameters and results; classes, closures, templates."""

import typing

import numpy as np


def funcs_that_return_tuples(qd):
    @qd.func
    def g(x):
        return x + 1, x * 2

    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        a, b = g(x)
        return a * 100 + b

    return f(3)


def kernels_that_return_tuples(qd):
    @qd.kernel
    def f(x: qd.i32) -> typing.Tuple[qd.i32, qd.f32]:  # noqa: UP006
        return x + 1, x / 2

    @qd.kernel
    def g(x: qd.i32) -> tuple[qd.i32, qd.math.vec2]:
        return x, qd.math.vec2(x, 1)

    return [f(3), g(3)]


def kernels_that_return_matrices(qd):
    @qd.kernel
    def f() -> qd.types.matrix(2, 2, qd.i32):
        return qd.Matrix([[1, 2], [3, 4]])

    @qd.kernel
    def g() -> qd.types.vector(2, qd.f64):
        return qd.Vector([1.5, 2])

    return [f(), g(), str(type(f()).__name__)]


def kernels_that_return_structs(qd):
    S = qd.types.struct(a=qd.i32, v=qd.math.vec2)

    @qd.kernel
    def f(x: qd.i32) -> S:
        return S(a=x, v=qd.math.vec2(1, 2))

    r = f(3)
    return [r.a, r.v, r]


def keyword_arguments_of_kernels(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.i32, c: qd.f32) -> qd.f32:
        return a * 100 + b * 10 + c

    return [f(1, 2, 3), f(1, c=3, b=2), f(a=1, b=2, c=3)]


def default_arguments_of_kernels(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.i32 = 5) -> qd.i32:
        return a * 10 + b

    return [f(1), f(1, 2), f(1, b=3)]


def keyword_arguments_of_funcs(qd):
    @qd.func
    def g(a, b, c):
        return a * 100 + b * 10 + c

    @qd.kernel
    def f() -> qd.i32:
        return g(1, c=3, b=2)

    return f()


def default_arguments_of_funcs(qd):
    @qd.func
    def g(a, b=7, c=9):
        return a * 100 + b * 10 + c

    @qd.kernel
    def f() -> qd.i32:
        return g(1) + g(1, 2) + g(1, c=3)

    return f()


def too_few_arguments(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.i32) -> qd.i32:
        return a + b

    return f(1)


def too_many_arguments(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.i32:
        return a

    return f(1, 2)


def unknown_keyword_argument(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.i32:
        return a

    return f(1, z=2)


def parameter_without_annotation(qd):
    @qd.kernel
    def f(a) -> qd.i32:
        return a

    return f(1)


def annotated_parameters_of_funcs(qd):
    @qd.func
    def g(a: qd.i32, b: qd.f32) -> qd.f32:
        return a + b

    @qd.kernel
    def f() -> qd.f32:
        return g(2.7, 1)

    return f()


def funcs_get_values(qd):
    @qd.func
    def g(a):
        a += 1
        return a

    @qd.kernel
    def f() -> qd.i32:
        x = 1
        y = g(x)
        return x * 10 + y

    return f()


def funcs_get_templates(qd):
    @qd.func
    def g(a: qd.template()):
        a += 1

    @qd.kernel
    def f() -> qd.i32:
        x = 1
        g(x)
        return x

    return f()


def vectors_as_templates_of_funcs(qd):
    @qd.func
    def g(v: qd.template(), n: qd.template()):
        for i in qd.static(range(n)):
            v[i] += i

    @qd.kernel
    def f() -> qd.types.vector(3, qd.i32):
        v = qd.Vector([1, 1, 1])
        g(v, 3)
        return v

    return f()


def fields_as_arguments_of_funcs(qd):
    x = qd.field(qd.i32, 3)

    @qd.func
    def g(a, i):
        a[i] = i * 2

    @qd.kernel
    def f():
        for i in x:
            g(x, i)

    f()
    return x.to_numpy()


def elements_as_templates(qd):
    x = qd.field(qd.i32, 3)

    @qd.func
    def g(a: qd.template(), b):
        a = b * 2  # noqa: F841

    @qd.kernel
    def f():
        for i in x:
            g(x[i], i)

    f()
    return x.to_numpy()


def recursion_at_compile_time(qd):
    @qd.func
    def g(n: qd.template()):
        r = 1
        if qd.static(n > 1):
            r = n * g(n - 1)
        return r

    @qd.kernel
    def f() -> qd.i32:
        return g(5)

    return f()


def real_functions(qd):
    @qd.real_func
    def g(a: qd.i32, b: qd.f32) -> qd.f32:
        return a * b + 1

    @qd.kernel
    def f(x: qd.i32) -> qd.f32:
        return g(x, 0.5) + g(x + 1, 2.0)

    return f(3)


def real_functions_with_branches(qd):
    @qd.real_func
    def g(a: qd.i32) -> qd.i32:
        r = 0
        if a > 2:
            r = 1
        else:
            for i in range(3):
                r += i
        return r

    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        return g(x)

    return [f(1), f(5)]


def early_returns_of_real_functions(qd):
    @qd.real_func
    def g(a: qd.i32) -> qd.i32:
        if a > 2:
            return 1
        return 2

    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        return g(x)

    return [f(1), f(5)]


def recursion_at_run_time(qd):
    @qd.real_func
    def fib(n: qd.i32) -> qd.i32:
        if n < 2:
            return n
        return fib(n - 1) + fib(n - 2)

    @qd.kernel
    def f(n: qd.i32) -> qd.i32:
        return fib(n)

    return [f(n) for n in range(12)]


def recursion_with_several_arguments(qd):
    @qd.real_func
    def ackermann(m: qd.i32, n: qd.i32) -> qd.i32:
        if m == 0:
            return n + 1
        if n == 0:
            return ackermann(m - 1, 1)
        return ackermann(m - 1, ackermann(m, n - 1))

    @qd.real_func
    def divisor(a: qd.i32, b: qd.i32) -> qd.i32:
        if b == 0:
            return a
        return divisor(b, a % b)

    @qd.kernel
    def f(n: qd.i32) -> qd.i32:
        return ackermann(2, n) * 100 + divisor(n * 12, 18)

    return [f(n) for n in range(1, 6)]


def recursion_in_a_parallel_loop(qd):
    x = qd.field(qd.f32, 8)

    @qd.real_func
    def power(a: qd.f32, n: qd.i32) -> qd.f32:
        r = 1.0
        if n > 0:
            half = power(a, n // 2)
            r = half * half
            if n % 2 == 1:
                r *= a
        return r

    @qd.kernel
    def f():
        for i in x:
            x[i] = power(1.5, i)

    f()
    return x.to_numpy()


def recursion_over_a_tree_in_fields(qd):
    left, right = qd.field(qd.i32, 7), qd.field(qd.i32, 7)
    weight, order, count = qd.field(qd.i32, 7), qd.field(qd.i32, 7), qd.field(qd.i32, ())
    left.from_numpy(np.array([1, 3, -1, -1, 5, -1, -1], dtype=np.int32))
    right.from_numpy(np.array([2, 4, -1, -1, 6, -1, -1], dtype=np.int32))
    weight.from_numpy(np.arange(7, dtype=np.int32) * 3 + 1)

    @qd.real_func
    def total(node: qd.i32) -> qd.i32:
        r = 0
        if node >= 0:
            r = total(left[node])
            order[count[None]] = node
            count[None] += 1
            r += total(right[node]) + weight[node]
        return r

    @qd.kernel
    def f() -> qd.i32:
        return total(0)

    return [f(), order.to_numpy()]


def recursion_in_a_loop(qd):
    @qd.real_func
    def ways(n: qd.i32, largest: qd.i32) -> qd.i32:
        r = 0
        if n == 0:
            r = 1
        else:
            k = 1
            while k <= largest and k <= n:
                r += ways(n - k, k)
                k += 1
        return r

    @qd.kernel
    def f(n: qd.i32) -> qd.i32:
        return ways(n, n)

    return [f(n) for n in range(10)]


def recursion_of_two_functions(qd):
    @qd.real_func
    def even(n: qd.i32) -> qd.i32:
        r = 1
        if n > 0:
            r = odd(n - 1)
        return r

    @qd.real_func
    def odd(n: qd.i32) -> qd.i32:
        r = 0
        if n > 0:
            r = even(n - 1)
        return r

    @qd.kernel
    def f(n: qd.i32) -> qd.i32:
        return even(n)

    return [f(n) for n in range(6)]


def recursion_with_vectors(qd):
    vec = qd.types.vector(2, qd.f32)

    @qd.real_func
    def turn(v: vec, n: qd.i32) -> vec:
        r = v
        if n > 0:
            r = turn(qd.Vector([v[1], -v[0]]) * 2.0, n - 1) + v
        return r

    @qd.kernel
    def f(n: qd.i32) -> vec:
        return turn(qd.Vector([1.0, 3.0]), n)

    return [f(n) for n in range(4)]


def recursion_of_methods(qd):
    @qd.data_oriented
    class A:
        def __init__(self):
            self.x = qd.field(qd.i32, 8)
            for i in range(8):
                self.x[i] = (i * 5 + 3) % 8

        @qd.real_func
        def follow(self, i: qd.i32, n: qd.i32) -> qd.i32:
            r = i
            if n > 0:
                r = self.follow(self.x[i], n - 1) * 2 + i
            return r

        @qd.kernel
        def f(self, i: qd.i32) -> qd.i32:
            return self.follow(i, 5)

    a = A()
    return [a.f(i) for i in range(8)]


def recursion_with_a_field_as_argument(qd):
    x = qd.field(qd.i32, 4)
    for i in range(4):
        x[i] = i + 1

    @qd.real_func
    def g(x: qd.template(), n: qd.i32) -> qd.i32:
        r = 0
        if n > 0:
            r = g(x, n - 1) * 2 + x[n]
        return r

    @qd.kernel
    def f() -> qd.i32:
        return g(x, 3)

    return f()


def data_oriented_classes(qd):
    @qd.data_oriented
    class A:
        scale = 3

        def __init__(self, n):
            self.n = n
            self.x = qd.field(qd.i32, n)

        @qd.func
        def twice(self, v):
            return v * 2 * self.scale

        @qd.kernel
        def fill(self, k: qd.i32):
            for i in self.x:
                self.x[i] = self.twice(i) + k + self.n

        @staticmethod
        @qd.func
        def plus(a, b):
            return a + b

        @qd.kernel
        def total(self) -> qd.i32:
            s = 0
            for i in self.x:
                s += self.plus(self.x[i], 1)
            return s

    a = A(3)
    a.fill(1)
    return [a.x.to_numpy(), a.total(), A(2).total()]


def static_methods(qd):
    @qd.data_oriented
    class A:
        def __init__(self):
            self.k = 2

        @staticmethod
        @qd.kernel
        def f(x: qd.i32) -> qd.i32:
            return x * 2

    return [A.f(2), A().f(3)]


def class_methods(qd):
    @qd.data_oriented
    class A:
        k = 2

        @classmethod
        @qd.kernel
        def f(cls, x: qd.i32) -> qd.i32:
            return x * cls.k

    return [A.f(2), A().f(3)]


def properties(qd):
    @qd.data_oriented
    class A:
        def __init__(self):
            self.k = 2

        @property
        def double(self):
            return self.k * 2

        @qd.kernel
        def f(self) -> qd.i32:
            return self.double + 1

    return A().f()


def inheritance(qd):
    @qd.data_oriented
    class A:
        def __init__(self):
            self.k = 1

        @qd.func
        def g(self):
            return self.k

        @qd.kernel
        def f(self) -> qd.i32:
            return self.g() * 10

    class B(A):
        def __init__(self):
            super().__init__()
            self.k = 5

        @qd.func
        def g(self):
            return self.k + 1

    return [A().f(), B().f()]


def super_in_a_class(qd):
    @qd.data_oriented
    class A:
        @qd.func
        def g(self):
            return 1

    @qd.data_oriented
    class B(A):
        @qd.func
        def h(self):
            return A.g(self) + 10

        @qd.kernel
        def f(self) -> qd.i32:
            return self.h()

    return B().f()


def attributes_change_between_launches(qd):
    @qd.data_oriented
    class A:
        def __init__(self):
            self.k = 1

        @qd.kernel
        def f(self) -> qd.i32:
            return self.k

    a = A()
    first = a.f()
    a.k = 2
    return [first, a.f()]


def dataclass_structs(qd):
    @qd.dataclass
    class Sphere:
        centre: qd.math.vec3
        radius: qd.f32

        @qd.func
        def area(self):
            return 4 * qd.math.pi * self.radius**2

        @qd.func
        def is_zero(self):
            return self.radius == 0.0

        @qd.func
        def grow(self, k):
            self.radius += k

    spheres = Sphere.field(shape=3)

    @qd.kernel
    def f() -> qd.f32:
        s = Sphere(qd.math.vec3(1, 2, 3), 2.0)
        s.grow(1.0)
        spheres[1] = s
        spheres[2].radius = 5.0
        t = Sphere(radius=1.0)
        return s.area() + spheres[2].area() + t.centre.x + t.radius

    return [f(), spheres[1].radius, spheres[1].centre, spheres.radius.to_numpy()]


def structs_of_structs(qd):
    Inner = qd.types.struct(v=qd.math.vec2, m=qd.types.matrix(2, 2, qd.f32))
    Outer = qd.types.struct(a=Inner, n=qd.i32)
    x = Outer.field(shape=2)

    @qd.kernel
    def f():
        for i in x:
            x[i].a.v = [i, 1]
            x[i].a.m[0, 1] = i + 0.5
            x[i].n = i * 3
            y = x[i]
            y.a.v += 1
            x[i].a.v = y.a.v * 2

    f()
    return [x[1].a.v, x[1].a.m, x[1].n, x.n.to_numpy(), x.a.v.to_numpy(), x[0].to_dict()]


def struct_literals(qd):
    @qd.kernel
    def f() -> qd.f32:
        s = qd.Struct(a=1.0, b=qd.Vector([1, 2]))
        s.a += 2
        t = s
        t.a = 100.0
        return s.a + s.b[1] + t.a

    return f()


def structs_as_arguments(qd):
    S = qd.types.struct(a=qd.i32, v=qd.math.vec2)

    @qd.kernel
    def f(s: S) -> qd.f32:
        return s.a + s.v.y

    return [f(S(a=1, v=[2, 3])), f(S(1, qd.math.vec2(5, 6)))]


def structs_on_the_host(qd):
    S = qd.types.struct(a=qd.i32, v=qd.math.vec2)
    s = S(a=1, v=[2, 3])
    s.a = 5
    x = S.field(shape=2)
    x[0] = s
    x[1].a = 7
    x.fill(s)
    return [s.a, s.v, s.to_dict(), x[0].a, x[1].a, x.a.shape, x.keys, sorted(x.to_numpy())]


def methods_of_struct_types(qd):
    @qd.func
    def norm(self):
        return self.v.norm()

    S = qd.types.struct(v=qd.math.vec2, __struct_methods={"norm": norm})
    x = S.field(shape=1)

    @qd.kernel
    def f() -> qd.f32:
        s = S(v=[3, 4])
        x[0] = s
        return s.norm() + x[0].norm()

    return f()


def python_dataclasses_as_parameters(qd):
    import dataclasses

    @dataclasses.dataclass
    class State:
        x: qd.types.NDArray[qd.f32, 1]
        y: qd.types.NDArray[qd.f32, 1]

    @qd.func
    def g(s: State, i):
        s.y[i] = s.x[i] * 2

    @qd.kernel
    def f(s: State):
        for i in range(s.x.shape[0]):
            g(s, i)

    s = State(qd.ndarray(qd.f32, 3), qd.ndarray(qd.f32, 3))
    s.x.fill(2)
    f(s)
    return s.y.to_numpy()


def closures(qd):
    def make(k):
        @qd.kernel
        def f(x: qd.i32) -> qd.i32:
            return x * k

        return f

    f, g = make(2), make(3)
    return [f(1), g(1), f(2)]


def vectors_as_arguments(qd):
    @qd.kernel
    def f(v: qd.math.vec3, m: qd.types.matrix(2, 2, qd.f32)) -> qd.f32:
        return v.sum() + m[1, 0]

    m = [[1, 2], [3, 4]]
    return [
        f(qd.Vector([1, 2, 3]), qd.Matrix(m)),
        f(qd.math.vec3(1), qd.types.matrix(2, 2, qd.f32)(m)),
    ]


def arrays_as_vector_arguments(qd):
    @qd.kernel
    def f(v: qd.math.vec3) -> qd.f32:
        return v.sum()

    return [f(np.array([1, 2, 3], np.float32)), f([1, 2, 3])]


def tuples_as_templates(qd):
    @qd.kernel
    def f(t: qd.template()) -> qd.i32:
        s = 0
        for i in qd.static(range(len(t))):
            s += t[i]
        return s

    return [f((1, 2, 3)), f((4,))]


def fields_as_templates(qd):
    x, y = qd.field(qd.i32, 3), qd.field(qd.i32, (2, 2))

    @qd.kernel
    def f(a: qd.template(), k: qd.i32):
        for I in qd.grouped(a):
            a[I] = I.sum() + k

    f(x, 1)
    f(y, 2)
    f(x, k=5)
    return [x.to_numpy(), y.to_numpy()]


def pure_kernels(qd):
    @qd.pure
    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        return x + 1

    @qd.kernel(pure=True)
    def g(x: qd.i32) -> qd.i32:
        return x + 2

    @qd.kernel(fastcache=True)
    def h(x: qd.i32) -> qd.i32:
        return x + 3

    return [f(1), g(1), h(1)]


def pyfuncs(qd):
    @qd.pyfunc
    def g(x):
        return x * 2

    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        return g(x)

    return [f(2), g(3)]


def references(qd):
    @qd.real_func
    def g(a: qd.ref(qd.i32)):
        a += 2

    @qd.kernel
    def f() -> qd.i32:
        x = 1
        g(x)
        return x

    return f()


def return_without_annotation(qd):
    @qd.kernel
    def f(x: qd.i32):
        return x + 1

    return f(1)


def annotated_return_without_return(qd):
    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        x + 1

    return f(1)


def returns_are_converted(qd):
    @qd.kernel
    def f(x: qd.f32) -> qd.i32:
        return x

    @qd.kernel
    def g(x: qd.i32) -> qd.f32:
        return x

    return [f(2.7), f(-2.7), g(3)]


def atomics_return_the_old_value(qd):
    x = qd.field(qd.i32, ())

    @qd.kernel
    def f(out: qd.types.ndarray()):
        x[None] = 10
        out[0] = qd.atomic_add(x[None], 5)
        out[1] = qd.atomic_sub(x[None], 1)
        out[2] = qd.atomic_max(x[None], 20)
        out[3] = qd.atomic_min(x[None], 3)
        out[4] = qd.atomic_or(x[None], 4)
        out[5] = qd.atomic_and(x[None], 6)
        out[6] = qd.atomic_xor(x[None], 1)
        out[7] = qd.atomic_mul(x[None], 3)
        out[8] = qd.atomic_exchange(x[None], 99)
        out[9] = x[None]

    out = np.zeros(10, np.int32)
    f(out)
    return out


def compare_and_swap(qd):
    x = qd.field(qd.i32, ())

    @qd.kernel
    def f(out: qd.types.ndarray()):
        out[0] = qd.atomic_cas(x[None], 0, 7)
        out[1] = qd.atomic_cas(x[None], 0, 9)
        out[2] = x[None]

    out = np.zeros(3, np.int32)
    f(out)
    return out


def augmented_assignments_return_nothing(qd):
    x = qd.field(qd.f32, 2)

    @qd.kernel
    def f():
        x[0] += 1
        x[0] *= 3
        x[0] /= 2
        x[1] -= 2
        x[1] **= 2

    f()
    return x.to_numpy()


def literals_as_annotations(qd):
    @qd.kernel
    def f(a: int, b: float, c: bool) -> float:
        return a + b + c

    return f(1, 2.5, True)


def numpy_types_as_annotations(qd):
    @qd.kernel
    def f(a: np.int32) -> np.float32:
        return a

    return f(1)


def string_annotations(qd):
    @qd.kernel
    def f(a: "qd.i32") -> "qd.i32":
        return a

    return f(1)


def kernels_as_values(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.i32:
        return a

    return [f.__name__, callable(f), callable(f.grad)]


def a_template_is_a_dtype(qd):
    @qd.kernel
    def f(t: qd.template(), x: qd.f32) -> qd.f64:
        return qd.cast(x, t)

    return [f(qd.i32, 2.7), f(qd.f64, 2.5)]


def nested_funcs(qd):
    @qd.func
    def a(x):
        return x + 1

    @qd.func
    def b(x):
        return a(x) * a(x + 1)

    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        return b(a(x))

    return f(1)


def funcs_with_loops_and_fields(qd):
    x = qd.field(qd.f32, 8)

    @qd.func
    def total(n):
        s = 0.0
        for i in range(n):
            s += x[i]
        return s

    @qd.kernel
    def f() -> qd.f32:
        for i in x:
            x[i] = i
        return total(4)

    return f()
