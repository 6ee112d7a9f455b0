"""``ad.jvp``, ``ad.vjp`` and ``ad.hvp``: products with the Jacobian and the Hessian of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from octants.ad.functions.array_function import ArrayFunction
from octants.ad.functions.batched_directions import pull_back, push_forward
from octants.ad.functions.repeated_runs import run_each
from octants.ad.functions.value_and_gradient import (
    Array,
    LossFunction,
    bind_arrays,
    differentiated,
    wanted_of,
)
from octants.diagnostics.kernel_as_function_errors import (
    NoDerivativeByArgument,
    WrongArrayCall,
    WrongDirection,
)


def jvp(
    function: Callable[..., Any],
    *,
    out: Mapping[str, Any] | None = None,
    inout: Iterable[str] = (),
) -> Callable[..., tuple[Any, Any]]:
    """A function of numpy arrays that returns its results and their tangents along a direction.

    It is forward mode: about twice the time of the function. Example::

        forward = qd.ad.jvp(spring_forces, out={"force": "x"})
        force, change = forward(x, 10.0, tangents={"x": np.ones_like(x)})
        force, columns = forward(x, 10.0, tangents={"x": np.eye(x.size)})  # several directions

    Args:
        function: a kernel, or a Python function that launches kernels.
        out: the outputs, arrays that the call makes, with their shapes; see `value_and_grad`.
        inout: parameters that the function updates in place; the call passes it copies.

    Returns:
        A function of the other parameters, and of ``tangents``: a dictionary from names of
        arguments - arrays of floats, or numbers that a kernel takes - to the direction, of the same
        shape. With a first axis more, the same for all of them, there are several directions: a
        launch propagates up to 8 of them. It returns the results and the tangents of the results,
        with that axis first, which are None for integers; several are a tuple, in the order of the
        parameters, with the returned number last.

    Raises:
        OctantsTypeError: `out` or `inout` names an unknown parameter; at a call: there is no
            derivative by an argument.
        OctantsValueError: at a call: a direction has another shape than its argument.
        OctantsCallError: at a call: an argument is missing or unknown.
    """
    made, _ = differentiated(function, out, inout, ())

    def forward(*arguments: Any, tangents: Mapping[str, Any], **named: Any) -> tuple[Any, Any]:
        bound = bind_arrays(made, arguments, named)
        tangents = _by_argument(made, "tangents", tangents)
        batch = _batch((given, _rank(bound, name)) for name, given in tangents.items())
        directions = directions_of(made, bound, tangents, batch)
        if not batch:
            results, found = made.pushforward(bound, directions)
            return _alone(results), _alone(found)
        results, along = push_forward(made, bound, directions, *batch)
        return _alone(results), _alone(along)

    return forward


def vjp(
    function: Callable[..., Any],
    *,
    out: Mapping[str, Any] | None = None,
    by: str | Iterable[str] = (),
    inout: Iterable[str] = (),
) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """A function of numpy arrays that returns its results, and gradients for given adjoints.

    It is reverse mode. Example::

        backward = qd.ad.vjp(spring_forces, out={"force": "x"})
        force, gradients = backward(x, 10.0, adjoints=np.ones_like(x))  # gradients["x"]
        force, rows = backward(x, 10.0, adjoints=np.eye(x.size))  # several adjoints

    Args:
        function: a kernel, or a Python function that launches kernels.
        out: the outputs, arrays that the call makes, with their shapes; see `value_and_grad`.
        by: the arguments to differentiate by; by default all floats and arrays of floats.
        inout: parameters that the function updates in place; the call passes it copies.

    Returns:
        A function of the other parameters, and of ``adjoints``: that of the only result, a sequence
        with one for each result, or a dictionary by the names of the results (`"return"` is the
        number that a kernel returns). None, or a name that is left out, stands for zeros. With a
        first axis more, the same for all of them, there are several adjoints of each result: a
        launch propagates up to 8 of them. It returns the results - several are a tuple - and the
        gradients, with that axis first, a dictionary by the names of the arguments.

    Raises:
        OctantsTypeError: `out`, `by` or `inout` names an unknown parameter.
        OctantsValueError: at a call: an adjoint has another shape than its result.
        OctantsCallError: at a call: an argument is missing or unknown.
    """
    made, chosen = differentiated(function, out, inout, by)

    def backward(*arguments: Any, adjoints: Any, **named: Any) -> tuple[Any, dict[str, Any]]:
        bound = bind_arrays(made, arguments, named)
        wanted = wanted_of(made, chosen, bound)
        seeds, batch = _adjoints(made, bound, adjoints)
        if not batch:
            results, found = made.pullback(bound, seeds, wanted)
            return _alone(results), found
        results, rows = pull_back(made, bound, seeds, wanted, *batch)
        return _alone(results), rows

    return backward


class HessianProduct(LossFunction):
    """A function that returns products with a Hessian; `hvp` makes it."""

    def __call__(
        self, *arguments: Any, direction: Mapping[str, Any], **named: Any
    ) -> tuple[float, dict[str, Any], dict[str, Any]]:
        """The loss, its gradients, and the products of the Hessian with the direction."""
        bound = self._bind(arguments, named)
        direction = _by_argument(self._function, "direction", direction)
        batch = _batch((given, _rank(bound, name)) for name, given in direction.items())
        given = directions_of(self._function, bound, direction, batch)
        if not batch:
            return self._product(bound, given)
        runs = run_each(lambda each: self._product(bound, each), _each(batch, given))
        loss, gradients, _ = runs[0]
        found = [products for _, _, products in runs]
        return (
            loss,
            gradients,
            {name: _stacked(batch, [f[name] for f in found]) for name in gradients},
        )

    def _product(
        self, bound: Mapping[str, Any], given: Mapping[str, Any]
    ) -> tuple[float, dict[str, Any], dict[str, Any]]:
        """The loss, its gradients, and the products with one direction."""
        wanted = self._wanted(bound)
        along = {name: given.get(name, np.zeros_like(bound[name])) for name in wanted}
        position, adjoints = self._adjoints_of_loss(bound)
        found = self._function.evaluate(
            bound,
            tangents={**given, **along},
            adjoints=[None] * len(adjoints),
            adjoints_of_tangents=adjoints,
            wanted=wanted,
        )
        gradients = {name: found.gradients_of_tangents[name] for name in wanted}
        return float(np.reshape(found.results[position], ())), gradients, found.gradients

    def flat(self, *arguments: Any, **named: Any) -> Callable[[Array, Array], Array]:
        """The product as a function of two vectors, as the ``hessp`` of ``scipy.optimize``.

        The vectors are those of `ValueAndGrad.flat`. Example::

            given = {"x": x0, "k": 10.0}
            objective, start = qd.ad.value_and_grad(spring_energy, by="x").flat(**given)
            product = qd.ad.hvp(spring_energy, by="x").flat(**given)
            scipy.optimize.minimize(objective, start, jac=True, hessp=product, method="trust-ncg")

        Args:
            arguments: all arguments; those to differentiate by give the shapes and dtypes.
            named: those of them that are given by name.
        """
        bound = self._bind(arguments, named)
        wanted = self._wanted(bound)

        def product(vector: Array, direction: Array) -> Array:
            point, along = (self._unflattened(each, bound) for each in (vector, direction))
            _, _, found = self(**{**bound, **point}, direction=along)
            return self._flattened(found, wanted)

        return product


def hvp(
    function: Callable[..., Any],
    *,
    out: Mapping[str, Any] | None = None,
    by: str | Iterable[str] = (),
    inout: Iterable[str] = (),
) -> HessianProduct:
    """A function of numpy arrays: a loss, its gradients, and products of its Hessian with a vector.

    The loss is the number that a kernel returns, or the only output. A product takes two to four
    times as long as a gradient, whatever the size of the Hessian is. Example::

        product = qd.ad.hvp(spring_energy)
        loss, gradients, products = product(x, 10.0, direction={"x": v})

    Args:
        function: a kernel, or a Python function that launches kernels.
        out: the outputs, arrays that the call makes, with their shapes; see `value_and_grad`.
        by: the arguments to differentiate by; by default all floats and arrays of floats.
        inout: parameters that the function updates in place; the call passes it copies.

    Returns:
        A function of the other parameters, and of ``direction``: a dictionary from names of
        arguments to arrays or numbers of their shape; those that are left out are zeros. With a
        first axis more there are several directions, as for `jvp`. It returns the loss, a float,
        and two dictionaries by the names of `by`: the gradients, and the derivatives of the
        gradients along the direction.

    Raises:
        OctantsTypeError: `out`, `by` or `inout` names an unknown parameter; at a call: the loss is
            not one float.
        OctantsValueError: at a call: a direction has another shape than its argument.
        OctantsCallError: at a call: an argument is missing or unknown.
        OctantsRuntimeError: at a call: the function calls one with a gradient of its own.
    """
    return HessianProduct(*differentiated(function, out, inout, by))


def directions_of(
    function: ArrayFunction,
    bound: Mapping[str, Any],
    given: Mapping[str, Any],
    batch: tuple[int, ...] = (),
) -> dict[str, Any]:
    """Tangents of arguments, in the shapes and dtypes of the arguments, behind the axis of a batch.

    Raises:
        OctantsTypeError: there is no derivative by an argument.
        OctantsValueError: a shape differs.
    """
    found = {}
    for name, direction in given.items():
        if name not in bound or not function.is_float(name, bound):
            raise NoDerivativeByArgument(function.name, name).at()
        argument = np.asarray(bound[name])
        numbers = np.asarray(direction)
        expected = (*batch, *argument.shape)
        if numbers.shape != expected:
            raise WrongDirection(function.name, name, expected, numbers.shape).at()
        is_array = function.is_array(name, bound[name])
        found[name] = numbers.astype(argument.dtype, order="C") if is_array else numbers
    return found


def _adjoints(
    function: ArrayFunction, bound: Mapping[str, Any], given: Any
) -> tuple[list[Any], tuple[int, ...]]:
    """The adjoints of the results, in their shapes and dtypes, and the batch."""
    names, shapes = function.results, function.output_shapes(bound)
    given = _by_result(function, given)
    if len(given) != len(shapes):
        shape = (len(shapes),)
        raise WrongDirection(function.name, "adjoints", shape, (len(given),)).at()
    several = [
        None if each is None else _numbers(function, name, each)
        for name, each in zip(names, given, strict=True)
    ]
    ranks = (len(what.shape) for what in shapes)
    batch = _batch(pair for pair in zip(several, ranks, strict=True) if pair[0] is not None)
    found: list[Any] = []
    for name, what, adjoint in zip(names, shapes, several, strict=True):
        numbers = None if adjoint is None else adjoint.astype(what.dtype, copy=False)
        expected = (*batch, *what.shape)
        if numbers is not None and numbers.shape != expected:
            raise WrongDirection(function.name, name, expected, numbers.shape).at()
        found.append(numbers)
    return found, batch


def _by_result(function: ArrayFunction, given: Any) -> list[Any]:
    """The adjoints in the order of the results; None for those that a dictionary leaves out.

    Raises:
        OctantsCallError: a dictionary names something else, or there are several results, and
            neither a dictionary nor a sequence is given.
    """
    names = function.results
    if isinstance(given, Mapping):
        unknown = next((name for name in given if name not in names), None)
        if unknown is None:
            return [given.get(name) for name in names]
        problem = f"`adjoints` names `{unknown}`, and the results are {', '.join(names)}"
    elif len(names) == 1:
        return [given]
    elif np.iterable(given):
        return list(given)
    else:
        problem = f"`adjoints` has one for each result: {', '.join(names)}"
    raise WrongArrayCall(function.name, problem, ", ".join(function.inputs)).at()


def _by_argument(function: ArrayFunction, what: str, given: Any) -> dict[str, Array]:
    """Directions by the names of arguments, as arrays.

    Raises:
        OctantsCallError: they are an array or a sequence.
    """
    if not isinstance(given, Mapping):
        name = next(iter(function.inputs), "x")
        problem = f"`{what}` is no dictionary: write `{what}={{{name!r}: ...}}`"
        raise WrongArrayCall(function.name, problem, ", ".join(function.inputs)).at()
    return {name: _numbers(function, name, each) for name, each in given.items()}


def _numbers(function: ArrayFunction, name: str, given: Any) -> Array:
    """A direction as an array of numbers.

    Raises:
        OctantsCallError: it is none.
    """
    try:
        found = np.asarray(given)
    except (TypeError, ValueError):  # such as lists of different lengths
        found = np.asarray(None)
    if found.dtype.kind not in "biuf":
        problem = f"the direction of `{name}` is of type {type(given).__name__}, and no numbers"
        raise WrongArrayCall(function.name, problem, ", ".join(function.inputs)).at()
    return found


def _rank(bound: Mapping[str, Any], name: str) -> int:
    return np.ndim(bound[name]) if name in bound else 0


def _batch(given: Iterable[tuple[Any, int]]) -> tuple[int, ...]:
    """The first axis of numbers that have one more than their rank; () if none has."""
    shapes = (np.shape(numbers) for numbers, rank in given if np.ndim(numbers) == rank + 1)
    return next(shapes, ())[:1]


def _each(batch: tuple[int, ...], given: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """The directions of a batch; of one without any, zeros."""
    for k in range(*batch):
        yield {name: numbers[k] for name, numbers in given.items()}
    if batch == (0,):
        yield {name: np.zeros(numbers.shape[1:], numbers.dtype) for name, numbers in given.items()}


def _stacked(batch: tuple[int, ...], found: Sequence[Any]) -> Any:
    """The results of all directions, behind a first axis for them; None for integers."""
    return None if found[0] is None else np.stack(found)[: batch[0]]


def _alone(results: Sequence[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)
