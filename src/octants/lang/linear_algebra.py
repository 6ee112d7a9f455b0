"""Decompositions of small matrices, written in the language itself.

They are differentiable because they are iterations of differentiable steps that converge together
with their derivatives. A derivative exists where the decomposition does not jump: of singular
vectors and eigenvectors only where the values are distinct, of polar factors wherever the matrix is
regular. Elsewhere it is finite.

Vectors of equal values may be turned into each other. Their derivatives leave out that rotation. So
the products ``U @ V.transpose()`` and ``U @ S @ V.transpose()`` and symmetric functions of the
values have the right derivatives, but no other functions of equal values and their vectors, such as
``V @ D @ V.transpose()`` with exponentials of the values in D.
"""

from __future__ import annotations

from typing import Any

from octants.lang.directives import static, static_assert
from octants.lang.library_function_marks import library_function
from octants.lang.scalar_functions import (
    abs,  # noqa: A004
    as_floats,
    max,  # noqa: A004
    select,
    sqrt,
    stop_grad,
    with_derivative_of,
)
from octants.types.matrix_values import Matrix, Vector

SWEEPS_OF_3 = 6
MOST_SWEEPS = 10
"""Jacobi's method converges after 4 sweeps of 3 rows, 8 of 6; its derivatives one sweep later."""

NEWTON_STEPS = 8
NEARLY_SINGULAR = 1e-10
"""Below this determinant, for a norm of 1, polar factors come from singular vectors."""

NOISE = 0.01
"""The hundredth part of what counts as a rounding error adds nothing to a number."""


# -- polar decomposition ---------------------------------------------------------------------------


@library_function
def polar_decompose(A: Any, dt: Any = None) -> Any:  # noqa: N803
    """Orthogonal U and symmetric, positive semidefinite P with ``A = U @ P``, of 2 or 3 rows.

    U reflects if the determinant of `A` is negative. Its derivative exists for all regular `A`.
    `dt` is the type to compute in; without it, that of `A`.
    """
    static_assert(A.n == A.m and A.n in (2, 3), "polar_decompose is for matrices of 2 or 3 rows")
    a = as_floats(A, dt)
    scaled = a / stop_grad(_largest(a))
    if static(A.n == 2):
        u = _polar_factor_2(scaled)
        return u, u.transpose() @ a
    else:
        u = _polar_factor_3(scaled)
        return u, u.transpose() @ a


@library_function
def _polar_factor_2(a: Any) -> Any:
    """The direction of A plus (or minus) its cofactors, which is a scaled rotation (reflection)."""
    s = select(a[0, 0] * a[1, 1] < a[0, 1] * a[1, 0], -1.0, 1.0)
    p = a[0, 0] + s * a[1, 1]
    q = a[1, 0] - s * a[0, 1]
    norm = sqrt(p * p + q * q)
    safe = select(norm == 0, 1.0, norm)
    c = select(norm == 0, 1.0, p / safe)
    t = select(norm == 0, 0.0, q / safe)
    return Matrix([[c, -s * t], [t, s * c]])


@library_function
def _polar_factor_3(a: Any) -> Any:
    """Newton's iteration for the nearest orthogonal matrix, scaled (Higham, 1986)."""
    size = stop_grad(a.norm())
    x = a / select(size == 0, 1.0, size)
    if abs(x.determinant()) > NEARLY_SINGULAR:
        for _ in range(NEWTON_STEPS):
            y = x.inverse().transpose()
            scale = sqrt(y.norm() / x.norm())
            x = 0.5 * (scale * x + y / scale)
    else:
        u, sigma, v = _svd_3(x)
        # The third singular value carries the sign of the determinant.
        last = select(sigma[2, 2] < 0, -1.0, 1.0)
        x = u @ Matrix([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, last]]) @ v.transpose()
    return x


# -- singular values -------------------------------------------------------------------------------


