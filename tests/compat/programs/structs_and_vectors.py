"""Structs with methods, structs of structs, vectors, matrices and their parts, in and out of kernels."""

import copy
import pickle

import numpy as np


def structs_with_methods(qd):
    @qd.dataclass
    class Sphere:
        center: qd.math.vec3
        radius: qd.f32

        @qd.func
        def area(self):
            return 4 * self.radius * self.radius

        @qd.func
        def moved(self, by):
            return Sphere(self.center + by, self.radius)

    @qd.kernel
    def f() -> qd.f32:
        s = Sphere(qd.math.vec3(1, 2, 3), 2.0)
        t = s.moved(qd.math.vec3(1, 1, 1))
        return s.area() + t.center.sum() * 100

    return f()


def methods_that_change_a_struct(qd):
    @qd.dataclass
    class Counter:
        n: qd.i32

        @qd.func
        def add(self, k):
            self.n += k

    @qd.kernel
    def f() -> qd.i32:
        c = Counter(1)
        c.add(5)
        c.add(7)
        return c.n

    return f()


def methods_of_elements_of_fields(qd):
    @qd.dataclass
    class Particle:
        x: qd.math.vec2
        v: qd.math.vec2

        @qd.func
        def step(self, dt):
            self.x += dt * self.v

    p = Particle.field(shape=3)

    @qd.kernel
    def f():
        for i in p:
            p[i].v = [i, 1]
            p[i].step(0.5)

    f()
    return p.x.to_numpy()


def structs_of_structs_in_kernels(qd):
    Inner = qd.types.struct(a=qd.i32, v=qd.math.vec2)
    Outer = qd.types.struct(left=Inner, right=Inner, n=qd.i32)

    @qd.kernel
    def f() -> qd.f32:
        o = Outer(left=Inner(a=1, v=[1, 2]), right=Inner(a=2, v=[3, 4]), n=7)
        o.left.v[1] = 10
        o.right = o.left
        o.left.a = 50
        return o.right.v.sum() + o.right.a * 100 + o.left.a * 1000 + o.n * 100000

    return f()


def fields_of_structs_of_structs(qd):
    Inner = qd.types.struct(a=qd.i32, v=qd.math.vec2)
    Outer = qd.types.struct(inner=Inner, n=qd.i32)
    x = Outer.field(shape=2)

    @qd.kernel
    def f():
        for i in x:
            x[i].inner.a = i
            x[i].inner.v = [i, 2]
            x[i].n = 5
            x[i].inner.v.x += 1

    f()
    return [x.inner.a.to_numpy(), x.inner.v.to_numpy(), x.n.to_numpy()]


def structs_with_matrices(qd):
    S = qd.types.struct(m=qd.math.mat2, k=qd.f32)
    x = S.field(shape=2)

    @qd.kernel
    def f():
        for i in x:
            x[i].m = qd.Matrix([[1.0, 2.0], [3.0, 4.0]]) * (i + 1)
            x[i].k = x[i].m.trace() + x[i].m.determinant()

    f()
    return [x.m.to_numpy(), x.k.to_numpy()]


def structs_by_position_and_name(qd):
    S = qd.types.struct(a=qd.i32, b=qd.f32, c=qd.math.vec2)

    @qd.kernel
    def f() -> qd.f32:
        s = S(1, 2.5, [3, 4])
        t = S(b=0.5, a=3)
        return s.a + s.b * 10 + s.c.y * 100 + t.a * 1000 + t.c.x

    return f()


def structs_are_values(qd):
    S = qd.types.struct(a=qd.i32)

    @qd.kernel
    def f() -> qd.i32:
        s = S(a=1)
        t = s
        t.a = 5
        return s.a * 10 + t.a

    return f()


def structs_given_to_funcs(qd):
    S = qd.types.struct(a=qd.i32, b=qd.f32)

    @qd.func
    def total(s: S) -> qd.f32:
        return s.a + s.b

    @qd.func
    def change(s: qd.template()):
        s.a = 100

    @qd.kernel
    def f() -> qd.f32:
        s = S(a=2, b=0.25)
        before = total(s)
        change(s)
        return before + total(s) * 1000

    return f()


def structs_of_wrong_members(qd):
    S = qd.types.struct(a=qd.i32)

    @qd.kernel
    def f() -> qd.i32:
        s = S(a=1)
        return s.b

    return f()


