"""Derivatives, algorithms, blocks of work items, graphs, linear algebra, tools, options."""

import numpy as np


def gradient_of_a_loop(qd):
    x, y = qd.field(qd.f32, 4, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def f():
        for i in x:
            s = 1.0
            for j in qd.static(range(3)):
                s *= x[i]
            y[None] += s

    x.fill(2)
    with qd.ad.Tape(loss=y):
        f()
    return x.grad.to_numpy()


def gradients_accumulate(qd):
    x, y = qd.field(qd.f32, 2, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def f():
        for i in x:
            y[None] += 3 * x[i]

    with qd.ad.Tape(loss=y):
        f()
    with qd.ad.Tape(loss=y, clear_gradients=False):
        f()
    return x.grad.to_numpy()


def gradients_of_vectors_and_matrices(qd):
    v = qd.Vector.field(2, qd.f32, 2, needs_grad=True)
    m = qd.Matrix.field(2, 2, qd.f32, (), needs_grad=True)
    y = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def f():
        for i in v:
            y[None] += (m[None] @ v[i]).norm_sqr()

    v.fill(1)
    m[None] = [[1, 2], [3, 4]]
    with qd.ad.Tape(loss=y):
        f()
    return [v.grad.to_numpy(), m.grad.to_numpy(), v.grad[0], y[None]]


def gradients_of_structs(qd):
    S = qd.types.struct(a=qd.f32, v=qd.math.vec2)
    s = S.field(shape=2, needs_grad=True)
    y = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def f():
        for i in s:
            y[None] += s[i].a * s[i].v.x

    s.a.fill(2)
    s.v.fill(3)
    with qd.ad.Tape(loss=y):
        f()
    return [s.grad.a.to_numpy(), s.grad.v.to_numpy(), s.a.grad.to_numpy()]


def gradient_stops(qd):
    x, y = qd.field(qd.f32, (), needs_grad=True), qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def f():
        for _ in range(1):
            y[None] += qd.stop_grad(x[None]) * x[None]

    x[None] = 3
    with qd.ad.Tape(loss=y):
        f()
    return x.grad[None]


def gradients_without_a_tape(qd):
    x, y = qd.field(qd.f32, 3, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def f():
        for i in x:
            y[None] += x[i] ** 2

    x.fill(2)
    f()
    y.grad[None] = 0.5
    f.grad()
    first = x.grad.to_numpy()
    qd.ad.clear_all_gradients()
    return [first, x.grad.to_numpy()]


def custom_gradients(qd):
    x, y = qd.field(qd.f32, 2, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def f():
        for i in x:
            y[None] += x[i] ** 2

    @qd.ad.grad_replaced
    def forward():
        f()

    @qd.ad.grad_for(forward)
    def backward():
        x.grad.fill(7)

    x.fill(1)
    with qd.ad.Tape(loss=y):
        forward()
    return x.grad.to_numpy()


def custom_gradients_of_methods(qd):
    @qd.data_oriented
    class A:
        def __init__(self):
            self.x = qd.field(qd.f32, 2, needs_grad=True)
            self.y = qd.field(qd.f32, (), needs_grad=True)

        @qd.kernel
        def f(self, k: qd.f32):
            for i in self.x:
                self.y[None] += self.x[i] * k

        @qd.ad.grad_replaced
        def forward(self, k):
            self.f(k)

        @qd.ad.grad_for(forward)
        def backward(self, k):
            self.f.grad(k * 2)

    a = A()
    with qd.ad.Tape(loss=a.y):
        a.forward(3.0)
    return a.x.grad.to_numpy()


def kernels_without_gradient(qd):
    x, y = qd.field(qd.f32, 2, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def g():
        for i in x:
            y[None] += x[i]

    @qd.ad.no_grad
    def f():
        g()

    with qd.ad.Tape(loss=y):
        f()
        g()
    return x.grad.to_numpy()


def forward_mode_of_a_jacobian(qd):
    x = qd.field(qd.f32, 2, needs_dual=True)
    y = qd.field(qd.f32, 3, needs_dual=True)

    @qd.kernel
    def f():
        for i in y:
            y[i] = x[0] * i + x[1] ** 2

    x[1] = 2
    columns = []
    for seed in ([1.0, 0.0], [0.0, 1.0]):
        with qd.ad.FwdMode(loss=y, param=x, seed=seed):
            f()
        columns.append(y.dual.to_numpy())
    return columns


def scans(qd):
    x = qd.field(qd.i32, 10)
    x.from_numpy(np.arange(10, dtype=np.int32))
    scan = qd.algorithms.PrefixSumExecutor(10)
    scan.run(x)
    return x.to_numpy()


def blocks_of_work_items(qd):
    x = qd.field(qd.i32, 64)

    @qd.kernel
    def f():
        qd.loop_config(block_dim=32)
        for i in range(64):
            x[i] = qd.simt.block.thread_idx()

    f()
    return x.to_numpy().max()


def graphs_with_loops(qd):
    n, x = qd.ndarray(qd.i32, ()), qd.ndarray(qd.i32, 4)
    n.fill(3)

    @qd.kernel(graph=True)
    def f(n: qd.types.ndarray(qd.i32, ndim=0), x: qd.types.ndarray(qd.i32, ndim=1)):
        while qd.graph_do_while(n):
            for i in range(x.shape[0]):
                x[i] += 1
            for _ in range(1):
                n[None] -= 1

    f(n, x)
    return [x.to_numpy(), n[None]]


def conjugate_gradients(qd):
    a = qd.linalg.SparseMatrixBuilder(2, 2, max_num_triplets=4, dtype=qd.f32)

    @qd.kernel
    def fill(b: qd.types.sparse_matrix_builder()):
        b[0, 0] += 4.0
        b[1, 1] += 3.0
        b[0, 1] += 1.0
        b[1, 0] += 1.0

    fill(a)
    b = qd.ndarray(qd.f32, 2)
    b.fill(1)
    x0 = qd.ndarray(qd.f32, 2)
    cg = qd.linalg.SparseCG(a.build(), b, x0, max_iter=50, atol=1e-6)
    x, converged = cg.solve()
    return [x.to_numpy().round(4), bool(converged)]


def solves_with_a_sparse_matrix(qd):
    builder = qd.linalg.SparseMatrixBuilder(2, 2, max_num_triplets=4)

    @qd.kernel
    def fill(b: qd.types.sparse_matrix_builder()):
        b[0, 0] += 4.0
        b[1, 1] += 2.0

    fill(builder)
    a = builder.build()
    solver = qd.linalg.SparseSolver(solver_type="LLT")
    solver.compute(a)
    x = solver.solve(np.array([4.0, 4.0], np.float32))
    return [x, solver.info()]


def products_with_a_sparse_matrix(qd):
    builder = qd.linalg.SparseMatrixBuilder(2, 3, max_num_triplets=4)

    @qd.kernel
    def fill(b: qd.types.sparse_matrix_builder()):
        b[0, 2] += 4.0
        b[1, 0] += 2.0

    fill(builder)
    a = builder.build()
    return [
        a.shape,
        a @ np.array([1.0, 2.0, 3.0], np.float32),
        a[0, 2],
        (a + a)[1, 0],
        (2 * a)[1, 0],
    ]


def matrix_free_conjugate_gradients(qd):
    b, x = qd.field(qd.f32, 4), qd.field(qd.f32, 4)
    b.fill(2)

    @qd.kernel
    def scale(v: qd.template(), mv: qd.template()):
        for i in v:
            mv[i] = v[i] * (i + 1)

    qd.linalg.MatrixFreeCG(qd.linalg.LinearOperator(scale), b, x, maxiter=20, tol=1e-6, quiet=True)
    return x.to_numpy().round(4)


def default_types_of_init(qd):
    @qd.kernel
    def f() -> float:
        return 1.0 / 3

    @qd.kernel
    def g() -> int:
        return 1 << 40

    return [f(), g(), qd.cfg.default_fp == qd.f64, qd.field(float, 1).to_numpy().dtype]


default_types_of_init.options = {"default_fp": "f64", "default_ip": "i64"}


def unknown_option_of_init(qd):
    qd.init(arch=qd.cpu, no_such_option=3)


def init_again(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.i32:
        return a + 1

    first = f(1)
    qd.init(arch=qd.cpu, log_level=qd.ERROR)
    return [first, f(2)]


def fields_after_init_again(qd):
    x = qd.field(qd.i32, 2)
    x.fill(1)
    qd.init(arch=qd.cpu, log_level=qd.ERROR)
    y = qd.field(qd.i32, 2)
    y.fill(3)
    return y.to_numpy()


def fields_are_made_between_kernels(qd):
    x = qd.field(qd.i32, 2)

    @qd.kernel
    def f(a: qd.template(), k: qd.i32):
        for i in a:
            a[i] += k

    f(x, 1)
    y = qd.field(qd.i32, 3)
    f(y, 2)
    f(x, 3)
    return [x.to_numpy(), y.to_numpy()]


def pickled_arrays(qd):
    import pickle

    x = qd.ndarray(qd.f32, (2, 2))
    x.fill(3)
    return pickle.loads(pickle.dumps(x)).to_numpy()


def views_of_arrays(qd):
    x = qd.ndarray(qd.f32, 6)

    @qd.kernel
    def f(v: qd.BufferView[qd.f32], k: qd.f32):
        for i in range(v.size):
            v[i] += k

    f(x[1:3], 2.0)
    f(qd.BufferView(x, 3, 2), 5.0)
    return x.to_numpy()


def tensors(qd):
    x = qd.tensor(qd.f32, (2, 3))
    y = qd.tensor(qd.f32, 3, backend=qd.Backend.FIELD)

    @qd.kernel
    def f(a: qd.Tensor, b: qd.Tensor):
        for i, j in a:
            a[i, j] = i * 10 + j
        for i in b:
            b[i] = i

    f(x, y)
    return [x.to_numpy(), y.to_numpy(), x.shape]


def axes_beyond_two(qd):
    x = qd.field(qd.i32, (2, 2, 2, 2))
    y = qd.field(qd.i32)
    qd.root.dense(qd.ijk, (2, 3, 2)).place(y)
    z = qd.field(qd.i32)
    qd.root.dense(qd.axes(0, 1), (2, 2)).place(z)

    @qd.kernel
    def f():
        for i, j, k, l in x:
            x[i, j, k, l] = i * 8 + j * 4 + k * 2 + l
        for I in qd.grouped(y):
            y[I] = I[0] + I[1] * 10 + I[2] * 100
        for i, j in z:
            z[i, j] = 1

    f()
    return [x.to_numpy(), y.to_numpy(), z.shape]


def dlpack_of_arrays(qd):
    import torch

    x = qd.ndarray(qd.f32, 3)
    t = torch.utils.dlpack.from_dlpack(x.to_dlpack())
    t += 2
    return x.to_numpy()


def sums_of_floats_of_a_loop(qd):
    x = qd.field(qd.f32, 1000)
    x.fill(0.5)

    @qd.kernel
    def f() -> qd.f32:
        s = 0.0
        for i in x:
            s += x[i]
        return s

    return f()


def data_oriented_with_arrays(qd):
    @qd.data_oriented
    class A:
        def __init__(self):
            self.x = qd.ndarray(qd.f32, 3)
            self.n = 3

        @qd.kernel
        def f(self, y: qd.types.ndarray()):
            for i in range(self.n):
                y[i] = i

    a = A()
    a.f(a.x)
    return a.x.to_numpy()


def fields_in_lists_of_objects(qd):
    @qd.data_oriented
    class Layer:
        def __init__(self, k):
            self.w = qd.field(qd.f32, 2)
            self.w.fill(k)

        @qd.func
        def forward(self, i):
            return self.w[i] * 2

    @qd.data_oriented
    class Net:
        def __init__(self):
            self.layers = [Layer(1), Layer(2), Layer(3)]

        @qd.kernel
        def run(self) -> qd.f32:
            s = 0.0
            for k in qd.static(range(3)):
                s += self.layers[k].forward(1)
            return s

    return Net().run()


def numbers_of_an_array_of_a_closure(qd):
    table = np.array([1, 2, 3], np.int32)

    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for k in qd.static(range(3)):
            s += table[k]
        return s

    return f()


def matrix_of_a_closure(qd):
    m = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
    v = qd.Vector([1.0, -1.0])

    @qd.kernel
    def f() -> qd.f32:
        return (m @ v).sum() + m[0, 1]

    return f()


def list_of_vectors_of_a_closure(qd):
    corners = [qd.Vector([0, 1]), qd.Vector([1, 0])]

    @qd.kernel
    def f() -> qd.i32:
        s = 0
        for c in qd.static(corners):
            s = s * 10 + c[0] + 2 * c[1]
        return s

    return f()


def neighbours(qd):
    x = qd.field(qd.f32, (4, 4))
    y = qd.field(qd.f32, (4, 4))

    @qd.kernel
    def f():
        for I in qd.grouped(x):
            x[I] = I[0] * 4 + I[1]
        for I in qd.grouped(y):
            for offset in qd.static(qd.grouped(qd.ndrange((-1, 2), (-1, 2)))):
                J = I + offset
                if 0 <= J[0] < 4 and 0 <= J[1] < 4:
                    y[I] += x[J]

    f()
    return y.to_numpy()


def interpolation(qd):
    x = qd.field(qd.f32, (4, 4))

    @qd.func
    def sample(f: qd.template(), p):
        base = qd.floor(p, qd.i32)
        t = p - base
        i = qd.max(0, qd.min(base, qd.Vector([2, 2])))
        a = qd.math.mix(f[i], f[i + qd.Vector([1, 0])], t.x)
        b = qd.math.mix(f[i + qd.Vector([0, 1])], f[i + qd.Vector([1, 1])], t.x)
        return qd.math.mix(a, b, t.y)

    @qd.kernel
    def f() -> qd.f32:
        for i, j in x:
            x[i, j] = i * 2 + j
        return sample(x, qd.math.vec2(1.25, 2.5))

    return f()


def particles_to_a_grid(qd):
    n = 8
    grid_v = qd.Vector.field(2, qd.f32, (n, n))
    grid_m = qd.field(qd.f32, (n, n))
    x = qd.Vector.field(2, qd.f32, 10)

    @qd.kernel
    def f():
        for p in x:
            x[p] = qd.Vector([0.2 + 0.05 * p, 0.4])
        for p in x:
            base = (x[p] * n - 0.5).cast(int)
            fx = x[p] * n - base.cast(float)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            for i, j in qd.static(qd.ndrange(3, 3)):
                offset = qd.Vector([i, j])
                weight = w[i][0] * w[j][1]
                grid_v[base + offset] += weight * x[p]
                grid_m[base + offset] += weight
        for i, j in grid_m:
            if grid_m[i, j] > 0:
                grid_v[i, j] /= grid_m[i, j]

    f()
    return [grid_m.to_numpy().sum(), grid_v.to_numpy().sum()]


def julia_set(qd):
    n = 16
    pixels = qd.field(float, shape=(n * 2, n))

    @qd.func
    def complex_sqr(z):
        return qd.Vector([z[0] ** 2 - z[1] ** 2, z[1] * z[0] * 2])

    @qd.kernel
    def paint(t: float):
        for i, j in pixels:
            c = qd.Vector([-0.8, qd.cos(t) * 0.2])
            z = qd.Vector([i / n - 1, j / n - 0.5]) * 2
            iterations = 0
            while z.norm() < 20 and iterations < 50:
                z = complex_sqr(z) + c
                iterations += 1
            pixels[i, j] = 1 - iterations * 0.02

    paint(0.3)
    return bool(abs(pixels.to_numpy().mean() - 0.75) < 0.25)


def primes(qd):
    @qd.func
    def is_prime(n: int):
        result = True
        for k in range(2, int(n**0.5) + 1):
            if n % k == 0:
                result = False
                break
        return result

    @qd.kernel
    def count(n: int) -> int:
        total = 0
        for k in range(2, n):
            if is_prime(k):
                total += 1
        return total

    return count(1000)


def longest_common_subsequence(qd):
    f = qd.field(qd.i32, (21, 21))

    @qd.kernel
    def lcs(a: qd.types.ndarray(), b: qd.types.ndarray()) -> qd.i32:
        n, m = a.shape[0], b.shape[0]
        qd.loop_config(serialize=True)
        for i in range(1, n + 1):
            for j in range(1, m + 1):
                f[i, j] = qd.max(
                    f[i - 1, j - 1] + (a[i - 1] == b[j - 1]), qd.max(f[i - 1, j], f[i, j - 1])
                )
        return f[n, m]

    rng = np.random.default_rng(1)
    return lcs(rng.integers(0, 4, 20, dtype=np.int32), rng.integers(0, 4, 20, dtype=np.int32))


def n_bodies(qd):
    x = qd.Vector.field(2, qd.f32, 5)
    force = qd.Vector.field(2, qd.f32, 5)

    @qd.kernel
    def f():
        for i in x:
            x[i] = [i * 0.1, (i * i) % 3]
        for i in force:
            total = qd.Vector([0.0, 0.0])
            for j in range(5):
                if i != j:
                    d = x[j] - x[i]
                    total += d / (d.norm(1e-3) ** 3)
            force[i] = total

    f()
    return force.to_numpy()


def random_seeds_repeat(qd):
    @qd.kernel
    def f() -> qd.f32:
        return qd.random()

    values = []
    for _ in range(2):
        qd.init(arch=qd.cpu, random_seed=7, log_level=qd.ERROR)
        values.append(f())
    return values[0] == values[1]


def host_arithmetic_of_matrices(qd):
    a, b = qd.Matrix([[1, 2], [3, 4]]), qd.Matrix([[0, 1], [1, 0]])
    v = qd.Vector([1, 2])
    return [
        a @ b,
        a * b,
        a @ v,
        a.transpose(),
        a.trace(),
        a.determinant(),
        a.inverse(),
        a + 1,
        -a,
        a == b,
        a.max(),
        a[0, 1],
        v.outer_product(v),
        v.cross(qd.Vector([3, 4])),
    ]


def host_matrices_are_assigned(qd):
    a = qd.Matrix([[1, 2], [3, 4]])
    a[0, 1] = 9
    v = qd.Vector([1.0, 2.0, 3.0])
    v[0] = 5
    v.y = 7
    v.fill(2)
    a.fill(3)
    return [a, v, v.xy, len(v), v.to_list(), list(v)]


def loops_over_host_ndranges(qd):
    return [list(map(list, qd.ndrange(2, (1, 3)))), [list(i) for i in qd.grouped(qd.ndrange(2, 2))]]


def host_types(qd):
    v = qd.math.vec3(1, 2, 3)
    u = qd.math.uvec2(3, 4)
    m = qd.math.mat2(1, 2, 3, 4)
    return [
        v.xz,
        v + 1,
        u,
        m @ qd.math.vec2(1, 1),
        qd.math.mix(1.0, 3.0, 0.5),
        qd.math.clamp(5, 0, 3),
        qd.math.vec4(v, 1),
    ]


def clamps_whose_limits_are_reversed(qd):
    @qd.kernel
    def f(x: qd.f32, out: qd.types.ndarray()):
        out[0] = qd.math.clamp(0, 5.5, x)
        out[1] = qd.math.clamp(9, 5, 2)
        out[2] = qd.math.clamp(x, 2.0, 1.0)
        out[3] = qd.math.smoothstep(1.0, 0.0, x)
        out[4] = qd.math.clamp(0, 7, qd.Vector([x, 3.0]))[1]

    out = np.zeros(5, np.float32)
    f(0.75, out)
    return out
