"""Decompositions of small matrices, by numpy; their derivatives are differences.

Those of singular values and eigenvalues are products of vectors, so that symmetric functions of
values that nearly agree have derivatives. Vectors of singular values and eigenvalues have any sign,
but the same one along a derivative.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from octants.fuzz.oracle.matrices import Matrix
from octants.fuzz.oracle.numbers import convert, promote, real

Floats = np.ndarray[Any, np.dtype[Any]]
_STEP = 1e-3
_INEXACT = 1e-8
"""The error of a difference."""
_ROUNDINGS = 100.0
"""The roundings, of the largest component, that a sound implementation may make."""


def solve(a: Matrix, b: Matrix) -> Matrix:
    """The solution of ``a @ x == b``."""
    (x,) = _apply(lambda m, v: (np.linalg.solve(m, v),), a, b)
    return x


def polar_decompose(a: Matrix) -> tuple[Matrix, ...]:
    """The orthogonal and the symmetric factor."""

    def factors(m: Floats) -> tuple[Floats, ...]:
        u, _, v = np.linalg.svd(m)
        return u @ v, (u @ v).T @ m

    return _apply(factors, a)


def svd(a: Matrix) -> tuple[Matrix, ...]:
    """Singular vectors and a diagonal matrix of values."""

    def vectors(m: Floats) -> tuple[Floats, ...]:
        u, _, v = np.linalg.svd(m)
        signs = _signs(v.T)
        return u * signs, v.T * signs

    def slopes(m: Floats) -> Floats:
        u, _, v = np.linalg.svd(m)
        return _diagonals(np.einsum("ik,kj->ijk", u, v))

    u, v = _apply(vectors, a)
    (s,) = _apply(lambda m: (np.diag(np.linalg.svd(m)[1]),), a, slopes=slopes)
    return u, s, v


def sym_eig(a: Matrix) -> tuple[Matrix, ...]:
    """The eigenvalues and eigenvectors of the symmetric part."""

    def vectors(m: Floats) -> tuple[Floats, ...]:
        _, v = np.linalg.eigh(0.5 * (m + m.T))
        return (v * _signs(v),)

    def slopes(m: Floats) -> Floats:
        _, v = np.linalg.eigh(0.5 * (m + m.T))
        products: Floats = np.einsum("ik,jk->ijk", v, v)
        return products.reshape(-1, len(m))

    (values,) = _apply(lambda m: (np.linalg.eigvalsh(0.5 * (m + m.T)),), a, slopes=slopes)
    (v,) = _apply(vectors, a)
    return values, v


def make_spd(a: Matrix) -> Matrix:
    """The symmetric part without its negative eigenvalues."""

    def nearest(m: Floats) -> tuple[Floats, ...]:
        values, v = np.linalg.eigh(0.5 * (m + m.T))
        return (v @ np.diag(np.maximum(values, 0.0)) @ v.T,)

    (found,) = _apply(nearest, a)
    return found


def _signs(vectors: Floats) -> Floats:
    """The signs of the largest component of each column."""
    largest = np.argmax(np.abs(vectors), axis=0)[np.newaxis]
    return np.where(np.take_along_axis(vectors, largest, axis=0) < 0.0, -1.0, 1.0)


def _diagonals(values: Floats) -> Floats:
    """The diagonal matrices of the last axis, by the component of the first two axes."""
    n = values.shape[-1]
    matrices: Floats = values[..., np.newaxis] * np.eye(n)
    return matrices.reshape(-1, n * n)


def _apply(
    fn: Callable[..., tuple[Floats, ...]],
    *operands: Matrix,
    slopes: Callable[[Floats], Floats] | None = None,
) -> tuple[Matrix, ...]:
    """The results of a function of arrays, with the derivatives by each component.

    Args:
        fn: the function.
        operands: its arguments.
        slopes: the derivatives of the components of a result by those of the operand, a row for
            each of these; without it, differences.
    """
    numbers = [item for operand in operands for item in operand.items]
    dtype = numbers[0].type
    for number in numbers:
        dtype = promote(dtype, number.type)
    numbers = [convert(number, dtype) for number in numbers]

    shapes: list[tuple[int, ...]] = []

    def at(values: Floats) -> Floats:
        ends = np.cumsum([len(operand.items) for operand in operands])[:-1]
        parts = zip(np.split(values, ends), operands, strict=True)
        results = fn(*(part.reshape(x.shape) for part, x in parts))
        shapes[:] = [result.shape for result in results]
        return np.concatenate([result.ravel() for result in results])

    middle = np.array([number.value for number in numbers], float)
    values = at(middle)
    if slopes is None:
        rows = np.array([_slope(at, middle, unit) for unit in np.eye(len(middle))])
    else:
        rows = slopes(middle.reshape(operands[0].shape))
    size = float(max(1.0, np.abs(values).max(), np.abs(rows).max()))
    errors = _ROUNDINGS * dtype.roundoff + 10.0 * max(number.error for number in numbers)
    found = []
    for k, value in enumerate(values):
        links = zip(numbers, rows, strict=True)
        parents = [(x, float(slope[k]), size * (_INEXACT + errors)) for x, slope in links]
        result = real(dtype, float(value), parents, 1.0)
        result.error += _ROUNDINGS * dtype.roundoff * size
        result.literal = False
        found.append(result)
    items = iter(found)
    return tuple(Matrix(list(itertools.islice(items, math.prod(shape))), shape) for shape in shapes)


def _slope(at: Callable[[Floats], Floats], middle: Floats, unit: Floats) -> Floats:
    """A difference whose error is of the fourth order."""
    wide, narrow = (
        (at(middle + step * unit) - at(middle - step * unit)) / (2.0 * step)
        for step in (2.0 * _STEP, _STEP)
    )
    slope: Floats = (4.0 * narrow - wide) / 3.0
    return slope
