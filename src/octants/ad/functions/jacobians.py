"""``ad.jacobian`` and ``ad.hessian``: whole matrices of derivatives, dense or by colouring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from octants.ad.array_libraries.array_library_protocol import Shaped
from octants.ad.functions.array_function import ArrayFunction
from octants.ad.functions.batched_directions import FORWARD_OVER_REVERSE, pull_back, push_forward
from octants.ad.functions.jvp_vjp_hvp import HessianProduct
from octants.ad.functions.linear_operators import Product
from octants.ad.functions.value_and_gradient import Array, LossFunction, differentiated, wanted_of
from octants.ad.functions.value_and_gradient import bind_arrays as bind
from octants.deferred_import import Deferred
from octants.diagnostics.kernel_as_function_errors import NotOneBlock, WrongJacobianMode

if TYPE_CHECKING:
    from octants.ad.functions import jacobian_colouring
else:
    jacobian_colouring = Deferred("octants.ad.functions.jacobian_colouring")  # needs scipy

MODES = ("auto", "forward", "reverse")


def jacobian(
    function: Callable[..., Any],
    *,
    out: Mapping[str, Any] | None = None,
    by: str | Iterable[str] = (),
    inout: Iterable[str] = (),
    mode: str = "auto",
    sparsity: Any = None,
) -> Callable[..., dict[str, Any]]:
    """A function of numpy arrays that returns the Jacobian of its results.

    Forward mode takes one run for up to 8 elements of the arguments, reverse mode one for up to 8
    elements of the results. Example::

        stiffness_matrix = qd.ad.jacobian(spring_forces, out={"force": "x"}, by="x")
        matrix = stiffness_matrix(x, 10.0)["x"]  # the shape of force, then that of x

    If the sparsity pattern is known, elements that share no result are moved in one run, so that a
    banded Jacobian takes as many runs as its band is wide. A further run in a random direction
    checks the pattern.

    Args:
        function: a kernel, or a Python function that launches kernels.
        out: the outputs, arrays that the call makes, with their shapes; see `value_and_grad`.
        by: the arguments to differentiate by; by default all floats and arrays of floats.
        inout: parameters that the function updates in place; the call passes it copies.
        mode: "forward", "reverse", or "auto", which takes the cheaper one: an adjoint takes about
            as long as two tangents.
        sparsity: which elements of the Jacobian may differ from zero, for one result and one
            argument: a matrix of numpy or scipy with a row for each element of the result, and a
            column for each of the argument. "probe" computes the whole Jacobian in the first call,
            and again where the check finds other elements. Needs scipy.

    Returns:
        A function of the other parameters that returns a dictionary by the names of the arguments:
        arrays of the shape of the result, then that of the argument. Of several results it has a
        dictionary for each, by name; "return" is the returned number. Results of integers are left
        out. With `sparsity`, a sparse matrix of scipy in place of the array.

    Raises:
        OctantsTypeError: `out`, `by` or `inout` names an unknown parameter.
        OctantsValueError: for another `mode`; at a call: `sparsity` does not fit, or misses an
            element that is not zero, or there are several results or arguments with it.
        OctantsCallError: at a call: an argument is missing or unknown.
    """
    if mode not in MODES:
        raise WrongJacobianMode(repr(mode)).at()
    made, chosen = differentiated(function, out, inout, by)
    matrix = None if sparsity is None else jacobian_colouring.CompressedMatrix(made.name, sparsity)

    def whole(*arguments: Any, **named: Any) -> dict[str, Any]:
        bound = bind(made, arguments, named)
        point = _Point(made, bound, wanted_of(made, chosen, bound))
        if matrix is None:
            return point.dense(mode)
        ((_, argument),) = point.the_block()
        return {argument: matrix.compute(*point.the_products(), mode)}

    return whole


class _Point:
    """The arguments of a call, and its results and arguments of floats as parts of two vectors."""

    def __init__(
        self, function: ArrayFunction, bound: Mapping[str, Any], wanted: Sequence[str]
    ) -> None:
        self._function = function
        self._bound = bound
        self._inputs = {
            name: Shaped(np.shape(bound[name]), np.asarray(bound[name]).dtype) for name in wanted
        }
        shapes = zip(function.results, function.output_shapes(bound), strict=True)
        self._outputs = {name: what for name, what in shapes if what.dtype.kind == "f"}

    def the_block(self) -> list[tuple[str, str]]:
        """The only result and the only argument."""
        if len(self._outputs) != 1 or len(self._inputs) != 1:
            counts = len(self._outputs), len(self._inputs)
            raise NotOneBlock(self._function.name, *counts).at()
        return list(zip(self._outputs, self._inputs, strict=True))

    def the_products(self) -> tuple[Product, Product]:
        """The products of the Jacobian with a vector, and of its transpose with one."""
        columns = sum(each.size for each in self._inputs.values())
        rows = sum(each.size for each in self._outputs.values())
        return Product(self._along, columns, rows), Product(self._back, rows, columns)

    def _along(self, vectors: Array) -> Array:
        directions = _parts(vectors, self._inputs)
        _, tangents = push_forward(self._function, self._bound, directions, len(vectors))
        found = dict(zip(self._function.results, tangents, strict=True))
        return _joined(found, self._outputs, len(vectors))

    def _back(self, vectors: Array) -> Array:
        given = _parts(vectors, self._outputs)
        adjoints = [given.get(name) for name in self._function.results]
        wanted, count = list(self._inputs), len(vectors)
        _, gradients = pull_back(self._function, self._bound, adjoints, wanted, count)
        return _joined(gradients, self._inputs, count)

    def dense(self, mode: str) -> dict[str, Any]:
        """The Jacobian as arrays."""
        along, back = self.the_products()
        runs_ahead = along.given <= FORWARD_OVER_REVERSE * back.given
        if mode == "forward" or (mode == "auto" and runs_ahead):
            matrix = along.matrix().T
        else:
            matrix = back.matrix()
        blocks: dict[str, dict[str, Any]] = {name: {} for name in self._outputs}
        for (rows, result), (columns, argument) in _pairs(self._outputs, self._inputs):
            shape = (*self._outputs[result].shape, *self._inputs[argument].shape)
            blocks[result][argument] = matrix[rows, columns].reshape(shape)
        return next(iter(blocks.values())) if len(blocks) == 1 else blocks


class Hessian(LossFunction):
    """A function that returns the Hessian of a loss; `hessian` makes it."""

    def __init__(self, function: ArrayFunction, by: tuple[str, ...], sparsity: Any) -> None:
        super().__init__(function, by)
        self._product = HessianProduct(function, by)
        self._matrix = (
            None
            if sparsity is None
            else jacobian_colouring.CompressedMatrix(function.name, sparsity)
        )

    def __call__(self, *arguments: Any, **named: Any) -> dict[str, Any]:
        """The second derivatives, by the names of two arguments."""
        bound = self._bind(arguments, named)
        kinds = {
            name: Shaped(np.shape(bound[name]), np.asarray(bound[name]).dtype)
            for name in self._wanted(bound)
        }
        count = sum(each.size for each in kinds.values())

        def along(vectors: Array) -> Array:
            _, _, found = self._product(**bound, direction=_parts(vectors, kinds))
            return _joined(found, kinds, len(vectors))

        product = Product(along, count, count)
        if self._matrix is not None:
            if len(kinds) != 1:
                raise NotOneBlock(self._function.name, 1, len(kinds)).at()
            (name,) = kinds
            return {name: {name: self._matrix.compute(product, None, "forward")}}
        matrix = product.matrix()
        found: dict[str, Any] = {name: {} for name in kinds}
        for (rows, one), (columns, other) in _pairs(kinds, kinds):
            shape = (*kinds[one].shape, *kinds[other].shape)
            found[one][other] = matrix[rows, columns].reshape(shape)
        return found


def hessian(
    function: Callable[..., Any],
    *,
    out: Mapping[str, Any] | None = None,
    by: str | Iterable[str] = (),
    inout: Iterable[str] = (),
    sparsity: Any = None,
) -> Hessian:
    """A function of numpy arrays that returns the Hessian of a loss.

    The loss is the number that a kernel returns, or the only output. It takes one product of `hvp`
    for each element of the arguments; with `sparsity` as many as there are colours. Example::

        second = qd.ad.hessian(spring_energy, by="x")
        matrix = second(x, 10.0)["x"]["x"]

    Args:
        function: a kernel, or a Python function that launches kernels.
        out: the outputs, arrays that the call makes, with their shapes; see `value_and_grad`.
        by: the arguments to differentiate by; by default all floats and arrays of floats.
        inout: parameters that the function updates in place; the call passes it copies.
        sparsity: which elements may differ from zero, for one argument, as for `jacobian`.

    Returns:
        A function of the other parameters that returns second derivatives in a dictionary of
        dictionaries, by the names of two arguments: arrays of the shapes of both.

    Raises:
        OctantsTypeError: `out`, `by` or `inout` names an unknown parameter; at a call: the loss is
            not one float.
        OctantsValueError: at a call: `sparsity` does not fit, or misses an element that is not
            zero, or there are several arguments with it.
        OctantsCallError: at a call: an argument is missing or unknown.
    """
    return Hessian(*differentiated(function, out, inout, by), sparsity)


def _slices(kinds: Mapping[str, Shaped]) -> Iterator[tuple[slice, str]]:
    first = 0
    for name, what in kinds.items():
        yield slice(first, first + what.size), name
        first += what.size


def _pairs(
    ones: Mapping[str, Shaped], others: Mapping[str, Shaped]
) -> Iterator[tuple[tuple[slice, str], tuple[slice, str]]]:
    return ((one, other) for one in _slices(ones) for other in _slices(others))


def _parts(vectors: Array, kinds: Mapping[str, Shaped]) -> dict[str, Any]:
    """The parts of vectors, which are the rows of a matrix, as arrays behind an axis for rows."""
    return {
        name: vectors[:, part].astype(kinds[name].dtype).reshape(-1, *kinds[name].shape)
        for part, name in _slices(kinds)
    }


def _joined(by_name: Mapping[str, Any], kinds: Mapping[str, Shaped], count: int) -> Array:
    """The elements of arrays, behind an axis for vectors, as vectors."""
    return np.concatenate([np.reshape(by_name[name], (count, -1)) for name in kinds], axis=1)
