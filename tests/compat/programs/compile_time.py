"""Static loops and branches, templates of many kinds, layouts, and the domains of loops."""

import enum
import math

import numpy as np


def static_loop_over_a_dict_of_fields(qd):
    fields = {"a": qd.field(qd.i32, 3), "b": qd.field(qd.f32, 3)}

    @qd.kernel
    def f():
        for i in range(3):
            for name in qd.static(["a", "b"]):
                fields[name][i] = i + 0.5

    f()
    return [fields["a"].to_numpy(), fields["b"].to_numpy()]


def static_loop_over_items(qd):
    sizes = {2: 5, 3: 7}

    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for k, v in qd.static(sizes.items()):
            s += k * v
        return s

    return f()


def static_enumerate_of_fields(qd):
    fields = [qd.field(qd.i32, 2) for _ in range(3)]

    @qd.kernel
    def f():
        for i in range(2):
            for k, x in qd.static(enumerate(fields)):
                x[i] = 10 * k + i

    f()
    return [x.to_numpy() for x in fields]


def static_zip_of_fields(qd):
    xs = [qd.field(qd.i32, 2) for _ in range(2)]
    ys = [qd.field(qd.i32, 2) for _ in range(2)]

    @qd.kernel
    def f():
        for i in range(2):
            for x, y in qd.static(zip(xs, ys)):
                x[i] = i + 1
                y[i] = 2 * x[i]

    f()
    return [y.to_numpy() for y in ys]


def static_break(qd):
    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for k in qd.static(range(10)):
            if qd.static(k == 4):
                break
            s += k
        return s

    return f()


def static_continue(qd):
    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for k in qd.static(range(6)):
            if qd.static(k % 2 == 0):
                continue
            s += k
        return s

    return f()


def static_loop_with_a_run_time_condition(qd):
    @qd.kernel
    def f(n: qd.i32) -> qd.i32:
        s = 0
        for k in qd.static(range(6)):
            if k < n:
                s += k * k
        return s

    return [f(0), f(3), f(9)]


def static_range_with_a_negative_step(qd):
    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for k in qd.static(range(5, -1, -2)):
            s = s * 10 + k
        return s

    return f()


def static_reversed_list(qd):
    order = [3, 1, 2]

    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for k in qd.static(reversed(order)):
            s = s * 10 + k
        return s

    return f()


def static_elif_chain(qd):
    @qd.kernel
    def f(kind: qd.template()) -> qd.i32:
        r = 0
        if qd.static(kind == 0):
            r = 10
        elif qd.static(kind == 1):
            r = 20
        else:
            r = 30
        return r

    return [f(0), f(1), f(2)]


def static_ternary(qd):
    flag = True

    @qd.kernel
    def f(x: qd.i32) -> qd.i32:
        return x * 2 if qd.static(flag) else x // 0

    return f(4)


def static_and_or(qd):
    a, b = True, None

    @qd.kernel
    def f() -> qd.i32:
        r = 0
        if qd.static(a and b is None):
            r += 1
        if qd.static(not a or b is not None):
            r += 10
        return r

    return f()


def static_membership(qd):
    kinds = ("x", "y")

    @qd.kernel
    def f(k: qd.template()) -> qd.i32:
        r = 1
        if qd.static(k in kinds):
            r = 2
        if qd.static(k not in ("y", "z")):
            r += 10
        return r

    return [f("x"), f("y"), f("z")]


def static_calls_of_python(qd):
    def area(n):
        return math.comb(n, 2)

    @qd.kernel
    def f() -> qd.i32:
        return qd.static(area(5)) + qd.static(len("abc"))

    return f()


def static_numpy_tables(qd):
    table = np.array([[1, 2], [3, 4]], dtype=np.int32)

    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for i, j in qd.static(qd.ndrange(2, 2)):
            s = s * 10 + qd.static(int(table[i, j]))
        return s

    return f()