@library_function
def svd(A: Any, dt: Any = None) -> Any:  # noqa: N803
    """U, S and V with ``A = U @ S @ V.transpose()`` for a matrix `A` of 2 or 3 rows.

    S is diagonal, U and V are orthogonal, singular values descend. For 3 rows U and V are
    rotations, and the last singular value has the sign of the determinant of `A`. Derivatives exist
    where the singular values are distinct. Where they are equal, as at a rotation, so do those of
    ``U @ V.transpose()``, ``U @ S @ V.transpose()``, and symmetric functions of the singular
    values; second derivatives of the first two; but not those of products with other functions of
    S, or with another matrix of its diagonal. `dt` is the type to compute in; without it, that of
    `A`.
    """
    static_assert(A.n == A.m and A.n in (2, 3), "svd is for matrices of 2 or 3 rows")
    a = as_floats(A, dt)
    size = stop_grad(_largest(a))
    if static(A.n == 2):
        u, s, v = _svd_2(a / size)
        return u, size * s, v
    else:
        u, s, v = _svd_3(a / size)
        return u, size * s, v


@library_function
def _largest(a: Any) -> Any:
    """The largest absolute value of an element, or 1 where all are zero."""
    largest = abs(a).max()
    return select(largest == 0, 1.0, largest)


@library_function
def _rotation(h: Any, g: Any, size: Any) -> Any:
    """Cosine and sine of Jacobi's rotation for a difference h of squares and an inner product g.

    The form without a quotient ``h / g`` has the right derivative at g = 0 too. Where both are
    rounding errors of `size`, each rotation will do. That one counts as a constant, since its
    derivative, a quotient of rounding errors, would not cancel out of what does not depend on it.
    """
    divisor = h + select(h < 0, -1.0, 1.0) * sqrt(h * h + 4 * g * g)
    t = 2 * g / select(divisor == 0, 1.0, divisor)
    c = 1 / sqrt(1 + t * t)
    s = c * t
    is_noise = size + NOISE * (abs(h) + abs(g)) == size
    cosine = with_derivative_of(c, select(is_noise, 0.0, c))
    return cosine, with_derivative_of(s, select(is_noise, 0.0, s))


@library_function
def _nearer_to_factor(u: Any, b: Any) -> Any:
    """A step of Newton's method from U, near the orthogonal factor of B, to it."""
    m = u.transpose() @ b
    turn = m * 0
    size = m[0, 0] * 0
    for k in static(range(u.n)):
        size += abs(m[k, k])
    for i in static(range(u.n)):
        for j in static(range(i + 1, u.n)):
            total = m[i, i] + m[j, j]
            is_zero = size + NOISE * abs(total) == size
            angle = select(is_zero, 0.0, (m[i, j] - m[j, i]) / select(is_zero, 1.0, total))
            angle = with_derivative_of(0.0, angle)  # its value is a rounding error
            turn[i, j] = angle
            turn[j, i] = -angle
    return u + u @ (turn + 0.5 * turn @ turn)


@library_function
def _with_derivative_of_factor(u: Any, b: Any) -> Any:
    """U, and S with ``b == U @ S``, with the derivatives for which S stays symmetric.

    S is diagonal. Newton's method starts from a constant: in the derivatives of the columns, those
    of equal length may be turned against each other, and those of short ones are inexact.
    """
    x = stop_grad(u)
    for _ in static(range(2)):  # the second step is for second derivatives
        x = _nearer_to_factor(x, b)
    factor = with_derivative_of(u, x)
    m = u.transpose() @ b
    s = m * 0
    product = factor.transpose() @ b
    for i in static(range(u.n)):
        for j in static(range(u.n)):
            value = m[i, i] if static(i == j) else 0.0
            s[i, j] = with_derivative_of(value, product[i, j])
    return factor, s


@library_function
def _unit(x: Any, otherwise: Any) -> Any:
    """``x`` over its norm, or another vector where that is zero."""
    norm = x.norm()
    return select(norm == 0, otherwise, x / select(norm == 0, 1.0, norm))


@library_function
def _svd_2(a: Any) -> Any:
    """One rotation of the columns makes them orthogonal; their norms are the singular values."""
    p, q = a[:, 0], a[:, 1]
    c, s = _rotation(q.norm_sqr() - p.norm_sqr(), p.dot(q), p.norm_sqr() + q.norm_sqr())
    x, y = c * p - s * q, s * p + c * q
    swap = x.norm_sqr() < y.norm_sqr()
    first, second = select(swap, y, x), select(swap, -x, y)
    v = select(swap, Matrix([[s, -c], [c, s]]), Matrix([[c, s], [-s, c]]))
    u = _unit(first, Vector([1.0, 0.0]))
    normal = Vector([-u[1], u[0]])
    side = select(normal.dot(second) < 0, -1.0, 1.0)
    both = Matrix([[u[0], side * normal[0]], [u[1], side * normal[1]]])
    factor, sigma = _with_derivative_of_factor(both, Matrix.cols([first, second]))
    return factor, sigma, v


