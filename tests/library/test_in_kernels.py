"""Functions of the library in kernels, against what they give on the host."""

from __future__ import annotations

import numpy as np
import pytest

import octants as qd
from octants import types
from octants.diagnostics.exceptions import OctantsTypeError
from octants.lang.directives import static
from octants.lang.library_function_marks import library_function
from octants.types.scalars import f32, f64
from tests.library.kernels import run

random = np.random.default_rng(5)


@library_function
def store(y, start, m):
    """Write the rows of a matrix, or the elements of a vector, into an array."""
    for i in static(range(m.n)):
        for j in static(range(m.m)):
            if static(len(m.get_shape()) == 2):
                y[start + m.m * i + j] = m[i, j]
            else:
                y[start + i] = m[i]


@library_function
def many(x, y):
    """All functions of ``qd.math`` and the decompositions, on numbers that are far from kinks."""
    a, b, n = (qd.Vector([x[k], x[k + 1], x[k + 2]]) for k in static((0, 3, 6)))
    unit = n.normalized()
    y[0] = qd.math.clamp(x[0], -0.5, 0.5)
    y[1] = qd.math.mix(x[0], x[1], x[2])
    y[2] = qd.math.step(x[0], x[1])
    y[3] = qd.math.smoothstep(-1.0, 2.0, x[3])
    y[4] = qd.math.fract(x[4])
    y[5] = qd.math.mod(x[5], 0.3)
    y[6] = qd.math.radians(x[6]) + qd.math.degrees(x[7])
    y[7] = qd.math.dot(a, b) + qd.math.distance(a, b) + qd.math.length(a)
    y[8] = qd.math.refract(a.normalized(), unit, 1.2).y
    store(y, 9, qd.math.cross(a, b))
    store(y, 12, qd.math.reflect(a, unit))
    store(y, 15, qd.math.rot_by_axis(n, x[0]))
    store(y, 31, qd.math.rotation3d(x[0], x[1], x[2]))
    store(y, 47, qd.math.translate(x[0], x[1], x[2]) @ qd.math.scale(x[0], x[1], x[2]))
    store(y, 63, qd.math.rotation2d(x[0]))
    store(y, 67, qd.math.cmul(a.xy, b.xy))
    store(y, 69, qd.math.cdiv(a.xy, b.xy))
    store(y, 71, qd.math.csqrt(a.xy))
    store(y, 73, qd.math.cpow(a.xy, 2.5))
    store(y, 75, qd.math.cexp(a.xy))
    store(y, 77, qd.math.clog(a.xy))
    store(y, 79, qd.math.cconj(a.xy))
    mantissa, exponent = qd.frexp(x[0] * 1e-5)
    y[81] = mantissa
    y[82] = exponent
    y[83] = qd.math.fns(0b10110, 0, 2)
    store(y, 84, qd.outer(a, b))
    store(y, 93, qd.math.eye(2))
    store(y, 97, qd.math.vdir(x[0]))


def many_functions(x: types.ndarray, y: types.ndarray):
    many(x, y)


@pytest.mark.parametrize("trial", range(5))
def test_math_is_the_same_in_kernels_and_on_the_host(trial):
    x = random.normal(size=9)
    host, kernel = np.zeros(99), np.zeros(99)
    many(x, host)
    run(many_functions, x, kernel)
    np.testing.assert_allclose(kernel, host, rtol=1e-13, atol=1e-13)
    single = np.zeros(99, np.float32)
    run(many_functions, x.astype(np.float32), single, default_float=f32)
    np.testing.assert_allclose(single, host, rtol=2e-4, atol=2e-5)