def static_nested_lists(qd):
    stencil = [[0, 1], [1, 0], [0, -1], [-1, 0]]
    x = qd.field(qd.i32, (4, 4))

    @qd.kernel
    def f() -> qd.i32:
        for i, j in x:
            x[i, j] = i * 4 + j
        s = 0
        for d in qd.static(stencil):
            s = s * 20 + x[1 + d[0], 1 + d[1]]
        return s

    return f()


def static_index_of_a_list_of_fields(qd):
    xs = [qd.field(qd.f32, ()) for _ in range(3)]

    @qd.kernel
    def f():
        xs[0][None] = 1
        xs[-1][None] = 3
        xs[1][None] = xs[0][None] + xs[-1][None]

    f()
    return [x[None] for x in xs]


def run_time_index_of_a_list_of_fields(qd):
    xs = [qd.field(qd.f32, ()) for _ in range(3)]

    @qd.kernel
    def f(k: qd.i32):
        xs[k][None] = 1

    f(1)
    return [x[None] for x in xs]


def grouped_static_ndrange(qd):
    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for offset in qd.static(qd.grouped(qd.ndrange((-1, 2), (0, 2)))):
            s += offset[0] * 10 + offset[1]
        return s

    return f()


def grouped_ndrange_of_vectors(qd):
    x = qd.field(qd.i32, (3, 4))

    @qd.kernel
    def f():
        for I in qd.grouped(qd.ndrange((1, 3), 4)):
            x[I] = I[0] * 10 + I.y

    f()
    return x.to_numpy()


def grouped_field_with_offsets(qd):
    x = qd.field(qd.i32, (4, 4))

    @qd.kernel
    def f():
        for I in qd.grouped(x):
            x[I] = I.sum() + I.dot(I)

    f()
    return x.to_numpy()


def vectors_as_indices(qd):
    x = qd.field(qd.i32, (4, 4))

    @qd.kernel
    def f():
        for I in qd.grouped(qd.ndrange(3, 3)):
            J = I + qd.Vector([1, 1])
            x[J] = x[I] + 1 if False else J[0]

    f()
    return x.to_numpy()


def ndrange_of_one_axis(qd):
    x = qd.field(qd.i32, 6)

    @qd.kernel
    def f():
        for i in qd.ndrange((2, 5)):
            x[i] = i

    f()
    return x.to_numpy()


def ndrange_of_negative_bounds(qd):
    x = qd.field(qd.i32, (4, 3))

    @qd.kernel
    def f():
        for i, j in qd.ndrange((-2, 2), (-1, 2)):
            x[i + 2, j + 1] = i * 10 + j

    f()
    return x.to_numpy()


def ndrange_of_an_empty_axis(qd):
    x = qd.field(qd.i32, ())

    @qd.kernel
    def f(n: qd.i32):
        for i, j in qd.ndrange(n, (3, 1)):
            x[None] += 1

    f(4)
    return x[None]


def ndrange_of_arguments(qd):
    x = qd.field(qd.i32, (5, 5))

    @qd.kernel
    def f(n: qd.i32, m: qd.i32):
        for i, j in qd.ndrange(n, (1, m)):
            x[i, j] = 1

    f(2, 4)
    return x.to_numpy()


def ndrange_inside_of_a_loop(qd):
    x = qd.field(qd.i32, 3)

    @qd.kernel
    def f():
        for i in x:
            for j, k in qd.ndrange(i, 3):
                x[i] += j * 10 + k

    f()
    return x.to_numpy()


def ndrange_of_too_few_names(qd):
    x = qd.field(qd.i32, 6)

    @qd.kernel
    def f():
        for i in qd.ndrange(2, 3):
            x[0] += 1

    f()
    return x.to_numpy()


def ndrange_of_too_many_names(qd):
    x = qd.field(qd.i32, 6)

    @qd.kernel
    def f():
        for i, j, k in qd.ndrange(2, 3):
            x[0] += 1

    f()
    return x.to_numpy()


