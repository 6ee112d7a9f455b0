"""Classes, arguments, prints, host access of all forms, and the errors of wrong inputs."""

import copy
import dataclasses
import functools
import pickle

import numpy as np


def prints_with_f_strings(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.f32):
        print(f"a is {a:03d}, b is {b:.2f} and {b:8.3f}|")
        print(f"{a:x} {a:5d}| {b:e}")
        print(f"{{}} {a}%")

    f(42, 2.5)
    qd.sync()


def prints_with_separators(qd):
    @qd.kernel
    def f(a: qd.i32):
        print(a, a + 1, "x", sep=", ")
        print()
        print("no", a, "end", end="!\n")

    f(3)
    qd.sync()


def prints_with_format(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.f32):
        print("{} and {:.3f}".format(a, b))
        print("{1} {0}".format(a, a + 1))

    f(3, 0.5)
    qd.sync()


def prints_of_vectors(qd):
    @qd.kernel
    def f():
        v = qd.Vector([1, 2, 3])
        m = qd.Matrix([[1, 2], [3, 4]])
        print(v, m)
        print(f"{v}")

    f()
    qd.sync()


def prints_of_wide_integers(qd):
    @qd.kernel
    def f(a: qd.i64, b: qd.u64, c: qd.u8):
        print(a, b, c)

    f(-(1 << 40), 2**64 - 1, 255)
    qd.sync()


def asserts_with_messages(qd):
    @qd.kernel
    def f(a: qd.i32):
        assert a > 0, "a must be positive"

    f(1)
    f(-1)
    qd.sync()


asserts_with_messages.options = {"debug": True}


def kernel_argument_by_position_and_name(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.i32, c: qd.i32 = 5) -> qd.i32:
        return a * 100 + b * 10 + c

    return [f(1, 2), f(1, b=3), f(c=1, b=2, a=3)]


