"""Names that programs written for Quadrants use, and that mean something else here, or nothing.

The exceptions are ours under their other names. What is only accepted is marked as such; GPU-only
and sparse features are missing on purpose, so that using them is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants.data.array_base import Tensor
from octants.data.field import Field, ScalarField
from octants.diagnostics.exceptions import (
    OctantsAssertionError,
    OctantsCompilationError,
    OctantsIndexError,
    OctantsNameError,
    OctantsRuntimeError,
    OctantsRuntimeTypeError,
    OctantsSyntaxError,
    OctantsTypeError,
)

QuadrantsAssertionError = OctantsAssertionError
QuadrantsCompilationError = OctantsCompilationError
QuadrantsIndexError = OctantsIndexError
QuadrantsNameError = OctantsNameError
QuadrantsRuntimeError = OctantsRuntimeError
QuadrantsRuntimeTypeError = OctantsRuntimeTypeError
QuadrantsSyntaxError = OctantsSyntaxError
QuadrantsTypeError = OctantsTypeError


def perf_dispatch(**_: Any) -> Callable[[Any], PerfDispatch]:
    """Decorate a function for which a program registers several implementations.

    Octants uses the first one, and ignores the keywords, which choose how Quadrants compares times.
    """
    return PerfDispatch


class PerfDispatch:
    """A function with implementations: the first that fits the arguments is called."""

    def __init__(self, function: Any) -> None:
        self.__doc__ = function.__doc__
        self._implementations: list[tuple[Callable[..., bool] | None, Any]] = []

    def register(self, implementation: Any = None, *, is_compatible: Any = None) -> Any:
        """Decorate an implementation; ``is_compatible(*args)`` says whether it can be used."""

        def add(given: Any) -> Any:
            self._implementations.append((is_compatible, given))
            return given

        return add if implementation is None else add(implementation)

    def __call__(self, *args: Any, **named: Any) -> Any:
        for is_compatible, implementation in self._implementations:
            if is_compatible is None or is_compatible(*args, **named):
                return implementation(*args, **named)
        raise OctantsRuntimeError("no implementation is compatible with the arguments")


__all__ = [
    "Field",
    "QuadrantsAssertionError",
    "QuadrantsCompilationError",
    "QuadrantsIndexError",
    "QuadrantsNameError",
    "QuadrantsRuntimeError",
    "QuadrantsRuntimeTypeError",
    "QuadrantsSyntaxError",
    "QuadrantsTypeError",
    "ScalarField",
    "Tensor",
    "perf_dispatch",
]