@library_function
def _svd_3(a: Any) -> Any:
    """Rotations of pairs of columns until all are orthogonal (one-sided Jacobi)."""
    b = a
    v = a * 0 + Matrix.identity(float, 3)
    for _ in range(SWEEPS_OF_3):
        for p, q in static(((0, 1), (0, 2), (1, 2))):
            x, y = b[:, p], b[:, q]
            h, size = y.norm_sqr() - x.norm_sqr(), y.norm_sqr() + x.norm_sqr()
            c, s = _rotation(h, x.dot(y), size)
            b = _turn_columns(b, p, q, c, s)
            v = _turn_columns(v, p, q, c, s)
    for p, q in static(((0, 1), (0, 2), (1, 2))):
        order = b[:, p].norm_sqr() < b[:, q].norm_sqr()
        b = select(order, _swap_columns(b, p, q), b)
        v = select(order, _swap_columns(v, p, q), v)
    return _left_vectors(b, v)


@library_function
def _turn_columns(x: Any, p: int, q: int, c: Any, s: Any) -> Any:
    """The matrix with two of its columns turned into each other by an angle."""
    y = +x
    for k in static(range(x.n)):
        y[k, p] = c * x[k, p] - s * x[k, q]
        y[k, q] = s * x[k, p] + c * x[k, q]
    return y


@library_function
def _swap_columns(x: Any, p: int, q: int) -> Any:
    """The matrix with two of its columns turned into each other by a right angle."""
    y = +x
    for k in static(range(x.n)):
        y[k, p] = x[k, q]
        y[k, q] = -x[k, p]
    return y


@library_function
def _left_vectors(b: Any, v: Any) -> Any:
    """U, S and V from orthogonal columns in descending order; U is a rotation."""
    x, y = b[:, 0], b[:, 1]
    u = _unit(x, Vector([1.0, 0.0, 0.0]))
    across = select(abs(u[0]) < 0.6, Vector([0.0, u[2], -u[1]]), Vector([-u[2], 0.0, u[0]]))
    w = _unit(y - u.dot(y) * u, across.normalized())
    w = _unit(w - u.dot(w) * u, across.normalized())
    factor, sigma = _with_derivative_of_factor(Matrix.cols([u, w, u.cross(w)]), b)
    return factor, sigma, v


# -- eigenvalues -----------------------------------------------------------------------------------


@library_function
def sym_eig(A: Any, dt: Any = None) -> Any:  # noqa: N803
    """The ascending eigenvalues of a symmetric matrix of up to 6 rows, and its eigenvectors.

    Gives a vector and an orthogonal matrix; column k belongs to value k. Derivatives of
    eigenvectors, and of matrices made from them, exist where the values are distinct, those of
    symmetric functions of the values everywhere.

    Args:
        A: the matrix; of one that is not symmetric, the mean of it and its transpose is taken.
        dt: the type to compute in; without it, that of `A`.
    """
    static_assert(A.n == A.m and A.n <= 6, "sym_eig is for square matrices of up to 6 rows")
    size, s, v = _diagonalised(as_floats(A, dt))
    values = Vector([s[k, k] for k in static(range(A.n))])
    for p in static(range(A.n)):
        for q in static(range(p + 1, A.n)):
            order = values[q] < values[p]
            low, high = select(order, values[q], values[p]), select(order, values[p], values[q])
            values[p] = low
            values[q] = high
            v = select(order, _swap_columns(v, p, q), v)
    return size * values, v


@library_function
def _diagonalised(a: Any) -> Any:
    """A number, a diagonal matrix S and V: the number times ``V @ S @ V.transpose()`` is A."""
    size = stop_grad(_largest(a))
    s = 0.5 / size * (a + a.transpose())
    v = a * 0 + Matrix.identity(float, a.n)
    for _ in range(static(1 if a.n == 2 else SWEEPS_OF_3 if a.n == 3 else MOST_SWEEPS)):
        for p in static(range(a.n)):
            for q in static(range(p + 1, a.n)):
                c, t = _rotation(s[q, q] - s[p, p], s[p, q], abs(s[p, p]) + abs(s[q, q]))
                s = _turn_columns(_turn_columns(s, p, q, c, t).transpose(), p, q, c, t)
                v = _turn_columns(v, p, q, c, t)
    return size, s, v


