"""Decompositions of small matrices, written in the language itself.

Iterations compute the values of singular values, eigenvalues and their vectors. Their derivatives
come from perturbation theory: in the basis of the vectors that were found the matrix is diagonal,
and only its derivatives are not. Those of the values are exact so, however close the values are;
those of vectors are quotients by differences of values. Terms of second order are there for second
derivatives.

A derivative exists where the decomposition does not jump: of singular vectors and eigenvectors only
where the values are distinct, of polar factors wherever the matrix is regular. Elsewhere it is
finite.

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
    select,
    sqrt,
    stop_grad,
    with_derivative_of,
)
from octants.types.matrix_values import Matrix, Vector

SWEEPS_OF_3 = 5
MOST_SWEEPS = 9
"""Jacobi's method converges after 4 sweeps of 3 rows, 8 of 6."""

NEWTON_STEPS = 8
NEARLY_SINGULAR = 1e-10
"""Below this determinant, for a norm of 1, polar factors come from singular vectors.

So they do where it may be a rounding error: in f32 below 6e-6.
"""

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
    determinant = abs(x.determinant())
    if determinant > NEARLY_SINGULAR and 1 + NOISE * determinant > 1:
        for _ in range(NEWTON_STEPS):
            p, q, r = x[0, :], x[1, :], x[2, :]
            cofactors = Matrix.rows([q.cross(r), r.cross(p), p.cross(q)])
            y = cofactors / p.dot(q.cross(r))
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
    S, or with another matrix of its diagonal. Where singular values nearly agree, symmetric
    functions of them keep all digits, and functions of U and V lose as many as the values have in
    common; the rotation that `polar_decompose` gives loses none. `dt` is the type to compute in;
    without it, that of `A`.
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
def _rotation(h: Any, g: Any) -> Any:
    """Cosine and sine of Jacobi's rotation for a difference h of squares and an inner product g."""
    divisor = h + select(h < 0, -1.0, 1.0) * sqrt(h * h + 4 * g * g)
    t = 2 * g / select(divisor == 0, 1.0, divisor)
    c = 1 / sqrt(1 + t * t)
    return c, c * t


@library_function
def _angle(x: Any, divisor: Any, size: Any) -> Any:
    """The quotient of x, whose value is 0, or a constant where the divisor is noise of `size`.

    A rotation that equal values permit counts as a constant, since its derivative is a quotient of
    rounding errors, and would not cancel out of what does not depend on the rotation.
    """
    is_noise = size + NOISE * abs(divisor) == size
    return with_derivative_of(0.0, select(is_noise, 0.0, x / select(is_noise, 1.0, divisor)))


@library_function
def _diagonal(values: Any) -> Any:
    """The diagonal matrix of some numbers."""
    n = static(values.n)
    return Matrix([[values[i] if static(i == j) else 0.0 for j in range(n)] for i in range(n)])


@library_function
def _rotated(v: Any, x: Any) -> Any:
    """V, whose derivatives rotate its columns by the exponential of a skew matrix X of value 0."""
    return with_derivative_of(v, v + v @ (x + 0.5 * x @ x))


@library_function
def _diagonalised_perturbation(c: Any) -> Any:
    """A skew X and a symmetric Z whose conjugate by the exponential of X is the symmetric matrix C.

    All are diagonal but for derivatives, of Z those that belong to pairs of equal values. X mixes
    only what is distinct.
    """
    x, half = c * 0, c * 0
    for i in static(range(c.n)):
        for j in static(range(i + 1, c.n)):
            gap, size = c[j, j] - c[i, i], abs(c[i, i]) + abs(c[j, j])
            x[i, j] = _angle(c[i, j], gap, size)
            x[j, i] = -x[i, j]
            half[i, j] = c[i, j] - 0.5 * gap * x[i, j]
            half[j, i] = half[i, j]
    product = half @ x
    z = c + product + product.transpose()
    for i in static(range(c.n)):
        for j in static(range(i + 1, c.n)):
            gap, size = c[j, j] - c[i, i], abs(c[i, i]) + abs(c[j, j])
            x[i, j] = _angle(z[i, j], gap, size)
            x[j, i] = -x[i, j]
            z[i, j] -= gap * x[i, j]
            z[j, i] = z[i, j]
    return x, with_derivative_of(c, z)


