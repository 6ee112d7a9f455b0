"""The types that type checkers see of functions of numbers, such as `sqrt`.

The functions take vectors and matrices, too; those are `Any` to a type checker. At run time the
decorators return the function as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast, overload


class UnaryFloatFunction(Protocol):
    """A function of a number that returns a float."""

    @overload
    def __call__(self, x: float) -> float: ...
    @overload
    def __call__(self, x: Any) -> Any: ...


class BinaryFloatFunction(Protocol):
    """A function of two numbers that returns a float."""

    @overload
    def __call__(self, y: float, x: float) -> float: ...
    @overload
    def __call__(self, y: Any, x: Any) -> Any: ...


class Extremum(Protocol):
    """A function of several numbers that returns one of them."""

    @overload
    def __call__(self, first: int, *others: int) -> int: ...
    @overload
    def __call__(self, first: float, *others: float) -> float: ...
    @overload
    def __call__(self, first: Any, *others: Any) -> Any: ...


class SameTypeFunction(Protocol):
    """A function of a number that returns a number of its type."""

    @overload
    def __call__(self, x: int) -> int: ...
    @overload
    def __call__(self, x: float) -> float: ...
    @overload
    def __call__(self, x: Any) -> Any: ...


def unary_float(function: Callable[[Any], Any]) -> UnaryFloatFunction:
    """Declare a function to return a float for a number."""
    return cast(UnaryFloatFunction, function)


def binary_float(function: Callable[[Any, Any], Any]) -> BinaryFloatFunction:
    """Declare a function to return a float for two numbers."""
    return cast(BinaryFloatFunction, function)


def extremum(function: Callable[..., Any]) -> Extremum:
    """Declare a function to return one of its operands."""
    return cast(Extremum, function)


def same_type(function: Callable[[Any], Any]) -> SameTypeFunction:
    """Declare a function to return a number of the type of its operand."""
    return cast(SameTypeFunction, function)