def kernel_argument_twice(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.i32:
        return a

    return f(1, a=2)


def funcs_with_defaults_and_names(qd):
    @qd.func
    def g(a, b=2, *, c=3):
        return a * 100 + b * 10 + c

    @qd.kernel
    def f() -> qd.i32:
        return g(1) + g(1, c=4) * 1000

    return f()


def funcs_with_several_star_arguments(qd):
    @qd.func
    def g(first, *rest):
        s = first * 100
        for k in qd.static(range(len(rest))):
            s += rest[k] * (k + 1)
        return s

    @qd.kernel
    def f() -> qd.i32:
        return g(1, 2, 3)

    return f()


def funcs_called_with_a_spread(qd):
    @qd.func
    def g(a, b, c):
        return a * 100 + b * 10 + c

    @qd.kernel
    def f() -> qd.i32:
        t = (1, 2, 3)
        return g(*t)

    return f()


def funcs_as_partials(qd):
    @qd.func
    def g(a, b):
        return a * 10 + b

    h = functools.partial(g, 4)

    @qd.kernel
    def f() -> qd.i32:
        return h(2)

    return f()


def funcs_with_too_few_arguments(qd):
    @qd.func
    def g(a, b):
        return a + b

    @qd.kernel
    def f() -> qd.i32:
        return g(1)

    return f()


def func_results_are_not_used(qd):
    @qd.func
    def g(a):
        return a + 1

    @qd.kernel
    def f() -> qd.i32:
        g(1)
        return 2

    return f()


def funcs_with_return_annotations(qd):
    @qd.func
    def g(a) -> qd.i32:
        return a

    @qd.kernel
    def f() -> qd.f32:
        return g(2.75)

    return f()


def inherited_kernels(qd):
    @qd.data_oriented
    class Base:
        def __init__(self, n):
            self.x = qd.field(qd.i32, n)

        @qd.func
        def value(self, i):
            return i

        @qd.kernel
        def fill(self):
            for i in self.x:
                self.x[i] = self.value(i)

    @qd.data_oriented
    class Squares(Base):
        def __init__(self, n):
            super().__init__(n)

        @qd.func
        def value(self, i):
            return i * i

    @qd.data_oriented
    class Shifted(Squares):
        @qd.kernel
        def shift(self):
            for i in self.x:
                self.x[i] += 100

    a, b, c = Base(3), Squares(4), Shifted(2)
    for o in (a, b, c):
        o.fill()
    c.shift()
    return [o.x.to_numpy() for o in (a, b, c)]


def properties_in_kernels(qd):
    @qd.data_oriented
    class A:
        def __init__(self):
            self._n = 3

        @property
        def n(self):
            return self._n

        @qd.kernel
        def f(self) -> qd.i32:
            return self.n * 2

    return A().f()


def static_methods_in_kernels(qd):
    @qd.data_oriented
    class A:
        @staticmethod
        @qd.func
        def g(x):
            return x + 1

        @qd.kernel
        def f(self, x: qd.i32) -> qd.i32:
            return self.g(x) * A.g(x)

    return A().f(2)


def static_kernels(qd):
    @qd.data_oriented
    class A:
        @staticmethod
        @qd.kernel
        def f(x: qd.i32) -> qd.i32:
            return x + 1

    return [A.f(1), A().f(2)]


def class_attributes_in_kernels(qd):
    @qd.data_oriented
    class A:
        k = 5
        table = (1, 2, 3)

        @qd.kernel
        def f(self) -> qd.i32:
            s = self.k
            for t in qd.static(self.table):
                s = s * 10 + t
            return s

    return A().f()


def objects_in_objects(qd):
    @qd.data_oriented
    class Grid:
        def __init__(self, n):
            self.n = n
            self.x = qd.field(qd.f32, n)

        @qd.func
        def at(self, i):
            return self.x[min(max(i, 0), self.n - 1)]

    @qd.data_oriented
    class Solver:
        def __init__(self):
            self.grids = [Grid(3), Grid(4)]

        @qd.kernel
        def fill(self):
            for g in qd.static(self.grids):
                for i in g.x:
                    g.x[i] = i + 1

        @qd.kernel
        def total(self) -> qd.f32:
            s = 0.0
            for g in qd.static(self.grids):
                s += g.at(-3) + g.at(99)
            return s

    s = Solver()
    s.fill()
    return s.total()


def kernels_of_plain_classes(qd):
    class A:
        def __init__(self):
            self.n = 3

        @qd.kernel
        def f(self) -> qd.i32:
            return self.n

    return A().f()


def numpy_members_of_objects(qd):
    @qd.data_oriented
    class A:
        def __init__(self):
            self.k = np.float32(2.5)
            self.n = np.int64(3)

        @qd.kernel
        def f(self) -> qd.f32:
            return self.k * self.n

    return A().f()


def frozen_dataclasses_as_templates(qd):
    @dataclasses.dataclass(frozen=True)
    class Config:
        n: int
        scale: float

    @qd.kernel
    def f(c: qd.template()) -> qd.f32:
        s = 0.0
        for _ in qd.static(range(c.n)):
            s += c.scale
        return s

    return [f(Config(3, 0.5)), f(Config(2, 4.0))]


def numbers_in_dataclass_parameters(qd):
    @dataclasses.dataclass
    class P:
        x: qd.types.NDArray[qd.f32, 1]
        k: qd.f32

    @qd.kernel
    def f(p: P):
        for i in range(p.x.shape[0]):
            p.x[i] = p.k * i

    p = P(qd.ndarray(qd.f32, 3), 0.5)
    f(p)
    return p.x.to_numpy()


def host_index_of_a_slice(qd):
    x = qd.field(qd.i32, 4)
    return x[1:3]


def host_index_of_an_ellipsis(qd):
    x = qd.field(qd.i32, 4)
    return x[...]


def host_index_of_a_float(qd):
    x = qd.field(qd.i32, 4)
    return x[1.0]


def host_index_of_numpy_integers(qd):
    x = qd.field(qd.i32, (4, 4))
    x[np.int32(1), np.int64(2)] = 5
    return [x[1, 2], x[np.array([1, 2], np.int32)[0], 2]]


def host_index_of_a_tuple(qd):
    x = qd.field(qd.i32, (4, 4))
    index = (1, 3)
    x[index] = 8
    return [x[index], x[1, 3]]


def host_index_of_none_for_a_vector_field(qd):
    x = qd.Vector.field(2, qd.i32, ())
    x[None] = [1, 2]
    return [x[None][0], x[None]]


def host_assignment_of_a_wrong_type(qd):
    x = qd.field(qd.i32, 4)
    x[0] = "a"


def host_assignment_of_a_float_to_an_integer(qd):
    x = qd.field(qd.i32, 4)
    x[0] = 2.75
    x[1] = -2.75
    return x.to_numpy()


def host_assignment_of_a_vector_of_the_wrong_length(qd):
    x = qd.Vector.field(2, qd.i32, 4)
    x[0] = [1, 2, 3]
    return x.to_numpy()


def host_augmented_assignment(qd):
    x = qd.field(qd.f32, 4)
    x[0] += 2
    x[0] *= 3
    x[1] -= 1
    return x.to_numpy()


def host_loop_over_a_field(qd):
    x = qd.field(qd.i32, 3)
    x.from_numpy(np.array([3, 4, 5], np.int32))
    return list(x)


def length_of_a_field(qd):
    return len(qd.field(qd.i32, 3))


def ndarray_index_of_a_slice(qd):
    a = qd.ndarray(qd.i32, 4)
    a[2] = 5
    return [a[1:3].shape, a[1:3].to_numpy()]


def ndarray_index_of_none(qd):
    a = qd.ndarray(qd.i32, ())
    a[None] = 3
    return a[None]


def ndarray_too_many_indices(qd):
    a = qd.ndarray(qd.i32, 4)
    return a[1, 2]


def ndarray_copies(qd):
    a = qd.ndarray(qd.i32, 3)
    a.fill(4)
    b = copy.deepcopy(a)
    b[0] = 1
    c = copy.copy(a)
    return [a.to_numpy(), b.to_numpy(), c.to_numpy()]


def ndarray_from_numpy_of_another_dtype(qd):
    a = qd.ndarray(qd.i32, 3)
    a.from_numpy(np.array([1.5, 2.5, -3.5]))
    return a.to_numpy()


def ndarray_from_numpy_of_another_shape(qd):
    a = qd.ndarray(qd.i32, 3)
    a.from_numpy(np.zeros(4, np.int32))
    return a.to_numpy()


def ndarray_of_a_wrong_dtype(qd):
    return qd.ndarray("f32", 3)


def ndarray_of_a_negative_shape(qd):
    return qd.ndarray(qd.f32, -3).shape


def field_of_a_negative_shape(qd):
    x = qd.field(qd.f32, -3)
    x.fill(0)
    return x.shape


def field_of_a_float_shape(qd):
    x = qd.field(qd.f32, 2.5)
    x.fill(0)
    return x.shape


def field_of_a_wrong_dtype(qd):
    return qd.field("f32", 3).shape


def ndarray_of_another_dtype_is_refused(qd):
    @qd.kernel
    def f(x: qd.types.ndarray(dtype=qd.f32, ndim=1)):
        x[0] = 1

    f(qd.ndarray(qd.i32, 3))


def ndarray_of_another_ndim_is_refused(qd):
    @qd.kernel
    def f(x: qd.types.ndarray(dtype=qd.f32, ndim=2)):
        x[0, 0] = 1

    f(qd.ndarray(qd.f32, 3))


def ndarray_of_vectors_of_another_length_is_refused(qd):
    @qd.kernel
    def f(x: qd.types.ndarray(dtype=qd.math.vec2, ndim=1)):
        x[0] = [1, 2]

    f(qd.Vector.ndarray(3, qd.f32, 4))


def field_for_an_ndarray_parameter(qd):
    @qd.kernel
    def f(x: qd.types.ndarray()):
        x[0] = 1

    f(qd.field(qd.f32, 3))


def ndarray_for_a_number(qd):
    @qd.kernel
    def f(x: qd.f32) -> qd.f32:
        return x

    return f(qd.ndarray(qd.f32, 3))


def list_for_an_ndarray_parameter(qd):
    @qd.kernel
    def f(x: qd.types.ndarray()):
        x[0] = 1

    f([1.0, 2.0])


def none_for_a_number(qd):
    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        return x

    return f(None)


def string_for_a_float(qd):
    @qd.kernel
    def f(x: qd.f32) -> qd.f32:
        return x

    return f("1.0")


def vector_of_the_wrong_length_for_a_vector(qd):
    @qd.kernel
    def f(x: qd.math.vec3) -> qd.f32:
        return x.sum()

    return f(qd.Vector([1.0, 2.0]))


def list_for_a_vector(qd):
    @qd.kernel
    def f(x: qd.math.vec3) -> qd.f32:
        return x.sum()

    return f([1.0, 2.0, 3.0])


def number_for_a_field_template(qd):
    @qd.kernel
    def f(x: qd.template()):
        x[0] = 1

    f(3)


def gradient_of_a_vector_ndarray(qd):
    a = qd.Vector.ndarray(2, qd.f32, 3, needs_grad=True)
    loss = qd.ndarray(qd.f32, (), needs_grad=True)

    @qd.kernel
    def f(a: qd.types.ndarray(), loss: qd.types.ndarray()):
        for i in range(3):
            loss[None] += a[i].norm_sqr() * 0.5

    a.fill(2.0)
    loss.grad.fill(1.0)
    f(a, loss)
    f.grad(a, loss)
    return [loss[None], a.grad.to_numpy()]


def gradient_of_a_matrix_field(qd):
    m = qd.Matrix.field(2, 2, qd.f32, 2, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def f():
        for i in m:
            loss[None] += m[i].determinant()

    for i in range(2):
        m[i] = [[1 + i, 2], [3, 4]]
    with qd.ad.Tape(loss):
        f()
    return m.grad.to_numpy()


def gradient_of_an_integer_field(qd):
    qd.field(qd.i32, 3, needs_grad=True)


def pickled_fields(qd):
    x = qd.field(qd.i32, 3)
    return len(pickle.dumps(x)) > 0


def deep_copies_of_fields(qd):
    x = qd.field(qd.i32, 3)
    x.fill(2)
    y = copy.deepcopy(x)
    y[0] = 5
    return [x.to_numpy(), y.to_numpy()]


def kernels_in_a_dict(qd):
    x = qd.field(qd.i32, ())

    @qd.kernel
    def one():
        x[None] += 1

    @qd.kernel
    def ten():
        x[None] += 10

    table = {"one": one, "ten": ten}
    for name in ("one", "ten", "ten"):
        table[name]()
    return x[None]


def docstrings_of_kernels(qd):
    @qd.kernel
    def f():
        """Do nothing."""

    @qd.func
    def g(x):
        """Return x."""
        return x

    return [f.__doc__, g.__doc__, f.__name__, g.__name__]


def returns_of_several_numbers(qd):
    @qd.kernel
    def f(a: qd.i32) -> (qd.i32, qd.f32):
        return a + 1, a * 0.5

    return list(f(3))


def returns_of_a_tuple_type(qd):
    @qd.kernel
    def f(a: qd.i32) -> tuple[qd.i32, qd.math.vec2]:
        return a, qd.math.vec2(a, 1)

    r = f(3)
    return [r[0], r[1]]


def return_in_a_loop_of_a_kernel(qd):
    @qd.kernel
    def f() -> qd.i32:
        for i in range(10):
            if i == 3:
                return i
        return -1

    return f()


def types_of_returned_numbers(qd):
    @qd.kernel
    def f() -> qd.i32:
        return 3

    @qd.kernel
    def g() -> qd.f32:
        return 3

    @qd.kernel
    def h() -> qd.u1:
        return True

    return [type(f()).__name__, type(g()).__name__, type(h()).__name__]


def types_of_read_elements(qd):
    kinds = (qd.i8, qd.u64, qd.f16, qd.f64, qd.u1)
    xs = [qd.field(kind, ()) for kind in kinds]
    ys = [qd.ndarray(kind, ()) for kind in kinds]
    return [type(x[None]).__name__ for x in [*xs, *ys]]


def if_inside_of_a_parallel_loop_returns(qd):
    x = qd.field(qd.i32, 6)

    @qd.kernel
    def f():
        for i in x:
            if i % 2 == 0:
                continue
            x[i] = i

    f()
    return x.to_numpy()


def while_loops_with_breaks(qd):
    @qd.kernel
    def f(n: qd.i32) -> qd.i32:
        steps = 0
        while True:
            if n == 1:
                break
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps

    return [f(1), f(27)]


def walrus_in_a_condition(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.i32:
        r = 0
        if (b := a * 2) > 5:
            r = b
        return r

    return [f(1), f(4)]


def lambda_as_a_template(qd):
    @qd.kernel
    def f(g: qd.template(), x: qd.f32) -> qd.f32:
        return g(x)

    return f(lambda v: v * 3, 2)


def sort_key_by_a_static_lambda(qd):
    weights = {"a": 3, "b": 1, "c": 2}

    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for name in qd.static(sorted(weights, key=lambda k: weights[k])):
            s = s * 10 + weights[name]
        return s

    return f()


def nested_list_comprehensions(qd):
    @qd.kernel
    def f() -> qd.math.mat2:
        return qd.Matrix([[i * 10 + j for j in range(2)] for i in range(2)])

    return f()


def comprehension_with_a_condition(qd):
    @qd.kernel
    def f() -> qd.math.vec2:
        return qd.Vector([i for i in range(4) if i % 2 == 1])

    return f()


def membership_of_run_time_numbers(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.i32:
        r = 0
        if a in (1, 3, 5):
            r = 1
        if a not in [2, 3]:
            r += 10
        return r

    return [f(1), f(2), f(3)]


def augmented_assignment_of_swizzles(qd):
    x = qd.Vector.field(3, qd.f32, 2)

    @qd.kernel
    def f():
        for i in x:
            x[i].xy += qd.Vector([1.0, 2.0])
            x[i].z -= 3

    f()
    return x.to_numpy()


def copies_between_fields_and_arrays(qd):
    x, y = qd.field(qd.f32, 3), qd.field(qd.f32, 3)
    x.fill(2)
    y.copy_from(x)
    a, b = qd.ndarray(qd.f32, 3), qd.ndarray(qd.f32, 3)
    a.fill(4)
    b.copy_from(a)
    return [y.to_numpy(), b.to_numpy()]


def fill_of_a_field_in_a_kernel(qd):
    x = qd.field(qd.f32, 3)

    @qd.kernel
    def f():
        x.fill(2.5)

    f()
    return x.to_numpy()


def unknown_dtype_of_a_cast(qd):
    @qd.kernel
    def f() -> qd.i32:
        return qd.cast(1.5, "i32")

    return f()


def wrong_operands(qd):
    @qd.kernel
    def f() -> qd.f32:
        a = 1.5
        return a << 2

    return f()


def call_of_a_number(qd):
    k = 3

    @qd.kernel
    def f() -> qd.i32:
        return k(1)

    return f()


def attribute_of_a_number(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.i32:
        return a.b

    return f(1)


def init_of_a_wrong_arch(qd):
    qd.init(arch="nothing")


def trees_are_destroyed_once(qd):
    builder, x = qd.FieldsBuilder(), qd.field(qd.i32)
    builder.dense(qd.i, 5).place(x)
    tree = builder.finalize()
    tree.destroy()
    tree.destroy()


def identity_of_run_time_numbers(qd):
    @qd.kernel
    def f(n: qd.i32) -> qd.i32:
        m = 1
        return n is m

    return f(1)


def unpacking_of_a_vector_into_too_few_names(qd):
    @qd.kernel
    def f() -> qd.i32:
        a, b = qd.Vector([1, 2, 3])
        return a + b

    return f()


def unpacking_of_a_tuple_into_too_many_names(qd):
    @qd.kernel
    def f() -> qd.i32:
        a, b, c = 1, 2
        return a + b + c

    return f()


def atomics_on_numbers(qd):
    @qd.kernel
    def f():
        qd.atomic_add(3, 4)

    f()


def formats_with_too_few_values(qd):
    @qd.kernel
    def f(n: qd.i32):
        print("{} {}".format(n))  # noqa: F524

    f(1)


def loops_that_use_the_index_of_an_unrolled_loop_again(qd):
    x = qd.field(qd.f32, 8)

    @qd.kernel
    def f(n: qd.i32) -> qd.f32:
        s = 0.0
        for d in qd.static(range(3)):
            s += d
            x[d] += d
        for i in x:
            for d in qd.static(range(2)):
                x[i] += d
        for i in x:
            d = x[i] * 0.5
            x[i] += d
        for d, e in qd.static(qd.ndrange(2, 2)):
            s += d * e
        if n > 0:
            d = qd.Vector([1.0, 2.0])
            s += d.sum()
        for _ in range(n):
            e = qd.Vector([1.0, 2.0])
            s += e.sum()
        return s

    return [f(2), x.to_numpy()]
