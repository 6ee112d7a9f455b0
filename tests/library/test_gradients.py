"""Derivatives of the functions of the library, by both modes, against central differences."""

from __future__ import annotations

import numpy as np
import pytest

import octants as qd
from octants import types
from octants.lang.directives import static
from octants.lang.library_function_marks import library_function
from tests.library.kernels import derivatives
from tests.seeds import seeds

random = np.random.default_rng(11)


def agree(kernel, x, outputs, tolerance=2e-8):
    weights = random.normal(size=(3, outputs))
    reverse, forward, differences = derivatives(kernel, x, weights)
    size = max(1.0, np.abs(differences).max())
    np.testing.assert_allclose(forward, differences, atol=tolerance * size)
    np.testing.assert_allclose(reverse, weights @ forward, atol=1e-11 * size, rtol=1e-11)


@library_function
def load(x, n: types.template()):
    """The matrix that an array holds row by row."""
    return qd.Matrix([[x[n * i + j] for j in static(range(n))] for i in static(range(n))])


@library_function
def store(y, start, m):
    """Write a matrix into an array, row by row."""
    for i in static(range(m.n)):
        for j in static(range(m.m)):
            y[start + m.m * i + j] = m[i, j]


def polar_2(x: types.ndarray, y: types.ndarray):
    u, p = qd.polar_decompose(load(x, 2))
    store(y, 0, u)
    store(y, 4, p)


def polar_3(x: types.ndarray, y: types.ndarray):
    u, p = qd.polar_decompose(load(x, 3))
    store(y, 0, u)
    store(y, 9, p)


def svd_2(x: types.ndarray, y: types.ndarray):
    u, s, v = qd.svd(load(x, 2))
    store(y, 0, u)
    store(y, 4, s)
    store(y, 8, v)


def svd_3(x: types.ndarray, y: types.ndarray):
    u, s, v = qd.svd(load(x, 3))
    store(y, 0, u)
    store(y, 9, s)
    store(y, 18, v)


def eigen(x: types.ndarray, y: types.ndarray):
    a = load(x, 3)
    values, vectors = qd.sym_eig(a + a.transpose())
    for k in static(range(3)):
        y[k] = values[k]
    store(y, 3, vectors)
    store(y, 12, qd.make_spd(a + a.transpose()))


def solved(x: types.ndarray, y: types.ndarray):
    z = qd.solve(load(x, 3), qd.Vector([x[0], 1.0, x[1] * x[2]]))
    for k in static(range(3)):
        y[k] = z[k]


def algebra(x: types.ndarray, y: types.ndarray):
    a = load(x, 3)
    v = qd.Vector([x[0], x[4], x[7]])
    y[0] = a.determinant()
    y[1] = a.norm()
    y[2] = a.trace() + v.norm_inv() + v.norm(0.1)
    y[3] = v.cross(qd.Vector([x[1], x[2], x[3]])).dot(v.normalized() + 1.0)
    store(y, 4, a.inverse())
    store(y, 13, v.outer_product(v) @ a)


def shading(x: types.ndarray, y: types.ndarray):
    a = qd.Vector([x[0], x[1], x[2]])
    n = qd.Vector([x[3], x[4], x[5]]).normalized()
    y[0] = qd.math.reflect(a, n).norm()
    y[1] = qd.math.refract(a.normalized(), n, 0.7).x
    y[2] = qd.math.smoothstep(-2.0, 3.0, x[6])
    y[3] = qd.math.mix(x[6], x[7], x[8])
    y[4] = qd.math.distance(a, n)
    y[5] = qd.math.csqrt(a.xy).x + qd.math.cpow(a.yz, 1.5).y
    y[6] = qd.math.cdiv(a.xy, a.yz).x + qd.math.clog(a.xy).y
    y[7] = (qd.math.rot_by_axis(a, x[6]) @ qd.Vector([1.0, 2.0, 3.0, 1.0])).x
    y[8] = (qd.math.rotation3d(x[6], x[7], x[8]) @ qd.Vector([1.0, 2.0, 3.0, 1.0])).y