def decompositions(x: types.ndarray, y: types.ndarray):
    a = qd.Matrix([[x[3 * i + j] for j in static(range(3))] for i in static(range(3))])
    u, s, v = qd.svd(a)
    store(y, 0, u @ s @ v.transpose())
    q, p = qd.polar_decompose(a)
    store(y, 9, q @ p)
    store(y, 18, q @ q.transpose())
    values, vectors = qd.sym_eig(a + a.transpose())
    store(y, 27, (a + a.transpose()) @ vectors - vectors @ diagonal(values))
    store(y, 36, a @ qd.solve(a, qd.Vector([1, 2, 3])))


@library_function
def diagonal(v):
    """The matrix with a vector on its diagonal."""
    return qd.Matrix([[v[i] if i == j else 0 for j in static(range(3))] for i in static(range(3))])


@pytest.mark.parametrize(
    ("numpy_type", "dtype", "tolerance"), [("f4", f32, 3e-5), ("f8", f64, 1e-12)]
)
@pytest.mark.parametrize("trial", range(3))
def test_decompositions(numpy_type, dtype, tolerance, trial):
    x = (random.normal(size=9) + 2 * np.eye(3).ravel()).astype(numpy_type)
    y = np.zeros(39, numpy_type)
    run(decompositions, x, y, default_float=dtype)
    expected = np.concatenate([x, x, np.eye(3).ravel(), np.zeros(9), [1, 2, 3]])
    np.testing.assert_allclose(y, expected, atol=tolerance)


def cast_by_the_decomposition(x: types.ndarray, y: types.ndarray):
    u, p = qd.polar_decompose(qd.Matrix([[1, 2], [3, 4]]), qd.f64)
    store(y, 0, u @ p)


def test_decompositions_take_a_type():
    y = np.zeros(4)
    run(cast_by_the_decomposition, y.copy(), y, default_float=f32)
    np.testing.assert_allclose(y, [1, 2, 3, 4], atol=1e-14)


def left_vectors(x: types.ndarray, y: types.ndarray):
    for i in range(y.shape[0]):
        a = qd.Matrix([[x[9 * i + 3 * j + k] for k in static(range(3))] for j in static(range(3))])
        u, s, v = qd.svd(a)
        y[i] = (u.transpose() @ u - qd.Matrix.identity(float, 3)).norm()
        y[i] += (u @ s @ v.transpose() - a).norm()


@pytest.mark.parametrize(("numpy_type", "dtype"), [("f4", f32), ("f8", f64)])
def test_singular_vectors_of_integers(numpy_type, dtype):
    """Some have rank one, with second columns that are rounding errors of the first."""
    x = random.integers(-2, 3, size=9 * 2000).astype(numpy_type)
    x[:9] = [-1, -1, 1, -1, -1, 1, 1, 1, -1]
    y = np.zeros(2000, numpy_type)
    run(left_vectors, x, y, default_float=dtype)
    assert y.max() < 40 * np.finfo(numpy_type).eps


def too_large(x: types.ndarray):
    qd.svd(qd.Matrix.identity(float, 4))


def test_decompositions_of_other_sizes_are_errors():
    with pytest.raises(Exception, match="2 or 3 rows"):
        run(too_large, np.zeros(1))


def normal(y: types.ndarray):
    for k in range(y.shape[0]):
        y[k] = qd.randn()


def test_randn():
    y = np.zeros(4000)
    run(normal, y)
    assert abs(y.mean()) < 0.05
    assert abs(y.std() - 1) < 0.05
    assert abs((y**4).mean() - 3) < 0.5
    assert len(set(y)) == 4000


def atomics(x: types.ndarray, k: types.ndarray, y: types.ndarray):
    y[0] = qd.atomic_add(x[0], 2)
    y[1] = qd.atomic_sub(x[0], 0.5)
    y[2] = qd.atomic_max(x[1], 7)
    y[3] = qd.atomic_min(x[2], -7)
    y[4] = qd.atomic_mul(x[3], 3)
    y[5] = qd.atomic_or(k[0], 5)
    y[6] = qd.atomic_and(k[1], 6)
    y[7] = qd.atomic_xor(k[2], 3)
    y[8] = qd.atomic_exchange(k[3], 9)
    y[9] = qd.atomic_cas(k[4], 4, 8)
    y[10] = qd.atomic_cas(k[5], 0, 8)
    local = 3
    y[11] = qd.atomic_add(local, 2)
    y[12] = local
    y[13] = qd.atomic_cas(local, 5, 1)
    y[14] = local


