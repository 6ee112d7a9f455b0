"""Loops, branches, returns, compile time, printing and checks."""

import enum

import numpy as np


def ranges(qd):
    @qd.kernel
    def f(out: qd.types.ndarray()):
        for i in range(3):
            out[i] = i
        for i in range(3, 5):
            out[i] = i * 10
        for _ in range(1):
            for i in range(5, 9, 2):
                out[i] = i
            for i in range(8, 5, -2):
                out[i] = -i

    out = np.zeros(10, np.int32)
    f(out)
    return out


def parallel_range_with_step(qd):
    @qd.kernel
    def f(out: qd.types.ndarray()):
        for i in range(0, 10, 3):
            out[i] = 1

    out = np.zeros(10, np.int32)
    f(out)
    return out


def empty_ranges(qd):
    @qd.kernel
    def f(n: qd.i32) -> qd.i32:
        s = 0
        for i in range(n):
            s += 1
        for i in range(5, n):
            s += 10
        for i in range(0):
            s += 100
        for i, j in qd.ndrange(0, 4):
            s += 1000
        for i, j in qd.ndrange(3, (2, 2)):
            s += 10000
        return s

    return [f(0), f(-4), f(2)]


def ndranges(qd):
    @qd.kernel
    def f(n: qd.i32, out: qd.types.ndarray()):
        for i, j in qd.ndrange(2, (1, n)):
            out[i, j] = i * 10 + j
        for I in qd.grouped(qd.ndrange((2, 4), (0, 2))):
            out[I] = -I[0] - I[1]
        for i in qd.ndrange(1):
            out[3, 3] = 7
        for i, j in qd.static(qd.ndrange(2, 1)):
            out[i + 2, j + 2] = 9

    out = np.zeros((4, 4), np.int32)
    f(3, out)
    return out


def ndrange_from_variables(qd):
    x = qd.field(qd.i32, (3, 4))

    @qd.kernel
    def f(a: qd.i32):
        n, m = x.shape
        for i, j in qd.ndrange(n, (a, m - 1)):
            x[i, j] = i + j

    f(1)
    return x.to_numpy()


def ndrange_of_a_shape(qd):
    x = qd.field(qd.i32, (3, 4))

    @qd.kernel
    def f():
        for i, j in qd.ndrange(*x.shape):
            x[i, j] = i - j

    f()
    return x.to_numpy()


def loops_over_fields(qd):
    x, y = qd.field(qd.i32, (2, 3)), qd.Vector.field(2, qd.i32, 3)

    @qd.kernel
    def f():
        for i, j in x:
            x[i, j] = i * 3 + j
        for I in qd.grouped(x):
            x[I] += I.sum()
        for i in y:
            y[i] = [i, -i]

    f()
    return [x.to_numpy(), y.to_numpy()]


def loop_over_ndarray(qd):
    @qd.kernel
    def f(x: qd.types.ndarray(), y: qd.types.ndarray(ndim=2)):
        for i in x:
            x[i] = i * i
        for I in qd.grouped(y):
            y[I] = I[0] - I[1]

    x, y = np.zeros(4, np.int32), np.zeros((2, 2), np.float32)
    f(x, y)
    return [x, y]


def nested_static_loops(qd):
    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for i in qd.static(range(3)):
            for j in qd.static(range(i)):
                s += i * 10 + j
            for j in range(i):
                s += 100
        return s

    return f()


def static_loops_over_python_values(qd):
    names = ["a", "b", "c"]
    table = {"a": 1, "b": 20, "c": 300}

    class Colour(enum.Enum):
        RED = 1
        GREEN = 2

    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for n in qd.static(names):
            s += table[n]
        for i, n in qd.static(enumerate(names)):
            s += i * table[n]
        for a, b in qd.static(zip((1, 2), (3, 4))):
            s += a * b
        for k, v in qd.static(table.items()):
            s += v
        for c in qd.static(Colour):
            s += c.value
        return s

    return f()


def static_if(qd):
    @qd.kernel
    def f(n: qd.template()) -> qd.i32:
        s = 0
        if qd.static(n > 2):
            s = 1
        elif qd.static(n > 1):
            s = 2
        else:
            s = 3
        return s

    return [f(3), f(2), f(1)]


def static_enum(qd):
    class Mode(enum.IntEnum):
        FAST = 0
        SLOW = 1

    @qd.kernel
    def f(mode: qd.template(), k: qd.i32) -> qd.i32:
        s = 0
        if qd.static(mode == Mode.SLOW):
            s = 10
        if k == Mode.SLOW:
            s += 1
        return s

    return [f(Mode.SLOW, 1), f(Mode.FAST, 1), f(Mode.FAST, 0)]


def static_with_several_values(qd):
    @qd.kernel
    def f() -> qd.i32:
        a, b = qd.static(2, 3)
        return a * b

    return f()


