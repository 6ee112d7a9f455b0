"""``ad.value_and_grad``: a loss and its gradient by numpy arrays, as optimisers want them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from octants.ad.array_libraries.array_library_protocol import Shaped
from octants.ad.array_libraries.numpy_array_library import NumpyArrays
from octants.ad.functions.array_function import ArrayFunction
from octants.data.array_base import Tensor
from octants.diagnostics.kernel_as_function_errors import WrongOutput
from octants.internal_members import internal

Array = np.ndarray[Any, Any]


class LossFunction:
    """A function of numpy arrays with a loss, and the arguments to differentiate it by."""

    @internal
    def __init__(self, function: ArrayFunction, by: tuple[str, ...]) -> None:
        self._function = function
        self._by = by

    def _bind(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        return bind_arrays(self._function, arguments, named)

    def _adjoints_of_loss(self, bound: Mapping[str, Any]) -> tuple[int, list[Any]]:
        """The position of the loss among the results, and adjoints: one for the loss."""
        shapes = self._function.output_shapes(bound)
        adjoints: list[Any] = [None] * len(shapes)
        position = self._position_of_loss(shapes)
        adjoints[position] = np.ones(shapes[position].shape, shapes[position].dtype)
        return position, adjoints

    def _position_of_loss(self, shapes: list[Shaped]) -> int:
        """Which result is the loss: the only one that is not an updated argument."""
        function = self._function
        found = [k for k, name in enumerate(function.results) if name not in function.inout]
        losses = [shapes[k] for k in found]
        if len(losses) != 1 or losses[0].size != 1 or losses[0].dtype.kind != "f":
            given = ", ".join(f"{each.dtype}{list(each.shape)}" for each in losses) or "nothing"
            raise WrongOutput(function.name, "the loss", f"is one float, not {given}").at()
        return found[0]

    def unflatten(self, vector: Any, *arguments: Any, **named: Any) -> dict[str, Any]:
        """The arguments that a vector of `flat` holds, by name.

        Args:
            vector: the numbers.
            arguments: all arguments, as `flat` was given them.
            named: those of them that are given by name.
        """
        return self._unflattened(vector, self._bind(arguments, named))

    def _unflattened(self, vector: Any, bound: Mapping[str, Any]) -> dict[str, Any]:
        found, first, numbers = {}, 0, np.asarray(vector)
        for name in self._wanted(bound):
            given = np.asarray(bound[name])
            part = numbers[first : first + given.size].reshape(given.shape)
            first += given.size
            found[name] = part.astype(given.dtype) if given.shape else float(part)
        return found

    def _flattened(self, by_name: Mapping[str, Any], wanted: Iterable[str]) -> Array:
        return np.concatenate([np.ravel(by_name[name]) for name in wanted], dtype=np.float64)

    def _wanted(self, bound: Mapping[str, Any]) -> tuple[str, ...]:
        return wanted_of(self._function, self._by, bound)


class ValueAndGrad(LossFunction):
    """A function that returns a loss and its gradients; `value_and_grad` makes it."""

    def __call__(self, *arguments: Any, **named: Any) -> tuple[float, dict[str, Any]]:
        """The loss, and the gradients by the names of the arguments."""
        bound = self._bind(arguments, named)
        position, adjoints = self._adjoints_of_loss(bound)
        results, gradients = self._function.pullback(bound, adjoints, self._wanted(bound))
        return float(np.reshape(results[position], ())), gradients

    def flat(
        self, *arguments: Any, **named: Any
    ) -> tuple[Callable[[Array], tuple[float, Array]], Array]:
        """The function of one vector, for optimisers such as ``scipy.optimize.minimize``.

        The vector holds the elements of the arguments to differentiate by, one after the other;
        `unflatten` splits it. The others keep the values that are given here. Example::

            loss_and_grad = qd.ad.value_and_grad(misfit, out={"loss": ()}, by=("stiffness", "mass"))
            objective, start = loss_and_grad.flat(stiffness=k0, mass=m0, data=data)
            found = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B")
            print(loss_and_grad.unflatten(found.x, stiffness=k0, mass=m0, data=data))

        Args:
            arguments: all arguments; those to differentiate by give the shapes, the dtypes and the
                start.
            named: those of them that are given by name.

        Returns:
            The function, from a vector to the loss and its gradient in f64; and the start.
        """
        bound = self._bind(arguments, named)
        wanted = self._wanted(bound)
        start = self._flattened(bound, wanted)

        def objective(vector: Array) -> tuple[float, Array]:
            loss, gradients = self(**{**bound, **self._unflattened(vector, bound)})
            return loss, self._flattened(gradients, wanted)

        return objective, start


def value_and_grad(
    function: Callable[..., Any],
    *,
    out: Mapping[str, Any] | None = None,
    by: str | Iterable[str] = (),
    inout: Iterable[str] = (),
) -> ValueAndGrad:
    """A function of numpy arrays that returns a loss and its gradients.

    The loss is the number that a kernel returns, or the only output. Example::

        @qd.kernel
        def energy(x: qd.types.ndarray(qd.f64, 1), loss: qd.types.ndarray(qd.f64, 0)):
            for i in x:
                loss[None] += (x[i] ** 2 - 1.0) ** 2

        loss_and_grad = qd.ad.value_and_grad(energy, out={"loss": ()})
        loss, grads = loss_and_grad(np.array([0.5, 2.0]))  # grads["x"] is an array like x

    Args:
        function: a kernel, or a Python function that launches kernels. It runs again for each call,
            under a tape.
        out: the outputs: parameters for which the call makes arrays of zeros. By the name of each,
            its shape, the name of an argument of the same shape, a pair of a shape and a dtype, or
            a function of the arguments that returns one of these.
        by: the arguments to differentiate by; by default all arrays of floats, and floats that a
            kernel takes.
        inout: parameters that the function updates in place; the call passes it copies.

    Returns:
        A function of the other parameters. It returns the loss, a float, and the gradients, in a
        dictionary by the names of the arguments. Its method `flat` gives a function of one vector.

    Raises:
        OctantsTypeError: `out`, `by` or `inout` names an unknown parameter; at a call: the loss is
            not one float.
        OctantsCallError: at a call: an argument is missing or unknown.
    """
    return ValueAndGrad(*differentiated(function, out, inout, by))


def differentiated(
    function: Callable[..., Any],
    out: Mapping[str, Any] | None,
    inout: Iterable[str],
    by: str | Iterable[str],
) -> tuple[ArrayFunction, tuple[str, ...]]:
    """A function of numpy arrays, and the arguments to differentiate by, which are checked."""
    made = ArrayFunction(function, out, inout, NumpyArrays())
    chosen = (by,) if isinstance(by, str) else tuple(by)
    for name in chosen:
        if name not in made.inputs:
            raise WrongOutput(made.name, name, "is in `by`, and is no argument").at()
    return made, chosen


def wanted_of(
    function: ArrayFunction, by: tuple[str, ...], bound: Mapping[str, Any]
) -> tuple[str, ...]:
    """The arguments to differentiate by: those of `by`, else all of floats."""
    return by or tuple(name for name in bound if function.is_float(name, bound))


def bind_arrays(
    function: ArrayFunction, arguments: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by name; arrays of other libraries as those of numpy."""
    return function.bind(
        [_as_array(each) for each in arguments],
        {name: _as_array(each) for name, each in named.items()},
    )


def _as_array(value: Any) -> Any:
    """An array of another library as one of numpy; arrays of Octants stay."""
    is_foreign = hasattr(value, "__array__") and not isinstance(value, (Tensor, np.generic))
    return np.asarray(value) if is_foreign else value