def test_atomics():
    x, k, y = np.arange(4.0), np.arange(6, dtype=np.int32), np.zeros(15)
    run(atomics, x, k, y)
    np.testing.assert_array_equal(x, [1.5, 7, -7, 9])
    np.testing.assert_array_equal(k, [5, 0, 1, 9, 8, 5])
    np.testing.assert_array_equal(y, [0, 2, 1, 2, 3, 0, 1, 2, 3, 4, 5, 3, 5, 5, 1])


Inner = types.struct(place=types.vector(2, float), mass=types.f32)
Outer = types.struct(inner=Inner, count=types.i32)


@qd.dataclass
class Ball:
    place: types.vector(2, f64)
    radius: types.f64

    def area(self):
        return 3.0 * self.radius**2


def structs(y: types.ndarray):
    a = Inner([1, 2], mass=3)
    b = a
    b.place.x = 7
    y[0] = a.place.x
    y[1] = b.place.x
    c = Outer(inner=b, count=2.7)
    c.inner.mass += 1
    y[2] = c.inner.mass
    y[3] = c.count
    y[4] = b.mass
    y[5] = Inner(mass=4).place.y
    y[6] = Outer(5).inner.place.y + Outer(5).inner.mass  # 5 + 0: a number is the first member
    d = qd.Struct(p=1, q=2.5)
    y[7] = d.p + d.q
    e = Ball(qd.Vector([1.0, 2.0]), radius=2)  # type: ignore[call-arg]
    y[8] = e.radius + e.place.y


def test_structs():
    y = np.zeros(9)
    run(structs, y)
    np.testing.assert_array_equal(y, [1, 7, 4, 2, 3, 0, 5, 3.5, 4])


def vectors(y: types.ndarray):
    v = qd.Vector([1.0, 2.0, 3.0])
    w = v
    w.zx = v.xy
    store(y, 0, w)
    v[0], v[1] = v[1], v[0]
    v *= 2
    v += [1, 1, 1]
    store(y, 3, v)
    v.fill(4)
    y[6] = v.sum()
    m = types.matrix(2, 2, float)(1, 2, 3, 4)
    m[0, :] = 9
    m[:, 1] = qd.Vector([5, 6])
    store(y, 7, m)
    y[11] = m[1, 1]
    y[12] = qd.Vector([1, 2.7], qd.i32)[1]


def test_vectors_are_values():
    y = np.zeros(13)
    run(vectors, y)
    np.testing.assert_array_equal(y, [2, 2, 1, 5, 3, 7, 12, 9, 5, 3, 6, 6, 2])


def exact_literals(x: types.ndarray, y: types.ndarray):
    y[0] = x[0] * 0.1
    y[1] = qd.math.mix(0.1, 0.3, x[0])
    y[2] = qd.max(x[0], 0.1)
    y[3] = qd.math.pi * x[0]


def test_numbers_are_exact_in_f64():
    """Whatever the default type is: a literal takes the type of what it meets."""
    x, y = np.array([0.0]), np.zeros(4)
    run(exact_literals, x, y, default_float=f32)
    assert y.tolist() == [0.0, 0.1, 0.1, 0.0]
    x[0] = 1.0
    run(exact_literals, x, y, default_float=f32)
    assert y.tolist() == [0.1, 0.3, 1.0, np.pi]


def division(y: types.ndarray):
    y[0] = qd.pow(0.0, -1)


def test_arithmetic_errors_at_compile_time_are_the_users():
    with pytest.raises(OctantsTypeError, match="ZeroDivisionError"):
        run(division, np.zeros(1))
