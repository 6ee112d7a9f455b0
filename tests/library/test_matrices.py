"""Every method of vectors and matrices against numpy, and how they are made."""

from __future__ import annotations

import numpy as np
import pytest

from octants.diagnostics.exceptions import OctantsTypeError
from octants.frontend.calls import builtins
from octants.frontend.context import NOT_FOUND
from octants.frontend.values import arithmetic, matrices
from octants.types.matrix_types import matrix, vector
from octants.types.matrix_values import Matrix, Vector
from octants.types.scalars import f32, f64, i32, u1
from tests.library.harness import Run, evaluate

NODE = None
random = np.random.default_rng(7)
V3, W3 = random.normal(size=(2, 3))
M2, M3, M4 = (random.normal(size=(n, n)) for n in (2, 3, 4))
M23 = random.normal(size=(2, 3))


def method(name, x, *args, **kwargs):
    return evaluate(lambda c, v, *a: matrices.method(c, NODE, v, name, a, kwargs), x, *args)


def call(function, *args, **kwargs):
    """A call of a function of the library."""
    handler = builtins.handler_of(function)
    return evaluate(lambda c, *a: handler(c, NODE, list(a), kwargs), *args)


def matmul(a, b):
    return evaluate(lambda c, x, y: arithmetic.binary(c, "@", x, y), a, b)


