"""Computes matrices from products with vectors: column by column, or many columns at once.

Columns that have no row in common are *structurally orthogonal*: one product with the sum of their
unit vectors gives them all. A greedy colouring finds groups of such columns (Curtis, Powell and
Reid 1974). A matrix with b elements in each row takes about b products in place of one for each
column.

A pattern that misses an element would give wrong numbers. So each matrix is checked with a product
in a random direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from octants.ad.functions.batched_directions import FORWARD_OVER_REVERSE
from octants.ad.functions.linear_operators import Array, Product
from octants.diagnostics.kernel_as_function_errors import WrongSparsity
from octants.diagnostics.optional_dependencies import import_optional

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = import_optional("scipy.sparse", "scipy")


class CompressedMatrix:
    """Computes sparse matrices with one pattern.

    Args:
        name: what it is the derivative of, for messages.
        sparsity: the pattern, or "probe".
    """

    def __init__(self, name: str, sparsity: Any) -> None:
        self._name = name
        self._probes = isinstance(sparsity, str)
        if self._probes and sparsity != "probe":
            raise WrongSparsity(name, f"is {sparsity!r}: give a matrix, or 'probe'").at()
        self._pattern: Any = None if self._probes else _as_pattern(sparsity)
        self._colours: dict[bool, Array] = {}

    def compute(self, along: Product, back: Product | None, mode: str) -> Any:
        """The matrix, from products with it, or with its transpose if there are some.

        Args:
            along: the product with the matrix.
            back: the product with the transposed matrix.
            mode: "forward", "reverse", or "auto", which takes what is cheaper.

        Raises:
            OctantsValueError: the pattern has another shape, or misses an element.
        """
        shape = along.found, along.given
        if self._pattern is not None and self._pattern.shape != shape:
            problem = f"has the shape {self._pattern.shape}, not {shape}"
            if not self._probes:
                raise WrongSparsity(self._name, problem).at()
            self._pattern = None
        if self._pattern is None:
            return self._probed(along)
        found, agrees = self._compressed(along, back, mode)
        if agrees:
            return found
        if not self._probes:
            problem = "misses elements that are not zero"
            raise WrongSparsity(self._name, problem).at()
        return self._probed(along)

    def _probed(self, along: Product) -> Any:
        """The matrix column by column, whose pattern is remembered."""
        found = sparse.csr_array(along.matrix().T)
        new = _as_pattern(found)
        is_same_shape = self._pattern is not None and self._pattern.shape == new.shape
        self._pattern = ((self._pattern + new) > 0).tocsr() if is_same_shape else new
        self._colours.clear()
        return found

    def _compressed(self, along: Product, back: Product | None, mode: str) -> tuple[Any, bool]:
        """The matrix, and whether a product in a random direction agrees with it."""
        ahead = mode == "forward" or back is None
        if mode == "auto" and back is not None:
            columns, rows = (self._groups(side).max(initial=0) + 1 for side in (True, False))
            ahead = columns <= FORWARD_OVER_REVERSE * rows
        groups = self._groups(ahead)
        count = int(groups.max(initial=-1)) + 1
        units = (groups == np.arange(count)[:, None]).astype(np.float64)
        check = np.random.default_rng(7).uniform(0.5, 1.5, (1, along.given))
        if ahead or back is None:
            *columns, product = along.times(np.concatenate([units, check]))
        else:
            columns = list(back.times(units)) if count else []
            (product,) = along.times(check)
        rows, of = self._pattern.tocoo().coords
        if not ahead:
            rows, of = of, rows
        values = np.stack(columns)[groups[of], rows] if columns else np.zeros(0)
        where = (rows, of) if ahead else (of, rows)
        found = sparse.csr_array((values, where), shape=self._pattern.shape)
        return found, _agrees(found, check[0], product)

    def _groups(self, ahead: bool) -> Array:
        """The colour of each column, or of each row."""
        if ahead not in self._colours:
            self._colours[ahead] = colours_of(self._pattern if ahead else self._pattern.T)
        return self._colours[ahead]


def colours_of(pattern: Any) -> Array:
    """A colour for each column of a sparse matrix; columns of one colour share no row.

    The columns with the most elements are coloured first.
    """
    columns, rows = pattern.tocsc(), pattern.tocsr()
    colours = np.full(pattern.shape[1], -1)
    sizes = np.diff(columns.indptr)
    for column in np.argsort(-sizes, kind="stable"):
        mine = columns.indices[columns.indptr[column] : columns.indptr[column + 1]]
        near = [rows.indices[rows.indptr[row] : rows.indptr[row + 1]] for row in mine]
        taken = set(colours[np.concatenate(near)].tolist()) if near else set()
        colour = 0
        while colour in taken:
            colour += 1
        colours[column] = colour
    return colours


def _as_pattern(given: Any) -> Any:
    """The elements that are not zero, as a sparse matrix of ones."""
    found = sparse.csr_array(given)
    found = sparse.csr_array((found.data != 0, found.indices, found.indptr), shape=found.shape)
    found.eliminate_zeros()
    return found.astype(np.int8)


def _agrees(matrix: Any, direction: Array, expected: Array) -> bool:
    """Whether a product in a direction is that of the matrix, to rounding."""
    sizes = abs(matrix) @ direction
    eps = float(np.finfo(expected.dtype).eps)
    allowed = 1e3 * eps * (sizes + np.abs(expected)) + 10 * eps * sizes.max(initial=0.0)
    with np.errstate(invalid="ignore"):
        near = np.abs(matrix @ direction - expected) <= allowed
    return bool(np.all(near | ~np.isfinite(expected)))
