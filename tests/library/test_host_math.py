"""Functions that are written in the language, run on the host: their definition."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest

from octants.lang import composed_functions, linear_algebra
from octants.lang import math as qmath
from octants.types.matrix_values import Matrix, Vector

random = np.random.default_rng(3)


def turn(axis, angle):
    """The rotation of column vectors about a unit axis (Rodrigues)."""
    x, y, z = axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross


def test_interpolation():
    assert qmath.clamp(3, 0, 1) == 1
    assert qmath.mix(1.0, 3.0, 0.25) == 1.5
    assert (qmath.step(0.5, 0.5), qmath.step(0.5, 0.4)) == (1.0, 0.0)
    assert qmath.smoothstep(0, 2, 0.5) == pytest.approx(0.25**2 * 2.5)
    assert qmath.fract(-1.25) == 0.75
    assert qmath.mod(-1.5, 1) == 0.5
    assert qmath.radians(180) == pytest.approx(math.pi)
    assert qmath.degrees(math.pi) == pytest.approx(180)


def test_geometry():
    a, b = Vector([1.0, 2.0]), Vector([3.0, 5.0])
    assert qmath.dot(a, b) == 13
    assert qmath.distance(a, b) == pytest.approx(13**0.5)
    assert qmath.length(b) == pytest.approx(34**0.5)
    assert qmath.reflect(a, Vector([0.0, 1.0])).to_list() == [1, -2]
    sine = 0.6
    through = qmath.refract(Vector([sine, -0.8]), Vector([0.0, 1.0]), 0.9)
    np.testing.assert_allclose(np.asarray(through), [0.54, -math.sqrt(1 - 0.54**2)])
    assert qmath.refract(Vector([0.9, -0.1]), Vector([0.0, 1.0]), 2.0).to_list() == [0, 0]


def test_transformations():
    axis = np.array([1.0, 2.0, -0.5])
    ours = np.asarray(qmath.rot_by_axis(Vector(axis), 0.7))
    np.testing.assert_allclose(ours[:3, :3], turn(axis / np.linalg.norm(axis), -0.7), atol=1e-12)
    x, y, z = np.eye(3)
    expected = turn(z, -0.3) @ turn(x, -0.2) @ turn(y, -0.1)
    angles = np.asarray(qmath.rot_yaw_pitch_roll(0.1, 0.2, 0.3))
    np.testing.assert_allclose(angles[:3, :3], expected, atol=1e-12)
    same = np.asarray(qmath.rotation3d(0.2, 0.3, 0.1))
    np.testing.assert_allclose(same, angles, atol=1e-12)
    np.testing.assert_allclose(np.asarray(qmath.rotation2d(0.5) @ qmath.vdir(0.2)), qmath.vdir(0.7))
    point = Vector([1.0, 2.0, 3.0, 1.0])
    assert (qmath.translate(1, 2, 3) @ point).to_list() == [2, 4, 6, 1]
    assert (qmath.scale(1, 2, 3) @ point).to_list() == [1, 4, 9, 1]
    np.testing.assert_array_equal(np.asarray(qmath.eye(3)), np.eye(3))


def test_complex_numbers():
    for z, w in ((-1 - 2j, 3 + 4j), (2 + 0.5j, -1j), (1 + 0j, -2 + 1j)):
        a, b = Vector([z.real, z.imag]), Vector([w.real, w.imag])
        pairs = [
            (qmath.cmul(a, b), z * w),
            (qmath.cdiv(a, b), z / w),
            (qmath.cinv(a), 1 / z),
            (qmath.cconj(a), z.conjugate()),
            (qmath.csqrt(a), cmath.sqrt(z)),
            (qmath.cexp(a), cmath.exp(z)),
            (qmath.clog(a), cmath.log(z)),
            (qmath.cpow(a, 3), z**3),
        ]
        for ours, theirs in pairs:
            np.testing.assert_allclose(np.asarray(ours), [theirs.real, theirs.imag], atol=1e-12)
    zero = Vector([0.0, 0.0])
    assert (qmath.cinv(zero).norm(), qmath.csqrt(zero).norm()) == (0, 0)


def test_fns():
    mask = 0b10110
    cases = [(0, 2, 2), (4, -2, 2), (1, 0, 1), (0, 0, None), (0, 4, None), (2, 1, 2), (3, -1, 2)]
    for base, offset, expected in cases:
        assert qmath.fns(mask, base, offset) == (0xFFFFFFFF if expected is None else expected)


@pytest.mark.parametrize("x", [1.0, 0.5, 3.7, -8.0, 1e-310, 1e308, 5e-324, 0.0, 2.0**-1022])
def test_frexp(x):
    assert composed_functions.frexp(x) == math.frexp(x)


def matrices(n):
    """Random matrices, and the ones that decompositions stumble over."""
    a = random.normal(size=(n, n))
    yield from (
        a,
        -a,
        np.round(2 * a),
        np.eye(n),
        -np.eye(n),
        np.zeros((n, n)),
        1e-12 * a,
        1e12 * a,
    )
    yield np.diag(a[0])
    yield np.outer(a[0], a[1])
    repeated = a.copy()
    repeated[:, 0] = a[:, 1]
    yield repeated
    yield a @ np.diag([1e-6] * (n - 1) + [1.0])


def near(a, b, size=1.0):
    np.testing.assert_allclose(np.asarray(a), b, atol=1e-13 * max(size, 1e-300), rtol=0)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("trial", range(8))
def test_polar_and_singular_values(n, trial):
    for a in matrices(n):
        size = 30 * np.abs(a).max()
        u, s, v = map(np.asarray, linear_algebra.svd(Matrix(a)))
        near(u @ s @ v.T, a, size)
        near(u @ u.T, np.eye(n), 30)
        near(v @ v.T, np.eye(n), 30)
        near(s, np.diag(np.diag(s)), 0)
        near(np.abs(np.diag(s)), np.linalg.svd(a)[1], size)
        assert (np.diag(s)[:-1] >= 0).all()
        if n == 3:
            near([np.linalg.det(u), np.linalg.det(v)], [1, 1], 30)
        q, p = map(np.asarray, linear_algebra.polar_decompose(Matrix(a)))
        near(q @ p, a, size)
        near(q @ q.T, np.eye(n), 30)
        near(p, p.T, 30 * size)
        assert np.linalg.eigvalsh(p + p.T).min() >= -1e-12 * size


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_eigenvalues_of_symmetric_matrices(n):
    for a in matrices(n):
        a = a + a.T
        size = 100 * np.abs(a).max()
        values, vectors = map(np.asarray, linear_algebra.sym_eig(Matrix(a)))
        near(values, np.linalg.eigvalsh(a), size)
        near(vectors @ np.diag(values) @ vectors.T, a, size)
        near(vectors @ vectors.T, np.eye(n), 100)
        w, q = np.linalg.eigh(a)
        projected = np.asarray(linear_algebra.make_spd(Matrix(a)))
        near(projected, q @ np.diag(np.maximum(w, 0)) @ q.T, size)


def test_complex_eigenvalues():
    cases = [random.normal(size=(2, 2)) for _ in range(20)]
    cases += [np.array(x) for x in ([[1.0, 2.0], [-3.0, 1.0]], [[2.0, 0.0], [0.0, -1.0]])]
    for a in cases:
        values, vectors = map(np.asarray, linear_algebra.eig(Matrix(a)))
        w, q = values @ [1, 1j], vectors[0::2] + 1j * vectors[1::2]
        np.testing.assert_allclose(a @ q, q * w, atol=1e-12)
        np.testing.assert_allclose(np.linalg.norm(q, axis=0), 1)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_solve(n):
    for _ in range(10):
        a, b = random.normal(size=(n, n)), random.normal(size=n)
        a[0, 0] = 0.0 if n > 1 else a[0, 0]
        x = np.asarray(linear_algebra.solve(Matrix(a), Vector(b)))
        np.testing.assert_allclose(a @ x, b, atol=1e-10)
