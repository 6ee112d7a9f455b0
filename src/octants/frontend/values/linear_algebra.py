"""Linear algebra on the vectors and matrices of kernels.

Sums are taken from left to right, determinants by cofactors along the first row. Functions that
divide or take roots compute integers in the default float.
"""

from __future__ import annotations

import functools
from typing import Any

from octants.diagnostics.library_errors import ShapesDiffer, WrongOperands, WrongShape
from octants.frontend.context import Context
from octants.frontend.values.expression_values import MatrixValue, describe, is_number
from octants.frontend.values.operands import (
    RunTime,
    apply,
    as_float,
    as_matrix,
    dtype_of,
    number_type,
    operand,
)
from octants.ir.core import Value

MOST_ROWS = 4
"""Cofactors of larger matrices are too many operations."""


# -- products --------------------------------------------------------------------------------------


def matmul(context: Context, a: Any, b: Any) -> RunTime:
    """``a @ b``: vectors count as rows on the left and as columns on the right."""
    if not isinstance(a, MatrixValue) or not isinstance(b, MatrixValue):
        context.fail(WrongOperands("@", describe(a), describe(b), "use `*` to scale"))
    inner = a.shape[-1]
    if inner != b.shape[0]:
        way_out = f"the left one has {inner} columns, the right one {b.shape[0]} rows"
        context.fail(ShapesDiffer("@", describe(a), describe(b), way_out))
    dtype = number_type(context, a, b)
    left, right = as_matrix(context, a, dtype), as_matrix(context, b, dtype)
    columns = b.shape[1] if len(b.shape) == 2 else 1
    products = [
        sum_of_products(context, left.elements[row : row + inner], right.elements[k::columns])
        for row in range(0, len(left.elements), inner)
        for k in range(columns)
    ]
    shape = (*a.shape[:-1], *b.shape[1:])
    return MatrixValue(shape, products) if shape else products[0]


def sum_of_products(context: Context, a: list[Value], b: list[Value]) -> Value:
    """The inner product of two lists of scalars of one type, added from left to right."""
    products = [context.builder.binary("mul", x, y) for x, y in zip(a, b, strict=True)]
    return functools.reduce(functools.partial(context.builder.binary, "add"), products)


def dot(context: Context, x: MatrixValue, other: Any) -> Value:
    """The inner product of two vectors."""
    y = _second(context, "dot", x, other)
    if not x.is_vector:
        context.fail(WrongShape("dot", "vectors", describe(x), "use `@`, or frobenius_inner()"))
    return frobenius_inner(context, x, y)


def frobenius_inner(context: Context, x: MatrixValue, other: Any) -> Value:
    """The sum of the products of corresponding elements."""
    a, b = _of_one_type(context, x, _second(context, "frobenius_inner", x, other))
    return sum_of_products(context, a.elements, b.elements)


def cross(context: Context, x: MatrixValue, other: Any) -> RunTime:
    """The cross product of two vectors of 3; of two vectors of 2, its third component."""
    y = _second(context, "cross", x, other)
    if x.shape not in ((2,), (3,)):
        context.fail(WrongShape("cross", "vectors of 2 or 3 elements", describe(x)))
    left, right = _of_one_type(context, x, y)
    a, b = left.elements, right.elements
    if len(a) == 2:
        return _difference(context, a[0], b[1], a[1], b[0])
    parts = [_difference(context, a[i], b[j], a[j], b[i]) for i, j in ((1, 2), (2, 0), (0, 1))]
    return MatrixValue((3,), parts)


def outer_product(context: Context, x: MatrixValue, other: Any) -> MatrixValue:
    """The matrix of all products of an element of one vector and one of the other."""
    y = _matrix(context, "outer_product", other)
    for vector in (x, y):
        if not vector.is_vector:
            context.fail(WrongShape("outer_product", "vectors", describe(vector)))
    a, b = _of_one_type(context, x, y)
    products = [context.builder.binary("mul", p, q) for p in a.elements for q in b.elements]
    return MatrixValue((x.shape[0], y.shape[0]), products)