def powers(x: types.ndarray, y: types.ndarray):
    y[0] = x[0] ** 3 + x[1] ** -2 + x[2] ** 7
    y[1] = qd.abs(x[0]) ** 0.5 + qd.abs(x[1]) ** -0.5 + qd.abs(x[2]) ** 1.3
    y[2] = 2.0 ** x[0] + (1 + x[1] * x[1]) ** x[2]
    y[3] = qd.max(x[0], x[1], x[2]) * qd.min(x[3], x[4])
    y[4] = qd.select(x[0] > x[1], x[2] * x[3], qd.sin(x[4]))
    y[5] = qd.Vector([x[0], x[1], x[2]]).max()


CASES = [
    (polar_2, 4, 8),
    (polar_3, 9, 18),
    (svd_2, 4, 12),
    (svd_3, 9, 27),
    (eigen, 9, 21),
    (solved, 9, 3),
    (algebra, 9, 22),
    (shading, 9, 9),
    (powers, 5, 6),
]


@pytest.mark.parametrize(("kernel", "inputs", "outputs"), CASES)
@pytest.mark.parametrize("trial", seeds(1, 2))
def test_derivatives(kernel, inputs, outputs, trial):
    agree(kernel, random.normal(size=inputs), outputs, 1e-6)


def test_polar_factors_of_a_rotation():
    """All singular values are equal, and yet the polar decomposition is smooth."""
    for sign in (1.0, -1.0):
        agree(polar_2, sign * np.eye(2).ravel(), 8)
        agree(polar_3, sign * np.eye(3).ravel(), 18)
    angle = np.cos(0.3), np.sin(0.3)
    turned = np.array([[angle[0], -angle[1], 0], [angle[1], angle[0], 0], [0, 0, 1]])
    agree(polar_3, turned.ravel(), 18)


def test_decompositions_of_diagonal_matrices():
    """Jacobi's rotations are by nothing there, but their derivatives are not zero."""
    agree(svd_2, np.diag([3.0, 1.0]).ravel(), 12)
    agree(svd_3, np.diag([3.0, -2.0, 0.5]).ravel(), 27)
    agree(eigen, np.diag([3.0, -2.0, 0.5]).ravel(), 21)


def products_2(x: types.ndarray, y: types.ndarray):
    u, s, v = qd.svd(load(x, 2))
    store(y, 0, u @ v.transpose())
    store(y, 4, u @ s @ v.transpose())
    y[8] = s[0, 0] ** 3 + s[1, 1] ** 3
    y[9] = s[0, 0] * s[1, 1]


def products_3(x: types.ndarray, y: types.ndarray):
    u, s, v = qd.svd(load(x, 3))
    store(y, 0, u @ v.transpose())
    store(y, 9, u @ s @ v.transpose())
    y[18] = s[0, 0] ** 3 + s[1, 1] ** 3 + s[2, 2] ** 3
    y[19] = s[0, 0] * s[1, 1] * s[2, 2]


def symmetric(x: types.ndarray, y: types.ndarray):
    a = load(x, 3)
    values, _ = qd.sym_eig(a + a.transpose())
    store(y, 0, qd.make_spd(a + a.transpose()))
    y[9] = values[0] ** 3 + values[1] ** 3 + values[2] ** 3
    y[10] = values[0] * values[1] * values[2]


TURNS = [np.linalg.qr(random.normal(size=(n, n)))[0] for n in (2, 3, 3)]
EQUAL_VALUES = [
    (products_2, np.eye(2), 10),
    (products_2, 2.0 * TURNS[0], 10),
    (products_3, np.eye(3), 20),
    (products_3, TURNS[1] @ np.diag([2.0, 2.0, 0.5]) @ TURNS[2], 20),
    (symmetric, np.eye(3), 11),
    (symmetric, TURNS[1] @ np.diag([1.0, 0.5, 0.5]) @ TURNS[1].T, 11),
    (symmetric, TURNS[1] @ np.diag([-1.0, -1.0, 0.5]) @ TURNS[1].T, 11),
]


