"""Attributes that are computed when they are first read.

`functools.cached_property` of Python 3.10 and 3.11 holds one lock for all objects of a class while
it computes. Two threads that compile kernels would wait for each other for good: one computes an
attribute and waits to compile, the other compiles and waits for that attribute of another object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801  # read like an attribute of the language
    """A method whose result replaces it in the object; threads may compute it twice at a time."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.func = function  # as of `functools.cached_property`
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        values = instance.__dict__
        if self.name not in values:
            values.setdefault(self.name, self.func(instance))
        found: T = values[self.name]
        return found
