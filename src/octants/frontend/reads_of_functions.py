"""Finds what a Python function reads when a kernel calls it while it is compiled.

The kernel depends on that as on what it reads itself: if a global changes that the function uses,
or a function that it calls is defined again, the next launch compiles the kernel again. The names
in the code tell what may be read: globals, variables of closures, and attributes of the objects
that these stand for, and of those that the attributes hold. Items of containers are compared with
their container; attributes of items are not found.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

from octants.cache.build_inputs import value_now
from octants.cache.digest import is_ours
from octants.lang.library_function_marks import home_of
from octants.types.compile_time_reads import ABSENT, Read
from octants.types.likeness import likeness

LIBRARIES = ("builtins", "functools", "math", "numpy", "operator", "random", "scipy", "torch")
"""Packages whose functions are not inlined."""

_MOST_FUNCTIONS = 64
"""The most functions that are looked through for one call."""
_HOLDING = (types.MemberDescriptorType, staticmethod, classmethod)
"""Descriptors whose attribute is what the object or the class holds."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), list, tuple, dict, set, frozenset)


def is_library(function: types.FunctionType) -> bool:
    """Whether a function is a part of Octants, or of a library that kernels cannot call."""
    return _is_of_library(home_of(function))


def _is_of_library(module: str) -> bool:
    return is_ours(module) or module.partition(".")[0] in LIBRARIES


class ReadsOfCall:
    """The names that a call of a Python function may read, found before the call.

    Those that the call itself changes, such as a dictionary of results that it keeps, are left out.
    """

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._seen: set[tuple[int, int]] = set()
        start = _called(function, args)
        found = [] if start is None else list(self._find(*start))
        self._found = [(read, likeness(read.value)) for read in found]

    def unchanged(self) -> list[Read]:
        """The reads that return what they did before the call."""
        return [
            read
            for read, before in self._found
            if before == value_now(read.kind, read.owner, read.name)
        ]

    def _find(self, function: types.FunctionType, owner: Any) -> Iterator[Read]:
        key = id(function), id(owner)
        if key in self._seen or len(self._seen) >= _MOST_FUNCTIONS or is_library(function):
            return
        self._seen.add(key)
        names = _names_in(function.__code__)
        reads = [*_variables_of(function, names), *_attributes_of(owner, names)]
        objects = {id(owner)}
        while reads:
            read = reads.pop()
            yield read
            value = read.value
            start = _called(value, ())
            if start is not None:
                yield from self._find(*start)
            elif id(value) not in objects:
                objects.add(id(value))
                reads += _attributes_of(value, names)
        for name in names:
            method = _plain_function(inspect.getattr_static(type(owner), name, None))
            if owner is not None and method is not None:
                yield from self._find(method, owner)


def _called(function: Any, args: tuple[Any, ...]) -> tuple[types.FunctionType, Any] | None:
    """The Python function that runs in a call, and the object that it is a method of."""
    owner = None
    if function is operator.getitem:
        function, owner = getattr(type(args[0]), "__getitem__", None), args[0]
    elif isinstance(function, types.MethodType):
        function, owner = function.__func__, function.__self__
    elif isinstance(function, type):
        function = function.__init__  # type: ignore[misc]
    elif isinstance(function, functools.partial):
        return _called(function.func, args)
    elif not isinstance(function, types.FunctionType) and not hasattr(function, "__wrapped__"):
        function, owner = inspect.getattr_static(type(function), "__call__", None), function
    plain = _plain_function(function)
    return None if plain is None else (plain, owner)


def _plain_function(function: Any) -> types.FunctionType | None:
    """The function that decorators, a property or a static method wrap; None if Python has none."""
    if isinstance(function, property):
        function = function.fget
    elif isinstance(function, functools.cached_property):
        function = function.func
    function = getattr(function, "__wrapped__", function)
    return function if isinstance(function, types.FunctionType) else None


@functools.lru_cache(maxsize=512)
def _names_in(code: types.CodeType) -> tuple[str, ...]:
    """The names of globals and attributes in a code, and in the functions written in it."""
    inner = [_names_in(value) for value in code.co_consts if isinstance(value, types.CodeType)]
    return tuple(dict.fromkeys([*code.co_names, *(name for names in inner for name in names)]))


def _variables_of(function: types.FunctionType, names: tuple[str, ...]) -> Iterator[Read]:
    held = function.__globals__
    for name in names:
        if name in held:
            yield Read("global", function, name, held[name])
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield Read("closure", function, name, cell.cell_contents)
        except ValueError:  # it has no value yet
            continue


def _attributes_of(owner: Any, names: tuple[str, ...]) -> list[Read]:
    """The attributes with these names that an object, a class or a module holds."""
    module = owner.__name__ if isinstance(owner, types.ModuleType) else type(owner).__module__
    if isinstance(owner, type):
        module = owner.__module__
    if isinstance(owner, (*_PLAIN, types.FunctionType)) or _is_of_library(str(module)):
        return []
    found = [(name, inspect.getattr_static(owner, name, ABSENT)) for name in names]
    return [
        Read("attribute", owner, name, getattr(owner, name))
        for name, value in found
        if value is not ABSENT and (isinstance(value, _HOLDING) or not hasattr(value, "__get__"))
    ]