@pytest.mark.parametrize("case", range(len(EQUAL_VALUES)))
def test_what_does_not_depend_on_vectors_of_equal_values(case):
    """Vectors of equal values may be turned, and rounding errors decide how: nothing here is."""
    kernel, a, outputs = EQUAL_VALUES[case]
    agree(kernel, a.ravel(), outputs)


@pytest.mark.parametrize("n", [2, 3])
def test_symmetric_functions_of_nearly_equal_values_in_f32(n):
    """They do not depend on the rotations of vectors, which rounding errors determine."""
    qd.init(arch=qd.cpu)

    @qd.kernel
    def functions(x: types.ndarray(qd.types.matrix(n, n, qd.f32), 1), y: types.ndarray()):
        for i in x:
            _, s, _ = qd.svd(x[i])
            values, _ = qd.sym_eig(x[i])
            positive = qd.make_spd(x[i])
            for k in static(range(n)):
                y[i] += s[k, k] ** 3 + values[k] ** 2 + positive[k, 0]

    gaps = np.array([0.0, 1e-6, 3e-6, 1e-5, 1e-4, 1e-3, 1e-2])
    basis = np.linalg.qr(random.normal(size=(n, n)))[0]
    values = 1 + gaps[:, None] * np.arange(n)
    at = (basis @ (values[:, :, None] * basis.T)).astype(np.float32)
    x = qd.Matrix.ndarray(n, n, qd.f32, gaps.size, needs_grad=True)
    y = qd.ndarray(qd.f32, gaps.size, needs_grad=True)
    x.from_numpy(at)
    y.grad.fill(1.0)
    functions.grad(x, y)
    exact = at.astype(np.float64)
    expected = 3 * exact @ exact + 2 * exact
    expected[:, :, 0] += 0.5
    expected[:, 0, :] += 0.5
    np.testing.assert_allclose(x.grad.to_numpy(), expected, atol=2e-5)


def product(x: types.ndarray, y: types.ndarray):
    u, s, v = qd.svd(load(x, 3))
    store(y, 0, u @ s @ v.transpose())


@pytest.mark.parametrize("values", [(2.0, 1e-3, 1e-4), (2.0, 1e-15, 1e-15), (2.0, 0.0, 0.0)])
def test_product_of_factors_of_a_matrix_of_rank_one(values):
    """It is the matrix, though derivatives of vectors of small values are large and inexact."""
    agree(product, (TURNS[1] @ np.diag(values) @ TURNS[2]).ravel(), 9)


@library_function
def away(a):
    """How far a matrix is from a rotation."""
    u, sigma, v = qd.svd(a)
    return u @ (sigma - qd.Matrix.identity(float, a.n)) @ v.transpose()


@library_function
def vectors(a):
    """Products of singular vectors, and of eigenvectors, that do not depend on their signs."""
    u, _, v = qd.svd(a)
    values, w = qd.sym_eig(a)
    return u[:, 0].outer_product(v[:, 0]) + w[:, 0].outer_product(w[:, 0])


DISTINCT = np.array([[1.0, 0.3, -0.2], [0.1, 2.0, 0.4], [0.5, -0.7, -1.5]])


