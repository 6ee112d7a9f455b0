"""What kept Genesis from running, one by one, in a program that imports ``quadrants``."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.compat.test_install import python, run

LANGUAGE = """
    import octants.compat
    octants.compat.install()
    import numpy as np
    import quadrants as qd

    qd.init(arch=qd.cpu)
    Three = qd.types.vector(3)

    @qd.func
    def total(v: Three):
        return v.sum()

    @qd.data_oriented
    class Scale:
        def __init__(self, k):
            self.k = k
            self.f = self.g

        @qd.func
        def g(self, x):
            return x * self.k

    @qd.data_oriented
    class Materials:
        def __init__(self):
            self.functions = [Scale(2).f, Scale(3).g]

        @qd.kernel
        def run(self, a: qd.types.ndarray()):
            for k in qd.static(range(2)):
                a[k] = self.functions[k](x=10)

    filled = qd.field(qd.i32, shape=np.array([2, 3]))
    assert filled.shape == (2, 3)

    @qd.kernel
    def kernel(a: qd.types.ndarray(), b: qd.types.ndarray(), flag: qd.template(), n: qd.template()):
        filled.fill(3)
        for i, j in qd.ndrange(2, 3, axes=(1, 0)):
            b[i, j] = i * 10 + j
        if not qd.static(flag):
            a[2] = 1
        if qd.static(n) in (2, 3) and qd.static(n) > 1 and -qd.static(n) == -3:
            a[3] = qd.static(n) + 1
        v = qd.Vector.zero(qd.f32, qd.static(n))
        a[4] = total(qd.Vector([1.0, 2.0, 3.5])) + v[qd.static(n) - 1]

    a = qd.ndarray(qd.f32, shape=(5,))
    b = qd.ndarray(qd.i32, shape=(2, 3))
    Materials().run(a)
    kernel(a, b, False, 3)
    assert a.to_numpy().tolist() == [20.0, 30.0, 1.0, 4.0, 6.5]
    assert b.to_numpy().tolist() == [[0, 1, 2], [10, 11, 12]]
    assert filled.to_numpy().tolist() == [[3] * 3] * 2
"""


def test_language(tmp_path: Path) -> None:
    run(LANGUAGE, tmp_path)


GRADIENT = """
    import octants.compat
    octants.compat.install()
    import quadrants as qd

    qd.init(arch=qd.cpu, default_fp=qd.f64)
    a = qd.ndarray(qd.f64, shape=(2,), needs_grad=True)
    b = qd.ndarray(qd.f64, shape=(2,), needs_grad=True)

    @qd.kernel
    def norm(a: qd.types.ndarray(), b: qd.types.ndarray()):
        for i in range(2):
            b[i] = 0.0
            for j in range(2):
                b[i] += a[j] * a[j]
            b[i] = qd.sqrt(b[i])

    a[0], a[1] = 3.0, 4.0
    norm(a, b)
    assert b.to_numpy().tolist() == [5.0, 5.0]
    b.grad[0] = 10.0
    norm.grad(a, b)
    assert a.grad.to_numpy().tolist() == [6.0, 8.0]

    @qd.kernel
    def squares(a: qd.types.ndarray(), b: qd.types.ndarray()):
        for i in range(2):
            b[i] += a[i] * a[i]

    squares(a, b)
    a[0] = 100.0  # a later substep, which Genesis takes back before the gradient
    a[0] = 3.0
    a.grad.fill(0.0)
    b.grad.fill(1.0)
    squares.grad(a, b)
    assert a.grad.to_numpy().tolist() == [6.0, 8.0]

    assert qd.cfg.on_overwrite == "trust"
    try:
        squares.grad.using(on_overwrite="error")(a, b)
    except Exception as error:
        assert "OCT" in str(error), error
    else:
        raise AssertionError
    qd.init(arch=qd.cpu, on_overwrite="error")
    assert qd.cfg.on_overwrite == "error"
"""


def test_bare_gradients_are_trusted_as_quadrants_does(tmp_path: Path) -> None:
    run(GRADIENT, tmp_path)


SOLVERS = """
    import octants.compat
    octants.compat.install()
    import numpy as np
    import quadrants as qd
    from quadrants.algorithms import sort, sort_scratch_slots

    qd.init(arch=qd.cpu)
    count = 5
    keys = qd.ndarray(qd.u64, shape=(count,))
    spare = qd.ndarray(qd.u64, shape=(count,))
    values = qd.ndarray(qd.i32, shape=(count,))
    spare_values = qd.ndarray(qd.i32, shape=(count,))
    scratch = qd.ndarray(qd.u32, shape=(sort_scratch_slots(count),))
    n = qd.ndarray(qd.i32, shape=())
    n[None] = count

    @qd.func
    def order(keys: qd.template(), spare: qd.template(), values: qd.template(),
              spare_values: qd.template(), scratch: qd.template(), n: qd.template()):
        sort(keys, spare, values, spare_values, scratch, n, qd.u64, True, 64, log256_max_n=1)

    @qd.kernel
    def run(keys: qd.types.ndarray(), spare: qd.types.ndarray(), values: qd.types.ndarray(),
            spare_values: qd.types.ndarray(), scratch: qd.types.ndarray(), n: qd.types.ndarray()):
        order(keys, spare, values, spare_values, scratch, n)

    keys.from_numpy(np.array([7, 2**63, 1, 2**40, 7], np.uint64))
    values.from_numpy(np.arange(count, dtype=np.int32))
    run(keys, spare, values, spare_values, scratch, n)
    assert values.to_numpy().tolist() == [2, 0, 4, 3, 1]

    @qd.kernel(graph=True)
    def count_down(counter: qd.types.ndarray(qd.i32, ndim=0), a: qd.types.ndarray()):
        while qd.graph.do_while(counter):
            for i in range(4):
                a[i] += i
            for _ in range(1):
                counter[()] = counter[()] - 1

    a = qd.ndarray(qd.i32, shape=(4,))
    n[None] = 3
    count_down(n, a)
    assert a.to_numpy().tolist() == [0, 3, 6, 9]
"""


def test_sorting_as_a_func_and_loops_of_graphs(tmp_path: Path) -> None:
    run(SOLVERS, tmp_path)


KEPT = """
    import sys
    import octants.compat
    octants.compat.install()
    import octants
    import quadrants as qd

    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=True, offline_cache_file_path=sys.argv[1])

    @qd.data_oriented
    class Solver:
        def __init__(self, n):
            self.n = n

        @qd.func
        def weight(self, i, j):
            return i * 10 + j

        @qd.kernel
        def run(self, a: qd.types.ndarray()):
            for i, j in qd.static(qd.ndrange(self.n, (1, 3))):
                a[i, j] = self.weight(i, j)
            if qd.static(qd.lang.impl.get_runtime().default_fp == qd.f64):
                a[0, 0] = 100

    a = qd.ndarray(qd.i32, shape=(2, 3))
    Solver(2).run(a)
    assert a.to_numpy().tolist() == [[100, 1, 2], [0, 11, 12]]
    print("compiled" if "octants.pipeline" in sys.modules else "found")
"""


def test_kernels_are_found_in_the_cache(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(textwrap.dedent(KEPT))
    runs = [python("program.py", str(tmp_path / "cache"), folder=tmp_path) for _ in range(2)]
    assert [done.stderr for done in runs] == ["", ""]
    assert [done.stdout.strip() for done in runs] == ["compiled", "found"]