def structs_of_wrong_keywords(qd):
    S = qd.types.struct(a=qd.i32)
    return S(b=1).a


def structs_as_dicts(qd):
    S = qd.types.struct(a=qd.i32, v=qd.math.vec2)
    s = S(a=1, v=[2, 3])
    return [s.a, s.v, s.keys, s.to_dict()["a"]]


def struct_fields_from_numpy(qd):
    S = qd.types.struct(a=qd.i32, v=qd.math.vec2)
    x = S.field(shape=2)
    x.from_numpy({"a": np.array([1, 2], np.int32), "v": np.ones((2, 2), np.float32)})
    d = x.to_numpy()
    return [d["a"], d["v"], sorted(d)]


def struct_fields_are_filled(qd):
    S = qd.types.struct(a=qd.i32, b=qd.f32)
    x = S.field(shape=2)
    x.fill(3)
    y = S.field(shape=2)
    y.copy_from(x)
    return [y.a.to_numpy(), y.b.to_numpy()]


def struct_fields_assigned_on_the_host(qd):
    S = qd.types.struct(a=qd.i32, v=qd.math.vec2)
    x = S.field(shape=2)
    x[1] = S(a=4, v=[5, 6])
    x[0].a = 9
    return [x.a.to_numpy(), x.v.to_numpy()]


def struct_fields_of_two_layouts(qd):
    S = qd.types.struct(a=qd.i32, v=qd.math.vec2)
    x = S.field(shape=3, layout=qd.Layout.SOA)
    y = S.field(shape=3, layout=qd.Layout.AOS)

    @qd.kernel
    def f():
        for i in x:
            x[i].a = i
            x[i].v = [i, -i]
            y[i] = x[i]

    f()
    return [y.a.to_numpy(), y.v.to_numpy()]


def struct_fields_that_are_placed(qd):
    S = qd.types.struct(a=qd.i32, v=qd.math.vec2)
    x = S.field()
    qd.root.dense(qd.i, 3).place(x)

    @qd.kernel
    def f():
        for i in x:
            x[i].a = i + 1
            x[i].v.y = i

    f()
    return [x.a.to_numpy(), x.v.to_numpy(), x.shape]


def struct_atomics(qd):
    S = qd.types.struct(a=qd.i32, v=qd.math.vec2)
    x = S.field(shape=())

    @qd.kernel
    def f():
        for i in range(10):
            x[None].a += i
            x[None].v += [1, i]
            x[None].v.x -= 0.5

    f()
    return [x.a[None], x.v[None]]


def structs_in_a_ternary(qd):
    @qd.dataclass
    class Ray:
        o: qd.math.vec2
        t: qd.f32

    @qd.func
    def nearer(a, b):
        r = a
        if b.t < a.t:
            r = b
        return r

    @qd.kernel
    def f() -> qd.f32:
        a, b = Ray(qd.math.vec2(1, 2), 3.0), Ray(qd.math.vec2(4, 5), 1.0)
        r = nearer(a, b)
        return r.o.x * 10 + r.t

    return f()


def struct_returned_from_a_kernel(qd):
    S = qd.types.struct(a=qd.i32, v=qd.math.vec2)

    @qd.kernel
    def f() -> S:
        return S(a=3, v=[1, 2])

    s = f()
    return [s.a, s.v]


def structs_as_kernel_arguments(qd):
    Inner = qd.types.struct(v=qd.math.vec2)
    S = qd.types.struct(a=qd.i32, inner=Inner)

    @qd.kernel
    def f(s: S) -> qd.f32:
        return s.a + s.inner.v.y * 10

    return f(S(a=1, inner=Inner(v=[2, 3])))


def dataclass_arguments_with_arrays(qd):
    import dataclasses

    @dataclasses.dataclass
    class State:
        x: qd.types.NDArray[qd.f32, 1]
        y: qd.types.NDArray[qd.f32, 1]

    @qd.kernel
    def f(s: State):
        for i in range(s.x.shape[0]):
            s.y[i] = s.x[i] * 2

    s = State(qd.ndarray(qd.f32, 3), qd.ndarray(qd.f32, 3))
    s.x.fill(1.5)
    f(s)
    return s.y.to_numpy()


