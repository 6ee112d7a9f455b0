"""Fields, ndarrays, placement, matrices, sparse blocks, other libraries' arrays."""

import numpy as np


def shapes_of_fields(qd):
    a, b, c = qd.field(qd.f32, ()), qd.field(qd.f32, 3), qd.field(qd.f32, (2, 3))
    d = qd.Vector.field(2, qd.f32, shape=(4,))
    e = qd.Matrix.field(2, 3, qd.f32, shape=[2])
    return [a.shape, b.shape, c.shape, d.shape, d.n, d.m, e.shape, e.n, e.m, str(c.dtype) != ""]


def access_from_the_host(qd):
    x, s = qd.field(qd.f32, (2, 3)), qd.field(qd.i32, ())
    x[1, 2] = 2.5
    x[0, 0] += 1
    s[None] = 7
    s[None] -= 2
    v = qd.Vector.field(2, qd.f32, 2)
    v[1] = [1, 2]
    v[0] = qd.Vector([5.0, 6.0])
    v[0][1] = 9
    m = qd.Matrix.field(2, 2, qd.f32, ())
    m[None] = [[1, 2], [3, 4]]
    return [x[1, 2], x[0, 0], s[None], v[1], v[0], v[1][0], m[None], m[None][1, 0], v[0].x]


def negative_indices_from_the_host(qd):
    x = qd.field(qd.i32, 4)
    x[3] = 9
    return x[-1]


def index_outside_of_a_field_from_the_host(qd):
    x = qd.field(qd.i32, 4)
    return x[100]


def too_many_indices_from_the_host(qd):
    x = qd.field(qd.i32, 4)
    return x[1, 2]


def index_of_an_array(qd):
    x = qd.ndarray(qd.i32, (2, 3))
    x[1, 2] = 4
    x[0, 1] = 3
    y = qd.ndarray(qd.f32, ())
    y[()] = 1.5
    return [x[1, 2], x[0, 1], x.shape, y[()], y[None]]


def negative_indices_of_an_array(qd):
    x = qd.ndarray(qd.i32, 4)
    x[3] = 9
    return x[-1]


def slices_of_an_array(qd):
    x = qd.ndarray(qd.i32, 6)
    x.from_numpy(np.arange(6, dtype=np.int32))
    v = x[2:5]
    return [v.shape, type(v).__name__]


def arrays_of_vectors(qd):
    x = qd.Vector.ndarray(3, qd.f32, shape=(2,))
    x[1] = [1, 2, 3]
    y = qd.Matrix.ndarray(2, 2, qd.i32, shape=(2, 1))
    y[1, 0] = [[1, 2], [3, 4]]

    @qd.kernel
    def f(
        a: qd.types.ndarray(dtype=qd.math.vec3, ndim=1),
        b: qd.types.ndarray(dtype=qd.types.matrix(2, 2, qd.i32), ndim=2),
    ):
        for i in a:
            a[i] *= 2
            b[i, 0][0, 1] += 5

    f(x, y)
    return [x.to_numpy(), y.to_numpy(), x[1], y[1, 0], x.shape, x.element_shape]


def to_numpy_of_fields(qd):
    x = qd.field(qd.i32, 3)
    v = qd.Vector.field(2, qd.f32, (2, 2))
    m = qd.Matrix.field(2, 3, qd.f32, 2)
    x.fill(2)
    v.fill(1)
    m.fill(0.5)
    return [
        x.to_numpy(),
        x.to_numpy(dtype=np.float64),
        v.to_numpy(),
        m.to_numpy(),
        m.to_numpy().shape,
    ]


def from_numpy_of_fields(qd):
    x, v = qd.field(qd.f32, (2, 2)), qd.Vector.field(2, qd.f32, 3)
    x.from_numpy(np.arange(4).reshape(2, 2))
    v.from_numpy(np.arange(6, dtype=np.float64).reshape(3, 2))
    return [x.to_numpy(), v.to_numpy(), v[2]]


def from_numpy_of_another_shape(qd):
    x = qd.field(qd.f32, (2, 2))
    x.from_numpy(np.zeros(4))


def columns_of_vectors(qd):
    v = qd.Vector.field(2, qd.f32, 3)
    v.from_numpy(np.arange(6, dtype=np.float32).reshape(3, 2))
    c = v.get_scalar_field(1)
    return [c.to_numpy(), c[2], c.shape]