@pytest.mark.parametrize(
    ("function", "at"),
    [
        (away, np.eye(2)),
        (away, TURNS[1] @ np.diag([2.0, 2.0, 0.5]) @ TURNS[2]),
        (qd.make_spd, TURNS[1] @ np.diag([2.0, 2.0, -0.5]) @ TURNS[1].T),
        (vectors, DISTINCT),
    ],
)
def test_second_derivatives(function, at):
    qd.init(arch=qd.cpu)
    n = len(at)

    @qd.kernel
    def energy(x: types.ndarray(qd.f64, 1), w: types.ndarray(qd.f64, 1)) -> qd.f64:
        total: qd.f64 = 0.0
        for _ in range(1):
            b = function(load(x, n))
            for i in static(range(n)):
                for j in static(range(n)):
                    total += w[n * i + j] * (b @ b.transpose() + b)[i, j]
        return total

    at, weights, along = at.ravel(), random.normal(size=n * n), random.normal(size=n * n)
    gradient = qd.ad.value_and_grad(energy, by="x")
    _, _, products = qd.ad.hvp(energy, by="x")(at, weights, direction={"x": along})
    step = 1e-5 * along
    ahead, behind = (gradient(at + s, weights)[1]["x"] for s in (step, -step))
    assert np.allclose(products["x"], (ahead - behind) / 2e-5, atol=1e-5)


SINGULAR = [
    (polar_2, 8, np.zeros(4)),
    (polar_3, 18, np.zeros(9)),
    (polar_3, 18, np.outer([1.0, 2.0, 3.0], [1.0, 0.0, 1.0]).ravel()),
    (polar_3, 18, np.diag([1.0, 2.0, 0.0]).ravel()),
    (svd_2, 12, np.eye(2).ravel()),
    (svd_2, 12, np.zeros(4)),
    (svd_3, 27, np.eye(3).ravel()),
    (svd_3, 27, np.zeros(9)),
    (svd_3, 27, np.diag([1.0, 1.0, 0.0]).ravel()),
    (eigen, 21, np.eye(3).ravel()),
    (eigen, 21, np.zeros(9)),
]


@pytest.mark.parametrize("case", range(len(SINGULAR)))
def test_derivatives_are_finite_where_there_are_none(case):
    kernel, outputs, x = SINGULAR[case]
    reverse, forward, _ = derivatives(kernel, x, np.ones((1, outputs)))
    assert np.isfinite(reverse).all()
    assert np.isfinite(forward).all()


def kinks(x: types.ndarray, y: types.ndarray):
    v = qd.Vector([x[0], x[1]])
    y[0] = v.norm()
    y[1] = v.normalized().x
    y[2] = qd.abs(x[0])
    y[3] = qd.sqrt(x[0])
    y[4] = qd.max(x[0], x[1])
    y[5] = qd.min(x[0], x[1])
    y[6] = qd.math.csqrt(v).x + qd.math.cinv(v).x
    y[7] = qd.math.clamp(x[0], 0.0, 1.0)
    y[8] = qd.sign(x[0]) + qd.floor(x[0])


def test_derivatives_at_kinks():
    reverse, forward, _ = derivatives(kinks, [0.0, 0.0], np.eye(9))
    expected = np.zeros((9, 2))
    expected[4, 0] = expected[5, 0] = expected[7, 0] = 1.0
    np.testing.assert_array_equal(reverse, expected)
    np.testing.assert_array_equal(forward, expected)