def matrices_of_rows(qd):
    @qd.kernel
    def f() -> qd.types.vector(3, qd.f32):
        m = qd.Matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        return m[0, :] + m[1, :] * 10

    return f()


def columns_of_matrices(qd):
    @qd.kernel
    def f() -> qd.math.vec2:
        m = qd.Matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        return m[:, 1] * 10 + m[:, -1]

    return f()


def blocks_of_matrices(qd):
    @qd.kernel
    def f() -> qd.math.mat2:
        m = qd.Matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
        return m[1:3, 0:2]

    return f()


def every_other_component(qd):
    @qd.kernel
    def f() -> qd.math.vec2:
        v = qd.Vector([1.0, 2.0, 3.0, 4.0])
        return v[::2] + v[1::2] * 10

    return f()


def slices_of_vectors_reversed(qd):
    @qd.kernel
    def f() -> qd.math.vec3:
        v = qd.Vector([1.0, 2.0, 3.0])
        return v[::-1]

    return f()


def matrices_assigned_by_row(qd):
    @qd.kernel
    def f() -> qd.math.mat2:
        m = qd.Matrix.zero(qd.f32, 2, 2)
        m[0, :] = qd.Vector([1.0, 2.0])
        m[1, 0] = 3
        return m

    return f()


def matrices_indexed_at_run_time(qd):
    @qd.kernel
    def f(i: qd.i32, j: qd.i32) -> qd.f32:
        m = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
        m[j, i] += 10
        return m[i, j] * 100 + m[j, i]

    return [f(0, 1), f(1, 1)]


def matrices_of_one_index(qd):
    @qd.kernel
    def f() -> qd.f32:
        m = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
        return m[0]

    return f()


def rows_by_a_loop(qd):
    @qd.kernel
    def f() -> qd.f32:
        m = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
        s = 0.0
        for i in qd.static(range(2)):
            for j in range(2):
                s = s * 10 + m[i, j]
        return s

    return f()


def swizzles_of_many_lengths(qd):
    @qd.kernel
    def f() -> qd.math.vec4:
        v = qd.math.vec4(1, 2, 3, 4)
        a = v.wzyx
        a.xy = a.yx
        a.zw += v.xx
        return a * 10 + v.xxyy

    return f()


def swizzles_of_colours(qd):
    @qd.kernel
    def f() -> qd.math.vec3:
        c = qd.math.vec3(0.1, 0.2, 0.3)
        c.rb = c.br
        return c.bgr + c.g

    return f()


def swizzles_are_assigned_a_number(qd):
    @qd.kernel
    def f() -> qd.math.vec3:
        v = qd.math.vec3(1, 2, 3)
        v.xz = 7
        return v

    return f()


def vectors_from_parts(qd):
    @qd.kernel
    def f() -> qd.math.vec4:
        a = qd.math.vec2(1, 2)
        return qd.math.vec4(a, 3, 4) + qd.math.vec4(5.0, a, 0.5) * 10 + qd.math.vec4(1)

    return f()


def integer_vectors(qd):
    @qd.kernel
    def f() -> qd.math.ivec3:
        v = qd.math.ivec3(7, -7, 3)
        return v // 2 * 100 + v % 4

    return f()


def vector_of_floats_into_integers(qd):
    @qd.kernel
    def f() -> qd.math.ivec2:
        return qd.math.ivec2(1.9, -1.9)

    return f()


def vectors_with_scalars(qd):
    @qd.kernel
    def f() -> qd.math.vec2:
        v = qd.Vector([1, 2])
        return 1 / (v + 1) + 2.0 - v * 0.5 + (3 - v) ** 2

    return f()


def matrix_products(qd):
    @qd.kernel
    def f() -> qd.math.mat2:
        a = qd.Matrix([[1.0, 2.0, 0.0], [0.0, 1.0, 3.0]])
        return a @ a.transpose()

    return f()


def matrices_inverted(qd):
    @qd.kernel
    def f() -> qd.math.mat3:
        m = qd.Matrix([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 1.0]])
        return m.inverse() @ m + m.determinant()

    return f()


def outer_products_and_crosses(qd):
    @qd.kernel
    def f() -> qd.math.vec3:
        a, b = qd.math.vec3(1, 2, 3), qd.math.vec3(-1, 0, 2)
        return a.outer_product(b) @ a + a.cross(b)

    return f()