def break_and_continue(qd):
    @qd.kernel
    def f(n: qd.i32) -> qd.i32:
        s = 0
        for _ in range(1):
            for i in range(n):
                if i == 3:
                    continue
                if i > 6:
                    break
                s += i
            k = 0
            while True:
                k += 1
                if k % 2:
                    continue
                if k > 10:
                    break
                s += k
        return s

    return [f(10), f(0), f(5)]


def continue_in_parallel_loop(qd):
    @qd.kernel
    def f(out: qd.types.ndarray()):
        for i in range(6):
            if i % 2 == 0:
                continue
            out[i] = i

    out = np.zeros(6, np.int32)
    f(out)
    return out


def break_in_parallel_loop(qd):
    @qd.kernel
    def f(out: qd.types.ndarray()):
        for i in range(6):
            if i == 2:
                break
            out[i] = i

    f(np.zeros(6, np.int32))


def while_with_else(qd):
    @qd.kernel
    def f() -> qd.i32:
        i = 0
        while i < 3:
            i += 1
        else:
            i = 10
        return i

    return f()


def for_with_else(qd):
    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for i in range(3):
            s += i
        else:
            s = 10
        return s

    return f()


def early_return_of_a_func(qd):
    @qd.func
    def g(x):
        if x > 2:
            return 1
        return 0

    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        return g(x)

    return f(3)


def return_in_branches(qd):
    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        if x > 2:
            return 1
        else:
            return 2

    return [f(1), f(3)]


def loop_variable_is_used_after_the_loop(qd):
    @qd.kernel
    def f() -> qd.i32:
        i = 7
        for k in range(3):
            i = k
        return i

    return f()


def variable_of_a_branch(qd):
    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        if x > 0:
            y = 1
        return y

    return f(1)


def variable_of_a_loop(qd):
    @qd.kernel
    def f() -> qd.i32:
        for i in range(3):
            y = i
        return y

    return f()


def pass_and_docstrings(qd):
    @qd.func
    def g(x):
        """Return x."""
        pass
        return x

    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        """Return x, too."""
        if x > 0:
            pass
        else:
            pass
        for _ in range(3):
            pass
        ...
        return g(x)

    return [f(3), f.__doc__, f.__name__]


def prints(qd):
    @qd.kernel
    def f(x: qd.i32, y: qd.f32):
        print("hello", x, y)
        print(f"x = {x}, y = {y:.3f}, sum {x + y:8.2f}|")
        print(x, y, sep=", ", end="!\n")
        print("percent % and {braces}")
        print(qd.Vector([x, 2, 3]))
        print(qd.Matrix([[1.5, 2.0], [3.0, 4.0]]))
        print()
        print("{} and {}".format(x, y))

    f(3, 2.5)
    qd.sync()


def prints_of_many_types(qd):
    S = qd.types.struct(a=qd.i32, b=qd.types.vector(2, qd.f32))

    @qd.kernel
    def f(a: qd.i64, b: qd.u8, c: qd.f64, d: qd.u1):
        print(a, b, c, d)
        s = S(a=1, b=[1, 2])
        print(s.a, s.b)
        print(s)

    f(1 << 40, 200, 0.1, True)
    qd.sync()


def prints_of_formats(qd):
    @qd.kernel
    def f(x: qd.f32, n: qd.i32, u: qd.u32):
        print(f"{x:.1f} {x:e} {n:5d} {n:05d} {u:x}")

    f(3.14159, 42, 255)
    qd.sync()


def static_prints(qd):
    x = qd.field(qd.f32, (2, 3))

    @qd.kernel
    def f():
        qd.static_print(x.shape, "twice", 2 * 2)

    f()


def asserts(qd):
    @qd.kernel
    def f(x: qd.i32):
        assert x > 0, f"x is {x}"

    f(1)
    f(-1)
    qd.sync()


asserts.options = {"debug": True}


def asserts_without_debug(qd):
    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        assert x > 0
        return x

    return f(-1)


def static_asserts(qd):
    @qd.kernel
    def f(n: qd.template()) -> qd.i32:
        qd.static_assert(n == 3, "three")
        return n

    return f(3)


def static_assert_fails(qd):
    @qd.kernel
    def f(n: qd.template()) -> qd.i32:
        qd.static_assert(n == 3, "three")
        return n

    return f(2)


def out_of_bounds(qd):
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def f(i: qd.i32):
        x[i] = 1

    f(4)
    qd.sync()


out_of_bounds.options = {"debug": True}


def unpacking(qd):
    @qd.kernel
    def f() -> qd.types.vector(4, qd.i32):
        a, b = 1, 2
        a, b = b, a
        c, d = qd.Vector([3, 4])
        (e, g), h = (5, 6), 7
        return qd.Vector([a * 10 + b, c * 10 + d, e * 10 + g, h])

    return f()


def unpacking_with_a_star(qd):
    @qd.func
    def g(a, b, c):
        return a * 100 + b * 10 + c

    @qd.kernel
    def f() -> qd.i32:
        t = (2, 3)
        return g(1, *t)

    return f()


def starred_assignment(qd):
    @qd.kernel
    def f() -> qd.i32:
        a, *b = 1, 2, 3
        return a + b[1]

    return f()