def tensors_of_torch(qd):
    import torch

    x, m = qd.field(qd.f32, (2, 2)), qd.Vector.field(2, qd.i32, 2)
    x.from_torch(torch.arange(4.0).reshape(2, 2))
    m.from_torch(torch.arange(4, dtype=torch.int32).reshape(2, 2))
    t = x.to_torch()
    a = qd.ndarray(qd.f32, 3)
    a.from_torch(torch.ones(3))

    @qd.kernel
    def f(t: qd.types.ndarray()):
        for I in qd.grouped(t):
            t[I] *= 2

    u = torch.ones(2, 2)
    f(u)
    return [x.to_numpy(), str(t.dtype), list(t.shape), m[1], u.numpy(), a.to_torch().numpy()]


def torch_of_another_device(qd):
    x = qd.field(qd.f32, 2)
    return str(x.to_torch(device="cpu").device)


def copies(qd):
    x, y = qd.field(qd.f32, 3), qd.field(qd.f32, 3)
    x.fill(2)
    y.copy_from(x)
    a, b = qd.ndarray(qd.i32, 2), qd.ndarray(qd.i32, 2)
    a.fill(3)
    b.copy_from(a)
    return [y.to_numpy(), b.to_numpy()]


def copies_of_other_shapes(qd):
    x, y = qd.field(qd.f32, 3), qd.field(qd.f32, 4)
    x.copy_from(y)


def fills(qd):
    x, v, m = qd.field(qd.i32, 3), qd.Vector.field(2, qd.f32, 2), qd.Matrix.field(2, 2, qd.f32, 2)
    x.fill(5)
    v.fill(1.5)
    v.fill([1, 2])
    m.fill(2)
    a = qd.Vector.ndarray(2, qd.f32, 2)
    a.fill(3)
    return [x.to_numpy(), v.to_numpy(), m.to_numpy(), a.to_numpy()]


def numpy_arguments(qd):
    @qd.kernel
    def f(a: qd.types.ndarray(dtype=qd.f32, ndim=2), b: qd.types.ndarray()) -> qd.i32:
        for i, j in a:
            a[i, j] += b[i]
        return a.shape[0] * 10 + a.shape[1]

    a = np.ones((2, 3), np.float32)
    return [f(a, np.array([1, 2])), a]


def numpy_argument_of_another_dtype(qd):
    @qd.kernel
    def f(a: qd.types.ndarray(dtype=qd.f32, ndim=1)):
        for i in a:
            a[i] = 1

    f(np.zeros(3, np.float64))


def numpy_argument_of_another_ndim(qd):
    @qd.kernel
    def f(a: qd.types.ndarray(dtype=qd.f32, ndim=1)):
        for i in a:
            a[i] = 1

    f(np.zeros((3, 2), np.float32))


def numpy_vectors(qd):
    @qd.kernel
    def f(a: qd.types.ndarray(dtype=qd.math.vec2, ndim=1)):
        for i in a:
            a[i] = [i, a[i].x]

    a = np.ones((3, 2), np.float32)
    f(a)
    return a


def shapes_in_kernels(qd):
    x = qd.field(qd.f32, (3, 5))

    @qd.kernel
    def f(a: qd.types.ndarray(), out: qd.types.ndarray()):
        out[0] = x.shape[0] * 10 + x.shape[1]
        out[1] = a.shape[0] * 10 + a.shape[1]
        out[2] = len(a.shape)

    out = np.zeros(3, np.int32)
    f(np.zeros((2, 7)), out)
    return out


def offsets(qd):
    x = qd.field(qd.i32, shape=(4, 3), offset=(-2, 1))
    x[-2, 1] = 5

    @qd.kernel
    def f():
        for i, j in x:
            x[i, j] += i * 10 + j

    f()
    return [x.to_numpy(), x[-1, 2], x.shape]


def offsets_of_placed_fields(qd):
    x = qd.Vector.field(2, qd.i32)
    qd.root.dense(qd.i, 4).place(x, offset=(-1,))

    @qd.kernel
    def f():
        for i in x:
            x[i] = [i, 2 * i]

    f()
    return [x.to_numpy(), x[-1]]


def orders(qd):
    x = qd.field(qd.i32, shape=(2, 3), order="ji")

    @qd.kernel
    def f():
        for i, j in x:
            x[i, j] = i * 10 + j

    f()
    return x.to_numpy()