def reductions_of_vectors(qd):
    @qd.kernel
    def f() -> qd.f32:
        v = qd.Vector([3.0, -1.0, 2.0])
        m = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
        return v.max() + v.min() * 10 + v.sum() * 100 + m.sum() * 1000 + m.norm_sqr()

    return f()


def any_and_all_of_vectors(qd):
    @qd.kernel
    def f() -> qd.i32:
        v = qd.Vector([1, 0, 2])
        return bool(v.any()) * 10 + bool(v.all())

    return f()


def equality_of_vectors(qd):
    @qd.kernel
    def f() -> qd.i32:
        a, b = qd.Vector([1, 2]), qd.Vector([1, 3])
        return bool(all(a == b)) * 100 + bool(any(a == b)) * 10 + bool((a != b)[1])

    return f()


def minima_of_vectors(qd):
    @qd.kernel
    def f() -> qd.math.vec2:
        return qd.min(qd.Vector([1.0, 5.0]), qd.Vector([2.0, 3.0]), 4.0)

    return f()


def diagonals_and_identities(qd):
    @qd.kernel
    def f() -> qd.math.mat2:
        return qd.Matrix.identity(qd.f32, 2) * 3 + qd.Matrix.one(qd.f32, 2, 2)

    return f()


def unit_vectors(qd):
    @qd.kernel
    def f() -> qd.math.vec3:
        return qd.Vector.unit(3, 1, qd.f32) * 2 + qd.Vector.one(qd.f32, 3)

    return f()


def transposes_of_vectors(qd):
    @qd.kernel
    def f() -> qd.f32:
        v = qd.Vector([1.0, 2.0])
        return (v.transpose() @ v)[0]

    return f()


def funcs_over_components(qd):
    @qd.func
    def g(x):
        return x * x + 1

    @qd.kernel
    def f() -> qd.math.vec2:
        v = qd.Vector([1.0, 2.0])
        return qd.Vector([g(v[i]) for i in qd.static(range(2))])

    return f()


def lists_of_vectors_in_kernels(qd):
    @qd.kernel
    def f() -> qd.f32:
        vs = [qd.Vector([1.0, 2.0]), qd.Vector([3.0, 4.0])]
        s = 0.0
        for v in qd.static(vs):
            s = s * 10 + v.sum()
        return s

    return f()


def tuples_in_kernels(qd):
    @qd.kernel
    def f() -> qd.i32:
        t = (1, 2, 3)
        a, b, c = t
        return a * 100 + b * 10 + c + len(t)

    return f()


def dicts_in_kernels(qd):
    @qd.kernel
    def f() -> qd.i32:
        d = {"a": 1, "b": 2}
        return d["a"] * 10 + d["b"]

    return f()


def vectors_on_the_host_in_arithmetic(qd):
    a, b = qd.Vector([1.0, 2.0, 3.0]), qd.Vector([4.0, 5.0, 6.0])
    return [a + b, a * b, b / a, a - 1, 2 * b, a.dot(b), a.cross(b), -a, a**2, a.norm()]


def matrices_on_the_host_in_arithmetic(qd):
    m = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
    return [
        m @ m,
        m.transpose(),
        m.inverse(),
        m.trace(),
        m.determinant(),
        m @ qd.Vector([1.0, 1.0]),
    ]


def vectors_on_the_host_by_name(qd):
    v = qd.math.vec4(1, 2, 3, 4)
    v.x = 10
    v.zw = qd.Vector([7.0, 8.0])
    return [v, v.xy, v[1], len(v), list(v)]


def slices_of_host_vectors(qd):
    v = qd.Vector([1, 2, 3, 4])
    return [v[1:3], v[-1], v[:2]]


def deep_copies_of_vectors(qd):
    v = qd.Vector([1, 2, 3])
    w = copy.deepcopy(v)
    w[0] = 9
    return [v, w]


def pickled_vectors(qd):
    return pickle.loads(pickle.dumps(qd.Vector([1.0, 2.0])))


def numpy_of_host_vectors(qd):
    return [qd.Vector([1.5, 2.0]).to_numpy(), qd.Matrix([[1, 2], [3, 4]]).to_numpy()]


def equal_host_vectors(qd):
    return list(qd.Vector([1, 2]) == qd.Vector([1, 3]))