@library_function
def make_spd(A: Any, dt: Any = None) -> Any:  # noqa: N803
    """The positive semidefinite matrix nearest to a symmetric `A`: negative eigenvalues become 0.

    `dt` is the type to compute in; without it, that of `A`.
    """
    static_assert(A.n == A.m and A.n <= 6, "make_spd is for square matrices of up to 6 rows")
    size, s, v = _diagonalised(as_floats(A, dt))
    positive = s * 0
    for i in static(range(A.n)):
        for j in static(range(A.n)):
            if static(i == j):
                positive[i, i] = max(s[i, i], 0)
            else:
                stays = (s[i, i] > 0) & (s[j, j] > 0)
                positive[i, j] = with_derivative_of(0.0, select(stays, s[i, j], 0.0))
    return v @ (size * positive) @ v.transpose()


@library_function
def eig(A: Any, dt: Any = None) -> Any:  # noqa: N803
    """The complex eigenvalues and eigenvectors of a 2x2 matrix `A`.

    Gives a 2x2 matrix with (real, imaginary) of a value in each row, and a 4x2 matrix whose columns
    are vectors (real 0, imaginary 0, real 1, imaginary 1). `dt` is the type to compute in; without
    it, that of `A`.
    """
    static_assert(A.n == A.m and A.n == 2, "eig is for 2x2 matrices")
    a = as_floats(A, dt)
    middle = 0.5 * (a[0, 0] + a[1, 1])
    half = 0.5 * (a[0, 0] - a[1, 1])
    square = half * half + a[0, 1] * a[1, 0]
    root = sqrt(abs(square))
    real, imaginary = select(square < 0, 0.0, root), select(square < 0, root, 0.0)
    values = Matrix([[middle + real, imaginary], [middle - real, -imaginary]])
    first = _eigenvector_2(a, half, real, imaginary)
    second = _eigenvector_2(a, half, -real, -imaginary)
    return values, Matrix.cols([first, second])


@library_function
def _eigenvector_2(a: Any, half: Any, real: Any, imaginary: Any) -> Any:
    """The unit vector in the null space of A minus the value ``middle + real + i imaginary``."""
    x = Vector([a[0, 1], 0.0, real - half, imaginary])
    y = Vector([real + half, imaginary, a[1, 0], 0.0])
    longer = select(x.norm_sqr() < y.norm_sqr(), y, x)
    is_first = (real > 0) | (imaginary > 0)
    unit = select(is_first, Vector([1.0, 0.0, 0.0, 0.0]), Vector([0.0, 0.0, 1.0, 0.0]))
    return _unit(longer, unit)


# -- linear systems --------------------------------------------------------------------------------


@library_function
def solve(A: Any, b: Any, dt: Any = None) -> Any:  # noqa: N803
    """The vector x with ``A @ x == b``, by elimination with pivots; NaN where A is singular.

    `dt` is the type to compute in; without it, that of `A`.
    """
    static_assert(A.n == A.m and A.n == b.n, "solve needs a square matrix and a vector as long")
    a, y = as_floats(A, dt), as_floats(b, dt)
    for k in static(range(A.n)):
        for i in static(range(k + 1, A.n)):
            swap = abs(a[i, k]) > abs(a[k, k])
            for j in static(range(k, A.n)):
                upper, lower = a[k, j], a[i, j]
                a[k, j] = select(swap, lower, upper)
                a[i, j] = select(swap, upper, lower)
            above, below = y[k], y[i]
            y[k] = select(swap, below, above)
            y[i] = select(swap, above, below)
        for i in static(range(k + 1, A.n)):
            factor = a[i, k] / a[k, k]
            for j in static(range(k + 1, A.n)):
                a[i, j] -= factor * a[k, j]
            y[i] -= factor * y[k]
    for k in static(reversed(range(A.n))):
        for j in static(range(k + 1, A.n)):
            y[k] -= a[k, j] * y[j]
        y[k] /= a[k, k]
    return y


@library_function
def outer(a: Any, b: Any) -> Any:
    """The matrix of the products of an element of the vector `a` and one of the vector `b`."""
    return a.outer_product(b)