def layouts_of_vectors(qd):
    x = qd.Vector.field(2, qd.i32, shape=3, layout=qd.Layout.SOA)
    y = qd.Vector.field(2, qd.i32, shape=3, layout=qd.Layout.AOS)

    @qd.kernel
    def f():
        for i in x:
            x[i] = [i, -i]
            y[i] = x[i] * 2

    f()
    return [x.to_numpy(), y.to_numpy()]


def placements(qd):
    a, b, c = qd.field(qd.i32), qd.field(qd.f32), qd.Vector.field(2, qd.f32)
    block = qd.root.dense(qd.i, 2).dense(qd.ij, (2, 3))
    block.place(a, b)
    block.place(c)

    @qd.kernel
    def f():
        for i, j in a:
            a[i, j] = i * 10 + j
            b[i, j] = -a[i, j]
            c[i, j] = [1, j]

    f()
    return [a.shape, a.to_numpy(), b.to_numpy(), c.to_numpy().sum()]


def components_are_placed_alone(qd):
    v = qd.Vector.field(2, qd.f32)
    qd.root.dense(qd.i, 3).place(v.get_scalar_field(0))
    qd.root.dense(qd.i, 3).place(v.get_scalar_field(1))

    @qd.kernel
    def f():
        for i in range(3):
            v[i] = [i, i * 2]

    f()
    return v.to_numpy()


def snodes(qd):
    x = qd.field(qd.f32)
    outer = qd.root.dense(qd.i, 4)
    inner = outer.dense(qd.j, 2)
    inner.place(x)
    return [
        inner.shape,
        outer.shape,
        x.parent() == inner,
        x.parent(2) == outer,
        inner.parent() == outer,
        x.snode.parent() == inner,
    ]


def builders(qd):
    x, y = qd.field(qd.f32), qd.field(qd.f32)
    builder = qd.FieldsBuilder()
    builder.dense(qd.i, 3).place(x)
    tree = builder.finalize()
    builder2 = qd.FieldsBuilder()
    builder2.dense(qd.ij, (2, 2)).place(y)
    builder2.finalize()
    x.fill(1)
    y.fill(2)
    result = [x.to_numpy(), y.to_numpy()]
    tree.destroy()
    return result


def use_of_a_field_without_place(qd):
    x = qd.field(qd.f32)

    @qd.kernel
    def f():
        x[0] = 1

    f()


def place_twice(qd):
    x = qd.field(qd.f32)
    qd.root.dense(qd.i, 3).place(x)
    qd.root.dense(qd.i, 3).place(x)


def use_after_reset(qd):
    x = qd.field(qd.f32, 3)
    x.fill(1)
    qd.reset()
    qd.init(arch=qd.cpu)
    return x[0]


def pointers(qd):
    x = qd.field(qd.i32)
    block = qd.root.pointer(qd.i, 4)
    block.dense(qd.i, 4).place(x)
    x[5] = 1

    @qd.kernel
    def f() -> qd.i32:
        n = 0
        for i in x:
            n += 1
        return n

    @qd.kernel
    def g(i: qd.i32) -> qd.i32:
        return qd.is_active(block, [i])

    before = f()
    active = [g(i) for i in range(0, 16, 4)]
    x[13] = 2
    after = f()
    qd.deactivate_all_snodes()
    return [before, active, after, f(), x[5]]


def bitmasks(qd):
    x = qd.field(qd.i32)
    block = qd.root.bitmasked(qd.ij, (4, 4))
    block.place(x)

    @qd.kernel
    def fill():
        for i, j in qd.ndrange(2, 3):
            qd.activate(block, [i, j * 1])
            x[i, j] = i + j
        qd.deactivate(block, [0, 0])

    @qd.kernel
    def count() -> qd.i32:
        n = 0
        for i, j in x:
            n += 1
        return n

    fill()
    return [count(), x.to_numpy()]


def dynamic_lists(qd):
    x = qd.field(qd.i32)
    block = qd.root.dense(qd.i, 3).dynamic(qd.j, 16, chunk_size=4)
    block.place(x)
    lengths = np.zeros(3, np.int32)

    @qd.kernel
    def fill():
        for i in range(3):
            for j in range(i * 2):
                x[i].append(j * 10)

    @qd.kernel
    def measure(out: qd.types.ndarray()):
        for i in range(3):
            out[i] = x[i].length()

    @qd.kernel
    def total() -> qd.i32:
        s = 0
        for i, j in x:
            s += x[i, j]
        return s

    fill()
    measure(lengths)
    return [lengths, total()]