def printed_vectors(qd):
    v, m = qd.Vector([1, 2]), qd.Matrix([[1, 2], [3, 4]])
    return [str(v), str(m)]


def vector_fields_by_component(qd):
    v = qd.Vector.field(3, qd.i32, 2)
    v.get_scalar_field(1).fill(7)
    v[0][0] = 1
    return [v.to_numpy(), v.get_scalar_field(0)[0]]


def vector_fields_are_filled(qd):
    v = qd.Vector.field(2, qd.f32, 2)
    v.fill(qd.Vector([1.0, 2.0]))
    w = qd.Vector.field(2, qd.f32, 2)
    w.fill([3.0, 4.0])
    return [v.to_numpy(), w.to_numpy()]


def matrix_fields_are_filled(qd):
    m = qd.Matrix.field(2, 2, qd.f32, 2)
    m.fill(qd.Matrix([[1.0, 2.0], [3.0, 4.0]]))
    return m.to_numpy()


def vector_ndarrays_in_kernels(qd):
    a = qd.Vector.ndarray(2, qd.f32, 3)
    m = qd.Matrix.ndarray(2, 2, qd.f32, 3)

    @qd.kernel
    def f(a: qd.types.ndarray(), m: qd.types.ndarray()):
        for i in a:
            a[i] = [i, i + 1]
            m[i] = a[i].outer_product(a[i])
            m[i][0, 1] = -1

    f(a, m)
    return [a.to_numpy(), m.to_numpy(), a.element_shape, m.element_shape]


def matrices_larger_than_32(qd):
    @qd.kernel
    def f() -> qd.f32:
        m = qd.Matrix.zero(qd.f32, 6, 6)
        for i in range(6):
            for j in range(6):
                m[i, j] = i * 6 + j
        return m.trace()

    return f()


def matrix_of_the_wrong_shape_is_assigned(qd):
    v = qd.Vector.field(3, qd.f32, 2)

    @qd.kernel
    def f():
        v[0] = qd.Vector([1.0, 2.0])

    f()
    return v.to_numpy()


def component_beyond_a_vector(qd):
    @qd.kernel
    def f() -> qd.f32:
        v = qd.math.vec2(1, 2)
        return v.z

    return f()


def vectors_of_types_are_converted(qd):
    vec = qd.types.vector(2, qd.i64)

    @qd.kernel
    def f(a: vec) -> vec:
        return a * 3000000000

    return f(vec(1, 2))


def vector_types_on_the_host(qd):
    vec = qd.types.vector(3, qd.f32)
    mat = qd.types.matrix(2, 2, qd.i32)
    return [vec(1), vec(1, 2, 3), vec([4, 5, 6]), mat(0), mat([[1, 2], [3, 4]]), mat(1, 2, 3, 4)]


def vector_type_of_too_few_numbers(qd):
    return qd.types.vector(3, qd.f32)(1, 2)


def and_and_or_of_vectors(qd):
    @qd.kernel
    def f(x: qd.f32, out: qd.types.ndarray()):
        v = qd.Vector([x, 0.2, 2.0])
        between = v > 0.1 and v < 1.0 and v > 0.3
        outside = v < 0.3 or v > 1.0
        numbers = qd.Vector([1, 2, 0]) and qd.Vector([2, 0, 4])
        scalar_on_the_right = v > 1.0 or x > 0.0
        scalar_on_the_left = x < 0.0 or v > 1.0
        for k in qd.static(range(3)):
            out[0, k] = between[k]
            out[1, k] = outside[k]
            out[2, k] = numbers[k]
            out[3, k] = scalar_on_the_right[k]
            out[4, k] = scalar_on_the_left[k]

    out = np.zeros((5, 3), np.int32)
    f(0.5, out)
    return out


def chained_comparisons_of_vectors(qd):
    @qd.kernel
    def f(x: qd.f32, out: qd.types.ndarray()):
        v = qd.Vector([x, 0.2, 2.0])
        below = 0.1 < v < qd.Vector([0.4, 0.3, 5.0])
        for k in qd.static(range(3)):
            out[k] = below[k]
        out[3] = all(0.1 <= v <= 2.0)
        out[4] = not all(0.1 <= v <= 1.1)
        if any(0.1 <= v <= 0.3):
            out[5] = 1

    out = np.zeros(6, np.int32)
    f(0.5, out)
    return out