def ndrange_of_floats(qd):
    x = qd.field(qd.i32, 6)

    @qd.kernel
    def f():
        for i, j in qd.ndrange(2.0, 3):
            x[0] += 1

    f()
    return x.to_numpy()


def range_of_floats(qd):
    x = qd.field(qd.i32, ())

    @qd.kernel
    def f(n: qd.f32):
        for i in range(n):
            x[None] += 1

    f(2.5)
    return x[None]


def range_with_a_negative_step_at_run_time(qd):
    x = qd.field(qd.i32, ())

    @qd.kernel
    def f(n: qd.i32):
        for _ in range(1):
            for i in range(n, 0, -2):
                x[None] = x[None] * 10 + i

    f(7)
    return x[None]


def range_with_a_step_argument(qd):
    x = qd.field(qd.i32, ())

    @qd.kernel
    def f(step: qd.i32):
        for _ in range(1):
            for i in range(0, 10, step):
                x[None] = x[None] * 10 + i

    f(3)
    return x[None]


def range_over_an_argument_of_i64(qd):
    @qd.kernel
    def f(n: qd.i64) -> qd.i64:
        s = qd.i64(0)
        for i in range(n):
            s += i * 1000000000
        return s

    return f(5)


def loop_over_a_member_of_a_struct_field(qd):
    S = qd.types.struct(a=qd.i32, b=qd.f32)
    x = S.field(shape=4)

    @qd.kernel
    def f():
        for i in x.a:
            x.a[i] = i
            x[i].b = i * 0.5

    f()
    return [x.a.to_numpy(), x.b.to_numpy()]


def loop_over_a_struct_field(qd):
    S = qd.types.struct(a=qd.i32, b=qd.types.vector(2, qd.f32))
    x = S.field(shape=(2, 2))

    @qd.kernel
    def f():
        for i, j in x:
            x[i, j].a = i * 2 + j
            x[i, j].b = [i, j]

    f()
    return [x.a.to_numpy(), x.b.to_numpy()]


def loop_over_a_slot_of_a_tree(qd):
    x = qd.field(qd.i32)
    block = qd.root.dense(qd.ij, (2, 3))
    block.place(x)

    @qd.kernel
    def f():
        for i, j in block:
            x[i, j] = i * 10 + j

    f()
    return x.to_numpy()


def loop_over_the_outer_block(qd):
    x = qd.field(qd.i32)
    outer = qd.root.dense(qd.i, 3)
    outer.dense(qd.i, 2).place(x)

    @qd.kernel
    def f():
        for i in outer:
            x[i] = 1

    f()
    return [x.shape, x.to_numpy()]


def template_of_a_number(qd):
    @qd.kernel
    def f(n: qd.template()) -> qd.i32:
        s = 0
        for k in qd.static(range(n)):
            s += k
        return s

    return [f(3), f(5)]


def template_of_a_float(qd):
    @qd.kernel
    def f(x: qd.template()) -> qd.f32:
        return x * 2

    return [f(1.25), f(3)]


def template_of_none(qd):
    x = qd.field(qd.i32, 2)

    @qd.kernel
    def f(y: qd.template()) -> qd.i32:
        r = 0
        if qd.static(y is None):
            r = -1
        else:
            r = y.shape[0]
        return r

    return [f(None), f(x)]


def template_of_a_vector(qd):
    @qd.kernel
    def f(v: qd.template()) -> qd.f32:
        return v[0] + v[1] * 10

    return f(qd.Vector([1.0, 2.0]))


def template_of_a_tuple(qd):
    @qd.kernel
    def f(t: qd.template()) -> qd.i32:
        return t[0] * 10 + t[1][0]

    return f((1, (2, 3)))