def dynamic_lists_of_structs(qd):
    S = qd.types.struct(a=qd.i32, v=qd.math.vec2)
    x = S.field()
    block = qd.root.dynamic(qd.i, 16)
    block.place(x)

    @qd.kernel
    def fill():
        for i in range(3):
            s = S(a=i, v=[i, 1])
            x.append(s)

    @qd.kernel
    def total() -> qd.f32:
        s = 0.0
        for i in x:
            s += x[i].a + x[i].v.y
        return s

    fill()
    return total()


def dynamic_deactivation(qd):
    x = qd.field(qd.i32)
    block = qd.root.dynamic(qd.i, 8)
    block.place(x)

    @qd.kernel
    def fill():
        for i in range(5):
            qd.append(block, [], i)

    @qd.kernel
    def measure() -> qd.i32:
        return qd.length(block, [])

    @qd.kernel
    def clear():
        qd.deactivate(block, [])

    fill()
    first = measure()
    clear()
    return [first, measure()]


def rescaled_indices(qd):
    x = qd.field(qd.i32, (8, 8))
    y = qd.field(qd.i32, (4, 2))

    @qd.kernel
    def f() -> qd.i32:
        i = qd.rescale_index(x, y, qd.Vector([5, 5]))
        return i[0] * 10 + i[1]

    return f()


def matrices(qd):
    @qd.kernel
    def f(out: qd.types.ndarray()):
        m = qd.Matrix([[1.0, 2.0], [3.0, 5.0]])
        v = qd.Vector([1.0, -1.0])
        out[0] = m.determinant()
        out[1] = m.trace()
        out[2] = m.inverse()[0, 1]
        out[3] = m.transpose()[0, 1]
        out[4] = (m @ v)[1]
        out[5] = (m @ m)[1, 0]
        out[6] = (m * m)[1, 0]
        out[7] = (m + 1)[0, 0]
        out[8] = v.norm_sqr()
        out[9] = v.normalized().x
        out[10] = v.outer_product(v)[0, 1]
        out[11] = m.sum()
        out[12] = m.max()
        out[13] = v.dot(v)
        out[14] = m[1, :].sum()
        out[15] = m[:, 1].sum()
        out[16] = (m > 1.5).any()
        out[17] = (m > 1.5).all()
        out[18] = m.norm()
        out[19] = m.cast(qd.i32)[1, 1]

    out = np.zeros(20)
    f(out)
    return out


def matrices_by_names(qd):
    @qd.kernel
    def f(out: qd.types.ndarray()):
        a = qd.Matrix.identity(qd.f32, 3)
        b = qd.Matrix.zero(qd.f32, 2, 2)
        c = qd.Matrix.one(qd.f32, 2, 2)
        d = qd.Matrix.diag(2, 5.0)
        e = qd.Matrix.rows([qd.Vector([1.0, 2.0]), qd.Vector([3.0, 4.0])])
        g = qd.Matrix.cols([qd.Vector([1.0, 2.0]), qd.Vector([3.0, 4.0])])
        h = qd.Vector.unit(3, 1)
        k = qd.Vector.one(qd.f32, 3)
        out[0] = a.trace()
        out[1] = b.sum() + c.sum() + d[1, 1]
        out[2] = e[0, 1] * 10 + g[0, 1]
        out[3] = h[1] + k.sum() + qd.Vector.zero(qd.i32, 2).sum()

    out = np.zeros(4)
    f(out)
    return out


def decompositions(qd):
    @qd.kernel
    def f(out: qd.types.ndarray()):
        m = qd.Matrix([[2.0, 1.0], [1.0, 3.0]])
        u, s, v = qd.svd(m, qd.f32)
        r = u @ s @ v.transpose()
        q, p = qd.polar_decompose(m, qd.f32)
        w, x = qd.sym_eig(m)
        out[0] = r[0, 1]
        out[1] = s[0, 0]
        out[2] = (q @ p)[1, 1]
        out[3] = w.sum()
        out[4] = qd.solve(m, qd.Vector([1.0, 2.0]))[0]

    out = np.zeros(5)
    f(out)
    return out