def _matrix(context: Context, name: str, x: Any) -> MatrixValue:
    value = operand(context, x)
    if not isinstance(value, MatrixValue):
        context.fail(WrongShape(name, "vectors and matrices", describe(value)))
    return value


def _second(context: Context, name: str, x: MatrixValue, other: Any) -> MatrixValue:
    y = _matrix(context, name, other)
    if y.shape != x.shape:
        context.fail(ShapesDiffer(name, describe(x), describe(y)))
    return y


def _of_one_type(
    context: Context, x: MatrixValue, y: MatrixValue
) -> tuple[MatrixValue, MatrixValue]:
    dtype = number_type(context, x, y)
    return as_matrix(context, x, dtype), as_matrix(context, y, dtype)


def _difference(context: Context, a: Value, b: Value, c: Value, d: Value) -> Value:
    """``a * b - c * d``"""
    builder = context.builder
    return builder.binary("sub", builder.binary("mul", a, b), builder.binary("mul", c, d))


# -- norms -----------------------------------------------------------------------------------------


def norm_sqr(context: Context, x: MatrixValue) -> Value:
    """The sum of the squares of all elements."""
    return frobenius_inner(context, x, x)


def norm(context: Context, x: MatrixValue, eps: Any = 0) -> Value:
    """The square root of ``norm_sqr() + eps``; its derivative at zero is zero."""
    return context.builder.unary("sqrt", _shifted_square(context, x, eps))


def norm_inv(context: Context, x: MatrixValue, eps: Any = 0) -> Value:
    """One over ``norm(eps)``."""
    return context.builder.unary("rsqrt", _shifted_square(context, x, eps))


def normalized(context: Context, x: MatrixValue, eps: Any = 0) -> RunTime:
    """The vector over ``norm() + eps``; zeros stay zeros, with derivative zero."""
    builder = context.builder
    floats = as_float(context, x)
    assert isinstance(floats, MatrixValue)
    length = _plus(context, norm(context, floats), eps)
    zero, one = builder.constant(0, length.type), builder.constant(1, length.type)
    is_zero = builder.compare("eq", length, zero)
    # What is divided by is never zero, so that the branch that is not taken stays finite.
    inverse = builder.binary("div", one, builder.select(is_zero, one, length))
    scale = builder.select(is_zero, zero, inverse)
    return apply(context, "mul", "normalized", length.type, scale, floats)


def _shifted_square(context: Context, x: MatrixValue, eps: Any) -> Value:
    square = norm_sqr(context, as_matrix(context, x, dtype_of(as_float(context, x))))
    return _plus(context, square, eps)


def _plus(context: Context, x: Value, eps: Any) -> Value:
    """``x + eps``, which is x where eps is the number 0."""
    shift = operand(context, eps)
    if is_number(shift) and shift == 0:
        return x
    total = apply(context, "add", "eps", number_type(context, x, shift), x, shift)
    if not isinstance(total, Value):
        context.fail(WrongShape("eps", "a number", describe(shift)))
    return total


# -- square matrices -------------------------------------------------------------------------------


def trace(context: Context, x: MatrixValue) -> Value:
    """The sum of the diagonal."""
    n = _require_square(context, "trace", x)
    return _sum(context, [x.elements[k * (n + 1)] for k in range(n)])


def determinant(context: Context, x: MatrixValue) -> Value:
    """The determinant of a matrix of up to 4 rows."""
    n = _require_cofactors(context, "determinant", x)
    everything = tuple(range(n))
    return Minors(context, x)(everything, everything)


