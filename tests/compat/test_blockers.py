"""What kept Genesis from running, one by one, in a program that imports ``quadrants``."""

from __future__ import annotations

from pathlib import Path

from tests.compat.test_install import run

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
    assert qd.cfg.on_overwrite == "trust"
    qd.init(arch=qd.cpu, on_overwrite="error")
    assert qd.cfg.on_overwrite == "error"
"""


def test_bare_gradients_are_trusted_as_quadrants_does(tmp_path: Path) -> None:
    run(GRADIENT, tmp_path)