@pytest.mark.parametrize("fast_math", [False, True])
def test_derivatives_of_angles_in_f32(fast_math):
    """Squares of the operands may neither overflow nor vanish, nor cancel next to one."""
    qd.init(arch=qd.cpu, fast_math=fast_math)

    @qd.kernel
    def angles(x: types.ndarray(qd.f32, 2), y: types.ndarray(qd.f32, 1)):
        for i in y:
            one = x[i, 2]
            y[i] = qd.atan2(x[i, 0], x[i, 1]) + qd.asin(one) - qd.acos(one) + qd.atanh(one)
            y[i] += qd.acosh(2.0 - one)
            y[i] += qd.asinh(x[i, 3]) + qd.acosh(2.0 + x[i, 3]) + qd.expm1(-x[i, 4])

    scales = 10.0 ** np.arange(-36.0, 37.0, 4.0)
    operands = random.uniform(0.5, 2.0, size=(scales.size, 2)) * scales[:, None]
    operands[::3, 1] = 0.1 / scales[::3] ** 0.5  # also of different sizes
    ones = np.where(np.arange(scales.size) % 2, 0.9999, 0.999)[:, None]
    larger = np.stack([scales, np.minimum(scales, 80.0)], axis=1)
    x = qd.array(np.hstack([operands, ones, larger]).astype(np.float32), needs_grad=True)
    y = qd.ndarray(qd.f32, scales.size, needs_grad=True)
    angles(x, y)
    y.grad.fill(1.0)
    angles.grad(x, y)
    a, b, one, size, small = x.to_numpy().astype(np.float64).T
    below = (1 - one) * (1 + one)
    more = np.float32(2.0) - x.to_numpy()[:, 2].astype(np.float64)
    slope = 2 / np.sqrt(below) + 1 / below - 1 / np.sqrt((more - 1) * (more + 1))
    hyperbolic = 1 / np.sqrt(1 + size * size) + 1 / np.sqrt((1 + size) * (3 + size))
    square = a * a + b * b
    expected = np.stack([b / square, -a / square, slope, hyperbolic, -np.exp(-small)], axis=1)
    np.testing.assert_allclose(x.grad.to_numpy(), expected, rtol=3e-6, atol=1e-37)


@pytest.mark.parametrize("n", [2, 3])
def test_polar_factors_at_all_scales(n):
    qd.init(arch=qd.cpu)

    @qd.kernel
    def polar(x: types.ndarray(qd.types.matrix(n, n, qd.f32), 1), y: types.ndarray()):
        for i in x:
            u, p = qd.polar_decompose(x[i])
            y[i] = u

    scales = 10.0 ** np.array([-30.0, -18.0, 0.0, 18.0, 30.0])
    at = np.eye(n) + 0.5 * random.normal(size=(n, n))
    x = qd.Matrix.ndarray(n, n, qd.f32, scales.size, needs_grad=True)
    y = qd.Matrix.ndarray(n, n, qd.f32, scales.size, needs_grad=True)
    x.from_numpy((scales[:, None, None] * at).astype(np.float32))
    polar(x, y)
    weights = random.normal(size=(n, n)).astype(np.float32)
    y.grad.from_numpy(np.tile(weights, (scales.size, 1, 1)))
    polar.grad(x, y)
    left, _, right = np.linalg.svd(at)
    np.testing.assert_allclose(y.to_numpy(), np.tile(left @ right, (scales.size, 1, 1)), atol=1e-5)
    scaled = x.grad.to_numpy() * scales[:, None, None]
    np.testing.assert_allclose(scaled, np.tile(scaled[2], (scales.size, 1, 1)), atol=3e-5)


def test_polar_factors_of_singular_matrices():
    """In f32, where determinants are rounding errors, the factors come from singular vectors."""
    qd.init(arch=qd.cpu)

    @qd.kernel
    def polar(x: types.ndarray(qd.types.matrix(3, 3, qd.f32), 1), y: types.ndarray()):
        for i in x:
            u, p = qd.polar_decompose(x[i])
            y[0, i], y[1, i] = u, p

    vectors = np.concatenate([random.integers(-2, 3, (60, 3)), random.normal(size=(60, 3))])
    at = np.einsum("ki,kj->kij", vectors, vectors[::-1]).astype(np.float32)
    at[0] = 1.0
    x = qd.Matrix.ndarray(3, 3, qd.f32, len(at), needs_grad=True)
    y = qd.Matrix.ndarray(3, 3, qd.f32, (2, len(at)), needs_grad=True)
    x.from_numpy(at)
    polar(x, y)
    y.grad.fill(1.0)
    polar.grad(x, y)
    u, p = y.to_numpy()
    np.testing.assert_allclose(u.swapaxes(1, 2) @ u, np.tile(np.eye(3), (len(at), 1, 1)), atol=2e-6)
    np.testing.assert_allclose(u @ p, at, atol=1e-5)
    np.testing.assert_allclose(p, p.swapaxes(1, 2), atol=1e-5)
    assert np.isfinite(x.grad.to_numpy()).all()