def inverse(context: Context, x: MatrixValue) -> MatrixValue:
    """The inverse of a matrix of up to 4 rows; of a singular one, infinities and NaN."""
    n = _require_cofactors(context, "inverse", x)
    floats = as_float(context, x)
    assert isinstance(floats, MatrixValue)
    builder, everything = context.builder, tuple(range(n))
    one = builder.constant(1, floats.dtype)
    power = _power_near_inverse_size(context, floats) if n > 1 else one
    scaled = [builder.binary("mul", power, element) for element in floats.elements]
    minors = Minors(context, MatrixValue((n, n), scaled))
    scale = builder.binary("div", one, minors(everything, everything))
    elements = []
    for j in range(n):
        for i in range(n):
            rows, columns = _without(everything, i), _without(everything, j)
            cofactor = minors(rows, columns) if n > 1 else one
            signed = builder.unary("neg", cofactor) if (i + j) % 2 else cofactor
            elements.append(builder.binary("mul", builder.binary("mul", signed, scale), power))
    return MatrixValue((n, n), elements)


_LARGE = {"f16": 3, "f32": 22, "f64": 170}
"""The binary exponent from which determinants of a type may overflow, with their derivatives."""


def _power_near_inverse_size(context: Context, x: MatrixValue) -> Value:
    """A power of two for which the product with a large or small matrix is of moderate size.

    A matrix is large if the product of the largest elements of its rows is. One of large and small
    rows is not: its determinant would underflow if all were multiplied.
    """
    builder, exponent, n = context.builder, _LARGE[x.dtype.name], x.shape[0]
    sizes = [builder.unary("abs", element) for element in x.elements]
    largest = functools.partial(functools.reduce, functools.partial(builder.binary, "max"))
    rows = [largest(sizes[k : k + n]) for k in range(0, n * n, n)]
    product = functools.reduce(functools.partial(builder.binary, "mul"), rows)
    power = builder.constant(1.0, x.dtype)
    for fn, size, bound, far in (
        ("gt", product, n * exponent, -2 * exponent),
        ("lt", largest(rows), -exponent, 2 * exponent),
    ):
        is_far = builder.compare(fn, size, builder.constant(2.0**bound, x.dtype))
        power = builder.select(is_far, builder.constant(2.0**far, x.dtype), power)
    return power


class Minors:
    """The determinants of a matrix's square parts, each computed once."""

    def __init__(self, context: Context, x: MatrixValue) -> None:
        self._builder = context.builder
        self._x = x
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], Value] = {}

    def __call__(self, rows: tuple[int, ...], columns: tuple[int, ...]) -> Value:
        """The determinant of these rows and columns, by cofactors of the first of the rows."""
        if len(rows) == 1:
            return self._x.elements[rows[0] * self._x.shape[1] + columns[0]]
        if (rows, columns) not in self._known:
            self._known[rows, columns] = self._expand(rows, columns)
        return self._known[rows, columns]

    def _expand(self, rows: tuple[int, ...], columns: tuple[int, ...]) -> Value:
        total: Value | None = None
        for k, column in enumerate(columns):
            minor = self(rows[1:], _without(columns, column))
            term = self._builder.binary("mul", self((rows[0],), (column,)), minor)
            if total is None:
                total = term
            else:
                total = self._builder.binary("sub" if k % 2 else "add", total, term)
        assert total is not None
        return total


def _without(indices: tuple[int, ...], index: int) -> tuple[int, ...]:
    return tuple(k for k in indices if k != index)


def _require_square(context: Context, name: str, x: MatrixValue) -> int:
    if x.is_vector or x.shape[0] != x.shape[1]:
        context.fail(WrongShape(name, "square matrices", describe(x)))
    return x.shape[0]


def _require_cofactors(context: Context, name: str, x: MatrixValue) -> int:
    n = _require_square(context, name, x)
    if n > MOST_ROWS:
        wanted = f"matrices of up to {MOST_ROWS} rows"
        context.fail(WrongShape(name, wanted, describe(x), "use `qd.solve(A, b)`"))
    return n


def _sum(context: Context, elements: list[Value]) -> Value:
    return functools.reduce(functools.partial(context.builder.binary, "add"), elements)