@library_function
def _polar_angles(b: Any) -> Any:
    """The skew X whose exponential is the orthogonal factor of B, diagonal but for derivatives."""
    x, beside = b * 0, +b
    size = b[0, 0] * 0
    for k in static(range(b.n)):
        size += abs(b[k, k])
        beside[k, k] *= 0
    for i in static(range(b.n)):
        for j in static(range(i + 1, b.n)):
            x[i, j] = _angle(b[i, j] - b[j, i], b[i, i] + b[j, j], size)
            x[j, i] = -x[i, j]
    product, square = x @ beside, x @ x
    for i in static(range(b.n)):
        for j in static(range(i + 1, b.n)):
            second = product[j, i] - product[i, j] + 0.5 * (b[j, j] - b[i, i]) * square[i, j]
            more = _angle(second, b[i, i] + b[j, j], size)
            x[i, j] += more
            x[j, i] -= more
    return x


@library_function
def _factors(a: Any, left: Any, columns: Any, right: Any) -> Any:
    """U, S and V with derivatives, from singular vectors and orthogonal columns ``A @ right``.

    S has derivatives beside its diagonal where V leaves out a rotation.
    """
    u, v = stop_grad(left), stop_grad(right)
    values = Vector([left[:, k].dot(columns[:, k]) for k in static(range(a.n))])
    s = _diagonal(stop_grad(values))
    m = with_derivative_of(s, u.transpose() @ a @ v)
    x, _ = _diagonalised_perturbation(m.transpose() @ m)
    b = _rotated(m, x)
    y = _polar_angles(b)
    sigma = with_derivative_of(s, _rotated(b.transpose(), y).transpose())
    return _rotated(u, y), sigma, _rotated(v, x)


@library_function
def _unit(x: Any, otherwise: Any) -> Any:
    """``x`` over its norm, or another vector where that is zero."""
    norm = x.norm()
    return select(norm == 0, otherwise, x / select(norm == 0, 1.0, norm))


@library_function
def _svd_2(a: Any) -> Any:
    """One rotation of the columns makes them orthogonal; their norms are the singular values."""
    p, q = a[:, 0], a[:, 1]
    c, s = _rotation(q.norm_sqr() - p.norm_sqr(), p.dot(q))
    x, y = c * p - s * q, s * p + c * q
    swap = x.norm_sqr() < y.norm_sqr()
    first, second = select(swap, y, x), select(swap, -x, y)
    v = select(swap, Matrix([[s, -c], [c, s]]), Matrix([[c, s], [-s, c]]))
    u = _unit(first, Vector([1.0, 0.0]))
    normal = Vector([-u[1], u[0]])
    side = select(normal.dot(second) < 0, -1.0, 1.0)
    both = Matrix([[u[0], side * normal[0]], [u[1], side * normal[1]]])
    return _factors(a, both, Matrix.cols([first, second]), v)


@library_function
def _svd_3(a: Any) -> Any:
    """Rotations of pairs of columns until all are orthogonal (one-sided Jacobi)."""
    b = a
    v = a * 0 + Matrix.identity(float, 3)
    for _ in range(SWEEPS_OF_3):
        for p, q in static(((0, 1), (0, 2), (1, 2))):
            x, y = b[:, p], b[:, q]
            c, s = _rotation(y.norm_sqr() - x.norm_sqr(), x.dot(y))
            b = _turn_columns(b, p, q, c, s)
            v = _turn_columns(v, p, q, c, s)
    for p, q in static(((0, 1), (0, 2), (1, 2))):
        order = b[:, p].norm_sqr() < b[:, q].norm_sqr()
        b = select(order, _swap_columns(b, p, q), b)
        v = select(order, _swap_columns(v, p, q), v)
    return _factors(a, _left_vectors(b), b, v)


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
def _left_vectors(b: Any) -> Any:
    """The rotation U of orthogonal columns in descending order."""
    x, y = b[:, 0], b[:, 1]
    u = _unit(x, Vector([1.0, 0.0, 0.0]))
    across = select(abs(u[0]) < 0.6, Vector([0.0, u[2], -u[1]]), Vector([-u[2], 0.0, u[0]]))
    w = _unit(y - u.dot(y) * u, across)
    w -= u.dot(w) * u
    # What is short now was a rounding error of a multiple of u.
    w = select(w.norm_sqr() < 0.25, across, w).normalized()
    return Matrix.cols([u, w, u.cross(w)])