METHODS = {
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "norm": np.linalg.norm,
    "norm_sqr": lambda x: (x * x).sum(),
    "norm_inv": lambda x: 1 / np.linalg.norm(x),
    "normalized": lambda x: x / np.linalg.norm(x),
    "any": np.any,
    "all": np.all,
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("x", [V3, M2, M23, M4], ids=["v3", "m2", "m23", "m4"])
def test_methods_of_any_shape(name, x):
    result = method(name, Run(f64, x))
    np.testing.assert_allclose(result.value, METHODS[name](x), rtol=1e-13)
    assert result.dtype is (u1 if name in ("any", "all") else f64)
    host = getattr(Matrix(x), name)()
    np.testing.assert_allclose(np.asarray(host), METHODS[name](x), rtol=1e-13)


SQUARE = {"trace": np.trace, "determinant": np.linalg.det, "inverse": np.linalg.inv}


@pytest.mark.parametrize("name", SQUARE)
@pytest.mark.parametrize("x", [np.array([[2.5]]), M2, M3, M4], ids=["m1", "m2", "m3", "m4"])
def test_methods_of_square_matrices(name, x):
    result = method(name, Run(f64, x)).value
    np.testing.assert_allclose(result, SQUARE[name](x), rtol=1e-10)
    np.testing.assert_allclose(np.asarray(getattr(Matrix(x), name)()), SQUARE[name](x), rtol=1e-10)


def test_products():
    a, b = Run(f64, V3), Run(f64, W3)
    np.testing.assert_allclose(method("dot", a, b).value, V3 @ W3)
    np.testing.assert_allclose(method("cross", a, b).value, np.cross(V3, W3))
    two = method("cross", Run(f64, V3[:2]), Run(f64, W3[:2])).value
    np.testing.assert_allclose(two, V3[0] * W3[1] - V3[1] * W3[0])
    np.testing.assert_allclose(method("outer_product", a, b).value, np.outer(V3, W3))
    np.testing.assert_allclose(method("transpose", Run(f64, M23)).value, M23.T)
    frobenius = method("frobenius_inner", Run(f64, M23), Run(f64, 2 * M23)).value
    np.testing.assert_allclose(frobenius, 2 * (M23 * M23).sum())


@pytest.mark.parametrize(("a", "b"), [(M23, M3), (M3, V3), (V3, M3), (V3, W3), (M23.T, M23)])
def test_matmul(a, b):
    np.testing.assert_allclose(matmul(Run(f64, a), Run(f64, b)).value, a @ b)
    np.testing.assert_allclose(np.asarray(Matrix(a) @ Matrix(b)), a @ b)


def test_matmul_takes_the_common_type():
    product = matmul(Run(i32, [[1, 2], [3, 4]]), Run(f32, [0.5, 1]))
    assert product.dtype is f32
    np.testing.assert_array_equal(product.value, [2.5, 5.5])
    with pytest.raises(OctantsTypeError, match="OCT203"):
        matmul(Run(f64, M23), Run(f64, M23))
    with pytest.raises(OctantsTypeError, match="OCT201"):
        matmul(Run(f64, M23), 2.0)


def test_integers_stay_integers_where_they_can():
    x = Run(i32, [1, 2, 3])
    for name, value in (("sum", 6), ("norm_sqr", 14), ("max", 3)):
        result = method(name, x)
        assert (result.dtype, result.value) == (i32, value)
    norm = method("norm", x)
    assert norm.dtype is f32
    assert norm.value == pytest.approx(14**0.5)
    inverse = method("inverse", Run(i32, [[1, 2], [3, 4]]))
    assert inverse.dtype is f32
    np.testing.assert_allclose(inverse.value, [[-2, 1], [1.5, -0.5]], rtol=1e-6)
    determinant = method("determinant", Run(i32, [[1, 2], [3, 4]]))
    assert (determinant.dtype, determinant.value) == (i32, -2)


def test_eps_and_zero():
    v, zero = Run(f64, [1.0, 0, 0]), Run(f64, [0.0, 0, 0])
    assert method("norm", v, 0.1).value == pytest.approx(1.1**0.5)
    assert method("norm_inv", v, 0.1).value == pytest.approx(1.1**-0.5)
    np.testing.assert_allclose(method("normalized", v, 0.1).value, [1 / 1.1, 0, 0])
    np.testing.assert_array_equal(method("normalized", zero).value, [0, 0, 0])
    assert method("norm", zero).value == 0
    assert method("norm_inv", zero).value == np.inf


def test_cast_and_fill():
    cast = method("cast", Run(f64, [1.7, -2.7]), i32)
    assert cast.dtype is i32
    np.testing.assert_array_equal(cast.value, [1, -2])
    filled = evaluate(
        lambda c, v: matrices.changed(c, NODE, v, "fill", [2.7], {}), Run(i32, [1, 2])
    )
    np.testing.assert_array_equal(filled.value, [2, 2])
    assert filled.dtype is i32


def test_attributes():
    def attribute(name, x):
        return evaluate(lambda c, v: matrices.attribute(c, NODE, v, name), x)

    v = Run(i32, [1, 2, 3])
    assert attribute("n", v).value == 3
    assert attribute("m", Run(f64, M23)).value == 3
    assert attribute("y", v).value == 2
    assert attribute("b", v).value == 3
    np.testing.assert_array_equal(attribute("zyx", v).value, [3, 2, 1])
    np.testing.assert_array_equal(attribute("xxxx", v).value, [1, 1, 1, 1])
    for name in ("w", "xg", "foo", "xyzxy"):
        assert attribute(name, v).value is NOT_FOUND
    assert attribute("x", Run(f64, M2)).value is NOT_FOUND


MADE = [
    (lambda x, y: (Vector, [[x, y, 3]]), [1, 2.5, 3], f32),
    (lambda x, y: (Vector, [[x, 7]]), [1, 7], i32),
    (lambda x, y: (Vector, [[x, y], f64]), [1, 2.5], f64),
    (lambda x, y: (Matrix, [[[x, y], [3, 4]]]), [[1, 2.5], [3, 4]], f32),
    (lambda x, y: (Matrix, [[x, y]]), [1, 2.5], f32),
    (lambda x, y: (Matrix.zero, [f64, 2]), [0, 0], f64),
    (lambda x, y: (Vector.zero, [int, 2]), [0, 0], i32),
    (lambda x, y: (Matrix.one, [float, 1, 2]), [[1, 1]], f32),
    (lambda x, y: (Matrix.identity, [f64, 2]), [[1, 0], [0, 1]], f64),
    (lambda x, y: (Vector.unit, [3, 1]), [0, 1, 0], i32),
    (lambda x, y: (Vector.unit, [3, x, f32]), [0, 1, 0], f32),
    (lambda x, y: (Matrix.diag, [2, y]), [[2.5, 0], [0, 2.5]], f32),
    (lambda x, y: (Matrix.rows, [[[x, 2], [3, y]]]), [[1, 2], [3, 2.5]], f32),
    (lambda x, y: (Matrix.cols, [[[x, 2], [3, y]]]), [[1, 3], [2, 2.5]], f32),
    (lambda x, y: (vector(3, f64), [x, y, 3]), [1, 2.5, 3], f64),
    (lambda x, y: (vector(3, i32), [y]), [2, 2, 2], i32),
    (lambda x, y: (vector(3, float), [[x, 2, y]]), [1, 2, 2.5], f32),
    (lambda x, y: (matrix(2, 2, f32), [x, 2, 3, y]), [[1, 2], [3, 2.5]], f32),
    (lambda x, y: (matrix(2, 2, f32), [[x, 2], [3, y]]), [[1, 2], [3, 2.5]], f32),
]


@pytest.mark.parametrize("case", range(len(MADE)))
def test_construction(case):
    make, expected, dtype = MADE[case]

    def build(context, x, y):
        function, args = make(x, y)
        return builtins.handler_of(function)(context, NODE, args, {})

    result = evaluate(build, Run(i32, 1), Run(f32, 2.5))
    np.testing.assert_array_equal(result.value, expected)
    assert result.dtype is dtype


def test_construction_from_vectors():
    a, b = Run(f32, [1, 2]), Run(f32, [3, 4])
    joined = evaluate(
        lambda c, x, y: builtins.handler_of(vector(4, f32))(c, NODE, [x, 5, 6], {}), a, b
    )
    np.testing.assert_array_equal(joined.value, [1, 2, 5, 6])
    stacked = evaluate(lambda c, x, y: matrices.make_matrix(c, NODE, [x, y]), a, b)
    np.testing.assert_array_equal(stacked.value, [[1, 2], [3, 4]])


WRONG = [
    (Vector, [[]], "OCT210"),
    (Vector, [3], "OCT210"),
    (Vector, [[[1, 2], [3, 4]]], "OCT210"),
    (Matrix, [[[1, 2], [3]]], "OCT210"),
    (Vector, [[1, 2], "f32"], "OCT206"),
    (Matrix.zero, [f32, 0], "OCT210"),
    (vector(3, f32), [1, 2], "OCT210"),
    (vector(3, f32), [[1]], "OCT210"),
    (vector(3, f32), [Run(f32, [1])], "OCT210"),
    (Vector, [], "OCT153"),
]


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_wrong_construction(case):
    function, args, code = WRONG[case]
    with pytest.raises(OctantsTypeError, match=code):
        call(function, *args)


def test_wrong_shapes():
    with pytest.raises(OctantsTypeError, match="OCT211"):
        method("determinant", Run(f64, M23))
    with pytest.raises(OctantsTypeError, match="OCT211"):
        method("transpose", Run(f64, V3))
    with pytest.raises(OctantsTypeError, match="OCT203"):
        method("dot", Run(f64, V3), Run(f64, V3[:2]))
    with pytest.raises(OctantsTypeError, match="OCT211"):
        method("inverse", Run(f64, np.eye(5)))
    with pytest.raises(OctantsTypeError, match="OCT153"):
        method("norm", Run(f64, V3), 1, 2)
    assert method("no_such_method", Run(f64, V3)).value is NOT_FOUND