def indices_known_at_run_time(qd):
    @qd.kernel
    def f(k: qd.i32) -> qd.f32:
        v = qd.Vector([1.0, 2.0, 3.0])
        m = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
        v[k] += 10
        m[k, 1 - k] = 7
        return v.sum() + m.sum() + v[k]

    return [f(0), f(1)]


def slices_of_vectors(qd):
    @qd.kernel
    def f() -> qd.f32:
        v = qd.Vector([1.0, 2.0, 3.0, 4.0])
        m = qd.Matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        w = v[1:3]
        x = m[0, 0:2]
        y = v[::2]
        return w.sum() * 100 + x.sum() * 10 + y.sum()

    return f()


def slices_are_assigned(qd):
    @qd.kernel
    def f() -> qd.f32:
        m = qd.Matrix([[1.0, 2.0], [4.0, 5.0]])
        m[0, :] = qd.Vector([7.0, 8.0])
        return m.sum()

    return f()


def negative_indices_of_vectors(qd):
    @qd.kernel
    def f() -> qd.f32:
        v = qd.Vector([1.0, 2.0, 3.0])
        return v[-1]

    return f()


def swizzles(qd):
    @qd.kernel
    def f() -> qd.types.vector(4, qd.f32):
        v = qd.math.vec4(1, 2, 3, 4)
        w = v.wzyx
        v.xy = qd.Vector([9.0, 8.0])
        v.z += 1
        v.rgb *= 2
        return v + w * 100

    return f()


def vectors_are_values(qd):
    @qd.kernel
    def f() -> qd.f32:
        v = qd.Vector([1.0, 2.0])
        w = v
        w[0] = 100.0
        return v[0]

    return f()


def vectors_compare(qd):
    @qd.kernel
    def f() -> qd.i32:
        v, w = qd.Vector([1, 2, 3]), qd.Vector([1, 5, 3])
        e = v == w
        return e.sum() + (v < w).sum() * 10 + (v != w).any() * 100

    return f()


def vectors_of_comprehension_of_fields(qd):
    x = qd.field(qd.f32, 4)

    @qd.kernel
    def f() -> qd.f32:
        for i in x:
            x[i] = i
        v = qd.Vector([x[i] * 2 for i in range(4)])
        return v.norm_sqr()

    return f()


def matrix_types(qd):
    M = qd.types.matrix(2, 3, qd.i32)
    a, b, c = M(1), M([[1, 2, 3], [4, 5, 6]]), M(1, 2, 3, 4, 5, 6)
    V = qd.types.vector(3, qd.f32)
    return [a, b, c, V(1, 2, 3), V([1, 2, 3]), V(2.5), V(qd.math.vec2(1, 2), 3)]


def multidimensional_locals(qd):
    @qd.kernel
    def f() -> qd.i32:
        m = qd.Matrix([[0] * 3 for _ in range(3)])
        for i in qd.static(range(3)):
            for j in qd.static(range(3)):
                m[i, j] = i * j
        return m.sum()

    return f()


def empty_fields(qd):
    x = qd.field(qd.f32, 0)
    return x.shape


def empty_arrays(qd):
    @qd.kernel
    def f(a: qd.types.ndarray()) -> qd.i32:
        s = 0
        for i in a:
            s += 1
        return s

    return f(np.zeros(0, np.float32))


def quantised_fields(qd):
    a = qd.field(qd.types.quant.int(5, True))
    b = qd.field(qd.types.quant.fixed(10, True, max_value=4.0))
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(a, b)
    qd.root.dense(qd.i, 4).place(word)

    @qd.kernel
    def f():
        for i in range(4):
            a[i] = i - 2
            b[i] = i * 0.5

    f()
    return [[a[i] for i in range(4)], [round(b[i], 2) for i in range(4)]]


def sparse_matrices(qd):
    builder = qd.linalg.SparseMatrixBuilder(3, 3, max_num_triplets=10)

    @qd.kernel
    def fill(a: qd.types.sparse_matrix_builder()):
        for i in range(3):
            a[i, i] += i + 1.0
        a[0, 2] += 0.5

    fill(builder)
    a = builder.build()
    b = a @ a + a * 2
    x = qd.field(qd.f32, 3)
    x.fill(1)
    solver = qd.linalg.SparseSolver(solver_type="LU")
    solver.analyze_pattern(a)
    solver.factorize(a)
    return [a.shape, a[0, 2], b[0, 2], (a @ x), solver.solve(x), solver.info(), a.transpose()[2, 0]]