def template_of_a_func(qd):
    @qd.func
    def double(x):
        return x * 2

    @qd.func
    def square(x):
        return x * x

    @qd.kernel
    def f(g: qd.template(), x: qd.f32) -> qd.f32:
        return g(x) + g(1.5)

    return [f(double, 3), f(square, 3)]


def template_of_an_enum(qd):
    class Mode(enum.IntEnum):
        ONE = 1
        TWO = 2

    @qd.kernel
    def f(m: qd.template()) -> qd.i32:
        r = 0
        if qd.static(m == Mode.TWO):
            r = 5
        return r + m

    return [f(Mode.ONE), f(Mode.TWO)]


def template_of_an_object(qd):
    @qd.data_oriented
    class Box:
        def __init__(self, n):
            self.n = n
            self.x = qd.field(qd.i32, n)

    @qd.kernel
    def f(box: qd.template()):
        for i in range(box.n):
            box.x[i] = i + box.n

    boxes = [Box(2), Box(3)]
    for box in boxes:
        f(box)
    return [box.x.to_numpy() for box in boxes]


def template_of_a_plain_object(qd):
    class Box:
        def __init__(self, n):
            self.n = n

    @qd.kernel
    def f(box: qd.template()) -> qd.i32:
        return box.n

    return [f(Box(2)), f(Box(3))]


def template_of_a_matrix_field(qd):
    m = qd.Matrix.field(2, 3, qd.i32, 2)

    @qd.kernel
    def f(y: qd.template()):
        for i in y:
            for j, k in qd.static(qd.ndrange(y.n, y.m)):
                y[i][j, k] = i * 100 + j * 10 + k

    f(m)
    return m.to_numpy()


def template_of_an_element_is_assigned(qd):
    x = qd.field(qd.i32, 3)

    @qd.func
    def put(target: qd.template(), value):
        target = value  # noqa: F841

    @qd.kernel
    def f():
        put(x[1], 7)

    f()
    return x.to_numpy()


def template_of_a_local_is_changed(qd):
    @qd.func
    def increase(v: qd.template()):
        v += 1

    @qd.kernel
    def f() -> qd.i32:
        a = 3
        increase(a)
        increase(a)
        return a

    return f()


def template_of_a_local_vector_is_changed(qd):
    @qd.func
    def put(v: qd.template(), k: qd.i32):
        v[k] = 9

    @qd.kernel
    def f() -> qd.i32:
        a = qd.Vector([1, 2, 3])
        put(a, 1)
        return a[0] * 100 + a[1] * 10 + a[2]

    return f()


def template_annotated_without_a_call(qd):
    @qd.kernel
    def f(n: qd.template) -> qd.i32:
        return n + 1

    return f(3)


def template_of_ndarrays(qd):
    a = qd.ndarray(qd.i32, 3)

    @qd.kernel
    def f(x: qd.template()):
        for i in range(3):
            x[i] = i

    f(a)
    return a.to_numpy()


def shapes_of_templates(qd):
    @qd.kernel
    def f(x: qd.template()) -> qd.i32:
        s = 0
        for k in qd.static(range(len(x.shape))):
            s = s * 10 + x.shape[k]
        return s

    return [f(qd.field(qd.i32, 4)), f(qd.field(qd.i32, (2, 3, 4)))]


def dtypes_of_templates(qd):
    @qd.kernel
    def f(x: qd.template()) -> qd.i32:
        r = 0
        if qd.static(x.dtype == qd.f32):
            r = 1
        elif qd.static(x.dtype == qd.i32):
            r = 2
        return r

    return [f(qd.field(qd.f32, 2)), f(qd.field(qd.i32, 2)), f(qd.field(qd.u8, 2))]


def loop_config_serialises(qd):
    x = qd.field(qd.i32, 10)

    @qd.kernel
    def f():
        qd.loop_config(serialize=True)
        for i in range(1, 10):
            x[i] = x[i - 1] + i

    f()
    return x.to_numpy()