@pytest.mark.parametrize("n", [2, 3, 4])
def test_inverses_at_all_scales(n):
    """Neither the determinant nor its derivatives may over- or underflow."""
    qd.init(arch=qd.cpu)

    @qd.kernel
    def inverses(x: types.ndarray(qd.types.matrix(n, n, qd.f32), 1), y: types.ndarray()):
        for i in x:
            y[i] = x[i].inverse()

    scales = 2.0 ** np.array([-60, -40, -22, 0, 22, 40, 60])[:, None, None]
    at = (2 * np.eye(n) + 0.5 * random.normal(size=(n, n))).astype(np.float32)
    weights = random.normal(size=(n, n)).astype(np.float32)
    x = qd.Matrix.ndarray(n, n, qd.f32, scales.size, needs_grad=True)
    y = qd.Matrix.ndarray(n, n, qd.f32, scales.size, needs_grad=True)
    x.from_numpy((scales * at).astype(np.float32))
    inverses(x, y)
    y.grad.from_numpy((scales * weights).astype(np.float32))
    inverses.grad(x, y)
    inverse = np.linalg.inv(at.astype(np.float64))
    gradient = -inverse.T @ weights @ inverse.T
    np.testing.assert_allclose(y.to_numpy() * scales, np.tile(inverse, (7, 1, 1)), atol=3e-6)
    np.testing.assert_allclose(x.grad.to_numpy() * scales, np.tile(gradient, (7, 1, 1)), atol=3e-6)


@pytest.mark.parametrize("diagonal", [(1e7, 1e-25), (1e-10, 1.0, 1e10), (1e9, 1e-9, 1e-9, 1e9)])
def test_inverses_of_large_and_small_rows(diagonal):
    """Their determinants are moderate, but would underflow if all were made small."""
    qd.init(arch=qd.cpu)
    n = len(diagonal)

    @qd.kernel
    def inverse(x: types.ndarray(qd.types.matrix(n, n, qd.f32), 1), y: types.ndarray()):
        for i in x:
            y[i] = x[i].inverse()

    x = qd.Matrix.ndarray(n, n, qd.f32, 1)
    y = qd.Matrix.ndarray(n, n, qd.f32, 1)
    x.from_numpy(np.diag(diagonal)[None].astype(np.float32))
    inverse(x, y)
    np.testing.assert_allclose(y.to_numpy()[0], np.diag(1 / np.array(diagonal)), rtol=1e-6)


def stopped(x: types.ndarray, y: types.ndarray):
    y[0] = qd.stop_grad(x[0]) * x[0]
    y[1] = qd.cast(qd.cast(x[0], int), float) + qd.bit_cast(qd.bit_cast(x[0], qd.i64), qd.f64)


def test_stop_grad():
    reverse, forward, _ = derivatives(stopped, [3.5], np.eye(2))
    np.testing.assert_array_equal(reverse, [[3.5], [0.0]])
    np.testing.assert_array_equal(forward, [[3.5], [0.0]])


def stopped_array(x: types.ndarray, y: types.ndarray):
    y[0] = x[0] * x[0]
    if y[0] > 0.0:
        y[1] = x[0] * x[0]
        qd.stop_grad(x)
        y[2] = x[0] * x[0]


def test_stop_grad_of_an_array():
    """It is for all of its block, and for that only."""
    reverse, forward, _ = derivatives(stopped_array, [3.0], np.eye(3))
    np.testing.assert_array_equal(reverse, [[6.0], [0.0], [0.0]])
    np.testing.assert_array_equal(forward, [[6.0], [0.0], [0.0]])