def parallel_sorts_and_sums(qd):
    keys, values = qd.field(qd.i32, 100), qd.field(qd.i32, 100)
    rng = np.random.default_rng(1)
    keys.from_numpy(rng.integers(0, 1000, 100, dtype=np.int32))
    values.from_numpy(np.arange(100, dtype=np.int32))
    qd.algorithms.parallel_sort(keys, values)
    return [keys.to_numpy(), sorted(values.to_numpy().tolist()) == list(range(100))]


def math_on_vectors(qd):
    @qd.kernel
    def f() -> qd.math.vec3:
        v = qd.math.vec3(0.1, 0.2, 0.3)
        return (
            qd.sin(v)
            + qd.max(v, 0.15)
            + v**2
            + abs(-v)
            + qd.math.clamp(v, 0.15, 0.25)
            + 1 / v
            + v % 0.15
            + v // 0.1
        )

    return f()


def matrix_of_expressions(qd):
    @qd.kernel
    def f(x: qd.f32) -> qd.f32:
        m = qd.Matrix([[x, 1], [2, x]], dt=qd.f32)
        n = qd.Matrix([[1, 2], [3, 4]])
        n += 1
        m *= 2
        m -= n
        return m.sum()

    return f(3.0)


def fields_in_lists_and_dicts(qd):
    xs = [qd.field(qd.i32, 2) for _ in range(3)]
    d = {"a": xs[0]}

    @qd.kernel
    def f():
        for k in qd.static(range(3)):
            for i in range(2):
                xs[k][i] = k * 10 + i
        d["a"][1] += 100

    f()
    return [x.to_numpy() for x in xs]


def loops_over_sizes_beyond_powers_of_two(qd):
    x = qd.field(qd.i32)
    qd.root.dense(qd.i, 3).dense(qd.i, 5).place(x)

    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for i in x:
            x[i] = i
            s += 1
        return s

    return [f(), x.to_numpy(), x.shape]


def wrapped_arrays(qd):
    a = np.arange(6, dtype=np.float32)

    @qd.kernel
    def f(x: qd.types.ndarray()):
        for i in x:
            x[i] += 1

    f(a[::2])
    return a


def fortran_arrays(qd):
    a = np.asfortranarray(np.zeros((2, 3), np.float32))

    @qd.kernel
    def f(x: qd.types.ndarray()):
        for i, j in x:
            x[i, j] = i * 10 + j

    f(a)
    return a


def dtypes_of_arrays(qd):
    kinds = [qd.i8, qd.u8, qd.i16, qd.u16, qd.i32, qd.u32, qd.i64, qd.u64, qd.f32, qd.f64]

    @qd.kernel
    def f(x: qd.types.ndarray()):
        for i in x:
            x[i] += 3

    results = []
    for kind in kinds:
        a = qd.ndarray(kind, 2)
        f(a)
        b = qd.field(kind, 2)
        b.fill(7)
        results += [a.to_numpy(), b.to_numpy()]
    return results


def boolean_arrays(qd):
    a = np.array([True, False, True])

    @qd.kernel
    def f(x: qd.types.ndarray()) -> qd.i32:
        s = 0
        for i in x:
            if x[i]:
                s += 1
        return s

    return f(a)


def boolean_fields(qd):
    x = qd.field(qd.u1, 3)
    x[1] = True

    @qd.kernel
    def f():
        for i in x:
            x[i] = not x[i]

    f()
    return [x[0], x[1]]


def repr_of_values(qd):
    return [
        str(qd.Vector([1, 2])),
        repr(qd.Vector([1.5, 2.0])),
        str(qd.Matrix([[1, 2], [3, 4]])),
        str(qd.f32),
        str(qd.math.vec3(1)),
        str(qd.field(qd.i32, (2, 2))),
        f"{qd.Vector.field(2, qd.f32, shape=1)}",
    ]