def loop_config_of_a_block(qd):
    x = qd.field(qd.i32, 100)

    @qd.kernel
    def f():
        qd.loop_config(block_dim=32)
        for i in x:
            x[i] = i
        qd.loop_config(parallelize=4)
        for i in x:
            x[i] += 1

    f()
    return x.to_numpy()


def loop_config_of_a_wrong_value(qd):
    x = qd.field(qd.i32, 100)

    @qd.kernel
    def f():
        qd.loop_config(block_dim=33)
        for i in x:
            x[i] = i

    f()
    return x.to_numpy()


def offset_fields_in_two_dimensions(qd):
    x = qd.field(qd.i32, (3, 3), offset=(-1, 2))

    @qd.kernel
    def f():
        for i, j in x:
            x[i, j] = i * 10 + j

    f()
    return [x[-1, 2], x[1, 4], x.to_numpy()]


def offset_of_vectors(qd):
    x = qd.Vector.field(2, qd.i32, 4, offset=-2)

    @qd.kernel
    def f():
        for i in range(-2, 2):
            x[i] = [i, i * i]

    f()
    return [x[-2], x[1], x.to_numpy()]


def offset_of_the_wrong_length(qd):
    qd.field(qd.i32, (3, 3), offset=1)


def array_of_structures(qd):
    a, b = qd.field(qd.i32), qd.field(qd.f32)
    qd.root.dense(qd.i, 4).place(a, b)

    @qd.kernel
    def f():
        for i in a:
            a[i], b[i] = i, i * 0.25

    f()
    return [a.to_numpy(), b.to_numpy(), a.shape, b.shape]


def structure_of_arrays(qd):
    v = qd.Vector.field(3, qd.f32)
    for c in range(3):
        qd.root.dense(qd.i, 4).place(v.get_scalar_field(c))

    @qd.kernel
    def f():
        for i in range(4):
            v[i] = [i, i + 1, i + 2]

    f()
    return v.to_numpy()


def layouts_by_keyword(qd):
    a = qd.Vector.field(2, qd.i32, 3, layout=qd.Layout.SOA)
    b = qd.Vector.field(2, qd.i32, 3, layout=qd.Layout.AOS)

    @qd.kernel
    def f():
        for i in a:
            a[i] = [i, 2 * i]
            b[i] = a[i] + 1

    f()
    return [a.to_numpy(), b.to_numpy()]


def nested_blocks_of_two_axes(qd):
    x = qd.field(qd.i32)
    qd.root.dense(qd.ij, (2, 2)).dense(qd.ij, (2, 3)).place(x)

    @qd.kernel
    def f():
        for i, j in x:
            x[i, j] = i * 10 + j

    f()
    return [x.shape, x.to_numpy()]


def axes_in_another_order(qd):
    x = qd.field(qd.i32)
    qd.root.dense(qd.j, 3).dense(qd.i, 2).place(x)

    @qd.kernel
    def f():
        for i, j in x:
            x[i, j] = i * 10 + j

    f()
    return [x.shape, x.to_numpy()]


def ancestors_of_fields(qd):
    x = qd.field(qd.i32)
    outer = qd.root.dense(qd.i, 3)
    inner = outer.dense(qd.i, 2)
    inner.place(x)
    return [
        x.parent() == inner,
        x.parent(2) == outer,
        x.parent().shape,
        x.parent(2).shape,
        x.snode.parent() == inner,
    ]


def activity_of_pointer_blocks(qd):
    x = qd.field(qd.i32)
    block = qd.root.pointer(qd.i, 4)
    block.dense(qd.i, 2).place(x)

    @qd.kernel
    def f() -> qd.i32:
        x[5] = 1
        n = 0
        for k in range(4):
            if qd.is_active(block, [k]):
                n += 10**k
        return n

    @qd.kernel
    def g() -> qd.i32:
        n = 0
        for i in x:
            n += i + 1
        return n

    return [f(), g()]
