"""Describes a kernel as a function of arrays: its arguments, and the shapes of its results."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from octants.ad.array_libraries.array_library_protocol import ArrayLibrary, Shaped
from octants.diagnostics.kernel_as_function_errors import (
    NoDerivativeByArgument,
    WrongArrayCall,
    WrongOutput,
)
from octants.launch.kernel import BoundKernel, Kernel
from octants.runtime.arguments.kernel_signatures import bind_arguments
from octants.types.default_types import resolve
from octants.types.parameter_annotations import NdarrayAnnotation, resolve_annotation
from octants.types.scalars import DType
from octants.types.specialisation_signature import ScalarType

RETURNED = "return"
"""The name of the number that a kernel returns, among the results."""

_FROM_A_LIBRARY = 2
"""The `isbuiltin` of a dtype that a library has added to numpy, as JAX adds bfloat16."""

OutputShape = Any
"""The name of an argument, a shape, (shape, dtype), or a function of the arguments' `Shaped`."""


class ArraySignature:
    """The arguments and results of a kernel, or of a Python function that launches kernels.

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
        self._stated = {} if isinstance(self.kernel, Kernel) else _array_annotations(function)
        if not isinstance(out, Mapping | None):
            raise WrongOutput(self.name, "out", 'is no dictionary, such as `{"y": "x"}`').at()
        self.out = dict(out or {})
        self.inout = (inout,) if isinstance(inout, str) else tuple(inout)
        for name in (*self.out, *self.inout):
            if name not in self.parameters:
                raise WrongOutput(self.name, name, "is no parameter of it").at()
        for name in self.inout:
            if name in self.out:
                raise WrongOutput(self.name, name, "is in `out` and in `inout`").at()
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

    def unknown_input(self, name: str) -> Exception:
        """The error for a name that is not that of an argument."""
        return self._wrong(f"there is no parameter `{name}`")

    def _wrong(self, problem: str) -> Exception:
        return WrongArrayCall(self.name, problem, ", ".join(self.inputs)).at()

    def is_array(self, name: str, value: Any) -> bool:
        """Whether an argument is an array: it comes from the library, and is no number."""
        return self.library.is_array(value) and not isinstance(self.annotation(name), ScalarType)

    def as_number(self, name: str, value: Any) -> Any:
        """An array as the number, vector or matrix that a kernel takes, if it takes one.

        Raises:
            OctantsCallError: it has several elements, and the kernel takes a number.
        """
        if not self.library.is_array(value) or self.is_array(name, value):
            return value
        if self.annotation(name).element_shape:
            return value.tolist()
        if math.prod(value.shape) != 1:
            shape = tuple(value.shape)
            raise self._wrong(f"`{name}` takes a number, not an array of shape {shape}")
        return value.item()

    def annotation(self, name: str) -> Any:
        """The annotation of a parameter; None where a Python function states no array type."""
        if not isinstance(self.kernel, Kernel):
            return self._stated.get(name)
        signature = self.kernel.current_signature()
        return signature.annotations[signature.names.index(name)]

    @property
    def may_compute(self) -> bool:
        """Whether it may compute by its library, which tracks that."""
        return self.library.tracks_computations and not isinstance(self.kernel, Kernel)

    # -- shapes ---------------------------------------------------------------------------------

    @property
    def computes_shapes(self) -> bool:
        """Whether a function of the arguments gives the shape of an output."""
        return any(map(_is_function, self.out.values()))

    def output_shapes(self, bound: Mapping[str, Any]) -> list[Shaped]:
        """The shape and dtype of each result for arguments, which may be `Shaped` themselves."""
        known = {
            name: self._shape_of(name, value)
            for name, value in bound.items()
            if isinstance(value, Shaped) or self.is_array(name, value)
        }
        seen = {**bound, **known}
        found = [
            known[name] if name in self.inout else self._shaped(name, self.out[name], seen, known)
            for name in self.outputs
        ]
        return found + [Shaped((), kind.numpy) for kind in self.returns()]

    def _shape_of(self, name: str, value: Any) -> Shaped:
        with contextlib.suppress(TypeError):  # of numpy, which has no such dtype
            found = value if isinstance(value, Shaped) else self.library.shaped(value)
            if found.dtype.isbuiltin != _FROM_A_LIBRARY:
                return found
        raise self.wrong_dtype(name, value)

    def wrong_dtype(self, name: str, value: Any) -> Exception:
        """The error for an array whose elements no kernel takes."""
        return self._wrong(
            f"`{name}` has dtype {value.dtype}, which has no counterpart in the language: convert"
            " it first, for example to float32"
        )

    def _shaped(
        self, name: str, given: OutputShape, seen: Mapping[str, Any], known: Mapping[str, Shaped]
    ) -> Shaped:
        if isinstance(given, str):
            if given not in known:
                if given in seen:
                    kind = type(seen[given]).__name__
                    problem = f"`{given}` is no array, but of type {kind}: `{name}` has its shape"
                    raise self._wrong(problem)
                raise self._bad(name, f"has the shape of `{given}`, which is no array argument")
            return known[given]
        if _is_function(given):
            return self._shaped(name, given(**seen), seen, known)
        if hasattr(given, "shape") and hasattr(given, "dtype"):
            return Shaped(tuple(given.shape), self.library.dtype(given.dtype))
        shape, dtype = given, None
        if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], (tuple, list)):
            shape, dtype = given
        if hasattr(shape, "__index__"):
            shape = (shape,)
        if not isinstance(shape, (tuple, list)) or not all(_is_extent(n) for n in shape):
            raise self._bad(name, f"cannot have the shape {shape!r}")
        return Shaped(tuple(int(n) for n in shape), self._dtype(name, dtype, known))

    def _dtype(self, name: str, given: Any, known: Mapping[str, Shaped]) -> np.dtype[Any]:
        if isinstance(given, DType):
            return np.dtype(given.numpy)
        if given is not None:
            return self.library.dtype(given)
        annotation = self.annotation(name)
        declared = annotation.dtype if isinstance(annotation, NdarrayAnnotation) else None
        if isinstance(declared, DType):
            return np.dtype(declared.numpy)
        floats = [each.dtype for each in known.values() if each.dtype.kind == "f"]
        return floats[0] if floats else np.dtype(resolve(float).numpy)

    def _bad(self, name: str, problem: str) -> Exception:
        return WrongOutput(self.name, name, problem).at()

    def returns(self) -> list[DType]:
        """The type of the number that the kernel returns, if it returns one.

        Raises:
            OctantsTypeError: it returns something else.
        """
        if not isinstance(self.kernel, Kernel):
            return []
        kinds = self.kernel.current_signature().returns
        for kind in kinds or ():
            if not isinstance(kind, ScalarType) or kind.element_shape or len(kinds or ()) > 1:
                raise WrongOutput(self.name, "return", "is not a number").at()
        return [kind.dtype for kind in kinds or () if isinstance(kind, ScalarType)]

    @property
    def results(self) -> list[str]:
        """The names of the results: of the outputs, and `RETURNED` for a returned number."""
        return [*self.outputs, *[RETURNED] * len(self.returns())]

    def element_dim(self, name: str) -> int:
        """How many of the last axes of an array are those of vectors or matrices."""
        annotation = self.annotation(name)
        dim = annotation.element_dim if isinstance(annotation, NdarrayAnnotation) else None
        return dim or 0

    def is_float(self, name: str, values: Mapping[str, Any]) -> bool:
        """Whether there is a derivative by an argument, or of an output."""
        annotation = self.annotation(name)
        if self.is_array(name, values[name]):
            return self.library.shaped(values[name]).dtype.kind == "f"
        return isinstance(annotation, ScalarType) and annotation.dtype.is_float

    def check_number(self, name: str) -> None:
        """Refuse a derivative by an argument that is no number of a kernel."""
        if not isinstance(self.annotation(name), ScalarType):
            raise NoDerivativeByArgument(self.name, name).at()


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters with their defaults; without the object of a method."""
    if isinstance(function, BoundKernel):
        found = list(inspect.signature(function.kernel.function).parameters.values())[1:]
    else:
        found = list(inspect.signature(getattr(function, "function", function)).parameters.values())
    return {each.name: each.default for each in found}


def _array_annotations(function: Callable[..., Any]) -> dict[str, NdarrayAnnotation]:
    """The annotations of a Python function that state types of arrays."""
    plain = inspect.unwrap(getattr(function, "function", function))
    plain = getattr(plain, "__func__", plain)
    if not isinstance(plain, FunctionType):
        return {}
    stated = {name: resolve_annotation(plain, each) for name, each in plain.__annotations__.items()}
    return {name: each for name, each in stated.items() if isinstance(each, NdarrayAnnotation)}


def _is_function(given: OutputShape) -> bool:
    return callable(given) and not hasattr(given, "shape")


def _is_extent(value: Any) -> bool:
    return hasattr(value, "__index__") and int(value) >= 0