def gradients_of_fields(qd):
    x, y = qd.field(qd.f32, 3, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def f():
        for i in x:
            y[None] += x[i] ** 2 * (i + 1)

    x.fill(2)
    with qd.ad.Tape(loss=y):
        f()
    return [y[None], x.grad.to_numpy(), y.grad[None]]


def gradients_of_kernels(qd):
    x, y = qd.field(qd.f32, 3, needs_grad=True), qd.field(qd.f32, 3, needs_grad=True)

    @qd.kernel
    def f(k: qd.f32):
        for i in x:
            y[i] = qd.sin(x[i]) * k

    x.fill(1)
    f(2.0)
    y.grad.fill(1)
    f.grad(2.0)
    return x.grad.to_numpy()


def gradients_placed_by_the_program(qd):
    x, y = qd.field(qd.f32, needs_grad=True), qd.field(qd.f32, needs_grad=True)
    qd.root.dense(qd.i, 3).place(x, x.grad)
    qd.root.place(y, y.grad)

    @qd.kernel
    def f():
        for i in x:
            y[None] += x[i] * i

    with qd.ad.Tape(loss=y):
        f()
    return x.grad.to_numpy()


def lazy_gradients(qd):
    x, y = qd.field(qd.f32), qd.field(qd.f32)
    qd.root.dense(qd.i, 3).place(x)
    qd.root.place(y)
    qd.root.lazy_grad()

    @qd.kernel
    def f():
        for i in x:
            y[None] += x[i] * i

    with qd.ad.Tape(loss=y):
        f()
    return x.grad.to_numpy()


def gradients_of_arrays(qd):
    x, y = qd.ndarray(qd.f32, 3, needs_grad=True), qd.ndarray(qd.f32, (), needs_grad=True)

    @qd.kernel
    def f(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            y[None] += x[i] ** 2

    x.fill(3)
    with qd.ad.Tape(loss=y):
        f(x, y)
    return x.grad.to_numpy()


def forward_mode(qd):
    x, y = qd.field(qd.f32, 3, needs_dual=True), qd.field(qd.f32, (), needs_dual=True)

    @qd.kernel
    def f():
        for i in x:
            y[None] += x[i] ** 2

    x.fill(3)
    with qd.ad.FwdMode(loss=y, param=x, seed=[1.0, 0.0, 2.0]):
        f()
    return y.dual[None]


def tape_of_a_loss_with_a_shape(qd):
    y = qd.field(qd.f32, 2, needs_grad=True)
    with qd.ad.Tape(loss=y):
        pass


def tape_of_a_loss_without_gradient(qd):
    y = qd.field(qd.f32, ())
    with qd.ad.Tape(loss=y):
        pass


def gradient_of_a_field_without(qd):
    x = qd.field(qd.f32, 3)
    return x.grad is None


def graphs(qd):
    x = qd.ndarray(qd.f32, 4)

    @qd.kernel(graph=True)
    def f(x: qd.types.ndarray()):
        for i in x:
            x[i] += 1
        for i in x:
            x[i] *= 2

    f(x)
    f(x)
    return x.to_numpy()


def streams_and_events(qd):
    x = qd.ndarray(qd.f32, 4)

    @qd.kernel
    def f(x: qd.types.ndarray()):
        for i in x:
            x[i] += 1

    s = qd.create_stream()
    e = qd.create_event()
    f(x, qd_stream=s)
    e.record(s)
    e.synchronize()
    s.synchronize()
    return x.to_numpy()


def profilers(qd):
    @qd.kernel
    def f():
        for i in range(10):
            pass

    f()
    qd.sync()
    qd.profiler.print_kernel_profiler_info()
    qd.profiler.clear_kernel_profiler_info()
    return [qd.profiler.get_kernel_profiler_total_time() >= 0]


def extensions(qd):
    e = qd.extension
    return [
        qd.is_extension_enabled(k) for k in (e.sparse, e.quant, e.data64, e.adstack, e.assertion)
    ]


def boundaries(qd):
    @qd.kernel
    def f(x: qd.types.ndarray(boundary="clamp"), out: qd.types.ndarray()):
        out[0] = x[-5]
        out[1] = x[100]

    out = np.zeros(2)
    f(np.array([1.0, 2.0, 3.0]), out)
    return out


def one_extent_in_a_list_for_several_axes(qd):
    x, y = qd.field(qd.f32), qd.field(qd.f32)
    qd.root.dense(qd.ij, [3]).place(x)
    qd.root.pointer(qd.ijk, [4]).dense(qd.ijk, (2,)).place(y)
    return [x.shape, y.shape]
