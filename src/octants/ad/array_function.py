"""Kernels as functions of arrays: arguments go in, new arrays come out, gradients come back.

`ArrayFunction` is what `octants.torch.function`, `octants.jax.function` and `ad.value_and_grad`
have in common. A kernel writes into arrays that are its arguments; here they are made for each
call, so that the caller sees a function without side effects, which is what the automatic
differentiation of other libraries needs. The gradient runs the launches again, under a tape.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from octants.ad.forward_mode import FwdMode
from octants.ad.tape import Tape
from octants.data import current
from octants.diagnostics.array_function_errors import (
    NoDerivativeByArgument,
    WrongArrayCall,
    WrongOutput,
)
from octants.ir.core import Companion
from octants.launch.kernel import BoundKernel, Kernel
from octants.runtime.arguments.signatures import bind_arguments
from octants.types.annotations import NdarrayAnnotation
from octants.types.default_types import resolve
from octants.types.scalars import DType
from octants.types.signature import ScalarType

OutputShape = Any
"""The name of an argument, a shape, (shape, dtype), or a function of the arguments' `Shaped`."""


class Shaped(NamedTuple):
    """What is known of an array before its elements are: what JAX calls an abstract value."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


class ArrayLibrary(ABC):
    """What an `ArrayFunction` asks of the library whose arrays it is called with."""

    @abstractmethod
    def is_array(self, value: Any) -> bool:
        """Whether a value is passed as an array."""

    @abstractmethod
    def shaped(self, array: Any) -> Shaped:
        """The shape and the dtype of an array."""

    @abstractmethod
    def copy(self, array: Any) -> Any:
        """A copy of an array, for a kernel that updates it."""

    @abstractmethod
    def zeros(self, what: Shaped, like: Sequence[Any]) -> Any:
        """An array of zeros, on the device of the arrays `like`."""

    @abstractmethod
    def argument(
        self, array: Any, element_dim: int, adjoint: Any = None, has_tangent: bool = False
    ) -> Any:
        """What a kernel is passed for an array.

        Args:
            array: the array.
            element_dim: how many of its last axes are those of vectors or matrices.
            adjoint: what its gradient begins as; True: zeros; None: it has no gradient.
            has_tangent: whether it is an `Ndarray` with a dual.
        """

    @abstractmethod
    def result(self, argument: Any, array: Any) -> Any:
        """The array as launches have left it, which were passed `argument` for it."""

    @abstractmethod
    def gradient(self, argument: Any) -> Any:
        """The gradient of what a kernel was passed, as an array."""

    @abstractmethod
    def tangent(self, argument: Any, array: Any) -> Any:
        """The dual of what a kernel was passed for an array, as an array."""

    @abstractmethod
    def numbers(self, array: Any) -> Any:
        """The elements of an array in row-major order, as numpy has them."""


class ArrayFunction:
    """A kernel, or a Python function that launches kernels, as a function of arrays.

    Args:
        function: what to call. Parameters that are neither in `out` nor in `inout` are the
            arguments.
        out: for each parameter that is an output: the name of the argument whose shape and dtype
            it has, a shape (the dtype is that of the annotation, else that of the first argument
            of floats), a pair of a shape and a dtype, or a function that returns one of these, and
            is called with the arguments by name, of which arrays have `shape` and `dtype`.
            Outputs begin as zeros.
        inout: the parameters that the function updates in place: it is given a copy, which is an
            output too.
        library: the library of the arrays.

    A call returns the outputs in the order of the parameters, then the number that a kernel
    returns; one result alone is not in a tuple.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        out: Mapping[str, OutputShape] | None,
        inout: Iterable[str],
        library: ArrayLibrary,
    ) -> None:
        self.function = function
        self.library = library
        self.name = getattr(function, "__name__", repr(function))
        self.kernel = function.kernel if isinstance(function, BoundKernel) else function
        self.parameters = _parameters(function)
        self.out = dict(out or {})
        self.inout = (inout,) if isinstance(inout, str) else tuple(inout)
        for name in (*self.out, *self.inout):
            if name not in self.parameters:
                raise WrongOutput(self.name, name, "is no parameter of it").at(None)
        for name in self.inout:
            if name in self.out:
                raise WrongOutput(self.name, name, "is in `out` and in `inout`").at(None)
        self.outputs = [name for name in self.parameters if name in {*self.out, *self.inout}]
        self.inputs = [name for name in self.parameters if name not in self.out]
        absent = inspect.Parameter.empty
        self.defaults = {
            name: self.parameters[name]
            for name in self.inputs
            if self.parameters[name] is not absent
        }

    # -- arguments ------------------------------------------------------------------------------

    def bind(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, in the order of the parameters, with the defaults filled in.

        Raises:
            OctantsCallError: one is missing, unknown, or given twice.
        """
        for name in named:
            if name in self.out:
                raise self._wrong(f"`{name}` is made by the call: it is no input")
        return bind_arguments(self.inputs, self.defaults, arguments, named, self._wrong)

    def _wrong(self, problem: str) -> Exception:
        return WrongArrayCall(self.name, problem, ", ".join(self.inputs)).at(None)

    def is_array(self, name: str, value: Any) -> bool:
        """Whether an argument is an array: it comes from the library, and is no number."""
        return self.library.is_array(value) and not isinstance(self.annotation(name), ScalarType)

    def annotation(self, name: str) -> Any:
        """The annotation of a parameter of a kernel; None for a Python function."""
        if not isinstance(self.kernel, Kernel):
            return None
        signature = self.kernel.signature
        return signature.annotations[signature.names.index(name)]

    # -- shapes ---------------------------------------------------------------------------------

    def output_shapes(self, bound: Mapping[str, Any]) -> list[Shaped]:
        """The shape and dtype of each result for arguments, which may be `Shaped` themselves."""
        known = {
            name: value if isinstance(value, Shaped) else self.library.shaped(value)
            for name, value in bound.items()
            if isinstance(value, Shaped) or self.is_array(name, value)
        }
        seen = {**bound, **known}
        found = [
            known[name] if name in self.inout else self._shaped(name, self.out[name], seen, known)
            for name in self.outputs
        ]
        return found + [Shaped((), kind.numpy) for kind in self.returns()]

    def _shaped(
        self, name: str, given: OutputShape, seen: Mapping[str, Any], known: Mapping[str, Shaped]
    ) -> Shaped:
        if isinstance(given, str):
            if given not in known:
                raise self._bad(name, f"has the shape of `{given}`, which is no array argument")
            return known[given]
        if callable(given) and not hasattr(given, "shape"):
            return self._shaped(name, given(**seen), seen, known)
        if hasattr(given, "shape") and hasattr(given, "dtype"):
            return Shaped(tuple(given.shape), np.dtype(given.dtype))
        shape, dtype = given, None
        if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], (tuple, list)):
            shape, dtype = given
        if isinstance(shape, (int, np.integer)):
            shape = (shape,)
        if not isinstance(shape, (tuple, list)) or not all(_is_extent(n) for n in shape):
            raise self._bad(name, f"cannot have the shape {shape!r}")
        return Shaped(tuple(int(n) for n in shape), self._dtype(name, dtype, known))

    def _dtype(self, name: str, given: Any, known: Mapping[str, Shaped]) -> np.dtype[Any]:
        if isinstance(given, DType):
            return np.dtype(given.numpy)
        if given is not None:
            found: np.dtype[Any] = np.dtype(given)
            return found
        annotation = self.annotation(name)
        declared = annotation.dtype if isinstance(annotation, NdarrayAnnotation) else None
        if isinstance(declared, DType):
            return np.dtype(declared.numpy)
        floats = [each.dtype for each in known.values() if each.dtype.kind == "f"]
        return floats[0] if floats else np.dtype(resolve(float).numpy)

    def _bad(self, name: str, problem: str) -> Exception:
        return WrongOutput(self.name, name, problem).at(None)

    def returns(self) -> list[DType]:
        """The type of the number that the kernel returns, if it returns one.

        Raises:
            OctantsTypeError: it returns something else.
        """
        kinds = self.kernel.signature.returns if isinstance(self.kernel, Kernel) else None
        for kind in kinds or ():
            if not isinstance(kind, ScalarType) or kind.element_shape or len(kinds or ()) > 1:
                raise WrongOutput(self.name, "return", "is not a number").at(None)
        return [kind.dtype for kind in kinds or () if isinstance(kind, ScalarType)]

    # -- values and derivatives -----------------------------------------------------------------

    def value(self, bound: Mapping[str, Any]) -> list[Any]:
        """The results for arguments."""
        arrays = self._with_outputs(bound)
        passed = {name: self._argument(name, value) for name, value in arrays.items()}
        return self._results(arrays, passed, self.function(*passed.values()))

    def pullback(
        self, bound: Mapping[str, Any], adjoints: Sequence[Any], wanted: Sequence[str]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Propagate adjoints of the results back: the vector-Jacobian product.

        Args:
            bound: the arguments.
            adjoints: one for each result; None stands for zeros.
            wanted: the names of the arguments to differentiate by.

        Returns:
            The results, and the gradients by name: an array, or a number for a number. The
            gradients of other fields and ndarrays that the kernels use are overwritten.

        Raises:
            OctantsTypeError: there is no derivative by one of the arguments.
        """
        numbers = [name for name in wanted if not self.is_array(name, bound[name])]
        for name in numbers:
            self._check_number(name)
        given: dict[str, Any] = {name: True for name in wanted if name not in numbers}
        for name, adjoint in zip(self.outputs, adjoints, strict=False):
            given[name] = True if adjoint is None else adjoint
        arrays = self._with_outputs(bound)
        passed = {
            name: self._argument(name, value, given.get(name)) for name, value in arrays.items()
        }
        loss, seed = self._loss(adjoints)
        requested: Any = self.function if numbers else False
        with Tape(loss, clear_gradients=False, seed=seed, argument_gradients=requested) as tape:
            returned = self.function(*passed.values())
            _clear_gradients_between(tape, passed)
        found = {name: self.library.gradient(passed[name]) for name in wanted if name in given}
        if numbers:
            (by_number,) = tape.argument_gradients(self.function)
            found |= {name: by_number[name] for name in numbers}
        return self._results(arrays, passed, returned), found

    def pushforward(
        self, bound: Mapping[str, Any], tangents: Mapping[str, Any]
    ) -> tuple[list[Any], list[Any]]:
        """Propagate tangents of arguments: the Jacobian-vector product.

        Args:
            bound: the arguments.
            tangents: by name, for some of the array arguments.

        Returns:
            The results, and their tangents; None for a result of integers.

        Raises:
            OctantsTypeError: for the tangent of a number, or of a number that a kernel returns.
        """
        for name in tangents:
            if not self.is_array(name, bound[name]):
                raise NoDerivativeByArgument(self.name, name).at(None)
        if self.returns():
            raise WrongOutput(self.name, "return", "has no tangent: use `out`").at(None)
        arrays = self._with_outputs(bound)
        floats = [name for name in self.outputs if self.is_float(name, arrays)]
        passed = {
            name: self._argument(name, value, has_tangent=name in floats or name in tangents)
            for name, value in arrays.items()
        }
        parameters = [passed[name] for name in tangents]
        seeds = [self.library.numbers(each) for each in tangents.values()]
        with FwdMode([passed[each] for each in floats], parameters, seeds):
            returned = self.function(*passed.values())
        found = [
            self.library.tangent(passed[name], arrays[name]) if name in floats else None
            for name in self.outputs
        ]
        return self._results(arrays, passed, returned), found

    def _with_outputs(self, bound: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, with copies of those that are updated, and outputs of zeros."""
        library = self.library
        given = [value for name, value in bound.items() if self.is_array(name, value)]
        found = dict(bound)
        for name, what in zip(self.outputs, self.output_shapes(bound), strict=False):
            made = library.copy(bound[name]) if name in self.inout else library.zeros(what, given)
            found[name] = made
        return {name: found[name] for name in self.parameters}

    def _argument(
        self, name: str, value: Any, adjoint: Any = None, has_tangent: bool = False
    ) -> Any:
        if not self.is_array(name, value):
            return value
        annotation = self.annotation(name)
        dim = annotation.element_dim if isinstance(annotation, NdarrayAnnotation) else None
        if not self.is_float(name, {name: value}):
            adjoint = None
        return self.library.argument(value, dim or 0, adjoint, has_tangent)

    def _results(
        self, arrays: Mapping[str, Any], passed: Mapping[str, Any], returned: Any
    ) -> list[Any]:
        found = [self.library.result(passed[name], arrays[name]) for name in self.outputs]
        return [*found, returned] if self.returns() else found

    def _loss(self, adjoints: Sequence[Any]) -> tuple[Any, float | None]:
        """The loss of the tape, and its adjoint: the number that a kernel returns, if it counts."""
        kinds = self.returns()
        if not kinds or not kinds[0].is_float or adjoints[-1] is None:
            return None, None
        return self.function, float(adjoints[-1])

    def is_float(self, name: str, values: Mapping[str, Any]) -> bool:
        """Whether there is a derivative by an argument, or of an output."""
        annotation = self.annotation(name)
        if self.is_array(name, values[name]):
            return self.library.shaped(values[name]).dtype.kind == "f"
        return isinstance(annotation, ScalarType) and annotation.dtype.is_float

    def _check_number(self, name: str) -> None:
        if not isinstance(self.annotation(name), ScalarType):
            raise NoDerivativeByArgument(self.name, name).at(None)


def _clear_gradients_between(tape: Tape, passed: Mapping[str, Any]) -> None:
    """Clear the gradients of the fields and ndarrays that launches used besides the arguments.

    Values pass through them, so what an earlier call has left there must not.
    """
    own = {id(value) for value in passed.values()}
    for gradient in current.runtime().arrays(Companion.ADJOINT):
        array = gradient.primal
        if gradient.is_allocated and id(array) not in own and array.identity in tape.touched:
            gradient.clear()


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters with their defaults; without the object of a method."""
    if isinstance(function, BoundKernel):
        found = list(inspect.signature(function.kernel.function).parameters.values())[1:]
    else:
        found = list(inspect.signature(getattr(function, "function", function)).parameters.values())
    return {each.name: each.default for each in found}


def _is_extent(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and int(value) >= 0