# -- eigenvalues -----------------------------------------------------------------------------------


@library_function
def sym_eig(A: Any, dt: Any = None) -> Any:  # noqa: N803
    """The ascending eigenvalues of a symmetric matrix of up to 6 rows, and its eigenvectors.

    Gives a vector and an orthogonal matrix; column k belongs to value k. Derivatives of
    eigenvectors, and of matrices made from them, exist where the values are distinct, and lose
    digits where they nearly agree; those of symmetric functions of the values, and of `make_spd`,
    exist everywhere and lose none.

    Args:
        A: the matrix; of one that is not symmetric, the mean of it and its transpose is taken.
        dt: the type to compute in; without it, that of `A`.
    """
    static_assert(A.n == A.m and A.n <= 6, "sym_eig is for square matrices of up to 6 rows")
    size, m, v = _diagonalised(as_floats(A, dt))
    x, z = _diagonalised_perturbation(m)
    return size * Vector([z[k, k] for k in static(range(A.n))]), _rotated(v, x)


@library_function
def _diagonalised(a: Any) -> Any:
    """A number, a diagonal matrix M, ascending, and V: the number times ``V @ M @ V.T`` is A.

    V is a constant, so that M has derivatives beside its diagonal.
    """
    size = stop_grad(_largest(a))
    start = 0.5 / size * (a + a.transpose())
    s = stop_grad(start)
    v = stop_grad(a * 0) + Matrix.identity(float, a.n)
    for _ in range(static(1 if a.n == 2 else SWEEPS_OF_3 if a.n == 3 else MOST_SWEEPS)):
        for p in static(range(a.n)):
            for q in static(range(p + 1, a.n)):
                c, t = _rotation(s[q, q] - s[p, p], s[p, q])
                s = _turn_columns(_turn_columns(s, p, q, c, t).transpose(), p, q, c, t)
                v = _turn_columns(v, p, q, c, t)
    values = Vector([s[k, k] for k in static(range(a.n))])
    for p in static(range(a.n)):
        for q in static(range(p + 1, a.n)):
            order = values[q] < values[p]
            low, high = select(order, values[q], values[p]), select(order, values[p], values[q])
            values[p] = low
            values[q] = high
            v = select(order, _swap_columns(v, p, q), v)
    return size, with_derivative_of(_diagonal(values), v.transpose() @ start @ v), v


@library_function
def make_spd(A: Any, dt: Any = None) -> Any:  # noqa: N803
    """The positive semidefinite matrix nearest to a symmetric `A`: negative eigenvalues become 0.

    `dt` is the type to compute in; without it, that of `A`.
    """
    static_assert(A.n == A.m and A.n <= 6, "make_spd is for square matrices of up to 6 rows")
    size, m, v = _diagonalised(as_floats(A, dt))
    x, z = _diagonalised_perturbation(m)
    positive, beside, change = m * 0, m * 0, m * 0
    for i in static(range(A.n)):
        for j in static(range(A.n)):
            positive[i, j] = select((z[i, i] > 0) & (z[j, j] > 0), z[i, j], 0.0)
            if static(i != j):
                beside[i, j] = positive[i, j]
    for i in static(range(A.n)):
        for j in static(range(A.n)):
            # The matrix product of X and the diagonal would lose digits of the difference.
            change[i, j] = x[i, j] * (positive[j, j] - positive[i, i])
    change += x @ beside - beside @ x
    changed = positive + change + 0.5 * (x @ change - change @ x)
    return size * v @ with_derivative_of(positive, changed) @ v.transpose()


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