def chained_assignment(qd):
    @qd.kernel
    def f() -> qd.i32:
        a = b = 3
        a += 1
        return a * 10 + b

    return f()


def walrus(qd):
    @qd.kernel
    def f() -> qd.i32:
        a = (b := 3) + 1
        return a * 10 + b

    return f()


def comprehensions(qd):
    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        v = qd.Vector([i * x for i in range(4)])
        m = qd.Matrix([[i + j for j in range(2)] for i in range(2)])
        return v.sum() * 100 + m[1, 1]

    return f(2)


def lambdas_in_templates(qd):
    @qd.kernel
    def f(g: qd.template(), x: qd.i32) -> qd.i32:
        return g(x) + g(1)

    @qd.func
    def twice(x):
        return 2 * x

    return f(twice, 4)


def python_function_in_kernel(qd):
    def g(x):
        return 2 * x + 1

    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        return g(x) + g(3)

    return f(4)


def globals_are_constants(qd):
    k = [3]

    @qd.kernel
    def f() -> qd.i32:
        return k[0]

    first = f()
    k[0] = 4
    return [first, f()]


def is_and_in(qd):
    @qd.kernel
    def f(x: qd.template(), y: qd.i32) -> qd.i32:
        s = 0
        if qd.static(x is None):
            s += 1
        if qd.static(x is not None):
            s += 2
        return s + y

    return [f(None, 10), f(3, 10)]


def in_of_a_tuple(qd):
    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        s = 0
        if x in (1, 3):
            s = 1
        if x not in [2, 3]:
            s += 2
        return s

    return [f(1), f(2), f(3)]


def loop_options(qd):
    x = qd.field(qd.i32, 100)

    @qd.kernel
    def f():
        qd.loop_config(serialize=True)
        for i in range(1, 100):
            x[i] = x[i - 1] + 1
        qd.loop_config(block_dim=64)
        for i in x:
            x[i] += 1
        qd.loop_config(parallelize=4, name="third")
        for i in range(100):
            x[i] *= 2

    f()
    return [x[99], x[0]]


def block_local_of_a_field(qd):
    x, y = qd.field(qd.f32), qd.field(qd.f32)
    qd.root.dense(qd.ij, 8).place(x, y)

    @qd.kernel
    def f():
        qd.block_local(x)
        for i, j in x:
            y[i, j] += x[i, j] + 1
        qd.cache_read_only(x)
        for i, j in y:
            y[i, j] += x[i, j]

    f()
    return y.to_numpy().sum()


def try_in_kernel(qd):
    @qd.kernel
    def f():
        try:
            a = 1
        finally:
            a = 2

    f()


def class_in_kernel(qd):
    @qd.kernel
    def f():
        class A:
            pass

    f()


def unknown_name(qd):
    @qd.kernel
    def f() -> qd.i32:
        return nothing_of_this_name  # noqa: F821

    f()


def nested_functions_in_kernels(qd):
    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        def g(y):
            return y * 2

        return g(x)

    return f(2)


def lambda_in_kernel(qd):
    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        g = lambda y: y * 2  # noqa: E731
        return g(x)

    return f(2)


def deleting_a_variable(qd):
    @qd.kernel
    def f() -> qd.i32:
        a = 1
        del a
        return 1

    return f()


def global_statement(qd):
    @qd.kernel
    def f() -> qd.i32:
        global some_global
        some_global = 3
        return 1

    return f()


def kernel_calls_kernel(qd):
    @qd.kernel
    def g() -> qd.i32:
        return 1

    @qd.kernel
    def f() -> qd.i32:
        return g()

    return f()


def func_on_the_host(qd):
    @qd.func
    def g(x):
        return x + 1

    return g(2)


def match_statement_of_kernels(qd):
    x = qd.field(qd.i32, 3)

    @qd.kernel
    def f(k: qd.i32) -> qd.i32:
        r = 0
        if k == 0:
            r = 1
        elif k == 1:
            r = 2
        else:
            for i in x:
                r += 1
        return r

    return [f(0), f(1), f(2)]


def index_of_a_range_is_changed(qd):
    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for _ in range(1):
            for i in range(5):
                j = i
                j += 1
                s += j
        return s

    return f()


def reversed_loop(qd):
    @qd.kernel
    def f(out: qd.types.ndarray()):
        for _ in range(1):
            for i in range(4):
                k = 3 - i
                out[k] = i

    out = np.zeros(4, np.int32)
    f(out)
    return out


def python_lists_in_kernels(qd):
    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        a = [1, x, 3]
        b = (x, 2)
        s = 0
        for i in qd.static(range(3)):
            s += a[i]
        return s + b[0] + len(a) + len(b)

    return f(5)


def sums_of_locals_from_a_parallel_loop(qd):
    @qd.kernel
    def f(n: qd.i32) -> qd.i32:
        s = 0
        m = 0
        for i in range(n):
            s += i
            qd.atomic_max(m, i)
        return s * 1000 + m

    return f(20)
